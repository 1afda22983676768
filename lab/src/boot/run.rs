//! One boot from request to record: [`run`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::accelerator::{self, Choice, Wish, first_line};
use super::command::{Launch, Ports};
use super::error::{BootError, Fault, Misdeed};
use super::events::Events;
use super::guest::{Heard, How, Limits, listen};
use super::machine::{Accelerator, Machine, System};
use super::verdict::{self, Failing};
use super::watch::Watch;
use super::{image, linux, tell};
use crate::log::{self, clean_text};
use crate::record::{Asked, Host, Kernel, Marker, Record};

/// Lines of a log that are quoted when its guest went wrong.
const TAIL_LINES: usize = 20;
/// Boots of a Linux that QEMU let die, at most.
const MOST_ATTEMPTS: u64 = 2;

/// What is to be booted, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The machine.
    pub machine: Machine,
    /// What runs it.
    pub wish: Wish,
    /// A Linux kernel; without one it is our image.
    pub kernel: Option<PathBuf>,
    /// The file of our image, where it is not to be looked for.
    pub image: Option<PathBuf>,
    /// Linux's initial file system.
    pub initrd: Option<PathBuf>,
    /// Words for the guest's command line.
    pub append: String,
    /// Further arguments for QEMU.
    pub extra: Vec<String>,
    /// QEMU, where it is not to be looked for.
    pub qemu: Option<PathBuf>,
    /// A guest that is silent for so long hangs.
    pub silence: Duration,
    /// A guest whose log has this text has done what it should.
    pub until: Option<String>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            machine: Machine::default(),
            wish: Wish::default(),
            kernel: None,
            image: None,
            initrd: None,
            append: String::new(),
            extra: Vec::new(),
            qemu: None,
            silence: Duration::from_secs(120),
            until: None,
        }
    }
}

impl Request {
    fn system(&self) -> System {
        match self.kernel {
            Some(_) => System::Linux,
            None => System::Image,
        }
    }
}

/// Boots what `request` says and tells what came of it. While it runs, `watch`
/// looks on; as soon as `stop` holds the number of a signal, all is ended.
///
/// Must be called on a thread that goes on until it returns: QEMU ends with it.
///
/// # Errors
/// [`BootError`]; a guest that went wrong is one.
pub fn run(
    request: &Request,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<Record, BootError> {
    let system = request.system();
    request.machine.check(system)?;
    let qemu = request
        .qemu
        .clone()
        .unwrap_or_else(|| PathBuf::from("qemu-system-x86_64"));
    let version = version(&qemu)?;
    let kernel = match (&request.kernel, &request.image) {
        (Some(kernel), _) => readable("kernel", kernel)?,
        (None, Some(image)) => readable("image", image)?,
        (None, None) => image::find(watch)?,
    };
    if let Some(initrd) = &request.initrd {
        readable("initial file system", initrd)?;
    }
    let choice = accelerator::choose(request.wish, request.machine.clock, &qemu, stop, watch)?;
    request.machine.check_accelerator(choice.accelerator)?;
    let launch = Launch {
        machine: &request.machine,
        accelerator: choice.accelerator,
        system,
        kernel: &kernel,
        initrd: request.initrd.as_deref(),
        append: &request.append,
        extra: &request.extra,
    };
    let mut boot = Boot {
        request,
        launch,
        qemu: &qemu,
        attempts: 0,
        retried_because: None,
    };
    let (heard, events) = boot.until_good(stop, watch)?;
    Ok(boot.record(&heard, &events, choice, version))
}

/// What QEMU calls itself: the number in `QEMU emulator version 7.2.22 (...)`.
fn version(qemu: &Path) -> Result<Option<String>, BootError> {
    let output = Command::new(qemu)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| BootError::NoQemu {
            program: qemu.to_owned(),
            error,
        })?;
    let text = clean_text(&output.stdout);
    let mut words = text.split_whitespace();
    Ok(words
        .find(|word| *word == "version")
        .and_then(|_| words.next())
        .map(str::to_owned))
}

/// The same path, if it is a file that can be read.
fn readable(what: &'static str, path: &Path) -> Result<PathBuf, BootError> {
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        Ok(())
    });
    opened.map_err(|error| BootError::Unreadable {
        what,
        path: path.to_owned(),
        error,
    })?;
    Ok(path.to_owned())
}

/// A boot under way.
struct Boot<'b> {
    request: &'b Request,
    launch: Launch<'b>,
    qemu: &'b Path,
    attempts: u64,
    retried_because: Option<String>,
}

impl Boot<'_> {
    /// Boots, and once more if it was QEMU that let Linux die.
    fn until_good(
        &mut self,
        stop: &AtomicUsize,
        watch: &mut dyn Watch,
    ) -> Result<(Heard, Events), BootError> {
        let limits = Limits {
            silence: self.request.silence,
            total: None,
            until: self.request.until.as_deref(),
            stop,
        };
        loop {
            self.attempts += 1;
            watch.stage(if self.attempts == 1 {
                "booting"
            } else {
                "booting again"
            });
            let signal = stop.load(Ordering::Relaxed);
            if signal != 0 {
                let signal = i32::try_from(signal).unwrap_or(i32::MAX);
                return Err(BootError::Interrupted(signal));
            }
            let heard = listen(self.qemu, &self.launch, Vec::new(), &limits, watch)?;
            if let How::Interrupted(signal) = heard.how {
                return Err(BootError::Interrupted(signal));
            }
            // Nobody reads what has no end.
            let readable = !matches!(heard.how, How::Flooded(_));
            let log = heard.log.as_slice();
            let log = if readable { log } else { &[] };
            let lines = log::lines(log);
            let events = match self.launch.system {
                System::Image => Events::read(&heard.events, log),
                System::Linux => Events::default(),
            };
            let Err(failing) = self.judge(&heard, &events, &lines) else {
                return Ok((heard, events));
            };
            let emulated = self.launch.accelerator == Accelerator::Tcg;
            if self.launch.system == System::Linux && emulated && self.attempts < MOST_ATTEMPTS {
                self.retried_because = linux::verdict::patched_to_death(&lines);
                if self.retried_because.is_some() {
                    continue;
                }
            }
            return Err(self.error(&heard, failing));
        }
    }

    fn judge(&self, heard: &Heard, events: &Events, lines: &[log::Line]) -> Result<(), Failing> {
        match self.launch.system {
            System::Image => {
                let last = lines.last().map_or("", |line| line.text.as_str());
                verdict::judge(heard, events, last)
            }
            System::Linux => {
                let initrd = self.request.initrd.is_some();
                linux::verdict::judge(lines, heard.how, heard.status, initrd)
                    .map_err(Failing::Guest)
            }
        }
    }

    /// All there is to know about a boot that went wrong.
    fn error(&self, heard: &Heard, failing: Failing) -> BootError {
        let command = self.command();
        let silent = heard.log.is_empty() && heard.events.is_empty() && heard.markers.is_empty();
        let refused = heard.how == How::Exited && silent && !heard.complaints.is_empty();
        if refused && heard.status.code() == Some(1) {
            return BootError::QemuRefused {
                words: first_line(&heard.complaints),
                command,
            };
        }
        let (misdeed, wrap): (Misdeed, fn(Box<Fault>) -> BootError) = match failing {
            Failing::Check(misdeed) => (misdeed, BootError::CheckFailed),
            Failing::Machine(misdeed) => (misdeed, BootError::Machine),
            Failing::Guest(misdeed) => (misdeed, BootError::Guest),
        };
        wrap(Box::new(Fault {
            misdeed,
            tail: tail(&heard.log),
            complaints: tail(&heard.complaints),
            command,
            attempts: self.attempts,
        }))
    }

    /// The command to repeat the boot by hand.
    fn command(&self) -> Vec<String> {
        let arguments = self.launch.arguments(&Ports::terminal());
        let mut command = vec![self.qemu.display().to_string()];
        command.extend(
            arguments
                .iter()
                .map(|word| word.to_string_lossy().into_owned()),
        );
        command
    }

    fn record(
        &self,
        heard: &Heard,
        events: &Events,
        choice: Choice,
        qemu_version: Option<String>,
    ) -> Record {
        let machine = self.launch.machine;
        let mut record = Record::new("boot", machine.clock.name());
        let path = |path: &Path| path.display().to_string();
        let linux = self.launch.system == System::Linux;
        let kind = if linux { "linux" } else { "image" };
        record.source.kind = kind.into();
        record.source.name = self.request.kernel.as_deref().map_or(String::new(), path);
        record.source.command_line = self.launch.command_line();
        let file = self
            .request
            .kernel
            .as_deref()
            .or(self.request.image.as_deref());
        record.source.kernel = Some(Kernel {
            kind: kind.into(),
            release: None,
            file: file.map(path),
            initrd: self.request.initrd.as_deref().map(path),
        });
        record.machine.asked = Some(Asked {
            board: machine.board.name().into(),
            memory_bytes: machine.memory_mib.saturating_mul(1 << 20),
            nodes: machine.nodes.into(),
            cpus: machine.cpus.into(),
        });
        if linux {
            linux::tell(&heard.log, &mut record);
        } else {
            record.source.map = "the memory map the image was started with".into();
            record.source.nodes = "what firmware told the image".into();
            tell::tell(events, &mut record);
        }
        let lines = heard.log.split(|byte| *byte == b'\n');
        let text = lines.map(|line| String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        record.log = text.collect();
        if record.log.last().is_some_and(String::is_empty) {
            record.log.pop();
        }
        record.host = Some(self.host(heard, choice, qemu_version));
        record
    }

    fn host(&self, heard: &Heard, choice: Choice, qemu_version: Option<String>) -> Host {
        let markers = heard.markers.iter().map(|(code, at)| Marker {
            code: *code,
            name: Marker::name_of(*code),
            wall_ns: nanoseconds(*at),
        });
        Host {
            accelerator: choice.accelerator.name().into(),
            accelerator_reason: choice.reason,
            qemu_version,
            command: self.command(),
            attempts: self.attempts,
            retried_because: self.retried_because.clone(),
            exit_status: heard.status.code(),
            wall_ns: nanoseconds(heard.wall),
            first_output_ns: heard.first_output.map(nanoseconds),
            markers: markers.collect(),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The last lines that say something, without control characters.
fn tail(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.rsplit(|byte| *byte == b'\n');
    let mut lines: Vec<String> = lines
        .map(|line| clean_text(line).trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .take(TAIL_LINES)
        .collect();
    lines.reverse();
    lines
}
