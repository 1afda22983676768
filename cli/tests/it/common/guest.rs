//! Real monitors and a real guest for tests, or a visible line why not.

use firstlight_pool::os::need::skip;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

pub(crate) const QEMU: &str = "qemu-system-x86_64";
const TARGET: &str = "x86_64-unknown-none";

/// Whether QEMU is here; a test that needs it ends with a line where it is not.
pub(crate) fn qemu_is_here() -> bool {
    is_here(QEMU)
}

/// Whether the QEMU `program` of another processor is here; a line where it is not.
pub(crate) fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok();
    if !here {
        skip("qemu", format!("{program} is not installed"));
    }
    here
}

/// Whether QEMU and UEFI for its machines are here, likewise.
pub(crate) fn ovmf_is_here() -> bool {
    let folders = ["/usr/share/OVMF", "/usr/share/edk2"];
    let here = folders.iter().any(|folder| Path::new(folder).is_dir());
    if !here {
        skip("qemu", "OVMF (Debian's package ovmf) is not installed");
    }
    qemu_is_here() && here
}

/// The bare-metal image, built; `None`, with a line, where it cannot be.
pub(crate) fn image() -> Option<&'static str> {
    static IMAGE: LazyLock<Option<PathBuf>> = LazyLock::new(build);
    let image = IMAGE.as_ref().and_then(|path| path.to_str());
    if image.is_none() {
        skip(
            "qemu",
            format!("the image cannot be built without the target {TARGET}"),
        );
    }
    image
}

fn build() -> Option<PathBuf> {
    let build = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "firstlight-image"])
        .args(["--target", TARGET, "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&build.stderr);
    if !build.status.success() {
        assert!(
            told.contains("target may not be installed"),
            "the image does not build: {told}"
        );
        return None;
    }
    let messages = String::from_utf8(build.stdout).ok()?;
    messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(message["executable"].as_str()?.into())
    })
}

/// A monitor that listens to QMP on its standard streams; killed when dropped.
pub(crate) struct Qmp {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Qmp {
    /// Starts `command` and waits for the greeting.
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut qmp = Self {
            child,
            input,
            output,
        };
        let greeting = qmp.line();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        qmp.ask("qmp_capabilities");
        qmp
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }

    /// What a command without arguments returns.
    pub(crate) fn ask(&mut self, command: &str) -> serde_json::Value {
        self.ask_with(command, &serde_json::json!({}))
    }

    /// What a command with `arguments` returns.
    pub(crate) fn ask_with(
        &mut self,
        command: &str,
        arguments: &serde_json::Value,
    ) -> serde_json::Value {
        let request = serde_json::json!({"execute": command, "arguments": arguments});
        // In one write: QEMU may be gone after the last brace of a `quit`.
        let request = format!("{request}\n");
        self.input
            .write_all(request.as_bytes())
            .expect("it listens");
        loop {
            let mut line = self.line();
            assert!(line.get("error").is_none(), "{command}: {line}");
            if line.get("return").is_some() {
                return line["return"].take();
            }
        }
    }

    /// Its mappings, as the kernel lists them.
    pub(crate) fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).expect("it lives")
    }

    /// Ends it and says how it ended.
    pub(crate) fn quit(mut self) -> i32 {
        self.ask("quit");
        let status = self.child.wait().expect("it ends");
        status.code().expect("it was not killed")
    }
}

impl Drop for Qmp {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
