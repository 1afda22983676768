//! `firstlight watch`: recorded boots played on a pty, over TCP and through pipes.

use crate::common;

use common::{command, document, schema, testdata, told};
use firstlight_lab::console::{Boot, Line, Splitter, record};
use firstlight_lab::log;
use firstlight_lab::matrix::Store;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// A boot with an early console, as it was recorded; its first two lines are the recorder's.
fn recorded() -> Vec<u8> {
    let log = fs::read(testdata("golden/logs/N_6.12_1G_n1.log")).unwrap();
    let lines = log.split_inclusive(|byte| *byte == b'\n').skip(2);
    lines.flatten().copied().collect()
}

/// A short boot: firmware, a kernel, its first program; `end` is its last line.
fn boot(release: &str, end: &str) -> String {
    format!(
        "BIOS 1.0\r\n[    0.000000] Linux version {release}\r\n\
         [    0.000000] printk: legacy bootconsole [earlyser0] enabled\r\n\
         [    0.500000] smp: Bringing up secondary CPUs ...\r\n\
         [    0.900000] Run /init as init process\r\n{end}\r\n"
    )
}

const GOODBYE: &str = "[    1.000000] reboot: Restarting system";

/// Starts `watch` with further arguments on `console`.
fn start(console: &str, folder: &Path, arguments: &[&str]) -> Child {
    let folder = folder.to_str().unwrap();
    let mut all = vec!["watch", console, "-o", folder, "--json"];
    all.extend(arguments);
    command(&all)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Exit code, document and message of a `watch` that has ended.
fn ended(child: Child) -> (i32, Value, String) {
    let output: Output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let document = schema::document(&output.stdout);
    (output.status.code().unwrap(), document, stderr)
}

/// What `watch` makes of `bytes` on standard input.
fn piped(bytes: &[u8], folder: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let mut child = start("-", folder, arguments);
    let mut input = child.stdin.take().unwrap();
    // It may end before it has read all.
    let _ = input.write_all(bytes);
    drop(input);
    ended(child)
}

fn kept(folder: &Path, name: &str) -> Value {
    schema::document(&fs::read(folder.join(name)).unwrap())
}

/// A pty: its master, and the name of the tty, which is kept open meanwhile.
fn pty() -> (File, String, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let tty = rustix::fs::open(
        &*name,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    (master.into(), name, tty.into())
}

/// Waits until the tty is raw, so that it echoes nothing.
fn wait_for_raw(tty: impl AsFd) {
    while tcgetattr(&tty)
        .unwrap()
        .local_modes
        .contains(LocalModes::ECHO)
    {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until all that was written is read.
fn wait_for_reader(tty: impl AsFd) {
    while rustix::io::ioctl_fionread(&tty).unwrap() > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn boots_on_a_tty_become_records_by_the_hosts_clock() {
    let folder = tempfile::tempdir().unwrap();
    let (mut master, name, tty) = pty();
    let child = start(&name, folder.path(), &["--runs", "2"]);
    wait_for_raw(&tty);
    let log = recorded();
    let at = log
        .windows(12)
        .position(|text| text == b"Zone ranges:")
        .unwrap();
    // Longer than the least below by what a busy host may be late.
    let pause = Duration::from_millis(800);
    for _ in 0..2 {
        master.write_all(&log[..at]).unwrap();
        wait_for_reader(&tty);
        thread::sleep(pause);
        master.write_all(&log[at..]).unwrap();
        thread::sleep(pause);
    }
    let (code, document, stderr) = ended(child);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(document["schema"], "firstlight.watch/1");
    assert_eq!(document["ended"]["how"], "runs");
    // The tty has its own settings again.
    assert!(
        tcgetattr(&tty)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    );
    let boots = document["boots"].as_array().unwrap();
    assert_eq!(boots.len(), 2);
    for (number, boot) in boots.iter().enumerate() {
        assert_eq!(boot["release"], "6.12.117+deb12-cloud-amd64");
        assert!(boot["total_ns"].as_u64() >= Some(200_000_000), "{boot}");
        let record = kept(folder.path(), &format!("boot-{:04}.json", number + 1));
        assert_eq!(record["schema"], "firstlight.run/1");
        assert_eq!(record["time_base"]["from"], "host-clock");
        assert_eq!(record["host"]["console"], name);
        assert_eq!(record["host"]["accelerator"], "real machine");
        assert_eq!(record["machine"]["nodes"], 1);
        let gap = &record["gaps"][0];
        assert!(gap["ns"].as_u64() >= Some(200_000_000), "{gap}");
        let lines = record["log"].as_array().unwrap();
        assert_eq!(
            lines.len(),
            record["host"]["lines_ns"].as_array().unwrap().len()
        );
        let first = |phase: &Value| phase["name"] == "firmware and loader";
        let has_firmware = record["phases"].as_array().unwrap().iter().any(first);
        // Of the first boot it is not known when the machine was switched on.
        assert_eq!(has_firmware, number == 1, "{}", record["phases"]);
        let text = fs::read(folder.path().join(format!("boot-{:04}.log", number + 1))).unwrap();
        assert!(!text.contains(&b'\r') && text.len() * 10 > log.len() * 9);
    }
}

#[test]
fn a_tty_that_vanishes_leaves_what_was_heard() {
    let folder = tempfile::tempdir().unwrap();
    let (mut master, name, tty) = pty();
    let child = start(&name, folder.path(), &[]);
    wait_for_raw(&tty);
    drop(tty);
    let log = recorded();
    master.write_all(&log[..log.len() / 2]).unwrap();
    thread::sleep(Duration::from_millis(200));
    drop(master);
    let (code, document, stderr) = ended(child);
    assert!(code == 3 && stderr.contains("is gone"), "{code}, {stderr}");
    assert_eq!(document["ended"]["how"], "vanished");
    let record = kept(folder.path(), "boot-0001.json");
    let notes = record["notes"].to_string();
    assert!(notes.contains("cut: the console is gone"), "{notes}");
}

#[test]
fn a_console_server_is_heard_until_it_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let console = format!("tcp:{}", server.local_addr().unwrap());
    let play = |arguments: &[&str]| {
        let child = start(&console, folder.path(), arguments);
        let (mut client, _) = server.accept().unwrap();
        client.write_all(boot("6.1", GOODBYE).as_bytes()).unwrap();
        client.write_all(boot("6.2", "login: ").as_bytes()).unwrap();
        drop(client);
        ended(child)
    };
    let (code, document, _) = play(&["--runs", "1"]);
    assert_eq!((code, &document["boots"][0]["release"]), (0, &"6.1".into()));
    let (code, document, stderr) = play(&["--until", "login:"]);
    assert!(code == 3 && stderr.contains("hung up"), "{stderr}");
    // Numbers go on.
    let names = document["boots"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|boot| boot["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["boot-0002", "boot-0003"]);
    drop(server);
    let (code, _, stderr) = told(&["watch", &console, "-o", folder.path().to_str().unwrap()]);
    assert!(
        code == 3 && stderr.contains("cannot listen to tcp:"),
        "{stderr}"
    );
}

#[test]
fn a_pipe_ends_well_and_boots_that_fail_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let panic = "[    1.000000] Kernel panic - not syncing: no memory\r\n\
                 [    1.000000] ---[ end Kernel panic - not syncing: no memory ]---";
    let text = "[  900.000000] of a boot before\n".to_owned()
        + &boot("6.1", GOODBYE)
        + &boot("6.2", panic)
        + &boot("6.3", "");
    let (code, document, stderr) = piped(text.as_bytes(), folder.path(), &[]);
    assert!(
        code == 6 && stderr.contains("failed: 1 of 3 boots"),
        "{stderr}"
    );
    assert_eq!(document["passed_over_lines"], 1);
    assert_eq!(document["ended"]["how"], "closed");
    let failed = kept(folder.path(), "boot-0002.failed");
    assert_eq!(failed["schema"], "firstlight.failed/1");
    assert!(failed["message"].as_str().unwrap().contains("no memory"));
    let notes = document["boots"][2]["notes"].to_string();
    assert!(notes.contains("cut: the pipe was closed"), "{notes}");
    // A verdict does not pass over it.
    let (code, page, _) = told(&[
        "gate",
        folder.path().to_str().unwrap(),
        folder.path().to_str().unwrap(),
    ]);
    assert!(code == 11 && page.contains("failed"), "{page}");
    let none = tempfile::tempdir().unwrap();
    for (text, arguments) in [
        ("no kernel\n", &[][..]),
        (&boot("6.1", GOODBYE), &["--runs", "2"]),
    ] {
        let (code, _, stderr) = piped(text.as_bytes(), none.path(), arguments);
        assert!(code == 3 && stderr.contains("ended; heard:"), "{stderr}");
    }
}

#[test]
fn a_named_pipe_may_wait_for_its_writer_and_the_machine_is_power_cycled_between_boots() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("console");
    let status = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let path = pipe.to_str().unwrap();
    let text = boot("6.1", "login: ");
    let runs = folder.path().join("runs");
    let cycled = folder.path().join("cycled");
    let cycle = format!("echo cycled >> {}", cycled.display());
    let arguments = ["--runs", "2", "--until", "login:", "--power-cycle", &cycle];
    let child = start(path, &runs, &arguments);
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    writer.write_all(text.as_bytes()).unwrap();
    while !cycled.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let at = text.find("[    0.500000]").unwrap();
    for part in [&text[..at], &text[at..]] {
        thread::sleep(Duration::from_millis(200));
        writer.write_all(part.as_bytes()).unwrap();
    }
    let (code, document, stderr) = ended(child);
    drop(writer);
    assert_eq!(
        (code, &document["ended"]["how"]),
        (0, &"runs".into()),
        "{stderr}"
    );
    assert_eq!(fs::read_to_string(cycled).unwrap(), "cycled\n");
    let record = kept(&runs, "boot-0002.json");
    let firmware = &record["phases"][0];
    // From the end of the command to the kernel's entry.
    assert_eq!(firmware["name"], "firmware and loader");
    assert_eq!(firmware["start_ns"], 0);
    assert!(record["milestones"]["entry_ns"].as_u64() > Some(0));
}

#[test]
fn a_power_cycle_that_fails_has_an_exit_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--runs",
        "2",
        "--power-cycle",
        "echo no such node >&2; exit 7",
    ];
    let mut child = start("-", folder.path(), &arguments);
    let mut input = child.stdin.take().unwrap();
    input.write_all(boot("6.1", GOODBYE).as_bytes()).unwrap();
    // The console stays open.
    let (code, document, stderr) = ended(child);
    drop(input);
    assert_eq!((code, &document["ended"]["code"]), (13, &7.into()));
    assert!(
        stderr.contains("exit code 7") && stderr.contains("no such node"),
        "{stderr}"
    );
    assert!(folder.path().join("boot-0001.json").exists());
    // Without a byte after it the machine is dead.
    let mut child = start(
        "-",
        folder.path(),
        &["--runs", "2", "--silence", "1", "--power-cycle", "true"],
    );
    let mut input = child.stdin.take().unwrap();
    input.write_all(boot("6.1", GOODBYE).as_bytes()).unwrap();
    let (code, _, stderr) = ended(child);
    drop(input);
    assert!(code == 6 && stderr.contains("no boot began"), "{stderr}");
    // Nor is it alive for the last words of the kernel that ran before.
    let cycled = folder.path().join("cycled");
    let cycle = format!("touch {}", cycled.display());
    let arguments = ["--runs", "2", "--silence", "1", "--power-cycle", &cycle];
    let mut child = start("-", folder.path(), &arguments);
    let mut input = child.stdin.take().unwrap();
    input.write_all(boot("6.1", GOODBYE).as_bytes()).unwrap();
    while !cycled.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    input
        .write_all(b"[   99.100000] sd 0:0:0:0: [sda] Stopping disk\n\r\n")
        .unwrap();
    let (code, _, stderr) = ended(child);
    drop(input);
    assert!(code == 6 && stderr.contains("no boot began"), "{stderr}");
    let (code, _, stderr) = told(&["watch", "-", "--power-cycle", "true"]);
    assert!(code == 2 && stderr.contains("--runs"), "{stderr}");
}

#[test]
fn what_a_broken_line_sends_is_bounded_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!(
        "ulimit -v 1000000; exec {} watch - --json -o {}",
        env!("CARGO_BIN_EXE_firstlight"),
        folder.path().display()
    );
    let mut child = Command::new("sh")
        .args(["-c", &words])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(b"\0\0\xff\xfe\n[    0.000000] Linux version 6.1\n")
        .unwrap();
    for _ in 0..100 {
        input.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    input.write_all(b"\n[    0.2\0\xff").unwrap();
    let flood = format!("[    0.300000] flood {}\n", "y".repeat(200)).repeat(1_000);
    for _ in 0..100 {
        input.write_all(flood.as_bytes()).unwrap();
    }
    input.write_all(format!("{GOODBYE}\n").as_bytes()).unwrap();
    drop(input);
    let (code, document, stderr) = ended(child);
    assert_eq!(code, 0, "{stderr}");
    let notes = document["boots"][0]["notes"].to_string();
    for part in [
        "longer than 8192 bytes",
        "lines too many",
        "bytes that are zero",
    ] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
    let path = folder.path().join("boot-0001.json");
    assert!(fs::metadata(path).unwrap().len() < 64 << 20);
}

/// A boot heard of a machine that takes `slower` times as long from `Zone ranges:` on.
fn heard(slower: f64, number: u32) -> Boot {
    let mut splitter = Splitter::new(Vec::new());
    let text = recorded();
    let mut at = Duration::from_secs(1);
    let mut factor = 1.0;
    let mut before = 0;
    let mut boots = Vec::new();
    for bytes in text.split(|byte| *byte == b'\n') {
        let stamps = log::lines(bytes);
        let ns = stamps
            .first()
            .and_then(|line| line.stamp_ns)
            .unwrap_or(before);
        let passed = Duration::from_nanos(ns.saturating_sub(before));
        before = before.max(ns);
        if bytes.windows(4).any(|text| text == b"SLUB") {
            factor = slower;
        }
        // A little noise, the same every time.
        at += passed.mul_f64(factor) + Duration::from_micros(20 + u64::from(number * 7 % 5));
        let bytes = bytes.trim_ascii_end().to_vec();
        boots.extend(splitter.push(Line {
            at,
            bytes,
            left_out: 0,
        }));
    }
    assert_eq!(boots.len(), 1);
    boots.remove(0)
}

#[test]
fn all_that_takes_records_takes_those_of_real_machines() {
    let folder = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for (name, slower) in [("a", 1.0), ("b", 1.5)] {
        let path = folder.path().join(name);
        let store = Store::open(&path).unwrap();
        for number in 1..=20 {
            let record = record(&heard(slower, number), "/dev/ttyS0").unwrap();
            store.keep_alone("boot", number as usize, &record).unwrap();
        }
        folders.push(path.to_str().unwrap().to_owned());
    }
    let [a, b] = [&*folders[0], &*folders[1]];
    let (code, page, stderr) = told(&["gate", a, b]);
    assert!(code == 7 && page.contains("regressed"), "{page}{stderr}");
    assert_eq!(told(&["gate", a, a]).0, 0);
    let comparison = document(&[
        "compare",
        &format!("{a}/boot-0001.json"),
        &format!("{b}/boot-0001.json"),
        "--json",
    ]);
    assert_eq!(comparison["sides"][0]["accelerator"], "real machine");
    let total = &comparison["rows"][0];
    assert_eq!(total["kind"], "total");
    assert!(total["ratio"].as_f64() > Some(1.3), "{total}");
    let (code, table, _) = told(&["report", a, "--format", "table"]);
    assert!(code == 0 && table.contains("6.12.117"), "{table}");
    let doctor = document(&["doctor", a, "--json"]);
    assert_eq!(doctor["logs"].as_array().unwrap().len(), 20);
    assert_eq!(told(&["history", a]).0, 0);
    // One that was cut does not count as a boot that was short.
    let cut = folder.path().join("cut");
    fs::create_dir(&cut).unwrap();
    for entry in fs::read_dir(a).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        if name == "boot-0003.json" {
            text = text
                .replace("Run /init", "Nun /init")
                .replace("Freeing unused kernel", "x");
        }
        fs::write(cut.join(name), text).unwrap();
    }
    let (code, page, _) = told(&["gate", a, cut.to_str().unwrap()]);
    assert!(
        code == 11 && page.contains("before the kernel hands over"),
        "{page}"
    );
}
