//! `firstlight pool run` beside a stand-in daemon: what a VMM is given, and
//! what happens where the pool has nothing. No VMM is needed here.

use crate::common;
use crate::common::schema;
use crate::common::stand_in;
use crate::fake_qemu;

use firstlight_pool::protocol::{Label, PageSize};
use stand_in::StandIn;
use std::path::{Path, PathBuf};

/// `pool run` with these arguments.
fn run(socket: &Path, arguments: &[&str]) -> (i32, String, String) {
    let socket = socket.to_str().expect("a plain name");
    let mut all = vec!["pool", "run", "--socket", socket];
    all.extend(arguments);
    common::told(&all)
}

/// A program that is called like QEMU and prints its arguments.
fn false_qemu(folder: &Path) -> PathBuf {
    let path = folder.join("qemu-system-x86_64");
    fake_qemu::executable(&path, "#!/bin/sh\necho \"$@\"\nexit 7\n");
    path
}

#[test]
fn a_vmm_is_given_the_file_and_becomes_the_command() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let script = "stat -L -c %s {memory}; head -c1 {memory} | od -An -tx1; exit 9";
    let arguments = ["--memory", "3M@0", "--topup", "7", "--", "sh", "-c", script];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!((code, stdout.as_str()), (9, "4194304\n 00\n"), "{stderr}");
    assert_eq!(
        stderr,
        "firstlight: 4 MiB of node 0 from the pool: thp pages, lease test-0\n"
    );
    let allocated = daemon.allocated();
    assert_eq!(
        (allocated[0].take.bytes, allocated[0].take.node),
        (3 << 20, Some(0))
    );
    assert_eq!(allocated[0].take.max_topup_ms, 7);
    let label = |word: &str| Some(Label::new(word));
    assert_eq!(allocated[0].take.label, label("sh"), "its program");
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let named = [
        "--memory",
        "2M",
        "--label",
        "web\n1",
        "--",
        "sh",
        "-c",
        "true {memory}",
    ];
    assert_eq!(run(&daemon.socket(), &named).0, 0);
    assert_eq!(daemon.allocated()[0].take.label, label("web?1"));
    assert!(
        allocated[0].ended_within(10),
        "no process has the lease pipe any more"
    );
}

#[test]
fn a_lease_ends_with_the_last_process_that_inherited_it() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; true {memory}";
    let arguments = ["--memory", "2M", "--", "sh", "-c", script];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!(code, 0, "{stderr}");
    let allocated = daemon.allocated();
    assert!(
        !allocated[0].ended_within(0),
        "its child still has the memory"
    );
    let sleeper = stdout.trim();
    let killed = std::process::Command::new("kill").arg(sleeper).status();
    assert!(killed.expect("kill is there").success());
    assert!(allocated[0].ended_within(10), "the child is gone");
}

#[test]
fn without_the_pool_the_start_is_ordinary_and_says_so() {
    let daemon = StandIn::new(PageSize::Transparent, 0, 0);
    let qemu = false_qemu(daemon.folder());
    let qemu = qemu.to_str().expect("a plain name");
    let no_daemon = daemon.folder().join("no-daemon.sock");

    let (code, stdout, stderr) = run(&no_daemon, &["--memory", "1G", "--", qemu, "-S"]);
    assert_eq!((code, stdout.as_str()), (7, "-S -m 1024M\n"));
    assert!(stderr.contains("no pool answers at"), "{stderr}");
    let ordinary = "; starting the ordinary way, on the kernel's memory: huge pages only where the \
                    command line has them (--require fails instead)\n";
    assert!(stderr.ends_with(ordinary), "{stderr}");

    let private = ["--", qemu, "-m", "64", "-mem-path", "/nowhere"];
    let (_, stdout, stderr) = run(&daemon.socket(), &private);
    assert_eq!(stdout, "-m 64 -mem-path /nowhere\n", "nothing is left out");
    assert_eq!(
        stderr,
        format!("firstlight: the pool refuses (empty): nothing is ready{ordinary}")
    );

    let arguments = ["--memory", "3M", "--", "stat", "-L", "-c", "%s", "{memory}"];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!((code, stdout.as_str()), (0, "3145728\n"), "{stderr}");

    let (code, stdout, stderr) = run(&daemon.socket(), &["--require", "--", qemu, "-m", "64"]);
    assert_eq!((code, stdout.as_str()), (8, ""));
    assert_eq!(
        stderr,
        "error: the pool refuses (empty): nothing is ready\n"
    );
}

/// A guest that is made over the API: the VMM has the file that the body names.
#[test]
fn a_body_names_a_file_that_its_server_has() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let server = daemon.folder().join("cloud-hypervisor");
    let script =
        "#!/bin/sh\nstat -L -c %s $(sed 's/.*\"file\":\"\\([^\"]*\\)\".*/\\1/' \"$2\")\nexit 7\n";
    fake_qemu::executable(&server, script);
    let [body, rewritten] = ["vm.json", "new.json"].map(|name| daemon.folder().join(name));
    let text = r#"{"payload":{"kernel":"k"},"memory":{"size":3145728,"hugepages":true}}"#;
    std::fs::write(&body, text).expect("a file");
    let words = [&body, &rewritten, &server].map(|path| path.to_str().expect("a plain name"));
    let [body, new, server] = words;
    let arguments = ["--vm-config", body, new, "--", server, "--api-socket", new];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!((code, stdout.as_str()), (7, "4194304\n"), "{stderr}");
    assert!(stderr.contains("4 MiB from the pool"), "{stderr}");

    // There is nothing any more: it is made as it was.
    let (code, _, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!(code, 7, "{stderr}");
    assert!(stderr.contains("starting the ordinary way"), "{stderr}");
    assert_eq!(std::fs::read_to_string(new).expect("it is written"), text);
    let allocated = daemon.allocated();
    assert_eq!((allocated.len(), allocated[0].take.bytes), (1, 3 << 20));

    std::fs::remove_file(new).expect("it is there");
    for (arguments, expected) in [
        (
            ["--vm-config", "/nowhere", new, "--", server],
            "/nowhere: No such file",
        ),
        (
            ["--vm-config", "/dev/zero", new, "--", server],
            "a body of more than 1 MiB",
        ),
        (
            ["--vm-config", body, "/nowhere/new", "--", server],
            "so nothing is started",
        ),
        (
            ["--vm-config", body, "/dev/null", "--", server],
            "/dev/null is there, and no file",
        ),
        (["--vm-config", body, body, "--", server], "is IN"),
        (
            ["--vm-config", body, new, "--", "qemu-system-x86_64"],
            "is not cloud-hypervisor",
        ),
    ] {
        let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
        assert_eq!((code, stdout.as_str()), (5, ""), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(!rewritten.exists());
    let arguments = ["--vm-config", body, new, "--show", "--", server];
    let (_, stdout, _) = run(&daemon.socket(), &arguments);
    assert!(stdout.contains(r#""file":"/proc/self/fd/N0""#), "{stdout}");
}

#[test]
fn all_nodes_or_none() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let qemu = false_qemu(daemon.folder());
    let qemu = qemu.to_str().expect("a plain name");
    let arguments = ["--memory", "2M", "--memory", "4M", "--", qemu];
    let (_, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert!(
        stdout.contains("memory-backend-ram,id=firstlight0"),
        "{stdout}"
    );
    assert!(stderr.contains("starting the ordinary way"), "{stderr}");
    assert!(
        daemon.allocated()[0].ended_within(10),
        "the first was given back"
    );
}

#[test]
fn what_cannot_be_started_takes_nothing() {
    let daemon = StandIn::new(PageSize::Transparent, 9, 0);
    let table: [(&[&str], &str); 5] = [
        (
            &["--memory", "1G", "--", "/nonexistent/qemu-system-x86_64"],
            "cannot start /nonexistent/qemu-system-x86_64: no such program",
        ),
        (
            &["--memory", "1G@4095", "--", "qemu-system-x86_64"],
            "this machine has no node 4095",
        ),
        (
            &["--memory", "1G", "--", "true"],
            "how true takes its memory is not known here",
        ),
        (
            &["--memory", "1G", "--", "qemu-system-x86_64", "-m", "2G"],
            "--memory says 1 GiB",
        ),
        (&["--", "qemu-system-x86_64"], "how much memory?"),
    ];
    for (arguments, expected) in table {
        let (code, stdout, stderr) = run(&daemon.socket(), arguments);
        assert_eq!((code, stdout.as_str()), (5, ""), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains(expected),
            "{stderr}"
        );
    }
    let (code, _, stderr) = run(&daemon.socket(), &["--memory", "8", "--", "true"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("\"8\" has no unit, expected for example 8G"),
        "{stderr}"
    );
    assert!(daemon.allocated().is_empty());
}

#[test]
fn without_a_reader_of_its_output_it_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let qemu = false_qemu(folder.path());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let arguments = ["pool", "run", "--socket", "/none", "--memory", "1M", "--"];
    let output = common::command(&arguments)
        .arg(qemu)
        .stderr(writer)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(7), "the VMM's");
    assert_eq!(output.stdout, b"-m 1M\n");
}

#[test]
fn show_starts_nothing() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let arguments = [
        "--show",
        "--",
        "qemu-system-x86_64",
        "-m",
        "1G",
        "-append",
        "a b",
    ];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(
        stdout,
        "qemu-system-x86_64 -m 1G -append 'a b' -object memory-backend-file,id=pc.ram,\
         size=1073741824,x-use-canonical-path-for-ramblock-id=off,mem-path=/proc/self/fd/N0,share=on \
         -machine memory-backend=pc.ram\n"
    );
    assert!(daemon.allocated().is_empty());
}

#[test]
fn programs_are_told_in_one_line() {
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let arguments = ["--json", "--memory", "2M", "--", "true", "{memory}"];
    let (code, stdout, stderr) = run(&daemon.socket(), &arguments);
    assert_eq!((code, stdout.as_str()), (0, ""));
    let record = schema::document(stderr.as_bytes());
    assert_eq!(record["schema"], "firstlight.pool-run/1");
    assert_eq!(record["from_pool"], true);
    assert_eq!(record["leases"][0]["bytes"], 2 << 20);
    assert!(record["take_ns"].as_u64().expect("a number") > 0);
    let name = record["command"][1].as_str().expect("text");
    assert!(name.starts_with("/proc/self/fd/"), "{name}");
}
