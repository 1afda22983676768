//! The options that say what machine a guest has, and what runs it: [`Guest`].
//! Every subcommand that boots one has them.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use firstlight_figures::size;
use firstlight_lab::boot::{
    self, Accelerator, MOST_CPUS, MOST_NODES, Machine, Processor, Request, Wish,
};
use std::path::PathBuf;
use std::time::Duration;

/// A machine to boot.
#[derive(Args)]
pub(crate) struct Guest {
    /// Memory, in whole MiB; may be more than the host has (boot: 4G)
    #[arg(long, value_name = "SIZE", value_parser = memory_mib)]
    memory: Option<u64>,
    /// NUMA nodes; the last one takes what does not divide evenly
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_NODES)))]
    nodes: u32,
    /// CPUs; with fewer than nodes, some nodes have none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CPUS)))]
    cpus: u32,
    /// The processor
    #[arg(long, value_enum, default_value_t = Arch::X86_64)]
    arch: Arch,
    /// QEMU's board of x86_64 (q35); other processors have one
    #[arg(long, value_enum)]
    machine: Option<Board>,
    /// What runs the guest; auto takes KVM where a guest shows within 2 seconds that it works
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
    /// What time is counted in; instructions are the same from run to run
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    clock: Clock,
    /// Words for the guest's command line
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// Fail if the guest prints nothing for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Print the guest's log to standard error while it runs
    #[arg(long)]
    pub(crate) log: bool,
    /// The file of the image, instead of the one beside this program
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// QEMU, instead of the qemu-system-x86_64 in PATH, or that of the processor
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
    /// A further argument for QEMU; may be given more than once
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    qemu_arg: Vec<String>,
}

/// Processors.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Arch {
    /// That of PCs
    #[value(name = "x86_64")]
    X86_64,
    /// Arm's, of 64 bits
    Aarch64,
    /// RISC-V of 64 bits
    Riscv64,
}

/// QEMU's boards of x86_64.
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

pub(super) fn memory_mib(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)
        .ok()
        .filter(|bytes| bytes % (1 << 20) == 0);
    bytes
        .map(|bytes| bytes >> 20)
        .ok_or_else(|| "expected whole MiB, such as 200M, 64G or 1T".into())
}

impl Guest {
    /// The board.
    fn board(&self) -> Result<boot::Board, Failure> {
        let processor = match self.arch {
            Arch::X86_64 => Processor::X86_64,
            Arch::Aarch64 => Processor::Aarch64,
            Arch::Riscv64 => Processor::Riscv64,
        };
        match (processor, self.machine) {
            (processor, None) => Ok(boot::Board::of(processor)),
            (Processor::X86_64, Some(Board::Q35)) => Ok(boot::Board::Q35),
            (Processor::X86_64, Some(Board::Pc)) => Ok(boot::Board::Pc),
            (Processor::X86_64, Some(Board::Microvm)) => Ok(boot::Board::Microvm),
            (other, Some(_)) => Err(Failure::Usage(format!(
                "--machine names boards of x86_64: expected none with --arch {other}"
            ))),
        }
    }

    /// A boot of our image.
    ///
    /// # Errors
    /// A board that the processor lacks.
    pub(crate) fn request(&self) -> Result<Request, Failure> {
        Ok(Request {
            machine: Machine {
                board: self.board()?,
                memory_mib: self.memory.unwrap_or(Machine::default().memory_mib),
                nodes: self.nodes,
                cpus: self.cpus,
                clock: match self.clock {
                    Clock::Wall => boot::Clock::Wall,
                    Clock::Instructions => boot::Clock::Instructions,
                },
                firmware: boot::Firmware::Loader,
                balloon: false,
                hotplug: None,
            },
            wish: match self.accel {
                Accel::Auto => Wish::Auto,
                Accel::Kvm => Wish::This(Accelerator::Kvm),
                Accel::Tcg => Wish::This(Accelerator::Tcg),
            },
            image: self.image.clone(),
            append: self.append.clone(),
            extra: self.qemu_arg.clone(),
            qemu: self.qemu.clone(),
            silence: Duration::from_secs(self.timeout),
            ..Request::default()
        })
    }
}
