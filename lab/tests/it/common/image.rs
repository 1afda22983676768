//! The bare-metal image for tests: built once, like the one people boot.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Its file.
pub(crate) fn image() -> &'static Path {
    static IMAGE: LazyLock<PathBuf> = LazyLock::new(built);
    &IMAGE
}

fn built() -> PathBuf {
    let build = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "firstlight-image"])
        .args(["--target", "x86_64-unknown-none", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&build.stderr);
    assert!(build.status.success(), "the image does not build: {told}");
    let messages = String::from_utf8(build.stdout).unwrap();
    let executable = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(message["executable"].as_str()?.into())
    });
    executable.unwrap()
}
