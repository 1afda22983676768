//! A git tree for tests, each of whose commits has words that a guest boots with.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What git prints.
pub(crate) fn git(tree: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(tree)
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes the tree, a commit for each of `words`.
pub(crate) fn tree(path: &Path, words: &[&str]) -> Vec<String> {
    git(path, &["init", "-q", "-b", "main"]);
    let mut commits = Vec::new();
    for (number, words) in words.iter().enumerate() {
        fs::write(path.join("words"), words).unwrap();
        fs::write(path.join("number"), number.to_string()).unwrap();
        git(path, &["add", "."]);
        git(
            path,
            &["commit", "-q", "-m", &format!("change {number}, {words}")],
        );
        commits.push(git(path, &["rev-parse", "HEAD"]));
    }
    commits
}
