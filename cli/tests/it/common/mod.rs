//! Runs the real command and reads what it says.

pub(crate) mod guest;
pub(crate) mod schema;
pub(crate) mod stand_in;
pub(crate) mod tree;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The command with `arguments`, away from any terminal and its settings.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command starts")
}

/// Exit code, standard output, standard error.
pub(crate) fn told(arguments: &[&str]) -> (i32, String, String) {
    let output = run(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    let code = output.status.code().expect("the command was not killed");
    if arguments.contains(&"--json") && output.stdout.starts_with(b"{") {
        schema::document(&output.stdout);
    }
    (code, text(&output.stdout), text(&output.stderr))
}

/// The one JSON document of a successful run.
pub(crate) fn document(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = told(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{arguments:?}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"))
}

/// A file of the repository's test data.
pub(crate) fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata")
        .join(path)
}

/// Files of a folder of the test data that end so, in order.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(testdata(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}
