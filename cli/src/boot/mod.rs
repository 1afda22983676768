//! `firstlight boot`: a machine is booted under QEMU, with our image or a Linux,
//! and what it said of its memory becomes the same record as that of `up`.
//!
//! [`firstlight_lab::boot`] does it; here are the options, those of the machine
//! in [`guest`], the [`progress`] while it runs and the [report](render) after it.

mod balloon;
mod guest;
mod hotplug;
mod progress;
pub(crate) mod render;
mod restart;

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Command, FromArgMatches, ValueEnum};
use firstlight_figures::advice::Advised;
use firstlight_lab::boot::hotplug::{MOST_SLOTS, Script, ScriptError};
use firstlight_lab::boot::{self, BootError, Machine, Processor, Request, Slots, Unwatched};
use firstlight_lab::console;
use firstlight_lab::matrix::Store;
use firstlight_lab::record::Record;
use guest::Guest;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

/// Boot a machine under QEMU and see when its memory was ready
///
/// Without --kernel it boots Firstlight's own image, which runs the engine on the
/// bare machine; with it, any Linux. A Linux without --initrd ends in its panic for
/// want of a root file system, after its memory is up.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    guest: Guest,
    /// A Linux kernel: bzImage or vmlinux, of another processor Image
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    kernel: Option<PathBuf>,
    /// Its initial file system
    #[arg(
        long,
        value_name = "FILE",
        requires = "kernel",
        conflicts_with = "image"
    )]
    initrd: Option<PathBuf>,
    /// What starts our image: QEMU's own loader, or UEFI from a stick, whose result is read back
    #[arg(long, value_enum, default_value_t = Firmware::Loader, conflicts_with = "kernel")]
    firmware: Firmware,
    /// Add a memory balloon: our image writes and frees half of its memory, reports it as free
    /// with --append reporting=on, and QEMU's memory is watched meanwhile
    #[arg(long, conflicts_with = "kernel")]
    balloon: bool,
    /// Slots for DIMMs that come and go while our image runs (with a script: as many as it adds)
    #[arg(long, value_name = "N", conflicts_with_all = ["kernel", "balloon"], value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLOTS)))]
    slots: Option<u32>,
    /// Most memory, DIMMs included (with a script: all it adds, rounded up)
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["kernel", "balloon"], value_parser = guest::memory_mib)]
    max_memory: Option<u64>,
    /// What QEMU's monitor does with DIMMs: lines of "at MS add SIZE [node N]" and
    /// "at MS remove ID", dimm1 for the first that was added; MS count from when the image serves them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "balloon"])]
    hotplug_script: Option<PathBuf>,
    /// End as soon as a line of the guest's log contains TEXT
    #[arg(long, value_name = "TEXT")]
    until: Option<String>,
    /// Show every region, node, zone, correction and marker
    #[arg(long)]
    full: bool,
}

/// What starts our image.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Firmware {
    /// QEMU's -kernel, by PVH
    Loader,
    /// OVMF (Debian's packages ovmf, qemu-efi-aarch64), from a stick
    Uefi,
}

const EXAMPLES: &str = "\
Examples:
  firstlight boot --memory 64G --nodes 2 --cpus 4          our image
  firstlight boot --append selftest                        and let it check its allocator
  firstlight boot --clock instructions --memory 960G       the same figures on every run and host
  firstlight boot --arch aarch64 --append selftest         on another processor, emulated
  firstlight boot --balloon --append 'zeroing=on reporting=on'  free memory goes back to the host
  firstlight boot --firmware uefi --append selftest        as from a stick on a real machine
  firstlight boot --append restart=warm                    guests' memory outlives a restart
  firstlight boot --memory 2G --hotplug-script dimms       memory comes and goes by QEMU's monitor
  firstlight boot --kernel /boot/vmlinuz --memory 64G      a Linux, up to its missing root file system
  firstlight boot --kernel vmlinuz --initrd initrd --until login:
  firstlight boot --qemu-arg=-acpitable --qemu-arg=sig=SRAT,file=srat.bin
  firstlight boot --json | jq .milestones                  for programs

Exit codes: see firstlight --help";

impl Options {
    /// The options in a list of words, as on a command line of their own.
    pub(crate) fn of_words(words: Vec<String>) -> Result<Self, clap::Error> {
        let command = Command::new("boot")
            .no_binary_name(true)
            .disable_help_flag(true);
        let matches = Self::augment_args(command).try_get_matches_from(words)?;
        Self::from_arg_matches(&matches)
    }

    pub(crate) fn prints_log(&self) -> bool {
        self.guest.log
    }

    /// The script, if there is one.
    fn script(&self) -> Result<Option<Script>, Failure> {
        let Some(path) = &self.hotplug_script else {
            return Ok(None);
        };
        let failed = |why: &dyn std::fmt::Display| {
            Failure::Usage(format!("--hotplug-script {}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&Advised(&error)))?;
        text.parse()
            .map(Some)
            .map_err(|error: ScriptError| failed(&error))
    }

    pub(crate) fn request(&self) -> Result<Request, Failure> {
        let request = self.guest.request()?;
        let script = self.script()?;
        let memory_mib = request.machine.memory_mib;
        let hotplug = match (&script, self.slots, self.max_memory) {
            (None, None, None) => None,
            (None, Some(_), None) | (None, None, Some(_)) => {
                return Err(Failure::Usage(
                    "--slots and --max-memory come together, or with --hotplug-script".into(),
                ));
            }
            (script, slots, most) => {
                let added = script.as_ref().map_or(0, |script| {
                    // QEMU's memory has whole MiB, and a GiB is a size to end at.
                    script.added_bytes().div_ceil(1 << 30) << 10
                });
                let dimms = script.as_ref().map_or(0, Script::dimms);
                Some(Slots {
                    slots: slots.unwrap_or(dimms.clamp(1, MOST_SLOTS)),
                    max_memory_mib: most.unwrap_or(memory_mib.saturating_add(added)),
                })
            }
        };
        Ok(Request {
            script,
            machine: Machine {
                firmware: match self.firmware {
                    Firmware::Loader => boot::Firmware::Loader,
                    Firmware::Uefi => boot::Firmware::Uefi,
                },
                balloon: self.balloon,
                hotplug,
                ..request.machine
            },
            kernel: self.kernel.clone(),
            initrd: self.initrd.clone(),
            until: self.until.clone(),
            ..request
        })
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let record = Boots::new(options.guest.log)?.run(&options.request()?)?;
    output.print(&record, |record| render::report(record, options.full))
}

/// Boots, one after the other, that a signal ends and a terminal shows.
pub(crate) struct Boots {
    stop: Arc<AtomicUsize>,
    prints_log: bool,
    silent: bool,
}

impl Boots {
    /// Boots without a line of their own on the terminal.
    pub(crate) fn silent() -> Result<Self, Failure> {
        Ok(Self {
            silent: true,
            ..Self::new(false)?
        })
    }

    pub(crate) fn new(prints_log: bool) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicUsize::new(0));
        for (signal, number) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), number)
                .map_err(|error| Failure::Io(format!("cannot listen for signals: {error}")))?;
        }
        Ok(Self {
            stop,
            prints_log,
            silent: false,
        })
    }

    /// The file of our image.
    pub(crate) fn image(&self, processor: Processor) -> Result<PathBuf, Failure> {
        boot::find_image(processor, &self.stop, &mut Unwatched).map_err(Failure::Boot)
    }

    /// The file of our UEFI loader.
    pub(crate) fn loader(&self, processor: Processor) -> Result<PathBuf, Failure> {
        boot::find_loader(processor, &self.stop, &mut Unwatched).map_err(Failure::Boot)
    }

    /// Waits; a signal ends it.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        loop {
            if let Some(stopped) = boot::interrupted(&self.stop) {
                return Err(Failure::Boot(stopped));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Listens to a real machine's console.
    pub(crate) fn listen(
        &self,
        request: &console::Request,
        store: &Store,
    ) -> Result<console::Watched, Failure> {
        let mut progress = progress::Progress::new(self.prints_log);
        let result = console::watch(request, store, &self.stop, &mut progress);
        progress.finish();
        result.map_err(|error| Failure::Io(error.to_string()))
    }

    pub(crate) fn run(&self, request: &Request) -> Result<Record, Failure> {
        self.boot(request).map_err(Failure::Boot)
    }

    /// As [`Boots::run`], with the lab's own error.
    pub(crate) fn boot(&self, request: &Request) -> Result<Record, BootError> {
        if self.silent {
            return boot::run(request, &self.stop, &mut Unwatched);
        }
        let mut progress = progress::Progress::new(self.prints_log);
        let result = boot::run(request, &self.stop, &mut progress);
        progress.finish();
        result
    }
}
