//! Where our image is, and its UEFI loader: [`find`].
//!
//! In this order: the file that `FIRSTLIGHT_IMAGE` (of the loader: `FIRSTLIGHT_LOADER`) names, `firstlight-image` (for another
//! processor than x86-64 with its name behind it, `firstlight-image-aarch64`)
//! beside the running program, in `../lib/firstlight` seen from there (a package puts
//! it there), built from the source tree that `FIRSTLIGHT_SOURCE` names, or where cargo
//! put it beside this program. Nothing is built unless that
//! variable asks for it, as it does for what cargo runs from the tree: a tree may be
//! another user's.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;

use serde_json::Value;

use super::ask::ask;
use super::error::BootError;
use super::machine::Processor;
use super::watch::Watch;

/// The image's package and its file.
const NAME: &str = "firstlight-image";

/// A program that runs without an operating system.
#[derive(Debug)]
pub(super) struct Program {
    package: &'static str,
    /// Its file where cargo puts it, and beside this program.
    built: &'static str,
    file: String,
    target: &'static str,
    /// Names it where it is somewhere else.
    variable: &'static str,
    /// The processor that its file names, if it is the image.
    processor: Option<Processor>,
}

impl Program {
    /// Our image.
    pub(super) fn image(processor: Processor) -> Self {
        Self {
            package: NAME,
            built: NAME,
            file: match processor {
                Processor::X86_64 => NAME.to_owned(),
                other => format!("{NAME}-{other}"),
            },
            target: target(processor),
            variable: "FIRSTLIGHT_IMAGE",
            processor: Some(processor),
        }
    }

    /// The UEFI loader of the image.
    pub(super) fn loader(processor: Processor) -> Self {
        const FILE: &str = "firstlight-image-uefi.efi";
        Self {
            package: "firstlight-image-uefi",
            built: FILE,
            file: match processor {
                Processor::X86_64 => FILE.to_owned(),
                other => format!("firstlight-image-uefi-{other}.efi"),
            },
            target: match processor {
                Processor::Aarch64 => "aarch64-unknown-uefi",
                _ => "x86_64-unknown-uefi",
            },
            variable: "FIRSTLIGHT_LOADER",
            processor: None,
        }
    }

    /// Whether the file at `path` is it.
    fn is_at(&self, path: &Path) -> bool {
        match self.processor {
            Some(_) => of_processor(path) == self.processor,
            None => path.is_file(),
        }
    }
}

/// Names the source tree that it may be built from.
const SOURCE: &str = "FIRSTLIGHT_SOURCE";
/// Lines of a failed build that are quoted.
const QUOTED_LINES: usize = 12;

/// What cargo builds it for.
const fn target(processor: Processor) -> &'static str {
    match processor {
        Processor::X86_64 => "x86_64-unknown-none",
        Processor::Aarch64 => "aarch64-unknown-none",
        Processor::Riscv64 => "riscv64gc-unknown-none-elf",
    }
}

/// The program's file, built if that is asked for.
///
/// # Errors
/// [`BootError::NoImage`], which says where it was looked for.
pub(super) fn find(
    program: &Program,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<PathBuf, BootError> {
    let variable = program.variable;
    if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        let why = match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => "no file",
            Err(_) => "no file",
            Ok(_)
                if program.processor.is_some()
                    && of_processor(&path)
                        .is_some_and(|found| Some(found) != program.processor) =>
            {
                "an image for another processor"
            }
            Ok(_) => return Ok(path),
        };
        let path = path.display();
        return Err(BootError::NoImage(format!(
            "{variable} names {path}, which is {why}; expected one for {}",
            program.processor.unwrap_or_default()
        )));
    }
    let beside = env::current_exe()
        .ok()
        .map(|own| own.with_file_name(&program.file));
    let installed = beside.as_deref().and_then(in_the_package);
    if let Some(path) = [&beside, &installed]
        .into_iter()
        .flatten()
        .find(|path| program.is_at(path))
    {
        return Ok(path.clone());
    }
    if let Some(tree) = env::var_os(SOURCE).filter(|named| !named.is_empty()) {
        watch.stage("building the image");
        return build(program, Path::new(&tree), stop, watch);
    }
    let built = beside
        .as_deref()
        .and_then(|own| beside_the_build(program, own));
    if let Some(path) = built.filter(|path| program.is_at(path)) {
        return Ok(path);
    }
    let looked = beside.map_or(String::new(), |path| {
        format!("looked for {}; ", path.display())
    });
    Err(BootError::NoImage(format!(
        "{looked}build it by `make image`, name a file of it in {variable}, or the source tree in {SOURCE}"
    )))
}

/// Where a package puts the image, if it puts programs where `program` is.
fn in_the_package(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    Some(prefix.join("lib/firstlight").join(program.file_name()?))
}

/// Where cargo puts the program, if `own` lies where it puts programs of the host.
fn beside_the_build(program: &Program, own: &Path) -> Option<PathBuf> {
    let folder = own.parent()?.parent()?.join(program.target);
    Some(folder.join("release").join(program.built))
}

/// That the image at `path` is not one for another processor. What is none at all QEMU refuses.
pub(super) fn check(processor: Processor, path: &Path) -> Result<(), BootError> {
    match of_processor(path).filter(|found| *found != processor) {
        None => Ok(()),
        Some(found) => Err(BootError::NoImage(format!(
            "{} is an image for {found}; expected one for {processor}, or --arch {found}",
            path.display()
        ))),
    }
}

/// The processor of the image at `path`, if it is one: a program linked at fixed addresses, or a
/// file with the header of Linux's Image. Cargo also builds its package for the host, for tests,
/// and calls that the same.
fn of_processor(path: &Path) -> Option<Processor> {
    const EXECUTABLE: [u8; 2] = 2u16.to_le_bytes();
    let mut head = [0; 64];
    // To open a pipe is to wait for whoever writes it.
    let mut file = path.is_file().then(|| File::open(path).ok())??;
    file.read_exact(&mut head).ok()?;
    if head[56..].starts_with(b"ARM\x64") {
        return Some(Processor::Aarch64);
    }
    if !head.starts_with(b"\x7fELF") || head[16..18] != EXECUTABLE {
        return None;
    }
    match u16::from_le_bytes([head[18], head[19]]) {
        62 => Some(Processor::X86_64),
        243 => Some(Processor::Riscv64),
        _ => None,
    }
}

/// Builds the program in `tree` and asks cargo where it put it.
fn build(
    program: &Program,
    tree: &Path,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<PathBuf, BootError> {
    let target = program.target;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(&cargo);
    command
        .current_dir(tree)
        .args(["build", "--release", "--package", program.package])
        .args(["--target", target])
        .args(["--message-format", "json-render-diagnostics"]);
    let output = ask(command, None, stop, watch).map_err(|error| {
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
            "it does not build (rustup target add {target} installs what it needs):\n  {tail}"
        )));
    }
    executable(program.package, &output.stdout)
        .ok_or_else(|| BootError::NoImage("cargo built it and did not say where it is".into()))
}

/// The program that cargo's messages name.
fn executable(package: &str, messages: &[u8]) -> Option<PathBuf> {
    let messages = messages.split(|byte| *byte == b'\n');
    let mut named = messages.filter_map(|message| {
        let message: Value = serde_json::from_slice(message).ok()?;
        let ours = message.pointer("/target/name")?.as_str()? == package;
        let path = message.get("executable")?.as_str()?;
        ours.then(|| PathBuf::from(path))
    });
    named.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_head() {
        // A test is a program of the host: linked to lie anywhere.
        assert_eq!(of_processor(&env::current_exe().unwrap()), None);
        assert_eq!(of_processor(Path::new("/")), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let elf = |kind: u8, machine: u8| {
            let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
            head.extend([kind, 0, machine, 0]);
            head.resize(64, 1);
            head
        };
        let arm = [&[0; 56][..], b"ARM\x64\0\0\0\0"].concat();
        for (head, expected) in [
            (elf(2, 62), Some(Processor::X86_64)),
            (elf(2, 243), Some(Processor::Riscv64)),
            (arm, Some(Processor::Aarch64)),
            (elf(3, 62), None),
            (elf(2, 40), None),
            (b"\x7fELF".to_vec(), None),
        ] {
            std::fs::write(&path, head).unwrap();
            assert_eq!(of_processor(&path), expected);
            // What is none at all QEMU refuses.
            let is_refused = expected.is_some_and(|found| found != Processor::Riscv64);
            assert_eq!(check(Processor::Riscv64, &path).is_err(), is_refused);
        }
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
        let path = executable(NAME, messages);
        assert_eq!(path, Some(PathBuf::from("/a/firstlight-image")));
        assert_eq!(executable(NAME, b"{}\n[]\n"), None);
    }
}
