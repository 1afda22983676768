//! The machine that is asked for: [`Machine`], and what is refused of it
//! before anything is started.
//!
//! Memory is dealt out to nodes evenly in whole MiB, the last node takes the
//! rest; so are CPUs, and where there are fewer CPUs than nodes, some nodes have
//! none. Two limits belong to what is emulated, not to the request, and are asked
//! for once it is known who runs the guest: [`Machine::check_accelerator`].

use std::fmt;
use std::ops::Range;

/// Most nodes QEMU describes.
pub const MOST_NODES: u32 = 128;
/// Most CPUs that can be told apart without x2APIC.
pub const MOST_CPUS: u32 = 255;
/// Less memory than this, in MiB, and firmware does not start.
pub(super) const LEAST_MIB: u64 = 2;
/// OVMF starts with less than this, in MiB, and says that it has too little.
pub(super) const LEAST_UEFI_MIB: u64 = 128;
/// Bits of a physical address of an emulated x86-64 processor, and of those of the other boards
/// as far as they were tried.
const EMULATED_BITS: u32 = 40;
const VIRT_BITS: u32 = 44;
/// Where an AMD processor, which the emulated one claims to be, keeps addresses
/// for itself: the last 12 GiB below 1 TiB.
const HYPERTRANSPORT_MIB: u64 = 12 << 10;

/// What processor a board has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// That of PCs.
    #[default]
    X86_64,
    /// Arm's, of 64 bits.
    Aarch64,
    /// RISC-V of 64 bits.
    Riscv64,
}

impl Processor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::Riscv64];

    /// Its name, as QEMU has it, too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// Whether this program runs on one.
    pub(super) fn is_of_host(self) -> bool {
        self.name() == std::env::consts::ARCH
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// QEMU's board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Board {
    /// PCI Express, with all ACPI tables.
    #[default]
    Q35,
    /// The PC of 1996.
    Pc,
    /// The least that boots; its firmware describes no nodes.
    Microvm,
    /// A board of aarch64, described by a device tree.
    VirtAarch64,
    /// A board of riscv64, described by a device tree.
    VirtRiscv64,
}

impl Board {
    /// Those with an x86-64 processor.
    pub const PCS: [Self; 3] = [Self::Q35, Self::Pc, Self::Microvm];

    /// Its name in records: QEMU's, and the processor's where several have a board of that name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VirtAarch64 => "virt-aarch64",
            Self::VirtRiscv64 => "virt-riscv64",
            _ => self.qemu_name(),
        }
    }

    /// QEMU's name for it.
    pub(super) const fn qemu_name(self) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Pc => "pc",
            Self::Microvm => "microvm",
            Self::VirtAarch64 | Self::VirtRiscv64 => "virt",
        }
    }

    /// Its processor.
    #[must_use]
    pub const fn processor(self) -> Processor {
        match self {
            Self::Q35 | Self::Pc | Self::Microvm => Processor::X86_64,
            Self::VirtAarch64 => Processor::Aarch64,
            Self::VirtRiscv64 => Processor::Riscv64,
        }
    }

    /// The usual board of a processor.
    #[must_use]
    pub const fn of(processor: Processor) -> Self {
        match processor {
            Processor::X86_64 => Self::Q35,
            Processor::Aarch64 => Self::VirtAarch64,
            Processor::Riscv64 => Self::VirtRiscv64,
        }
    }

    /// Bits of a physical address of its emulated processor.
    pub(super) const fn emulated_bits(self) -> u32 {
        match self.processor() {
            Processor::X86_64 => EMULATED_BITS,
            _ => VIRT_BITS,
        }
    }

    /// Whether its virtio devices are in memory, not on PCI.
    pub(super) const fn has_mmio(self) -> bool {
        matches!(self, Self::Microvm | Self::VirtAarch64 | Self::VirtRiscv64)
    }

    /// Addresses, in MiB, that devices take away from memory: the hole below
    /// 4 GiB and, beyond memory, room for PCI.
    const fn device_mib(self) -> u64 {
        match self {
            Self::Q35 => (2 + 32) << 10,
            Self::Pc => (1 + 2) << 10,
            Self::Microvm => 1 << 10,
            // Devices come before memory, and after it.
            Self::VirtAarch64 | Self::VirtRiscv64 => 1 << 20,
        }
    }

    /// Most memory, in MiB, that an emulated processor reaches.
    #[must_use]
    pub const fn most_emulated_mib(self) -> u64 {
        let reach = 1 << (self.emulated_bits() - 20);
        match self {
            Self::Q35 | Self::Pc => reach - HYPERTRANSPORT_MIB - self.device_mib(),
            _ => reach - self.device_mib(),
        }
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor, through `/dev/kvm`.
    Kvm,
    /// QEMU's emulator.
    Tcg,
}

impl Accelerator {
    /// QEMU's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// What starts our image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// QEMU's own loader (`-kernel`), by PVH.
    #[default]
    Loader,
    /// UEFI (OVMF), from a stick.
    Uefi,
}

impl Firmware {
    /// Its name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loader => "loader",
            Self::Uefi => "uefi",
        }
    }
}

/// What the guest's time is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Time as the host has it.
    #[default]
    Wall,
    /// One emulated instruction is one nanosecond: the same from run to run.
    Instructions,
}

impl Clock {
    /// Its name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Instructions => "instructions",
        }
    }
}

/// What is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Our own image.
    Image,
    /// A Linux kernel.
    Linux,
}

/// Slots for DIMMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub slots: u32,
    /// Most memory, with what is there from the start, in MiB.
    pub max_memory_mib: u64,
}

/// A machine to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The board.
    pub board: Board,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Nodes.
    pub nodes: u32,
    /// CPUs.
    pub cpus: u32,
    /// What starts the image.
    pub firmware: Firmware,
    /// What time is counted in.
    pub clock: Clock,
    /// Whether it has a memory balloon, which our image uses.
    pub balloon: bool,
    /// Slots for DIMMs that come and go, which our image serves.
    pub hotplug: Option<Slots>,
}

impl Default for Machine {
    /// 4 GiB, one node, one CPU.
    fn default() -> Self {
        Self {
            board: Board::default(),
            memory_mib: 4 << 10,
            nodes: 1,
            cpus: 1,
            firmware: Firmware::default(),
            clock: Clock::default(),
            balloon: false,
            hotplug: None,
        }
    }
}

impl Machine {
    /// Memory of each node, in MiB.
    ///
    /// ```
    /// use firstlight_lab::boot::Machine;
    /// let machine = Machine { memory_mib: 1001, nodes: 3, ..Machine::default() };
    /// assert_eq!(machine.node_mib().collect::<Vec<_>>(), [333, 333, 335]);
    /// ```
    pub fn node_mib(&self) -> impl Iterator<Item = u64> + use<> {
        let nodes = u64::from(self.nodes.max(1));
        let (each, all) = (self.memory_mib / nodes, self.memory_mib);
        (1..=nodes).map(move |node| {
            if node == nodes {
                all - each * (nodes - 1)
            } else {
                each
            }
        })
    }

    /// CPUs of `node`, which may be none.
    ///
    /// ```
    /// use firstlight_lab::boot::Machine;
    /// let machine = Machine { nodes: 4, cpus: 2, ..Machine::default() };
    /// let counts: Vec<_> = (0..4).map(|node| machine.node_cpus(node).len()).collect();
    /// assert_eq!(counts, [1, 0, 1, 0]);
    /// ```
    #[must_use]
    pub fn node_cpus(&self, node: u32) -> Range<u32> {
        // The first CPU whose share lies at `node` or behind; both numbers are small.
        let (nodes, cpus) = (u64::from(self.nodes.max(1)), u64::from(self.cpus));
        let first = |node: u32| {
            let cpu = (u64::from(node) * cpus).div_ceil(nodes).min(cpus);
            u32::try_from(cpu).unwrap_or(self.cpus)
        };
        first(node)..first(node.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory_mib: u64, nodes: u32, cpus: u32) -> Machine {
        Machine {
            memory_mib,
            nodes,
            cpus,
            ..Machine::default()
        }
    }

    #[test]
    fn all_memory_and_every_cpu_is_on_one_node() {
        for memory_mib in [2, 7, 200, 1001, 65_536, 983_040] {
            for nodes in 1..=u32::try_from(memory_mib.min(9)).unwrap() {
                for cpus in 1..=9 {
                    let machine = machine(memory_mib, nodes, cpus);
                    assert_eq!(machine.check(System::Image), Ok(()));
                    let shares: Vec<u64> = machine.node_mib().collect();
                    assert_eq!(shares.len(), nodes as usize);
                    assert_eq!(shares.iter().sum::<u64>(), memory_mib);
                    assert!(shares.iter().all(|share| *share > 0));
                    let all: Vec<u32> = (0..nodes)
                        .flat_map(|node| machine.node_cpus(node))
                        .collect();
                    assert_eq!(all, (0..cpus).collect::<Vec<_>>(), "{machine:?}");
                    assert!(machine.node_cpus(0).contains(&0));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        let linux = |machine: &Machine| machine.check(System::Linux).unwrap_err().to_string();
        let microvm = Machine {
            board: Board::Microvm,
            ..machine(64, 2, 1)
        };
        let counted = Machine {
            clock: Clock::Instructions,
            ..machine(64, 1, 2)
        };
        let with = |slots, max_memory_mib, board| Machine {
            board,
            hotplug: Some(Slots {
                slots,
                max_memory_mib,
            }),
            ..machine(64, 1, 1)
        };
        for (machine, words) in [
            (machine(64, 0, 1), "1 to 128"),
            (machine(64_000, 129, 1), "1 to 128"),
            (machine(64, 1, 0), "1 to 255"),
            (machine(64, 1, 256), "1 to 255"),
            (machine(1, 1, 1), "at least 2M"),
            (machine(3, 4, 1), "at least 1 MiB a node"),
            (microvm, "--machine q35"),
            (counted.clone(), "--cpus 1"),
            (with(0, 128, Board::Q35), "1 to 256"),
            (with(257, 128, Board::Q35), "1 to 256"),
            (with(1, 64, Board::Q35), "more than"),
            (with(1, 128, Board::Microvm), "--machine q35"),
            (with(1, 128, Board::VirtAarch64), "--machine q35"),
        ] {
            let text = linux(&machine);
            assert!(text.contains(words), "{machine:?}: {text}");
        }
        assert_eq!(counted.check(System::Image), Ok(()));
        let text = counted.check_accelerator(Accelerator::Kvm).unwrap_err();
        assert!(text.to_string().contains("--accel tcg"), "{text}");
        assert_eq!(counted.check_accelerator(Accelerator::Tcg), Ok(()));
    }

    #[test]
    fn an_emulated_processor_reaches_so_far() {
        for (board, most_gib, bits) in [
            (Board::Q35, 978, "40 bits"),
            (Board::Pc, 1009, "40 bits"),
            (Board::Microvm, 1023, "40 bits"),
            (Board::VirtAarch64, 15 << 10, "44 bits"),
            (Board::VirtRiscv64, 15 << 10, "44 bits"),
        ] {
            let mut machine = Machine {
                board,
                ..machine(most_gib << 10, 1, 1)
            };
            assert_eq!(machine.check_accelerator(Accelerator::Tcg), Ok(()));
            machine.memory_mib += 1;
            let refusal = machine.check_accelerator(Accelerator::Tcg).unwrap_err();
            let text = refusal.to_string();
            assert!(text.contains(bits), "{text}");
            assert!(text.contains(&format!("{most_gib}G")), "{text}");
            let kvm = machine.check_accelerator(Accelerator::Kvm);
            let pc_on_pc = board.processor().is_of_host() && Board::PCS.contains(&board);
            assert_eq!(kvm.is_ok(), pc_on_pc, "{board}");
        }
    }
}
