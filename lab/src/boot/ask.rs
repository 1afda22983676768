//! Another program is run for what it says: [`ask`]. Like the guest it goes when we
//! go, and does not keep anybody who asks to stop waiting.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::guest::{Guest, TICK};
use super::spawn::spawn;
use super::watch::Watch;

/// Runs `command` to its end. Once `stop` is not 0, or `limit` has passed, it is ended with all it
/// started.
///
/// # Errors
/// It does not start; [`io::ErrorKind::Interrupted`] if somebody asked to stop,
/// [`io::ErrorKind::TimedOut`] after `limit`.
pub(crate) fn ask(
    mut command: Command,
    limit: Option<Duration>,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> io::Result<Output> {
    // Files, not pipes: they take all there is while nobody reads.
    let (mut stdout, mut stderr) = (file()?, file()?);
    command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    let child = Guest {
        child: spawn(command, Vec::new())?,
    };
    let start = Instant::now();
    while !child.has_ended() {
        let why = match limit {
            _ if stop.load(Ordering::Relaxed) != 0 => Some(io::ErrorKind::Interrupted),
            Some(limit) if start.elapsed() > limit => Some(io::ErrorKind::TimedOut),
            _ => None,
        };
        if let Some(why) = why {
            child.end()?;
            return Err(why.into());
        }
        watch.tick();
        thread::sleep(TICK);
    }
    Ok(Output {
        status: child.end()?,
        stdout: content(&mut stdout)?,
        stderr: content(&mut stderr)?,
    })
}

/// A file that has no name and goes with its descriptor.
fn file() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("firstlight-answer", flags)?.into())
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
