//! `firstlight boot`, as a person or a program runs it, with a script in QEMU's
//! place.

use crate::common;
use crate::fake_qemu;

use common::{command, document, schema, told};
use fake_qemu::{FakeQemu, good_image, runs, wait_for};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};

/// Arguments that boot `fake` as the image.
fn arguments<'a>(fake: &'a FakeQemu, paths: &'a mut Vec<String>, more: &[&'a str]) -> Vec<&'a str> {
    paths.push(fake.program().display().to_string());
    paths.push(fake.kernel().display().to_string());
    let mut list = vec!["boot", "--accel", "tcg", "--qemu", &paths[0]];
    if !more.contains(&"--kernel") {
        list.extend(["--image", &*paths[1]]);
    }
    list.extend(more);
    list
}

fn boot(fake: &FakeQemu, more: &[&str]) -> (i32, String, String) {
    told(&arguments(fake, &mut Vec::new(), more))
}

#[test]
fn an_installed_command_builds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("firstlight");
    fs::copy(env!("CARGO_BIN_EXE_firstlight"), &installed).unwrap();
    let fake = FakeQemu::new(&good_image());
    let output = Command::new(&installed)
        .args(["boot", "--accel", "tcg", "--qemu"])
        .arg(fake.program())
        .env_remove("FIRSTLIGHT_SOURCE")
        .env_remove("FIRSTLIGHT_IMAGE")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("no image to boot: looked for"), "{text}");
    assert!(
        text.contains("the source tree in FIRSTLIGHT_SOURCE"),
        "{text}"
    );
}

#[test]
fn a_good_boot_is_a_report_or_a_record() {
    let fake = FakeQemu::new(&good_image());
    let (code, report, stderr) = boot(&fake, &["--memory", "256M", "--nodes", "2"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    for words in [
        "firstlight boot: our image (0.1.0), 256 MiB, 2 nodes, 1 CPU on q35",
        "tcg, QEMU 9.8.7: it was asked for",
        "Memory map",
        "Nodes",
        "Zones",
        "Time line",
        "all memory allocatable",
        "Phases",
        "firmware",
        "Metadata",
        "Put to work",
        "Bench",
        "note: a note",
        "corrected: an entry was corrected",
    ] {
        assert!(report.contains(words), "{words:?} is missing in\n{report}");
    }
    assert!(!report.contains('\u{1b}'), "colour without a terminal");
    assert!(!report.contains("Markers"), "{report}");
    let (_, report, _) = boot(&fake, &["--full"]);
    assert!(report.contains("Markers"), "{report}");

    let record = document(&arguments(&fake, &mut Vec::new(), &["--json"]));
    assert_eq!(record["schema"], "firstlight.run/1");
    assert_eq!(record["kind"], "boot");
    assert_eq!(record["exercise"], Value::Null);
    assert_eq!(record["milestones"]["entry_ns"], 1000);
    assert_eq!(record["host"]["exit_status"], 85);
    assert_eq!(record["machine"]["asked"]["board"], "q35");
}

#[test]
fn the_log_is_shown_while_it_comes() {
    let fake = FakeQemu::new(&good_image());
    let (code, report, stderr) = boot(&fake, &["--log"]);
    assert_eq!(code, 0);
    assert_eq!(stderr, "[    0.000001] hello\n");
    assert!(!report.contains("hello"));
}

/// Every kind of failure has its exit code, on standard error and as a document.
#[test]
fn exit_codes_are_those_documented() {
    let ends = |outcome: &str, code: u32| {
        let body = good_image().replace(r#""outcome":"ok""#, &format!(r#""outcome":"{outcome}""#));
        body.replace("exit 85", &format!("echo the reason >> $log; exit {code}"))
    };
    for (body, code, words) in [
        (ends("machine", 93), 1, "the reason"),
        ("echo 'qemu: no' >&2; exit 1".into(), 3, "qemu: no"),
        (ends("check failed", 87), 4, "the reason"),
        (ends("fault", 89), 6, "processor fault"),
        (ends("panic", 91), 6, "gave up"),
        (ends("ok", 1), 6, "died"),
        ("echo junk > $events; exit 85".into(), 6, "rubbish"),
        ("echo begins > $log; exec sleep 1000".into(), 6, "hangs"),
    ] {
        let fake = FakeQemu::new(&body);
        let (seen, stdout, stderr) = boot(&fake, &["--timeout", "1"]);
        assert_eq!((seen, stdout.as_str()), (code, ""), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
        let program = fake.program().display().to_string();
        assert!(
            stderr.contains(&format!("{program} -machine q35")),
            "{stderr}"
        );

        let (seen, stdout, _) = boot(&fake, &["--timeout", "1", "--json"]);
        let document: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(seen, code);
        assert_eq!(document["schema"], "firstlight.error/1");
        assert_eq!(document["exit_code"], code);
        assert_eq!(document["command"][0], program.as_str());
    }
}

#[test]
fn what_cannot_be_booted_is_refused() {
    let fake = FakeQemu::new(&good_image());
    let missing = fake.file("missing").display().to_string();
    let kernel = fake.kernel().display().to_string();
    for (more, code, words) in [
        (&["--memory", "1.5G"][..], 2, "whole MiB"),
        (&["--memory", "4097K"], 2, "whole MiB"),
        (&["--memory", "1M"], 2, "at least 2M"),
        (&["--memory", "3M", "--nodes", "4"], 2, "1 MiB a node"),
        (&["--memory", "979G"], 2, "40 bits"),
        (&["--nodes", "0"], 2, "1..=128"),
        (&["--cpus", "256"], 2, "1..=255"),
        (&["--machine", "microvm", "--nodes", "2"], 2, "SRAT"),
        (&["--machine", "vax"], 2, "microvm"),
        (&["--arch", "vax"], 2, "riscv64"),
        (
            &["--arch", "aarch64", "--machine", "pc"],
            2,
            "boards of x86_64",
        ),
        (&["--arch", "riscv64", "--memory", "16T"], 2, "44 bits"),
        (
            &["--arch", "aarch64", "--slots", "1", "--max-memory", "8G"],
            2,
            "--machine q35",
        ),
        (
            &[
                "--kernel",
                &kernel,
                "--clock",
                "instructions",
                "--cpus",
                "2",
            ],
            2,
            "--cpus 1",
        ),
        (&["--initrd", &kernel], 2, "--image"),
        (&["--timeout", "0"], 2, "1..="),
        (&["--kernel", &missing], 3, "cannot read the kernel"),
        (
            &["--kernel", &kernel, "--initrd", &missing],
            3,
            "cannot read",
        ),
    ] {
        let (seen, stdout, stderr) = boot(&fake, more);
        assert_eq!((seen, stdout.as_str()), (code, ""), "{more:?}: {stderr}");
        assert!(stderr.contains(words), "{more:?}: {stderr}");
    }
    assert!(!fake.file("arguments").exists(), "QEMU was started");
    let (code, _, stderr) = told(&["boot", "--image", &kernel, "--qemu", &missing]);
    assert_eq!(code, 3);
    assert!(stderr.contains("qemu-system-x86"), "{stderr}");
}

#[test]
fn an_image_that_is_nowhere_is_named() {
    let fake = FakeQemu::new(&good_image());
    let output = command(&["boot", "--qemu", fake.program().to_str().unwrap()])
        .env("FIRSTLIGHT_IMAGE", fake.file("missing"))
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("FIRSTLIGHT_IMAGE"), "{stderr}");
}

/// A boot that goes on until it is stopped, and the processes it consists of.
fn endless(fake: &FakeQemu, json: bool) -> (Child, Vec<u32>) {
    let mut paths = Vec::new();
    let mut list = arguments(fake, &mut paths, &[]);
    list.extend(json.then_some("--json"));
    let child = command(&list)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, fake.processes(2))
}

const ENDLESS: &str = "sleep 1000 &\necho $! >> $here/pids\necho begins > $log\nexec sleep 1000";

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -{name} {}", child.id()))
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
fn a_signal_ends_all_and_is_told() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let fake = FakeQemu::new(ENDLESS);
        let (child, processes) = endless(&fake, true);
        signal(&child, name);
        let Output { status, stdout, .. } = child.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(code));
        let document = schema::document(&stdout);
        assert_eq!(document["exit_code"], code);
        for process in processes {
            wait_for(|| (!runs(process)).then_some(()));
        }
    }
}

#[test]
fn a_firstlight_that_is_killed_leaves_no_qemu_behind() {
    let fake = FakeQemu::new(ENDLESS);
    let (mut child, processes) = endless(&fake, false);
    assert!(runs(processes[0]));
    child.kill().unwrap();
    child.wait().unwrap();
    // The first is what was started as QEMU; the other is its own child, which a real
    // QEMU does not have.
    wait_for(|| (!runs(processes[0])).then_some(()));
    signal_number(processes[1]);
}

/// Ends what the test started.
fn signal_number(process: u32) {
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -KILL {process}"))
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn qemu_is_told_what_was_asked() {
    let fake = FakeQemu::new(&good_image());
    let more = [
        "--memory",
        "1001M",
        "--nodes",
        "3",
        "--cpus",
        "2",
        "--machine",
        "pc",
        "--clock",
        "instructions",
        "--append",
        "selftest x=y",
        "--qemu-arg=-acpitable",
        "--qemu-arg",
        "sig=SRAT",
    ];
    let (code, _, stderr) = boot(&fake, &more);
    assert_eq!(code, 0, "{stderr}");
    let arguments = fs::read_to_string(fake.file("arguments")).unwrap();
    for words in [
        "-machine pc -accel tcg,thread=single -cpu max",
        "-smp 2,sockets=2,cores=1,threads=1",
        "-icount shift=0,sleep=off -rtc base=2026-01-01T00:00:00,clock=vm -seed 1",
        "-m 1001M",
        "memory-backend-ram,id=memory0,size=333M,reserve=off",
        "-numa node,nodeid=0,memdev=memory0,cpus=0 ",
        "-numa node,nodeid=1,memdev=memory1,cpus=1 ",
        "id=memory2,size=335M,reserve=off -numa node,nodeid=2,memdev=memory2 ",
        "-display none -monitor none -nodefaults -no-user-config -no-reboot",
        "-append tsc_hz=1000000000 selftest x=y",
    ] {
        assert!(
            arguments.contains(words),
            "{words:?} is missing in {arguments}"
        );
    }
    assert!(
        arguments.trim_end().ends_with("-acpitable sig=SRAT"),
        "{arguments}"
    );
}

/// Numbers that are too large are shown as they are, or as the largest there is.
#[test]
fn huge_numbers_of_a_guest_do_no_harm() {
    let largest = u64::MAX;
    let body = format!(
        r#"cat > $events <<'X'
{{"event":"clock","hz":1,"source":"x"}}
{{"event":"milestone","name":"entry","ticks":{largest}}}
{{"event":"bench","contestant":"firstlight","workload":"p","order":255,"threads":{largest},"operations":0,"ticks":18000000000}}
{{"event":"memory","present_frames":{largest},"managed_frames":{largest},"reserved_frames":{largest},"metadata_written_bytes":{largest},"metadata_reserved_bytes":{largest}}}
{{"event":"machine","memory_bytes":{largest},"nodes":{largest},"cpus":1,"cpus_started":{largest}}}
{{"event":"end","outcome":"ok"}}
X
exit 85"#
    );
    let (code, _, stderr) = boot(&FakeQemu::new(&body), &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    // A log that names the same memory over and over.
    let body = r#"{
    echo '[    0.000000] Early memory node ranges'
    for row in 1 2 3 4 5 6 7 8; do
        echo '[    0.000000]   node   0: [mem 0x0000000000000000-0x000fffffffffffff]'
        echo '[    0.000000]   node   1: [mem 0x0000000000000000-0x000fffffffffffff]'
    done
    echo '[    0.500] Kernel panic - not syncing: VFS: Unable to mount root fs'
} > $log"#;
    let fake = FakeQemu::new(body);
    let kernel = fake.kernel().display().to_string();
    let (code, _, stderr) = boot(&fake, &["--kernel", &kernel]);
    assert_eq!((code, stderr.as_str()), (0, ""));
}
