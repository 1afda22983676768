//! `firstlight doctor`: its document, its page, and what it refuses.

use crate::common;

use common::{document, files, told};

#[test]
fn a_document_has_every_log_and_every_field() {
    let logs = files("logs", ".log");
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(logs.iter().map(|log| log.to_str().unwrap()));
    let report = document(&arguments);
    assert_eq!(report["schema"], "firstlight.doctor/1");
    let entries = report["logs"].as_array().unwrap();
    assert_eq!(entries.len(), logs.len());
    for (entry, path) in entries.iter().zip(&logs) {
        assert_eq!(entry["file"], path.to_str().unwrap());
        assert_eq!(entry["boots"], 1);
        for finding in entry["findings"].as_array().unwrap() {
            let keys: Vec<&String> = finding.as_object().unwrap().keys().collect();
            let expected = [
                "boot", "cost", "cost_ms", "cure", "evidence", "fixed_in", "id", "line", "why",
            ];
            assert_eq!(keys, expected);
        }
    }
}

#[test]
fn a_page_says_what_it_costs_and_what_to_do() {
    let log = &files("logs", ".log")[1];
    let (code, page, _) = told(&["doctor", log.to_str().unwrap()]);
    assert_eq!(code, 0);
    for part in [
        "deferral-serial",
        "4,765 ms, measured",
        "node 7 initialised",
        "why",
        "cure",
        "Gaps",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let healthy = files("logs", "hashdist.log");
    let (_, page, _) = told(&["doctor", healthy[0].to_str().unwrap()]);
    assert!(page.contains("nothing found"), "{page}");
}

/// A log with a boot for each of these milliseconds, in which descriptors take so long.
fn boots(ms: &[u32]) -> String {
    let boot = |ms: &u32| {
        format!(
            "[    0.000000] Linux version 5.9.0\n[    0.010000] Normal zone: 1 pages, LIFO batch:63\n\
             [    {ms}.000000] ACPI: PM-Timer\n[    9.100000] a\n"
        )
    };
    ms.iter().map(boot).collect()
}

#[test]
fn two_logs_of_unlike_kernels_or_machines_say_so() {
    let log = |name: &str| {
        let root = env!("CARGO_MANIFEST_DIR");
        format!("{root}/../testdata/golden/logs/{name}.log")
    };
    let one = log("A_6.1_4G_n1_c1");
    let (_, page, _) = told(&["doctor", &one, &log("A_6.12_4G_n2_c2")]);
    let unlike = "kernels or machines differ: Linux 6.1.0-55-cloud-amd64 and Linux 6.12.117+deb12-cloud-amd64, \
                  1 node and 2 nodes, 1 CPU and 2 CPUs";
    assert!(page.contains(unlike), "{page}");
    let (_, page, _) = told(&["doctor", &one, &one]);
    assert!(!page.contains("differ:"), "{page}");
}

#[test]
fn two_logs_are_a_verdict_in_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, ms: u32| {
        let text = boots(&[ms]).replace(".000000] ACPI", ".100000] ACPI");
        let end = format!("{}.200000] Run /init as init process", ms + 1);
        let text = text.replace("9.100000] a", &end);
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Half a second of descriptors is no finding; four are.
    let (good, bad) = (write("good.log", 0), write("bad.log", 4));
    let (code, page, _) = told(&["doctor", &good, &bad]);
    assert_eq!(code, 0, "{page}");
    let parts = [
        "B is slower: total",
        "Slower in B",
        "memmap early",
        "Only B",
        "memmap-eager",
    ];
    let places: Vec<usize> = parts
        .iter()
        .map(|part| {
            page.find(part)
                .unwrap_or_else(|| panic!("{part} in {page}"))
        })
        .collect();
    assert!(places.is_sorted(), "{page}");
    assert!(
        !page.contains("Only A") && !page.contains("--runs"),
        "{page}"
    );
    let (code, _, told_instead) = told(&["compare", &good, &bad]);
    assert!(
        code == 2 && told_instead.contains(&format!("firstlight doctor {good} {bad}")),
        "{code}: {told_instead}"
    );
    let (_, page, _) = told(&["doctor", &bad, &good]);
    assert!(
        page.contains("B is faster") && page.contains("Only A"),
        "{page}"
    );
    let report = document(&["doctor", "--json", &good, &bad]);
    assert_eq!(report["beside"]["verdict"], "slower");
    let (code, page, _) = told(&["doctor", &good, "/nowhere.log"]);
    assert!(
        code == 3 && page.contains("cannot stand beside"),
        "{code}: {page}"
    );
}

#[test]
fn initcalls_and_services_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, us: u32| {
        let calls = (0..12).map(|n| {
            format!("[    1.{n:02}0000] initcall call_{n}+0x0/0x10 returned 0 after {n} usecs\n")
        });
        let text = "[    0.500000] Linux version 6.1.0\n".to_owned()
            + &calls.collect::<String>()
            + &format!(
                "[    2.000000] initcall jent_mod_init+0x0/0x2c returned 0 after {us} usecs\n"
            )
            + "[    3.000000] systemd[1]: Starting a.service - A...\n[    4.500000] systemd[1]: Finished a.service - A.\n";
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (fast, slow) = (write("fast.log", 1000), write("slow.log", 6000));
    let (_, page, _) = told(&["doctor", &slow]);
    let calls: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("call_") && line.contains("line "))
        .collect();
    assert!(
        page.contains("Initcalls") && page.contains("jent_mod_init  6.000  line 14"),
        "{page}"
    );
    assert!(page.contains("a.service - A  1,500.000"), "{page}");
    assert!(calls.len() >= 9 && !page.contains("  call_0 "), "{page}");
    let (_, page, _) = told(&["doctor", &fast, &slow]);
    assert!(
        page.contains("initcall  jent_mod_init  1.000  6.000  5.000"),
        "{page}"
    );
    let trace = |format: &str| {
        told(&[
            "report",
            folder.path().to_str().unwrap(),
            "--format",
            format,
        ])
        .1
    };
    assert!(trace("chrome-trace").contains("\"name\":\"jent_mod_init\""));
    assert!(trace("folded").contains("jent_mod_init"));
    // What systemd adds up is a log as well.
    let blame = folder.path().join("blame.txt");
    std::fs::write(&blame, "12.345s foo.service\n  980ms bar.mount\n").unwrap();
    let (code, page, _) = told(&["doctor", blame.to_str().unwrap()]);
    assert!(
        code == 0 && page.contains("foo.service  12,345.000  line 1"),
        "{code}: {page}"
    );
}

#[test]
fn a_finding_names_its_boot_and_full_shows_what_is_folded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.log");
    std::fs::write(&path, boots(&[2, 3])).unwrap();
    let path = path.to_str().unwrap();
    let (code, page, _) = told(&["doctor", path]);
    assert_eq!(code, 0);
    for part in [
        "2 boots, 2 findings",
        "measured, boot 2",
        "Phases",
        "boot 2, from line 5",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let three = folder.path().join("three.log");
    std::fs::write(&three, boots(&[2, 3, 4])).unwrap();
    let three = three.to_str().unwrap();
    let (_, page, _) = told(&["doctor", three]);
    assert!(page.contains("of 2 boots more (--full)"), "{page}");
    let (_, page, _) = told(&["doctor", "--full", three]);
    assert!(
        page.contains("boot 3, from line 9") && !page.contains("--full"),
        "{page}"
    );
    let report = document(&["doctor", "--json", path]);
    assert_eq!(report["logs"][0]["findings"][1]["boot"], 2);
}

#[test]
fn findings_beyond_the_most_that_are_kept_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.log");
    std::fs::write(&path, boots(&[2; 1001])).unwrap();
    let report = document(&["doctor", "--json", path.to_str().unwrap()]);
    let log = &report["logs"][0];
    assert_eq!(log["findings"].as_array().unwrap().len(), 1000);
    assert_eq!(
        (&log["more_findings"], &log["boots"]),
        (&1.into(), &1001.into())
    );
    let (_, page, _) = told(&["doctor", path.to_str().unwrap()]);
    assert!(
        page.contains("1,001 findings") && page.contains("1 finding more"),
        "{page}"
    );
}

#[test]
fn a_folder_is_counted_the_most_expensive_first_and_fails_on_request() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    for (name, text) in [
        ("a.log", boots(&[2])),
        ("inner/b.log", boots(&[4, 3])),
        (
            "c.txt",
            "[    1.000000] Command line: a debug_pagealloc=on\n".to_owned(),
        ),
        ("d.dmesg", "[    1.000000] a\n".to_owned()),
        ("e.toml", "no log".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let (code, page, _) = told(&["doctor", path]);
    assert_eq!(code, 0, "{page}");
    let lines: Vec<&str> = page.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.contains("worst"))
        .unwrap();
    let row = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let worst = row(lines[at + 1]);
    assert_eq!(worst[..4], ["memmap-eager", "3", "2", "3,990"], "{page}");
    assert!(worst[5].ends_with("inner/b.log:3"), "{page}");
    assert!(lines[at + 2].contains("page-debugging"), "{page}");
    assert!(
        page.contains("4 logs, 5 boots") && page.contains("d.dmesg: nothing found"),
        "{page}"
    );
    for (finding, expected) in [
        ("memmap-eager", 12),
        ("any", 12),
        ("tsc-unstable", 0),
        ("x", 2),
    ] {
        let (code, _, stderr) = told(&["doctor", path, "--fail-on", finding]);
        assert_eq!(code, expected, "{finding}: {stderr}");
    }
}

#[test]
fn one_unreadable_file_stops_no_other_and_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.log"), boots(&[2])).unwrap();
    std::fs::write(folder.path().join("b.log"), "nothing\n").unwrap();
    std::fs::write(folder.path().join("c.log.xz"), b"\xfd7zXZ\0 and no more").unwrap();
    let (code, page, stderr) = told(&["doctor", folder.path().to_str().unwrap()]);
    assert_eq!(code, 3);
    assert!(
        page.contains("memmap-eager") && page.contains("2 files could not be read"),
        "{page}"
    );
    assert!(
        stderr.contains("b.log") && stderr.contains("c.log.xz"),
        "{stderr}"
    );
}

#[test]
fn standard_input_is_a_log() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["doctor", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), boots(&[2]).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && page.contains("memmap-eager"),
        "{page}"
    );
}

#[test]
fn what_is_wrong_with_a_log_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let zeros = "[    1.000000] a\0b\n[    2.000000] c\n".to_owned();
    let long = format!("[    1.000000] {}\n", "x".repeat(5000));
    let back = "[    5.000000] a\n[    4.000000] b\n[    5.100000] c\n".to_owned();
    // Two boots, a line of each in turns: seconds apart, but no second passes.
    let mixed = |n: u32| format!("[    1.{n:06}] a\n[    9.{n:06}] b\n");
    let mixed = (1..20).map(mixed).collect::<String>();
    for (name, text, part) in [
        (
            "zeros.log",
            zeros,
            "line 1: bytes that are zero are left out",
        ),
        (
            "long.log",
            long,
            "line 1: 5000 bytes long, the first 4096 were read",
        ),
        ("back.log", back, "line 2: the clock goes back by 1000 ms"),
        (
            "mixed.log",
            mixed,
            "lines of several logs, or not in order; no time between lines is taken",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let (code, page, _) = told(&["doctor", path.to_str().unwrap()]);
        assert_eq!(code, 0, "{page}");
        assert!(page.contains(part), "{part} in {page}");
        assert_eq!(
            page.contains("Gaps"),
            name == "zeros.log" || name == "back.log",
            "{page}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let (code, _, stderr) = told(&["doctor", "/nowhere/at/all.log"]);
    assert_eq!(code, 3);
    assert!(stderr.contains("/nowhere/at/all.log"), "{stderr}");
    let (code, _, _) = told(&["doctor"]);
    assert_eq!(code, 2);
}

#[test]
fn what_holds_no_kernel_line_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let random: Vec<u8> = (0..100_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    for file in [
        "/dev/null".to_owned(),
        write(
            "a.json",
            b"{\"schema\": \"x/1\", \"figures\": [0.5, 1.25]}\n",
        ),
        write("random.log", &random),
        write(
            "prose.txt",
            b"The kernel boots.\nIt took 2 s [see below].\n",
        ),
        write("empty.log", b""),
    ] {
        let (code, _, stderr) = told(&["doctor", &file]);
        assert_eq!(code, 3, "{file}");
        assert!(stderr.contains(&file), "{stderr}");
        let why = match file.ends_with(".json") {
            true => "expected what `firstlight boot --json` prints",
            false => "no kernel line",
        };
        assert!(stderr.contains(why), "{stderr}");
    }
}

#[test]
fn packed_logs_are_read() {
    for ending in [".gz", ".xz", ".zst"] {
        let file = &files("packed", ending)[0];
        let report = document(&["doctor", "--json", file.to_str().unwrap()]);
        let id = &report["logs"][0]["findings"][0]["id"];
        assert_eq!(id, "deferral-serial", "{ending}");
    }
}

#[test]
fn packed_logs_that_are_cut_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for ending in [".gz", ".xz", ".zst"] {
        let packed = std::fs::read(&files("packed", ending)[0]).unwrap();
        let path = folder.path().join("cut.log");
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let (code, _, stderr) = told(&["doctor", path.to_str().unwrap()]);
        assert_eq!(code, 3, "{ending}");
        assert!(stderr.contains("cannot unpack"), "{stderr}");
    }
}
