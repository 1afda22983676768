//! A guest that says when it runs, and the clock beside it.
//!
//! Its firmware is a ROM of our own: the instruction at the reset vector writes
//! a byte to QEMU's debug port, which is a socket here. So its arrival is the
//! guest's first instruction, without a firmware's time.

use crate::failure::Failure;
use firstlight_pool::launch::Start;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of the ROM, the smallest QEMU takes.
const ROM_BYTES: usize = 64 << 10;
/// Where the processor begins, from the start of the ROM.
const RESET_AT: usize = 0xfff0;
/// mov al, 'F'; out 0xe9, al; hlt; jmp to the hlt.
const FIRST_INSTRUCTIONS: [u8; 7] = [0xb0, b'F', 0xe6, 0xe9, 0xf4, 0xeb, 0xfd];
/// Longer than any start takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is needed to time a start.
#[derive(Debug)]
pub(super) struct Bench {
    qemu: OsString,
    folder: TempDir,
    listener: UnixListener,
}

/// How long it took from the start of the VMM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    pub(super) to_qmp: Duration,
    pub(super) to_guest: Duration,
}

impl Timed {
    pub(super) fn to_qmp(self) -> Duration {
        self.to_qmp
    }
}

impl Bench {
    /// Prepares the ROM and the socket.
    pub(super) fn new(qemu: &OsStr) -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("firstlight-bench")
            .tempdir()?;
        let mut rom = vec![0xf4; ROM_BYTES];
        rom[RESET_AT..RESET_AT + FIRST_INSTRUCTIONS.len()].copy_from_slice(&FIRST_INSTRUCTIONS);
        fs::write(folder.path().join("rom"), rom)?;
        let listener = UnixListener::bind(folder.path().join("port"))?;
        Ok(Self {
            qemu: qemu.into(),
            folder,
            listener,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn qemu(&self) -> &OsStr {
        &self.qemu
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Arguments of a guest of `bytes` that says when it runs; they stay the same
    /// whatever its memory.
    pub(super) fn arguments(&self, bytes: u64) -> Vec<OsString> {
        let port = format!("socket,id=port,path={}", self.file("port").display());
        let mut arguments = self.silent_arguments(bytes);
        let words = ["-chardev", &port, "-device", "isa-debugcon,chardev=port"];
        arguments.extend(words.map(OsString::from));
        arguments
    }

    /// Arguments of a guest that only its VMM speaks for.
    pub(super) fn silent_arguments(&self, bytes: u64) -> Vec<OsString> {
        let size = format!("{}M", bytes >> 20);
        let words = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-accel",
            "tcg",
            "-m",
            &size,
            "-qmp",
            "stdio",
            "-bios",
        ];
        let words = words.into_iter().map(OsString::from);
        words.chain([self.file("rom").into_os_string()]).collect()
    }

    /// Starts guests one after the other without waiting for any, then waits for
    /// the greetings of all: how long that took since `begin`.
    pub(super) fn time_all(
        &self,
        starts: impl Iterator<Item = Result<Start, Failure>>,
        begin: Instant,
    ) -> Result<Duration, Failure> {
        let log = self.file("stderr");
        let trouble = |error| self.trouble(&log, error);
        let mut children = Vec::new();
        for start in starts {
            let errors = File::create(&log).map_err(trouble)?;
            let child = start?.spawn(|command| {
                let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
                streams.stderr(errors);
            });
            children.push(Running::new(child.map_err(trouble)?));
        }
        let mut last = begin;
        for child in &mut children {
            last = last.max(child.greeting().map_err(trouble)?);
        }
        for child in children {
            child.quit().map_err(trouble)?;
        }
        Ok(last.duration_since(begin))
    }

    fn trouble(&self, log: &Path, error: io::Error) -> Failure {
        let said = fs::read_to_string(log).unwrap_or_default();
        let (qemu, said) = (self.qemu.to_string_lossy(), said.trim());
        Failure::pool(format!("{qemu} did not start: {error}: {said}"))
    }

    /// Starts the guest, waits for both, and ends it.
    pub(super) fn time(&self, start: Start, begin: Instant) -> Result<Timed, Failure> {
        let log = self.file("stderr");
        let timed = self.try_time(start, begin, &log, || Ok(()));
        let (timed, ()) = timed.map_err(|error| self.trouble(&log, error))?;
        Ok(timed)
    }

    /// Starts the guest, waits for both, does `then`, and ends it: what `then` returned.
    pub(super) fn time_until<T>(
        &self,
        start: Start,
        begin: Instant,
        then: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, Failure> {
        let log = self.file("stderr");
        let timed = self.try_time(start, begin, &log, then);
        let (_, done) = timed.map_err(|error| self.trouble(&log, error))?;
        Ok(done)
    }

    fn try_time<T>(
        &self,
        start: Start,
        begin: Instant,
        log: &Path,
        then: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<(Timed, T)> {
        let errors = File::create(log)?;
        thread::scope(|scope| {
            let guest = scope.spawn(|| self.first_instruction());
            let running = start.spawn(|command| {
                let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
                streams.stderr(errors);
            });
            let greeted = running.and_then(|child| {
                let mut running = Running::new(child);
                let greeted = running.greeting()?;
                Ok((running, greeted))
            });
            if greeted.is_err() {
                // No other client will connect, and the other thread waits for it.
                drop(UnixStream::connect(self.file("port")));
            }
            let seen = guest.join().map_err(|_| io::ErrorKind::Other)?;
            let (running, greeted) = greeted?;
            let seen = seen?;
            let done = then()?;
            running.quit()?;
            let timed = Timed {
                to_qmp: greeted.duration_since(begin),
                to_guest: seen.duration_since(begin),
            };
            Ok((timed, done))
        })
    }

    /// When the guest's byte arrives.
    fn first_instruction(&self) -> io::Result<Instant> {
        let (mut port, _) = self.listener.accept()?;
        port.set_read_timeout(Some(PATIENCE))?;
        let mut byte = [0];
        port.read_exact(&mut byte)?;
        Ok(Instant::now())
    }
}

/// A VMM, killed when dropped.
struct Running {
    child: Child,
}

impl Running {
    fn new(child: Child) -> Self {
        Self { child }
    }

    /// Waits until it greets; when that was.
    fn greeting(&mut self) -> io::Result<Instant> {
        let output = self.child.stdout.take().ok_or(io::ErrorKind::Other)?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let greeted = Instant::now();
        if line.starts_with("{\"QMP\"") {
            Ok(greeted)
        } else {
            Err(io::Error::other("no greeting from QMP"))
        }
    }

    fn quit(mut self) -> io::Result<()> {
        if let Some(input) = &mut self.child.stdin {
            let words = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";
            input.write_all(words.as_bytes())?;
        }
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
