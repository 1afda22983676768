//! What can go wrong with a boot: [`Refusal`] before it, [`BootError`] on the way,
//! [`Fault`] when it was the guest.

use firstlight_figures::advice::Advised;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::hotplug::MOST_SLOTS;
use super::machine::{Board, LEAST_MIB, MOST_CPUS, MOST_NODES, Processor};
use crate::stick::StickError;

/// A machine that cannot be, and what can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No nodes, or more than QEMU describes.
    #[error("{0} nodes: QEMU describes 1 to {MOST_NODES}")]
    Nodes(u32),
    /// No CPUs, or more than have a number.
    #[error("{0} CPUs: expected 1 to {MOST_CPUS}")]
    Cpus(u32),
    /// Not enough for firmware; in MiB.
    #[error("{0}M of memory: firmware needs at least {LEAST_MIB}M to start")]
    LittleMemory(u64),
    /// Less than a MiB a node.
    #[error("{memory_mib}M on {nodes} nodes: expected at least 1 MiB a node")]
    EmptyNodes {
        /// What there is, in MiB.
        memory_mib: u64,
        /// How many nodes want some.
        nodes: u32,
    },
    /// Several nodes on a board that describes none.
    #[error(
        "{0} nodes: a microvm has no table that describes nodes (SRAT); use --machine q35 or pc"
    )]
    Undescribed(u32),
    /// No slots for DIMMs, or more than there can be.
    #[error("{0} slots: expected 1 to {MOST_SLOTS}")]
    Slots(u32),
    /// DIMMs can add nothing.
    #[error(
        "--max-memory {max_memory_mib}M: expected more than the {memory_mib}M that are there from the start"
    )]
    NoMoreMemory {
        /// The most memory, in MiB.
        max_memory_mib: u64,
        /// What there is from the start, in MiB.
        memory_mib: u64,
    },
    /// DIMMs on a microvm, or beside a balloon.
    #[error("DIMMs come and go on --machine q35 or pc, without --balloon")]
    NoHotplug,
    /// UEFI for a Linux, on a microvm, or for riscv64.
    #[error(
        "--firmware uefi starts our image for x86_64, on --machine q35 or pc, or with --arch aarch64: drop --kernel or another --arch or --machine"
    )]
    NoUefi,
    /// Not enough memory for UEFI; in MiB.
    #[error("{0}M of memory: UEFI needs at least 128M to start")]
    LittleForUefi(u64),
    /// A Linux with several CPUs on the instruction clock.
    #[error("{0} CPUs: Linux does not start its other CPUs on the instruction clock; use --cpus 1")]
    LinuxCpus(u32),
    /// A processor of 32 bits, by QEMU's name.
    #[error("{0} has 32 bits: expected a processor of 64, such as -cpu cortex-a57 or -cpu max")]
    Narrow(&'static str),
    /// The instruction clock under KVM.
    #[error(
        "the instruction clock counts what the emulator does, not KVM; use --accel tcg or --clock wall"
    )]
    KvmCounts,
    /// Another processor than the host's under KVM.
    #[error("{0} is emulated here: expected --accel tcg, or auto")]
    KvmOther(Processor),
    /// More memory than an emulated processor has addresses for.
    #[error("{memory_mib}M of memory: an emulated processor has addresses of {} bits, which leaves {}G on {board}; use less{}", .board.emulated_bits(), .most_mib >> 10, if board.processor() == Processor::X86_64 { ", or KVM" } else { "" })]
    BeyondReach {
        /// What was asked for, in MiB.
        memory_mib: u64,
        /// What it reaches, in MiB.
        most_mib: u64,
        /// On which board.
        board: Board,
    },
}

/// What a guest did that it should not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misdeed {
    /// It said nothing for so many seconds.
    #[error("the guest hangs: nothing came from it for {0} s (--timeout waits longer)")]
    Hung(u64),
    /// It said more than anybody would read: so many bytes.
    #[error("the guest does not stop talking: {0} bytes so far")]
    Flooded(u64),
    /// It ended without saying that it would.
    #[error("the guest died: {}", died(*.0))]
    Died(Option<i32>),
    /// The processor refused to go on, and it said so.
    #[error("the guest met a processor fault: {0}")]
    Faulted(String),
    /// It gave up, in its own words.
    #[error("the guest gave up: {0}")]
    Panicked(String),
    /// A line that makes no sense on the port for events, and why.
    #[error("the guest prints rubbish: {0}")]
    Rubbish(String),
    /// What it said of its end and QEMU's exit status do not fit.
    #[error("the guest contradicts itself: {0}")]
    Contradicted(String),
}

/// A boot that went wrong, with all that helps to find out why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the guest did.
    pub misdeed: Misdeed,
    /// The last lines of its log.
    pub tail: Vec<String>,
    /// What QEMU itself complained about.
    pub complaints: Vec<String>,
    /// The command to repeat the boot.
    pub command: Vec<String>,
    /// Boots, this one included.
    pub attempts: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.misdeed)?;
        if self.attempts > 1 {
            write!(f, " (boot {} of {})", self.attempts, self.attempts)?;
        }
        Ok(())
    }
}

/// Why a boot gave no record.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The machine cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file that cannot be read.
    #[error("cannot read the {what} {path}: {}", Advised(.error))]
    Unreadable {
        /// What it should have been.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// QEMU is not there, or does not start.
    #[error("cannot start {program}: {error}; the Debian package {} has it, and --qemu names another", package(.program))]
    NoQemu {
        /// What was to be started.
        program: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// QEMU started and refused what it was told, in its own words.
    #[error("QEMU does not run this machine: {words}")]
    QemuRefused {
        /// Its words.
        words: String,
        /// What it was told.
        command: Vec<String>,
    },
    /// Our image is not there and cannot be built; why, and what to do.
    #[error("no image to boot: {0}")]
    NoImage(String),
    /// There is no UEFI for virtual machines.
    #[error(
        "no UEFI for virtual machines (OVMF_CODE.fd, OVMF_VARS.fd; of aarch64 AAVMF_CODE.fd, AAVMF_VARS.fd) in /usr/share; the Debian packages ovmf and qemu-efi-aarch64 have it"
    )]
    NoFirmware,
    /// The stick cannot be made.
    #[error(transparent)]
    Stick(StickError),
    /// Something of the host's, such as a pipe, was not to be had.
    #[error("cannot {what}: {error}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// The guest's own checks failed.
    #[error("{0}")]
    CheckFailed(Box<Fault>),
    /// The guest could not bring the machine up.
    #[error("{0}")]
    Machine(Box<Fault>),
    /// The guest went wrong.
    #[error("{0}")]
    Guest(Box<Fault>),
    /// Somebody asked to stop: the number of the signal.
    #[error("stopped by signal {0}")]
    Interrupted(i32),
}

impl BootError {
    /// What is known of the guest's part in it.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::CheckFailed(fault) | Self::Machine(fault) | Self::Guest(fault) => Some(fault),
            _ => None,
        }
    }
}

/// How a guest ended, by QEMU's exit status; `None` if a signal did it.
fn died(status: Option<i32>) -> String {
    match status {
        Some(0) => "the machine was reset or switched off, and the guest had not said why".into(),
        Some(status) => {
            format!("QEMU ended with status {status} and the guest had not said why")
        }
        None => "a signal ended QEMU".into(),
    }
}

/// The Debian package of a QEMU.
fn package(program: &Path) -> &'static str {
    match program.file_name().and_then(|name| name.to_str()) {
        Some("qemu-system-aarch64") => "qemu-system-arm",
        Some("qemu-system-riscv64") => "qemu-system-misc",
        _ => "qemu-system-x86",
    }
}
