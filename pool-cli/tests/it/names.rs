//! What `firstlight-pool` tells people to type is the program that they have.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn program(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight-pool"));
    command
        .args(arguments)
        .env("FIRSTLIGHT_POOL", socket)
        .stdin(Stdio::null());
    command
}

/// A process and the first line of its standard error.
fn first_line(mut command: Command) -> (Child, String) {
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stderr = process.stderr.as_mut().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    (process, line)
}

#[test]
fn messages_name_the_program_as_it_was_called() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("pool.sock");
    let nothing = "`firstlight-pool serve` starts one";
    for (arguments, expected) in [
        (&["status"][..], nothing),
        (
            &["run", "--memory", "2M", "--", "true", "{memory}"],
            nothing,
        ),
        (
            &["run", "--", "taskset", "1", "qemu-system-x86_64"],
            "taskset ... firstlight-pool run ... -- qemu-system-x86_64",
        ),
    ] {
        let output = program(&socket, arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("firstlight pool"), "{said}");
    }

    let config = folder.path().join("pool.toml");
    let own = folder.path().join("own");
    let text = format!(
        "socket = {socket:?}\ndirectory = {own:?}\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\nslabs = 0\n"
    );
    fs::write(&config, text).unwrap();
    let serve = ["serve", "--config", config.to_str().unwrap()];
    let (mut daemon, listening) = first_line(program(&socket, &serve));
    let status = program(&socket, &["status"]).output().unwrap();
    let export = ["export", "--listen", "127.0.0.1:0"];
    let (mut exporter, metrics) = first_line(program(&socket, &export));
    for process in [&mut exporter, &mut daemon] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let status = String::from_utf8(status.stdout).unwrap();
    for (said, expected) in [
        (listening, "firstlight-pool: listening; "),
        (status, "firstlight-pool: 0 B clean, "),
        (metrics, "firstlight-pool: metrics at http://127.0.0.1:"),
    ] {
        assert!(said.starts_with(expected), "{said}");
    }
}
