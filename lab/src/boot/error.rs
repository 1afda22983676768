//! What can go wrong with a boot: [`Refusal`] before it, [`BootError`] on the way,
//! [`Fault`] when it was the guest.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::hotplug::MOST_SLOTS;
use super::machine::{Board, LEAST_MIB, MOST_CPUS, MOST_NODES, Processor};
use crate::stick::StickError;

/// A machine that cannot be, and what can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No nodes, or more than QEMU describes.
    Nodes(u32),
    /// No CPUs, or more than have a number.
    Cpus(u32),
    /// Not enough for firmware; in MiB.
    LittleMemory(u64),
    /// Less than a MiB a node.
    EmptyNodes {
        /// What there is, in MiB.
        memory_mib: u64,
        /// How many nodes want some.
        nodes: u32,
    },
    /// Several nodes on a board that describes none.
    Undescribed(u32),
    /// No slots for DIMMs, or more than there can be.
    Slots(u32),
    /// DIMMs can add nothing.
    NoMoreMemory {
        /// The most memory, in MiB.
        max_memory_mib: u64,
        /// What there is from the start, in MiB.
        memory_mib: u64,
    },
    /// DIMMs on a microvm, or beside a balloon.
    NoHotplug,
    /// UEFI for a Linux, or on a microvm.
    NoUefi,
    /// Not enough memory for UEFI; in MiB.
    LittleForUefi(u64),
    /// A Linux with several CPUs on the instruction clock.
    LinuxCpus(u32),
    /// A processor of 32 bits, by QEMU's name.
    Narrow(&'static str),
    /// The instruction clock under KVM.
    KvmCounts,
    /// Another processor than the host's under KVM.
    KvmOther(Processor),
    /// More memory than an emulated processor has addresses for.
    BeyondReach {
        /// What was asked for, in MiB.
        memory_mib: u64,
        /// What it reaches, in MiB.
        most_mib: u64,
        /// On which board.
        board: Board,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nodes(nodes) => write!(f, "{nodes} nodes: QEMU describes 1 to {MOST_NODES}"),
            Self::Cpus(cpus) => write!(f, "{cpus} CPUs: expected 1 to {MOST_CPUS}"),
            Self::LittleMemory(mib) => {
                write!(
                    f,
                    "{mib}M of memory: firmware needs at least {LEAST_MIB}M to start"
                )
            }
            Self::EmptyNodes { memory_mib, nodes } => write!(
                f,
                "{memory_mib}M on {nodes} nodes: expected at least 1 MiB a node"
            ),
            Self::Undescribed(nodes) => write!(
                f,
                "{nodes} nodes: a microvm has no table that describes nodes (SRAT); use --machine q35 or pc"
            ),
            Self::Slots(slots) => write!(f, "{slots} slots: expected 1 to {MOST_SLOTS}"),
            Self::NoMoreMemory {
                max_memory_mib,
                memory_mib,
            } => write!(
                f,
                "--max-memory {max_memory_mib}M: expected more than the {memory_mib}M that are there from the start"
            ),
            Self::NoHotplug => write!(
                f,
                "DIMMs come and go on --machine q35 or pc, without --balloon"
            ),
            Self::NoUefi => write!(
                f,
                "--firmware uefi starts our image for x86_64, on --machine q35 or pc: drop --arch, --kernel or another --machine"
            ),
            Self::LittleForUefi(mib) => {
                write!(f, "{mib}M of memory: UEFI needs at least 128M to start")
            }
            Self::LinuxCpus(cpus) => write!(
                f,
                "{cpus} CPUs: Linux does not start its other CPUs on the instruction clock; use --cpus 1"
            ),
            Self::Narrow(name) => write!(
                f,
                "{name} has 32 bits: expected a processor of 64, such as -cpu cortex-a57 or -cpu max"
            ),
            Self::KvmCounts => write!(
                f,
                "the instruction clock counts what the emulator does, not KVM; use --accel tcg or --clock wall"
            ),
            Self::KvmOther(processor) => write!(
                f,
                "{processor} is emulated here: expected --accel tcg, or auto"
            ),
            Self::BeyondReach {
                memory_mib,
                most_mib,
                board,
            } => write!(
                f,
                "{memory_mib}M of memory: an emulated processor has addresses of {} bits, which leaves \
                 {}G on {board}; use less{}",
                board.emulated_bits(),
                most_mib >> 10,
                match board.processor() {
                    Processor::X86_64 => ", or KVM",
                    _ => "",
                }
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// What a guest did that it should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// It said nothing for so many seconds.
    Hung(u64),
    /// It said more than anybody would read: so many bytes.
    Flooded(u64),
    /// It ended without saying that it would.
    Died(Option<i32>),
    /// The processor refused to go on, and it said so.
    Faulted(String),
    /// It gave up, in its own words.
    Panicked(String),
    /// A line that makes no sense on the port for events, and why.
    Rubbish(String),
    /// What it said of its end and QEMU's exit status do not fit.
    Contradicted(String),
}

impl fmt::Display for Misdeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hung(seconds) => write!(
                f,
                "the guest hangs: nothing came from it for {seconds} s (--timeout waits longer)"
            ),
            Self::Flooded(bytes) => {
                write!(f, "the guest does not stop talking: {bytes} bytes so far")
            }
            Self::Died(Some(0)) => write!(
                f,
                "the guest died: the machine was reset or switched off, and the guest had not said why"
            ),
            Self::Died(Some(status)) => write!(
                f,
                "the guest died: QEMU ended with status {status} and the guest had not said why"
            ),
            Self::Died(None) => write!(f, "the guest died: a signal ended QEMU"),
            Self::Faulted(what) => write!(f, "the guest met a processor fault: {what}"),
            Self::Panicked(what) => write!(f, "the guest gave up: {what}"),
            Self::Rubbish(what) => write!(f, "the guest prints rubbish: {what}"),
            Self::Contradicted(what) => write!(f, "the guest contradicts itself: {what}"),
        }
    }
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
#[derive(Debug)]
pub enum BootError {
    /// The machine cannot be.
    Refused(Refusal),
    /// A file that cannot be read.
    Unreadable {
        /// What it should have been.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// QEMU is not there, or does not start.
    NoQemu {
        /// What was to be started.
        program: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// QEMU started and refused what it was told, in its own words.
    QemuRefused {
        /// Its words.
        words: String,
        /// What it was told.
        command: Vec<String>,
    },
    /// Our image is not there and cannot be built; why, and what to do.
    NoImage(String),
    /// There is no UEFI for virtual machines.
    NoFirmware,
    /// The stick cannot be made.
    Stick(StickError),
    /// Something of the host's, such as a pipe, was not to be had.
    Host {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
    /// The guest's own checks failed.
    CheckFailed(Box<Fault>),
    /// The guest could not bring the machine up.
    Machine(Box<Fault>),
    /// The guest went wrong.
    Guest(Box<Fault>),
    /// Somebody asked to stop: the number of the signal.
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

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Unreadable { what, path, error } => {
                write!(f, "cannot read the {what} {}: {error}", path.display())
            }
            Self::NoQemu { program, error } => write!(
                f,
                "cannot start {}: {error}; the Debian package {} has it, and --qemu names another",
                program.display(),
                package(program)
            ),
            Self::QemuRefused { words, .. } => write!(f, "QEMU does not run this machine: {words}"),
            Self::NoImage(why) => write!(f, "no image to boot: {why}"),
            Self::NoFirmware => write!(
                f,
                "no UEFI for virtual machines (OVMF_CODE.fd, OVMF_VARS.fd) in /usr/share; the Debian package ovmf has it"
            ),
            Self::Stick(error) => write!(f, "{error}"),
            Self::Host { what, error } => write!(f, "cannot {what}: {error}"),
            Self::CheckFailed(fault) | Self::Machine(fault) | Self::Guest(fault) => {
                write!(f, "{fault}")
            }
            Self::Interrupted(signal) => write!(f, "stopped by signal {signal}"),
        }
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

impl std::error::Error for BootError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unreadable { error, .. }
            | Self::NoQemu { error, .. }
            | Self::Host { error, .. } => Some(error),
            Self::Stick(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Refusal> for BootError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
