//! Where our image is: [`find`].
//!
//! In this order: the file that `FIRSTLIGHT_IMAGE` names, `firstlight-image`
//! beside the running program, in `../lib/firstlight` seen from there (a package puts
//! it there), built from the source tree that `FIRSTLIGHT_SOURCE` names, or where cargo
//! put it beside this program. Nothing is built unless that
//! variable asks for it, as it does for what cargo runs from the tree: a tree may be
//! another user's.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;

use serde_json::Value;

use super::ask::ask;
use super::error::BootError;
use super::watch::Watch;

/// Its package and its file.
const NAME: &str = "firstlight-image";
const TARGET: &str = "x86_64-unknown-none";
/// Names it where it is somewhere else.
const VARIABLE: &str = "FIRSTLIGHT_IMAGE";
/// Names the source tree that it may be built from.
const SOURCE: &str = "FIRSTLIGHT_SOURCE";
/// Lines of a failed build that are quoted.
const QUOTED_LINES: usize = 12;

/// The image's file, built if that is asked for.
///
/// # Errors
/// [`BootError::NoImage`], which says where it was looked for.
pub(super) fn find(stop: &AtomicUsize, watch: &mut dyn Watch) -> Result<PathBuf, BootError> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(path)
        } else {
            let path = path.display();
            Err(BootError::NoImage(format!(
                "{VARIABLE} names {path}, which is no file"
            )))
        };
    }
    let beside = env::current_exe()
        .ok()
        .map(|program| program.with_file_name(NAME));
    let installed = beside.as_deref().and_then(in_the_package);
    if let Some(path) = [&beside, &installed]
        .into_iter()
        .flatten()
        .find(|path| is_bare(path))
    {
        return Ok(path.clone());
    }
    if let Some(tree) = env::var_os(SOURCE).filter(|named| !named.is_empty()) {
        watch.stage("building the image");
        return build(Path::new(&tree), stop, watch);
    }
    let built = beside.as_deref().and_then(beside_the_build);
    if let Some(path) = built.filter(|path| is_bare(path)) {
        return Ok(path);
    }
    let looked = beside.map_or(String::new(), |path| {
        format!("looked for {}; ", path.display())
    });
    Err(BootError::NoImage(format!(
        "{looked}put it there, name it in {VARIABLE}, or build it: {SOURCE} names the source tree"
    )))
}

/// Where a package puts the image, if it puts programs where `program` is.
fn in_the_package(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    Some(prefix.join("lib/firstlight").join(NAME))
}

/// Where cargo puts the image, if `program` lies where it puts programs of the host.
fn beside_the_build(program: &Path) -> Option<PathBuf> {
    let target = program.parent()?.parent()?;
    Some(target.join(TARGET).join("release").join(NAME))
}

/// Whether `path` is a program linked at fixed addresses, as the image is. Cargo
/// also builds its package for the host, for tests, and calls that the same.
fn is_bare(path: &Path) -> bool {
    const EXECUTABLE: [u8; 2] = 2u16.to_le_bytes();
    let mut head = [0; 18];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    path.is_file() && read.is_ok() && head.starts_with(b"\x7fELF") && head.ends_with(&EXECUTABLE)
}

/// Builds the image in `tree` and asks cargo where it put it.
fn build(tree: &Path, stop: &AtomicUsize, watch: &mut dyn Watch) -> Result<PathBuf, BootError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(&cargo);
    command
        .current_dir(tree)
        .args(["build", "--release", "--package", NAME, "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"]);
    let output = ask(command, stop, watch).map_err(|error| {
        let hint = if error.kind() == io::ErrorKind::NotFound {
            "; the image is built by cargo: https://rustup.rs"
        } else {
            ""
        };
        BootError::NoImage(format!("cannot start cargo: {error}{hint}"))
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = words.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(QUOTED_LINES)..);
        let tail = tail.unwrap_or_default().join("\n  ");
        return Err(BootError::NoImage(format!(
            "it does not build (rustup target add {TARGET} installs what it needs):\n  {tail}"
        )));
    }
    executable(&output.stdout)
        .ok_or_else(|| BootError::NoImage("cargo built it and did not say where it is".into()))
}

/// The program that cargo's messages name.
fn executable(messages: &[u8]) -> Option<PathBuf> {
    let messages = messages.split(|byte| *byte == b'\n');
    let mut named = messages.filter_map(|message| {
        let message: Value = serde_json::from_slice(message).ok()?;
        let ours = message.pointer("/target/name")?.as_str()? == NAME;
        let path = message.get("executable")?.as_str()?;
        ours.then(|| PathBuf::from(path))
    });
    named.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_host_is_no_image() {
        // A test is one: linked to lie anywhere.
        assert!(!is_bare(&env::current_exe().unwrap()));
        assert!(!is_bare(Path::new("/")));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        std::fs::write(&path, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0more").unwrap();
        assert!(is_bare(&path));
        std::fs::write(&path, b"\x7fELF").unwrap();
        assert!(!is_bare(&path));
    }

    #[test]
    fn the_program_is_the_one_cargo_names() {
        let messages = br#"
{"reason":"compiler-artifact","target":{"name":"firstlight"},"executable":null}
no json
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/a/other"}
{"reason":"compiler-artifact","target":{"name":"firstlight-image"},"executable":"/a/firstlight-image"}
{"reason":"build-finished","success":true}
"#;
        let path = executable(messages);
        assert_eq!(path, Some(PathBuf::from("/a/firstlight-image")));
        assert_eq!(executable(b"{}\n[]\n"), None);
    }
}
