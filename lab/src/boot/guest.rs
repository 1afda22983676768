//! QEMU as a process: started, listened to, ended. [`listen`] returns when it is
//! gone, whatever the guest did, and leaves nothing behind.
//!
//! Each of the guest's ports is a pipe with a thread that reads it and stamps what
//! comes. Pipes are made as large as an ordinary user may: a guest must not be
//! slowed down by us, and on the instruction clock it would notice.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::iter::repeat;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_wire::MARK;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::balloon::{Observed, observe};
use super::beside::Beside;
use super::command::{Launch, Ports};
use super::error::BootError;
use super::heard::{Heard, How};
use super::hotplug::{Driven, Script, drive};
use super::machine::System;
use super::spawn::spawn;
use super::watch::{Lines, Watch};

/// Most bytes of a guest that are kept; one that says more, on all ports together, is
/// stopped.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// How long a pipe is read at most after QEMU has gone.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// How often somebody looks whether QEMU has gone and whether to stop.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Bytes a pipe holds, if the system lets it.
const PIPE_BYTES: usize = 1 << 20;

/// How long a guest may take, and what ends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'l> {
    /// Without a byte from it for so long, it hangs.
    pub(super) silence: Duration,
    /// In all, if that is limited.
    pub(super) total: Option<Duration>,
    /// End it once its log has a line with one of these texts.
    pub(super) until: &'l [&'l str],
    /// The number of a signal, once somebody asks to stop; 0 until then.
    pub(super) stop: &'l AtomicUsize,
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Log,
    Events,
    Markers,
    Complaints,
}

/// Bytes, and when they came.
struct Chunk {
    port: Port,
    at: Instant,
    bytes: Vec<u8>,
}

/// Runs `launch` with the QEMU `program` to its end. `files` stay open in QEMU
/// under the numbers they have here.
///
/// # Errors
/// [`BootError::NoQemu`] or [`BootError::Host`]; what the guest did is no error here.
pub(super) fn listen(
    program: &Path,
    launch: &Launch<'_>,
    files: Vec<OwnedFd>,
    script: Option<&Script>,
    limits: &Limits<'_>,
    watch: &mut dyn Watch,
) -> Result<Heard, BootError> {
    let host = |what| move |error| BootError::Host { what, error };
    let mut pipes = Vec::new();
    let mut inherited = files;
    let mut path = |port| -> io::Result<String> {
        let (reader, writer) = wide_pipe()?;
        let number = writer.as_raw_fd();
        pipes.push((port, reader));
        inherited.push(writer.into());
        Ok(format!("file,path=/dev/fd/{number}"))
    };
    let (ours, protocol) = match launch.machine.balloon || script.is_some() {
        true => {
            let (ours, qemus) = UnixStream::pair().map_err(host("make a socket"))?;
            let protocol = format!("socket,fd={}", qemus.as_raw_fd());
            (Some((ours, qemus)), Some(protocol))
        }
        false => (None, None),
    };
    let ports = Ports {
        log: path(Port::Log).map_err(host("make a pipe"))?,
        events: path(Port::Events).map_err(host("make a pipe"))?,
        markers: path(Port::Markers).map_err(host("make a pipe"))?,
        protocol,
    };
    let ours = ours.map(|(ours, qemus)| {
        inherited.push(qemus.into());
        ours
    });
    let (reader, writer) = io::pipe().map_err(host("make a pipe"))?;
    pipes.push((Port::Complaints, reader));
    let mut command = Command::new(program);
    command
        .args(launch.arguments(&ports))
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(host("make a pipe"))?)
        .stderr(writer);
    let start = Instant::now();
    let child = spawn(command, inherited).map_err(|error| BootError::NoQemu {
        program: program.to_owned(),
        error,
    })?;
    let guest = Guest { child };
    let (sender, chunks) = sync_channel(1024);
    for (port, pipe) in pipes {
        let sender = sender.clone();
        thread::Builder::new()
            .spawn(move || read_port(port, pipe, &sender))
            .map_err(host("start a thread"))?;
    }
    drop(sender);
    let company = match (ours, script) {
        (Some(ours), Some(script)) => {
            // QEMU announces its window for DIMMs as the last node's.
            let node = launch.machine.nodes.saturating_sub(1);
            drive(script, node, ours).map(Company::Driver)
        }
        (Some(ours), None) => observe(guest.child.id(), start, ours).map(Company::Observer),
        (None, _) => Ok(Company::None),
    };
    let company = company.map_err(host("start a thread"))?;
    let mut ear = Ear::new(start, watch, company);
    let mut how = ear.follow(&guest, &chunks, limits);
    let status = guest.end().map_err(host("wait for QEMU"))?;
    let wall = start.elapsed();
    ear.rest(&chunks, limits.until);
    let (mut observed, mut driven) = (Observed::default(), Driven::default());
    match std::mem::replace(&mut ear.company, Company::None) {
        Company::None => {}
        Company::Observer(observer) => observed = observer.end(),
        Company::Driver(driver) => driven = driver.end(),
    }
    if how == How::Exited && ear.until_seen {
        // It said so and went before anybody read it.
        how = How::Until;
    }
    if launch.system == System::Image {
        ear.separate();
    }
    Ok(Heard {
        how,
        status,
        log: ear.log,
        events: ear.events,
        markers: ear.markers,
        complaints: ear.complaints,
        first_output: ear.first_output,
        line_ends: ear.line_ends,
        wall,
        observed,
        driven,
    })
}

fn wide_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    // An ordinary size does, too.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader, writer))
}

/// Hands on what comes until there is nothing more or nobody listens.
fn read_port(port: Port, mut pipe: PipeReader, chunks: &SyncSender<Chunk>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let at = Instant::now();
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        if chunks.send(Chunk { port, at, bytes }).is_err() {
            return;
        }
    }
}

/// A QEMU that is running; ended when it goes out of sight.
pub(super) struct Guest {
    pub(super) child: Child,
}

impl Guest {
    /// Whether it has ended by itself. It is not reaped, so that its number stays its own.
    pub(super) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let seen = waitid(WaitId::Pid(Pid::from_child(&self.child)), options);
        // An error means that there is nobody to wait for.
        !matches!(seen, Ok(None))
    }

    /// Ends it, and whatever it started, and reaps it.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        self.child.wait()
    }

    fn kill(&mut self) {
        // It is not reaped yet, so the group is still its own.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// What has been heard so far.
struct Ear<'e> {
    start: Instant,
    latest: Instant,
    watch: &'e mut dyn Watch,
    lines: Lines,
    log: Vec<u8>,
    events: Vec<u8>,
    markers: Vec<(u8, Duration)>,
    complaints: Vec<u8>,
    first_output: Option<Duration>,
    line_ends: Vec<Duration>,
    until_seen: bool,
    said_bytes: usize,
    company: Company,
}

/// The thread that talks to QEMU while the guest runs.
enum Company {
    None,
    Observer(Beside<Observed>),
    Driver(Beside<Driven>),
}

impl Company {
    /// The guest has shown a marker.
    fn marker(&self, code: u8) {
        match self {
            Self::None => {}
            Self::Observer(observer) => observer.marker(code),
            Self::Driver(driver) => driver.marker(code),
        }
    }
}

impl<'e> Ear<'e> {
    fn new(start: Instant, watch: &'e mut dyn Watch, company: Company) -> Self {
        Self {
            start,
            latest: start,
            watch,
            lines: Lines::default(),
            log: Vec::new(),
            events: Vec::new(),
            markers: Vec::new(),
            complaints: Vec::new(),
            first_output: None,
            line_ends: Vec::new(),
            until_seen: false,
            said_bytes: 0,
            company,
        }
    }

    /// Listens until there is a reason to stop.
    fn follow(&mut self, guest: &Guest, chunks: &Receiver<Chunk>, limits: &Limits<'_>) -> How {
        loop {
            match chunks.recv_timeout(TICK) {
                Ok(chunk) => self.take(&chunk, limits.until),
                Err(RecvTimeoutError::Timeout) => self.pause(limits.until),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
            }
            self.watch.tick();
            let signal = limits.stop.load(Ordering::Relaxed);
            let silent = self.latest.elapsed();
            if signal != 0 {
                return How::Interrupted(i32::try_from(signal).unwrap_or(i32::MAX));
            } else if self.until_seen {
                return How::Until;
            } else if self.said_bytes > MOST_BYTES {
                return How::Flooded(self.said_bytes);
            } else if guest.has_ended() {
                return How::Exited;
            } else if silent > limits.silence {
                return How::Hung(silent);
            } else if limits.total.is_some_and(|most| self.start.elapsed() > most) {
                return How::Hung(self.start.elapsed());
            }
        }
    }

    /// Moves marked lines, which are events, from the log to the events.
    fn separate(&mut self) {
        let lines = self.log.split_inclusive(|byte| *byte == b'\n');
        let is_event = |line: &[u8]| line.starts_with(MARK.as_bytes()) && line.ends_with(b"\n");
        if !lines.clone().any(is_event) {
            return;
        }
        let (mut log, mut line_ends) = (Vec::new(), Vec::new());
        let ends = self.line_ends.iter().map(Some).chain(repeat(None));
        for (line, end) in lines.zip(ends) {
            if is_event(line) {
                keep(&mut self.events, line.get(MARK.len()..).unwrap_or_default());
            } else {
                log.extend_from_slice(line);
                line_ends.extend(end);
            }
        }
        (self.log, self.line_ends) = (log, line_ends);
    }

    /// Nothing comes for a while: a prompt has no end of line, and counts as it is.
    fn pause(&mut self, until: &[&str]) {
        let begun = self.lines.begun();
        self.until_seen |= until.iter().any(|text| begun.contains(text));
    }

    /// What was still on its way when the guest ended.
    fn rest(&mut self, chunks: &Receiver<Chunk>, until: &[&str]) {
        let end = Instant::now() + LAST_BYTES;
        while let Ok(chunk) = chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.take(&chunk, until);
        }
        self.pause(until);
        let Self { lines, watch, .. } = self;
        lines.finish(|line| watch.line(line));
    }

    fn take(&mut self, chunk: &Chunk, until: &[&str]) {
        self.latest = self.latest.max(chunk.at);
        self.said_bytes = self.said_bytes.saturating_add(chunk.bytes.len());
        let at = chunk.at.duration_since(self.start);
        match chunk.port {
            // The guest is about to be stopped for it.
            Port::Log if self.log.len() > MOST_BYTES => {}
            Port::Log => {
                self.first_output.get_or_insert(at);
                self.log.extend_from_slice(&chunk.bytes);
                let ends = chunk.bytes.iter().filter(|byte| **byte == b'\n');
                let room = MOST_LINE_ENDS.saturating_sub(self.line_ends.len());
                self.line_ends.extend(ends.take(room).map(|_| at));
                let Self {
                    lines,
                    watch,
                    until_seen,
                    ..
                } = self;
                lines.push(&chunk.bytes, |line| {
                    *until_seen |= until.iter().any(|text| line.contains(text));
                    if !line.starts_with(MARK) {
                        watch.line(line);
                    }
                });
            }
            Port::Events => keep(&mut self.events, &chunk.bytes),
            Port::Complaints => keep(&mut self.complaints, &chunk.bytes),
            Port::Markers if self.markers.len() < MOST_MARKERS => {
                chunk
                    .bytes
                    .iter()
                    .for_each(|code| self.company.marker(*code));
                self.markers
                    .extend(chunk.bytes.iter().map(|byte| (*byte, at)));
                self.markers.truncate(MOST_MARKERS);
            }
            Port::Markers => {}
        }
    }
}

/// Most markers kept; our image writes a dozen.
const MOST_MARKERS: usize = 1024;

/// Most lines whose time is kept.
const MOST_LINE_ENDS: usize = 1 << 20;

/// Appends, with a bound a little above what stops the guest.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    if kept.len() <= MOST_BYTES {
        kept.extend_from_slice(bytes);
    }
}
