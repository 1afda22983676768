//! `firstlight boot`: a machine is booted under QEMU, with our image or a Linux,
//! and what it said of its memory becomes the same record as that of `up`.
//!
//! [`firstlight_lab::boot`] does it; here are the options, the [`progress`] while
//! it runs and the [report](render) after it.

mod progress;
mod render;

use crate::failure::Failure;
use crate::output::Output;
use crate::size;
use clap::{Args, ValueEnum};
use firstlight_lab::boot::{self, Accelerator, MOST_CPUS, MOST_NODES, Machine, Request, Wish};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Boot a machine under QEMU and see when its memory was ready
///
/// Without --kernel it boots Firstlight's own image, which runs the engine on the
/// bare machine; with it, any Linux. A Linux without --initrd ends in its panic for
/// want of a root file system, after its memory is up.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Memory, in whole MiB; may be more than the host has
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = memory_mib)]
    memory: u64,
    /// NUMA nodes; the last one takes what does not divide evenly
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_NODES)))]
    nodes: u32,
    /// CPUs; with fewer than nodes, some nodes have none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CPUS)))]
    cpus: u32,
    /// QEMU's board
    #[arg(long, value_enum, default_value_t = Board::Q35)]
    machine: Board,
    /// What runs the guest; auto takes KVM where a guest shows within 2 seconds that it works
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
    /// What time is counted in; instructions are the same from run to run
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,
    /// A Linux kernel, bzImage or vmlinux
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Its initial file system
    #[arg(
        long,
        value_name = "FILE",
        requires = "kernel",
        conflicts_with = "image"
    )]
    initrd: Option<PathBuf>,
    /// Words for the guest's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// End as soon as a line of the guest's log contains TEXT
    #[arg(long, value_name = "TEXT")]
    until: Option<String>,
    /// A guest that is silent for so long hangs
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Print the guest's log to standard error while it runs
    #[arg(long)]
    log: bool,
    /// Show every region, node, zone, correction and marker
    #[arg(long)]
    full: bool,
    /// The file of the image, instead of the one beside this program
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    image: Option<PathBuf>,
    /// QEMU, instead of the qemu-system-x86_64 in PATH
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
    /// A further argument for QEMU; may be given more than once
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    qemu_arg: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight boot --memory 64G --nodes 2 --cpus 4          our image
  firstlight boot --append selftest                        and let it check its allocator
  firstlight boot --clock instructions --memory 960G       the same figures on every run and host
  firstlight boot --kernel /boot/vmlinuz --memory 64G      a Linux, up to its missing root file system
  firstlight boot --kernel vmlinuz --initrd initrd --until login:
  firstlight boot --qemu-arg=-acpitable --qemu-arg=sig=SRAT,file=srat.bin
  firstlight boot --json | jq .milestones                  for programs

Exit codes: see firstlight --help";

/// QEMU's boards.
#[derive(Clone, Copy, ValueEnum)]
enum Board {
    /// PCI Express, with all ACPI tables
    Q35,
    /// The PC of 1996
    Pc,
    /// The least that boots; one node only
    Microvm,
}

/// What runs the guest.
#[derive(Clone, Copy, ValueEnum)]
enum Accel {
    /// KVM if it works, else TCG
    Auto,
    /// The processor
    Kvm,
    /// QEMU's emulator
    Tcg,
}

/// What time is counted in.
#[derive(Clone, Copy, ValueEnum)]
enum Clock {
    /// The host's time
    Wall,
    /// One emulated instruction is one nanosecond; Linux with one CPU only
    Instructions,
}

fn memory_mib(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).filter(|bytes| bytes % (1 << 20) == 0);
    bytes
        .map(|bytes| bytes >> 20)
        .ok_or_else(|| "expected whole MiB, such as 200M, 64G or 1T".into())
}

impl Options {
    fn request(&self) -> Request {
        Request {
            machine: Machine {
                board: match self.machine {
                    Board::Q35 => boot::Board::Q35,
                    Board::Pc => boot::Board::Pc,
                    Board::Microvm => boot::Board::Microvm,
                },
                memory_mib: self.memory,
                nodes: self.nodes,
                cpus: self.cpus,
                clock: match self.clock {
                    Clock::Wall => boot::Clock::Wall,
                    Clock::Instructions => boot::Clock::Instructions,
                },
            },
            wish: match self.accel {
                Accel::Auto => Wish::Auto,
                Accel::Kvm => Wish::This(Accelerator::Kvm),
                Accel::Tcg => Wish::This(Accelerator::Tcg),
            },
            kernel: self.kernel.clone(),
            image: self.image.clone(),
            initrd: self.initrd.clone(),
            append: self.append.clone(),
            extra: self.qemu_arg.clone(),
            qemu: self.qemu.clone(),
            silence: Duration::from_secs(self.timeout),
            until: self.until.clone(),
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let stop = Arc::new(AtomicUsize::new(0));
    for (signal, number) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stop), number)
            .map_err(|error| Failure::Io(format!("cannot listen for signals: {error}")))?;
    }
    let mut progress = progress::Progress::new(options.log);
    let result = boot::run(&options.request(), &stop, &mut progress);
    progress.finish();
    let record = result.map_err(Failure::Boot)?;
    output.print(&record, |record| render::report(record, options.full))
}
