//! A real Linux with free page reporting in a real QEMU, on the daemon's memory.
//!
//! Needs QEMU and the kernel that `make linux` fetches; its first process is
//! built here, by the compiler that builds the test.

use super::kit::Daemon;
use firstlight_pool::os::need::skip;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";

/// What a guest is made of.
pub(crate) struct Parts {
    kernel: PathBuf,
    files: PathBuf,
    folder: tempfile::TempDir,
}

impl Parts {
    /// All parts, or a line that says what is missing.
    pub(crate) fn find() -> Option<Self> {
        let target = option_env!("CARGO_TARGET_DIR").unwrap_or("target");
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
        let linux = workspace.join(target).join("linux/6.12");
        let kernel = linux.join("vmlinuz");
        let module = found(&linux.join("lib/modules"), "virtio_balloon.ko.xz");
        let (true, Some(module)) = (kernel.exists(), module) else {
            skip("linux", "none with a balloon, `make linux` fetches one");
            return None;
        };
        if Command::new(QEMU).arg("--version").output().is_err() {
            skip("qemu", format!("{QEMU} is not installed"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let init = build(folder.path())?;
        let files = folder.path().join("initrd");
        let archive = archive(&[("init", &init), ("virtio_balloon.ko.xz", &module)]);
        fs::write(&files, archive).unwrap();
        Some(Self {
            kernel,
            files,
            folder,
        })
    }
}

/// A file of this name, somewhere below.
fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.into_iter().find_map(|path| {
        if path.is_dir() {
            return found(&path, name);
        }
        path.ends_with(name).then_some(path)
    })
}

fn build(folder: &Path) -> Option<PathBuf> {
    let init = folder.join("init");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pool_serve/guest/init.rs");
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static"])
        .arg("-o")
        .args([&init, &source])
        .output();
    match output {
        Ok(output) if output.status.success() => Some(init),
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(
                !told.contains("init.rs"),
                "the guest does not build: {told}"
            );
            skip("compiler", format!("nothing to link a guest with: {told}"));
            None
        }
        Err(error) => {
            skip("compiler", error);
            None
        }
    }
}

/// The kernel's format of a file tree, "newc" of cpio.
fn archive(files: &[(&str, &Path)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut add = |name: &str, mode: u32, content: &[u8]| {
        let inode = out.len();
        out.extend_from_slice(b"070701");
        for field in [inode, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0] {
            out.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        out.extend_from_slice(format!("{:08x}{:08x}{name}\0", name.len() + 1, 0).as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(4), 0);
    };
    add("dev", 0o040_755, &[]);
    for (name, path) in files {
        add(name, 0o100_755, &fs::read(path).unwrap());
    }
    add("TRAILER!!!", 0, &[]);
    out
}

/// A guest that runs; killed when dropped.
pub(crate) struct Guest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Guest {
    /// Starts one on a slab of `size`, as `docs/pool.md` says, and waits until
    /// it reports what is free.
    pub(crate) fn start(parts: &Parts, daemon: &Daemon, size: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
        command
            .args(["pool", "run", "--require", "--memory", size, "--socket"])
            .arg(daemon.socket())
            .args(["--", QEMU, "-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-cpu", "max", "-machine", "q35", "-serial", "stdio"])
            .args(["-device", "virtio-balloon-pci,free-page-reporting=on"])
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(&parts.files)
            .args(["-append", "console=ttyS0 quiet rdinit=/init panic=-1"]);
        let log = fs::File::create(parts.folder.path().join("log")).unwrap();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut guest = Self {
            child,
            input,
            output,
        };
        guest.hear("ready");
        guest
    }

    /// Waits for what the guest says.
    fn hear(&mut self, wanted: &str) {
        let mut all = Vec::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = self.output.read_until(b'\n', &mut line).unwrap();
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            // The port echoes what it is told.
            if let Some((_, said)) = text.split_once("guest: ") {
                assert_eq!(said, wanted, "{all:?}");
                return;
            }
            all.push(text);
            assert!(bytes > 0, "the guest ended: {all:?}");
        }
    }

    /// Tells it something and waits for the answer.
    pub(crate) fn tell(&mut self, told: &str, answer: &str) {
        writeln!(self.input, "{told}").unwrap();
        self.hear(answer);
    }

    /// Lets it power off.
    pub(crate) fn end(mut self) {
        writeln!(self.input, "end").unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
