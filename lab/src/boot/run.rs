//! One boot from request to record: [`run`].

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::accelerator::{self, first_line};
use super::ask::ask;
use super::command::Launch;
use super::compose::{self, Circumstances};
use super::error::{BootError, Fault, Misdeed, Refusal};
use super::events::Events;
use super::guest::{Limits, listen};
use super::heard::{Heard, How};
use super::machine::{Accelerator, Firmware, Processor, System};
use super::request::Request;
use super::verdict::{self, Failing};
use super::watch::Watch;
use super::{balloon, hotplug, image, linux_end, uefi};
use crate::log::{self, clean_text};
use crate::record::Record;
use crate::stick::Programs;

/// Lines of a log that are quoted when its guest went wrong.
const TAIL_LINES: usize = 20;
/// Boots of a Linux that QEMU let die, at most.
const MOST_ATTEMPTS: u64 = 5;

/// The processor of 32 bits that QEMU would start, on which no image of 64 can say a word. A PC's starts
/// in 32 bits, so there the image says it.
fn narrow(extra: &[String]) -> Option<&'static str> {
    let named = extra.windows(2).rev().find(|words| words[0] == "-cpu")?;
    let name = named[1].split(',').next()?;
    // Those of the board virt.
    let all = ["cortex-a7", "cortex-a15"];
    all.into_iter().find(|narrow| *narrow == name)
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
    let processor = request.machine.board.processor();
    if let Some(name) = narrow(&request.extra) {
        return Err(Refusal::Narrow(name).into());
    }
    let qemu = request
        .qemu
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("qemu-system-{processor}")));
    let version =
        version(&qemu, stop, watch).map_err(|error| interrupted(stop).unwrap_or(error))?;
    let kernel = match (&request.kernel, &request.image) {
        (Some(kernel), _) => readable("kernel", kernel)?,
        (None, Some(image)) => {
            let path = readable("image", image)?;
            image::check(processor, &path)?;
            path
        }
        (None, None) => find_image(processor, stop, watch)?,
    };
    if let Some(initrd) = &request.initrd {
        readable("initial file system", initrd)?;
    }
    let choice = accelerator::choose(request.wish, &request.machine, &qemu, stop, watch)?;
    request.machine.check_accelerator(choice.accelerator)?;
    let uefi = match request.machine.firmware {
        Firmware::Loader => None,
        Firmware::Uefi => Some(with_stick(request, &kernel, stop, watch)?),
    };
    let launch = Launch {
        machine: &request.machine,
        accelerator: choice.accelerator,
        system,
        kernel: &kernel,
        initrd: request.initrd.as_deref(),
        append: &request.append,
        uefi: uefi.as_ref(),
        extra: &request.extra,
    };
    let mut boot = Boot {
        request,
        launch,
        qemu: &qemu,
        attempts: 0,
        retried_because: None,
    };
    let (mut heard, events) = boot.until_good(stop, watch)?;
    let observed = std::mem::take(&mut heard.observed);
    let driven = std::mem::take(&mut heard.driven);
    let around = Circumstances {
        request,
        launch: &boot.launch,
        qemu: boot.qemu,
        qemu_version: Some(version),
        choice,
        attempts: boot.attempts,
        retried_because: boot.retried_because.clone(),
    };
    let mut record = compose::record(&heard, &events, around);
    balloon::fill(&events, observed, &mut record);
    hotplug::fill(&events, driven, &mut record);
    Ok(record)
}

/// The file of our image for `processor`, built if that is asked for: where it lies or what
/// `FIRSTLIGHT_IMAGE` or `FIRSTLIGHT_SOURCE` names.
///
/// # Errors
/// [`BootError::NoImage`], [`BootError::Interrupted`].
pub fn find_image(
    processor: Processor,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<PathBuf, BootError> {
    image::find(&image::Program::image(processor), stop, watch)
        .map_err(|error| interrupted(stop).unwrap_or(error))
}

/// The file of the UEFI loader for a processor, found or built like the image; `FIRSTLIGHT_LOADER` names another.
///
/// # Errors
/// As [`find_image`].
pub fn find_loader(
    processor: Processor,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<PathBuf, BootError> {
    image::find(&image::Program::loader(processor), stop, watch)
        .map_err(|error| interrupted(stop).unwrap_or(error))
}

/// A machine with UEFI and a stick that has `image` and the words of `request` on it.
fn with_stick(
    request: &Request,
    image: &Path,
    stop: &AtomicUsize,
    watch: &mut dyn Watch,
) -> Result<uefi::Uefi, BootError> {
    let processor = request.machine.board.processor();
    let loader = find_loader(processor, stop, watch)?;
    let launch = Launch {
        machine: &request.machine,
        accelerator: Accelerator::Tcg,
        system: System::Image,
        kernel: image,
        initrd: None,
        append: &request.append,
        uefi: None,
        extra: &[],
    };
    let programs = Programs {
        loader: &loader,
        image,
    };
    uefi::Uefi::new(processor, programs, &launch.command_line())
}

/// The signal that is to end it, if one came.
pub fn interrupted(stop: &AtomicUsize) -> Option<BootError> {
    let signal = stop.load(Ordering::Relaxed);
    let number = i32::try_from(signal).unwrap_or(i32::MAX);
    (signal != 0).then_some(BootError::Interrupted(number))
}

/// What QEMU calls itself: the number in `QEMU emulator version 7.2.22 (...)`.
fn version(qemu: &Path, stop: &AtomicUsize, watch: &mut dyn Watch) -> Result<String, BootError> {
    let mut command = Command::new(qemu);
    command.arg("--version");
    let answer = ask(command, None, stop, watch).and_then(|answer| {
        let text = clean_text(&answer.stdout);
        let mut words = text
            .strip_prefix("QEMU ")
            .unwrap_or_default()
            .split_whitespace()
            .skip_while(|word| *word != "version");
        let version = words.nth(1).map(str::to_owned);
        version.ok_or_else(|| io::Error::other("it does not tell its version as QEMU does"))
    });
    answer.map_err(|error| BootError::NoQemu {
        program: qemu.to_owned(),
        error,
    })
}

/// `path`, if it is a file that can be read.
fn readable(what: &'static str, path: &Path) -> Result<PathBuf, BootError> {
    // Asked before it is opened: to open a pipe is to wait for whoever writes it.
    let opened = fs::metadata(path).and_then(|metadata| {
        if metadata.is_file() {
            File::open(path).map(drop)
        } else {
            Err(io::Error::other("it is no regular file"))
        }
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
    /// Boots, and again if it was QEMU that let Linux die.
    fn until_good(
        &mut self,
        stop: &AtomicUsize,
        watch: &mut dyn Watch,
    ) -> Result<(Heard, Events), BootError> {
        let mut until: Vec<&str> = self.request.until.as_deref().into_iter().collect();
        if self.launch.system == System::Linux {
            until.push(linux_end::HALTED);
        }
        let limits = Limits {
            silence: self.request.silence,
            total: None,
            until: &until,
            stop,
        };
        loop {
            self.attempts += 1;
            watch.stage(if self.attempts == 1 {
                "booting"
            } else {
                "booting again"
            });
            if let Some(interrupted) = interrupted(stop) {
                return Err(interrupted);
            }
            let script = self.request.script.as_ref();
            let heard = listen(self.qemu, &self.launch, Vec::new(), script, &limits, watch)?;
            if let How::Interrupted(signal) = heard.how {
                return Err(BootError::Interrupted(signal));
            }
            // Nobody reads what has no end.
            let readable = !matches!(heard.how, How::Flooded(_));
            let log = heard.log.as_slice();
            let log = if readable { log } else { &[] };
            let exited = heard.how == How::Exited;
            let whole = |bytes| if exited { bytes } else { whole_lines(bytes) };
            let lines = log::lines(log);
            let events = match self.launch.system {
                System::Image if self.launch.uefi.is_some() => {
                    Events::read(whole(&uefi::own_events(&heard)), &[])
                }
                System::Image => Events::read(whole(&heard.events), whole(log)),
                System::Linux => Events::default(),
            };
            let Err(failing) = self.judge(&heard, &events, &lines) else {
                return Ok((heard, events));
            };
            let emulated = self.launch.accelerator == Accelerator::Tcg;
            if self.launch.system == System::Linux && emulated && self.attempts < MOST_ATTEMPTS {
                let cpus = self.launch.machine.cpus;
                self.retried_because = linux_end::died_of_the_emulator(&lines, cpus);
                if self.retried_because.is_some() {
                    continue;
                }
            }
            return Err(self.error(&heard, failing));
        }
    }

    fn judge(
        &self,
        heard: &Heard,
        events: &Events,
        lines: &[log::Line<'_>],
    ) -> Result<(), Failing> {
        if let Some(uefi) = self.launch.uefi {
            return uefi.judge(heard, events);
        }
        match self.launch.system {
            System::Image => {
                let last = lines.last().map_or("", |line| &*line.text);
                verdict::judge(heard, events, last)
            }
            System::Linux => {
                let initrd = self.request.initrd.is_some();
                linux_end::judge(lines, heard.how, heard.status, initrd).map_err(Failing::Guest)
            }
        }
    }

    /// All there is to know about a boot that went wrong.
    fn error(&self, heard: &Heard, failing: Failing) -> BootError {
        let command = compose::command(self.qemu, &self.launch);
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
}

/// Without a last line that has no end: of a guest that was ended while it spoke, that
/// is not the guest's fault.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.get(..end.unwrap_or(0)).unwrap_or_default()
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
