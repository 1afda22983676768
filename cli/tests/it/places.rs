//! Every command of README, guides and manual where it lacks what it needs: without root, QEMU, network, a home that can
//! be written to, the files that it names; on 60 columns, without colours, into a pipe. It says a sentence, never a trace.

use crate::documents::{EXAMPLES, blocks, commands, documents, read};

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// These measure for minutes and need nothing.
const LONG: [[&str; 2]; 3] = [
    ["bench", "alloc"],
    ["bench", "descriptors"],
    ["bench", "zero"],
];
/// A command that lacks nothing may do its work for so long.
const MOST: Duration = Duration::from_secs(20);
/// What says what to do next.
const NEXT: [&str; 9] = [
    "expected",
    "--",
    "`",
    "please",
    "put it there",
    "starts one",
    "root",
    "not one",
    "named",
];

fn all_commands() -> Vec<Vec<String>> {
    let mut shells = vec![read(EXAMPLES)];
    for document in documents() {
        shells.extend(blocks(&read(&document), "sh"));
    }
    let mut all: Vec<Vec<String>> = shells.iter().flat_map(|shell| commands(shell)).collect();
    for words in &mut all {
        words.retain(|word| word != "&");
    }
    all.retain(|words| !LONG.iter().any(|two| words.iter().take(2).eq(two)));
    all.sort();
    all.dedup();
    all
}

/// The program `firstlight` at `program` with `words`, in `folder`, with as little as can be taken away.
fn poor(program: &Path, folder: &Path, words: &[String]) -> Command {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        let mut command = Command::new("/usr/bin/unshare");
        command.args([
            "--net",
            "--",
            "/usr/bin/setpriv",
            "--reuid=65534",
            "--regid=65534",
        ]);
        command.arg("--clear-groups").arg(program);
        command
    } else {
        Command::new(program)
    };
    command
        .args(words)
        .current_dir(folder)
        .env_clear()
        .envs([
            ("PATH", "/nonexistent"),
            ("NO_COLOR", "1"),
            ("COLUMNS", "60"),
        ])
        .env("HOME", folder)
        .env("TMPDIR", folder.with_file_name("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Its end; one that goes on is ended.
fn end(mut child: Child) -> Option<Output> {
    let begin = Instant::now();
    while begin.elapsed() < MOST {
        if child.try_wait().unwrap().is_some() {
            return Some(child.wait_with_output().unwrap());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait_with_output().unwrap();
    None
}

#[test]
fn a_command_that_lacks_what_it_needs_says_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("firstlight");
    fs::copy(env!("CARGO_BIN_EXE_firstlight"), &program).unwrap();
    let [home, tmp] = ["home", "tmp"].map(|name| folder.path().join(name));
    for made in [&home, &tmp] {
        fs::create_dir(made).unwrap();
    }
    for (path, mode) in [
        (folder.path(), 0o755),
        (&program, 0o755),
        (&home, 0o555),
        (&tmp, 0o777),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let (mut failed, mut seen) = (0, 0);
    for words in all_commands() {
        let child = poor(&program, &home, &words).spawn().unwrap();
        let Some(output) = end(child) else { continue };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        let at = format!("firstlight {}: {printed}\n{said}", words.join(" "));
        let code = output.status.code().unwrap_or_else(|| panic!("{at}"));
        assert!(code <= 13, "{code}: {at}");
        for trace in ["panicked", "RUST_BACKTRACE", "Err(", "Error {", "\u{1b}"] {
            assert!(!printed.contains(trace) && !said.contains(trace), "{at}");
        }
        seen += 1;
        if code != 0 {
            failed += 1;
            assert!(said.starts_with("error: "), "{at}");
            assert!(NEXT.iter().any(|next| said.contains(next)), "{at}");
        }
    }
    assert!(seen > 60 && failed > 40, "{seen}, {failed}");
}
