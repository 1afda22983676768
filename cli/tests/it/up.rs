//! `firstlight up`, as a person or a program runs it.

use crate::common;

use common::{command, document, files, run, testdata, told};
use serde_json::Value;
use std::process::Stdio;

fn number(value: &Value, pointer: &str) -> u64 {
    value
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number at {pointer}"))
}

/// What has to hold of every run, whatever the machine.
fn check(record: &Value) {
    assert_eq!(record["schema"], "firstlight.run/1");
    assert_eq!(record["kind"], "up");
    assert_eq!(record["clock"], "wall");
    let stamps = [
        "/milestones/layout_ns",
        "/milestones/first_frame_ns",
        "/milestones/all_allocatable_ns",
    ];
    let stamps = stamps.map(|pointer| number(record, pointer));
    assert!(stamps.is_sorted() && stamps[0] > 0, "{stamps:?}");
    let phases = record["phases"].as_array().unwrap();
    let mut end = 0;
    for phase in phases {
        assert!(phase["name"].is_string());
        assert_eq!(number(phase, "/start_ns"), end);
        end = number(phase, "/end_ns");
    }
    assert_eq!(end, stamps[2]);
    let frames = |name: &str| number(record, &format!("/memory/{name}"));
    assert_eq!(
        frames("present_frames"),
        frames("managed_frames") + frames("reserved_frames")
    );
    assert_eq!(
        number(record, "/machine/memory_bytes"),
        frames("present_frames") * 4096
    );
    let resident = frames("metadata_resident_bytes");
    assert!(resident > 0 && resident % 4096 == 0);
    assert!(frames("metadata_written_bytes") > 0);
    assert!(frames("metadata_reserved_bytes") >= frames("metadata_written_bytes"));
    let nodes = record["nodes"].as_array().unwrap();
    assert_eq!(number(record, "/machine/nodes"), nodes.len() as u64);
    let zones = record["zones"].as_array().unwrap();
    let sum = |rows: &[Value]| {
        rows.iter()
            .map(|row| number(row, "/present_frames"))
            .sum::<u64>()
    };
    assert_eq!(sum(nodes), frames("present_frames"));
    assert_eq!(sum(zones), frames("present_frames"));
    assert_eq!(
        number(record, "/exercise/drained_frames"),
        frames("managed_frames")
    );
    assert_eq!(
        number(record, "/exercise/allocations"),
        number(record, "/exercise/frees")
    );
    assert!(number(record, "/exercise/threads") > 0);
}

#[test]
fn this_machine_comes_up() {
    let record = document(&["up", "--json"]);
    check(&record);
    assert_eq!(record["source"]["kind"], "this-machine");
    assert!(number(&record, "/machine/cpus") > 0);
    let (code, report, _) = told(&["up"]);
    assert_eq!(code, 0);
    for heading in [
        "Memory map",
        "Nodes",
        "Zones",
        "Time line",
        "all memory allocatable",
        "Metadata",
        "Put to work",
    ] {
        assert!(
            report.contains(heading),
            "{heading:?} is missing in\n{report}"
        );
    }
    assert!(!report.contains('\u{1b}'), "colour without a terminal");
}

#[test]
fn every_log_comes_up_or_says_why_not() {
    let refusals = [
        (
            "17-",
            "no usable memory: expected some, saw 12 GiB reserved, ",
        ),
        ("23-", "the machine has 4 KiB of usable memory in all"),
        ("30-", "BIOS-e820:"),
        ("35-", "Early memory node ranges"),
        ("37-", "SRAT: Node"),
    ];
    for file in files("machines", ".txt") {
        let path = file.to_str().unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        match refusals.iter().find(|(start, _)| name.starts_with(start)) {
            None => check(&document(&["up", "--json", "--machine", path])),
            Some((_, why)) => {
                let (code, stdout, stderr) = told(&["up", "--machine", path]);
                assert_eq!((code, stdout.as_str()), (1, ""), "{name}");
                let why = why.split(", ").next().unwrap();
                assert!(stderr.contains(why), "{name}: {stderr}");
            }
        }
    }
}

#[test]
fn a_log_without_a_firmware_map_says_what_was_used() {
    for (name, source) in [
        (
            "05-3tb-sparse-hotplug-nodes-25tb-span.txt",
            "memory affinity rows",
        ),
        (
            "11-hyperv-4gb-hotplug-windows-to-4pib.txt",
            "early memory node ranges",
        ),
        (
            "22-memmap-pmem-empty-node1-crash.txt",
            "map changed by the command line",
        ),
    ] {
        let path = testdata("machines").join(name);
        let (code, report, _) = told(&["up", "--machine", path.to_str().unwrap()]);
        assert_eq!(code, 0);
        assert!(
            report.contains(&format!("note: memory map: the {source}")),
            "{report}"
        );
    }
}

#[test]
fn nodes_far_apart_cost_nothing_for_what_lies_between() {
    let path = testdata("machines/05-3tb-sparse-hotplug-nodes-25tb-span.txt");
    let record = document(&["up", "--json", "--machine", path.to_str().unwrap()]);
    assert_eq!(number(&record, "/machine/nodes"), 8);
    // 0.3 bytes a frame of memory, not of span.
    assert!(
        number(&record, "/memory/metadata_reserved_bytes") * 10
            < number(&record, "/memory/present_frames") * 3
    );
}

#[test]
fn raw_tables_describe_a_machine() {
    for (file, nodes, cpus) in [
        ("H8DGU", 4, 24),
        ("PowerEdge_R820", 4, 80),
        ("ProLiant_DL360_G7", 2, 16),
        ("X8DTT", 2, 16),
        ("X99", 1, 20),
    ] {
        let path = testdata("machines/acpi").join(format!("{file}.srat.bin"));
        let record = document(&["up", "--json", "--machine", path.to_str().unwrap()]);
        check(&record);
        let seen = (
            number(&record, "/machine/nodes"),
            number(&record, "/machine/cpus"),
        );
        assert_eq!(seen, (nodes, cpus), "{file}");
    }
    let slit = testdata("machines/acpi/H8DGU.srat.bin");
    let record = document(&["up", "--json", "--machine", slit.to_str().unwrap()]);
    assert_eq!(
        record["nodes"][0]["distances"][1], 16,
        "the SLIT beside it is used"
    );
}

#[test]
fn a_directory_holds_a_log_and_tables_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (code, _, stderr) = told(&["up", "--machine", path]);
    assert_eq!(code, 1);
    assert!(stderr.contains("looked for a kernel log"), "{stderr}");

    let acpi = testdata("machines/acpi");
    std::fs::copy(acpi.join("X8DTT.srat.bin"), folder.path().join("srat.bin")).unwrap();
    std::fs::copy(acpi.join("X8DTT.slit.bin"), folder.path().join("slit.bin")).unwrap();
    let record = document(&["up", "--json", "--machine", path]);
    check(&record);
    assert_eq!(record["source"]["kind"], "directory");
    assert!(
        record["notes"][0]
            .as_str()
            .unwrap()
            .contains("no e820 rows")
    );

    let map = "BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff] usable\n\
               BIOS-e820: [mem 0x0000000000100000-0x00000000bfffffff] usable\n\
               BIOS-e820: [mem 0x0000000100000000-0x0000000c3fffffff] usable\n";
    std::fs::write(folder.path().join("boot.log"), map).unwrap();
    let record = document(&["up", "--json", "--machine", path]);
    check(&record);
    assert_eq!(number(&record, "/machine/nodes"), 2);
    assert_eq!(
        number(&record, "/machine/memory_bytes"),
        (0x9f << 12) + (0xbff << 20) + (45 << 30)
    );

    let (code, _, stderr) = told(&["up", "--machine", acpi.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(stderr.contains("expected one machine"), "{stderr}");
    assert!(stderr.contains("QEMU_virt.srat.bin, ...)"), "{stderr}");
}

#[test]
fn a_log_without_a_map_leaves_it_to_the_tables_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let acpi = testdata("machines/acpi");
    std::fs::copy(acpi.join("X8DTT.srat.bin"), folder.path().join("srat.bin")).unwrap();
    let log = "Command line: quiet mem=16G\nsmp: Brought up 2 nodes, 8 CPUs\n";
    std::fs::write(folder.path().join("boot.log"), log).unwrap();
    let path = folder.path().to_str().unwrap();
    let record = document(&["up", "--json", "--machine", path]);
    check(&record);
    assert_eq!(number(&record, "/machine/nodes"), 2);
    assert_eq!(number(&record, "/machine/cpus"), 8);
    assert_eq!(record["source"]["command_line"], "quiet mem=16G");
    assert!(number(&record, "/machine/memory_bytes") <= 16 << 30);

    // A second log: both are named, and nothing that is not there.
    std::fs::write(folder.path().join("other.log"), log).unwrap();
    let (code, _, stderr) = told(&["up", "--machine", path]);
    assert_eq!(code, 1);
    assert!(stderr.contains("(boot.log, other.log)"), "{stderr}");
}

#[test]
fn faults_of_tables_are_said_and_distances_are_not_worth_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let acpi = testdata("machines/acpi");
    let mut srat = std::fs::read(acpi.join("X8DTT.srat.bin")).unwrap();
    srat[9] ^= 1;
    std::fs::write(folder.path().join("srat.bin"), srat).unwrap();
    let slit = std::fs::read(acpi.join("X8DTT.slit.bin")).unwrap();
    std::fs::write(folder.path().join("slit.bin"), &slit[..slit.len() - 1]).unwrap();
    let record = document(&["up", "--json", "--machine", folder.path().to_str().unwrap()]);
    check(&record);
    let said = record["corrections"].to_string();
    assert!(said.contains("SRAT: bytes add up to 0x01"), "{said}");
    assert!(said.contains("SLIT not used"), "{said}");
    assert_eq!(record["nodes"][0]["distances"][1], 20);
}

#[test]
fn a_log_that_begins_with_an_affinity_row_is_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let log = "SRAT: Node 0 PXM 0 0-80000000\nSRAT: Node 1 PXM 1 100000000-180000000\n";
    let file = folder.path().join("boot.log");
    std::fs::write(&file, log).unwrap();
    for path in [&*file, folder.path()] {
        let record = document(&["up", "--json", "--machine", path.to_str().unwrap()]);
        check(&record);
        assert_eq!(number(&record, "/machine/nodes"), 2);
        assert_eq!(number(&record, "/machine/memory_bytes"), 4 << 30);
    }
}

#[test]
fn distances_of_very_many_nodes_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("boot.log");
    let map = "BIOS-e820: [mem 0x0000000000000000-0x000000003fffffff] usable\n\
               SRAT: Node 0 PXM 0 [mem 0x0-0x3fffffff]\n";
    let log = |last: u32| format!("{map}SRAT: PXM {last} -> APIC 0x0 -> Node {last}\n");
    for (last, told) in [(1023, 1024), (1024, 0)] {
        std::fs::write(&file, log(last)).unwrap();
        let record = document(&["up", "--json", "--machine", file.to_str().unwrap()]);
        check(&record);
        let distances = record["nodes"][0]["distances"].as_array().unwrap();
        assert_eq!(distances.len(), told);
        let said = record["corrections"].to_string();
        assert_eq!(said.contains("distances left out"), told == 0, "{said}");
    }
}

#[test]
fn shapes_come_up_whatever_their_size() {
    for (shape, nodes, cpus) in [
        ("memory=16M", 1, 1),
        ("memory=1G,nodes=3,cpus=7", 3, 7),
        ("memory=64G,nodes=2,cpus=4", 2, 4),
        ("memory=4T,nodes=8,cpus=64", 8, 64),
        ("memory=2T,nodes=64,cpus=1024", 64, 1024),
    ] {
        let record = document(&["up", "--json", "--shape", shape]);
        check(&record);
        assert_eq!(number(&record, "/machine/nodes"), nodes, "{shape}");
        assert_eq!(number(&record, "/machine/cpus"), cpus, "{shape}");
    }
}

#[test]
fn metadata_stays_within_its_bound() {
    for (shape, gib, nodes) in [("memory=64G", 64, 1), ("memory=4T,nodes=8", 4096, 8)] {
        let record = document(&["up", "--json", "--shape", shape]);
        let written = number(&record, "/memory/metadata_written_bytes");
        let ranges = record["regions"].as_array().unwrap().len() as u64;
        assert!(
            written <= 16 * gib + 8192 * (nodes + ranges),
            "{shape}: {written} bytes"
        );
    }
}

#[test]
fn command_line_words_change_the_machine() {
    let record = document(&[
        "up",
        "--json",
        "--shape",
        "memory=8G",
        "--append",
        "mem=4G kernelcore=1G",
    ]);
    check(&record);
    assert!(number(&record, "/machine/memory_bytes") <= 3 << 30);
    let movable = |zone: &&Value| zone["zone"] == "Movable";
    assert!(
        record["zones"]
            .as_array()
            .unwrap()
            .iter()
            .find(movable)
            .is_some()
    );
    let record = document(&[
        "up",
        "--json",
        "--shape",
        "memory=8G",
        "--append",
        "mem=lots",
    ]);
    assert!(record["corrections"].to_string().contains("mem=lots"));
}

#[test]
fn wrong_usage_is_2_and_says_what_was_expected() {
    for (arguments, part) in [
        (
            &["up", "--shape", "memory=4X"][..],
            "example: memory=4T,nodes=8,cpus=64",
        ),
        (
            &["up", "--shape", "memory=4T", "--machine", "x"],
            "cannot be used with",
        ),
        (&["up", "--colour"], "--color"),
        (&["down"], "subcommand"),
        (&["--json"], "Usage"),
    ] {
        let (code, stdout, stderr) = told(arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_file_that_is_not_there_is_3() {
    let (code, stdout, stderr) = told(&["up", "--machine", "/nowhere/boot.log"]);
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("/nowhere/boot.log"));
    let (code, stdout, _) = told(&["up", "--machine", "/nowhere/boot.log", "--json"]);
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 3);
    assert_eq!(error["schema"], "firstlight.error/1");
    assert_eq!(error["exit_code"], 3);
}

#[test]
fn help_documents_exit_codes_and_shows_examples() {
    let (code, help, _) = told(&["--help"]);
    assert_eq!(code, 0);
    assert!(help.contains("Exit codes:"));
    for subcommand in ["up", "layout"] {
        let (code, help, _) = told(&[subcommand, "--help"]);
        assert_eq!(code, 0);
        assert!(help.contains("Examples:"), "{subcommand}");
    }
}

#[test]
fn colour_comes_when_it_is_asked_for() {
    let (_, report, _) = told(&["up", "--shape", "memory=1G", "--color", "always"]);
    assert!(report.contains('\u{1b}'));
    let (_, report, _) = told(&["up", "--shape", "memory=1G", "--color", "never"]);
    assert!(!report.contains('\u{1b}'));
}

#[test]
fn long_lists_are_folded_unless_asked_for() {
    let shape = ["up", "--shape", "memory=4T,nodes=64"];
    let (_, folded, _) = told(&shape);
    assert!(folded.contains("more (--full)"));
    assert!(folded.lines().count() < 80);
    let (_, full, _) = told(&[&shape[..], &["--full"]].concat());
    assert!(!full.contains("more (--full)"));
    assert!(full.lines().count() > 130);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = command(&["up", "--shape", "memory=512G,nodes=128", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closing our end before anything is read makes its writes fail.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn output_that_cannot_be_written_is_3() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = command(&["up", "--shape", "memory=1G"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write standard output"));
}

#[test]
fn hostile_files_are_refused_or_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hostile");
    let path = file.to_str().unwrap();
    let rows = "BIOS-e820: [mem 0x0000000000100000-0x00000000bfffffff] usable\n";
    let cases: [(&[u8], i32); 8] = [
        (b"", 1),
        (b"\0\xff\xfe\n\n\n", 1),
        (b"SRAT", 1),
        (
            b"BIOS-e820: [mem 0xffffffffffffffff-0xffffffffffffffff] usable\n",
            1,
        ),
        (
            b"BIOS-e820: [mem 0x0000000000000000-0xffffffffffffffff] reserved\n",
            1,
        ),
        (
            b"BIOS-e820: [mem 0x123456789012345-0x123456789012344] usable\n",
            1,
        ),
        (
            &[
                rows,
                "ACPI: SRAT: Node 4294967295 PXM 1 [mem 0x0-0xbfffffff]\n",
            ]
            .concat()
            .into_bytes(),
            1,
        ),
        (
            &[rows, "BIOS-e820: [mem 0x0-0xfffffffffffffff] usable\n"]
                .concat()
                .into_bytes(),
            0,
        ),
    ];
    for (content, expected) in cases {
        std::fs::write(&file, content).unwrap();
        let output = run(&["up", "--machine", path]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let quoted = content.escape_ascii();
        assert_eq!(output.status.code(), Some(expected), "{quoted}: {stderr}");
        assert_eq!(
            stderr.starts_with("error: "),
            expected != 0,
            "{quoted}: {stderr}"
        );
    }
}
