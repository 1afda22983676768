//! `firstlight-qemu-system-...` beside a stand-in daemon and a stand-in QEMU: what libvirt
//! sends it, and what QEMU then gets.

use crate::stand_in;

use firstlight_pool::protocol::{Label, PageSize};
use stand_in::StandIn;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder with the emulator and a QEMU that prints its arguments, a line each.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let emulator = folder.path().join("firstlight-qemu-system-none");
    symlink(env!("CARGO_BIN_EXE_firstlight-pool"), emulator).unwrap();
    folder
}

fn with_qemu() -> tempfile::TempDir {
    let folder = folder();
    let qemu = folder.path().join("qemu-system-none");
    fs::write(&qemu, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Exit code, QEMU's arguments, standard error.
fn start(folder: &Path, socket: &Path, arguments: &[&str]) -> (i32, Vec<String>, String) {
    let output = Command::new(folder.join("firstlight-qemu-system-none"))
        .args(arguments)
        .env("FIRSTLIGHT_POOL", socket)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let lines = text(output.stdout).lines().map(String::from).collect();
    (output.status.code().unwrap(), lines, text(output.stderr))
}

#[test]
fn questions_pass_through_untouched() {
    let folder = with_qemu();
    // Asked for memory, it would have some.
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    for line in [
        "-version",
        "-machine none -m 1G",
        "-S -no-user-config -nodefaults -nographic -machine none,accel=kvm:tcg -daemonize",
        "-device virtio-net-pci,help",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (code, lines, stderr) = start(folder.path(), &daemon.socket(), &words);
        assert_eq!(
            (code, lines),
            (7, words.iter().map(|word| (*word).into()).collect())
        );
        assert_eq!(stderr, "", "{line}");
    }
    assert_eq!(daemon.allocated().len(), 0);
}

#[test]
fn a_folder_of_huge_pages_gives_way_to_the_pools_file() {
    let folder = with_qemu();
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let pages = folder.path().display();
    let object = format!(
        r#"{{"qom-type":"memory-backend-file","id":"pc.ram","mem-path":"{pages}","x-use-canonical-path-for-ramblock-id":false,"prealloc":true,"size":2097152}}"#
    );
    let arguments = [
        "-machine",
        "q35,memory-backend=pc.ram",
        "-m",
        "2",
        "-object",
        &object,
        "-name",
        "guest=demo,debug-threads=on",
    ];
    let (code, lines, stderr) = start(folder.path(), &daemon.socket(), &arguments);
    assert_eq!(code, 7, "{stderr}");
    assert_eq!(lines[..4], arguments[..4]);
    let now: serde_json::Value = serde_json::from_str(&lines[5]).unwrap();
    let path = now["mem-path"].as_str().unwrap();
    assert!(path.starts_with("/proc/self/fd/"), "{path}");
    assert_eq!(now["x-use-canonical-path-for-ramblock-id"], false);
    assert!(stderr.contains("2 MiB from the pool"), "{stderr}");
    let take = daemon.allocated().remove(0).take;
    assert_eq!(
        (take.bytes, take.label),
        (2 << 20, Some(Label::new("demo")))
    );
}

#[test]
fn shared_memory_files_are_served_as_the_command_line_stands() {
    let folder = with_qemu();
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let shared = r#"{"qom-type":"memory-backend-memfd","id":"pc.ram","share":true,"size":2097152}"#;
    let arguments = [
        "-machine",
        "q35,memory-backend=pc.ram",
        "-m",
        "2",
        "-object",
        shared,
    ];
    let (code, lines, stderr) = start(folder.path(), &daemon.socket(), &arguments);
    assert_eq!(
        (code, lines.as_slice()),
        (7, arguments.map(String::from).as_slice())
    );
    assert!(stderr.contains("2 MiB from the pool"), "{stderr}");
}

#[test]
fn what_is_not_understood_is_qemus_own_with_a_reason() {
    let folder = with_qemu();
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let named = "memory-backend-file,id=m,size=2M,share=on,mem-path=/nowhere/named";
    for (arguments, reason) in [
        (vec!["-m", "many"], "-m many: "),
        (vec!["-S"], "how much memory?"),
        (
            vec![
                "-m",
                "2",
                "-machine",
                "q35,memory-backend=m",
                "-object",
                named,
            ],
            "memory backend m: its file /nowhere/named is for others to read",
        ),
    ] {
        let (code, lines, stderr) = start(folder.path(), &daemon.socket(), &arguments);
        assert_eq!(
            (code, lines),
            (7, arguments.iter().map(|word| (*word).into()).collect())
        );
        assert!(
            stderr.starts_with(&format!("firstlight: {reason}")),
            "{stderr}"
        );
        assert!(
            stderr.ends_with(
                "; starting the ordinary way, on the kernel's memory: huge pages only where the \
                 command line has them (`require = true` in client.toml fails instead)\n"
            ),
            "{stderr}"
        );
    }
    assert_eq!(daemon.allocated().len(), 0);
}

#[test]
fn without_a_qemu_beside_it_the_emulator_says_so() {
    let folder = folder();
    let (code, _, stderr) = start(folder.path(), Path::new("/nowhere"), &["-m", "2"]);
    assert_eq!(code, 5);
    let expected = format!(
        "cannot start {}/qemu-system-none: no such program",
        folder.path().display()
    );
    assert!(stderr.contains(&expected), "{stderr}");
}

#[test]
fn without_a_qemu_beside_it_that_of_path_is_started_on_the_pool() {
    let (folder, elsewhere) = (folder(), with_qemu());
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let path = format!("{}:/usr/bin:/bin", elsewhere.path().display());
    let output = Command::new(folder.path().join("firstlight-qemu-system-none"))
        .args(["-m", "2"])
        .env("FIRSTLIGHT_POOL", daemon.socket())
        .env("PATH", path)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    let qemu = elsewhere.path().join("qemu-system-none");
    let said = format!("starting {}, which PATH has\n", qemu.display());
    assert!(stderr.contains(&said), "{stderr}");
    assert!(stderr.contains("2 MiB from the pool"), "{stderr}");
    assert!(stdout.contains("/proc/self/fd/"), "{stdout}");
}

/// As where QEMU was replaced by a script that starts the wrapper, which then starts that.
#[test]
fn an_emulator_that_would_start_itself_says_so() {
    let daemon = StandIn::new(PageSize::Transparent, 9, 0);
    for line in ["-m 2", "-version"] {
        for is_script in [true, false] {
            let folder = folder();
            let [emulator, qemu] = ["firstlight-qemu-system-none", "qemu-system-none"]
                .map(|name| folder.path().join(name));
            if is_script {
                let script = format!("#!/bin/sh\nexec {} \"$@\"\n", emulator.display());
                fs::write(&qemu, script).unwrap();
                fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
            } else {
                symlink(env!("CARGO_BIN_EXE_firstlight-pool"), &qemu).unwrap();
            }
            let words: Vec<&str> = line.split(' ').collect();
            let (code, _, stderr) = start(folder.path(), &daemon.socket(), &words);
            assert_eq!(code, 5, "{stderr}");
            let qemu = qemu.display();
            let said = format!("{qemu} is no QEMU but starts this program again");
            assert!(stderr.contains(&said), "{stderr}");
        }
    }
    assert!(daemon.allocated().len() <= 1, "it is no loop");
}
