//! The machine that is asked for: [`Machine`], and what is refused of it
//! before anything is started.
//!
//! Memory is dealt out to nodes evenly in whole MiB, the last node takes the
//! rest; so are CPUs, and where there are fewer CPUs than nodes, some nodes have
//! none. Two limits belong to what is emulated, not to the request, and are asked
//! for once it is known who runs the guest: [`Machine::check_accelerator`].

use std::fmt;
use std::ops::Range;

use super::error::Refusal;
use super::hotplug::MOST_SLOTS;

/// Most nodes QEMU describes.
pub const MOST_NODES: u32 = 128;
/// Most CPUs that can be told apart without x2APIC.
pub const MOST_CPUS: u32 = 255;
/// Less memory than this, in MiB, and firmware does not start.
pub(super) const LEAST_MIB: u64 = 2;
/// Bits of a physical address of an emulated processor.
const EMULATED_BITS: u32 = 40;
/// Where an AMD processor, which the emulated one claims to be, keeps addresses
/// for itself: the last 12 GiB below 1 TiB.
const HYPERTRANSPORT_MIB: u64 = 12 << 10;

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
}

impl Board {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Q35, Self::Pc, Self::Microvm];

    /// QEMU's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Pc => "pc",
            Self::Microvm => "microvm",
        }
    }

    /// Addresses, in MiB, that devices take away from memory: the hole below
    /// 4 GiB and, beyond memory, room for PCI.
    const fn device_mib(self) -> u64 {
        match self {
            Self::Q35 => (2 + 32) << 10,
            Self::Pc => (1 + 2) << 10,
            Self::Microvm => 1 << 10,
        }
    }

    /// Most memory, in MiB, that an emulated processor reaches.
    #[must_use]
    pub const fn most_emulated_mib(self) -> u64 {
        let reach = 1 << (EMULATED_BITS - 20);
        match self {
            Self::Microvm => reach - self.device_mib(),
            Self::Q35 | Self::Pc => reach - HYPERTRANSPORT_MIB - self.device_mib(),
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
            clock: Clock::default(),
            balloon: false,
            hotplug: None,
        }
    }
}

impl Machine {
    /// Whether `system` can boot on it at all.
    ///
    /// # Errors
    /// [`Refusal`], which says what was asked for and what would do.
    pub fn check(&self, system: System) -> Result<(), Refusal> {
        let nodes = u64::from(self.nodes);
        if self.nodes == 0 || self.nodes > MOST_NODES {
            return Err(Refusal::Nodes(self.nodes));
        }
        if self.cpus == 0 || self.cpus > MOST_CPUS {
            return Err(Refusal::Cpus(self.cpus));
        }
        if self.memory_mib < LEAST_MIB {
            return Err(Refusal::LittleMemory(self.memory_mib));
        }
        if self.memory_mib < nodes {
            return Err(Refusal::EmptyNodes {
                memory_mib: self.memory_mib,
                nodes: self.nodes,
            });
        }
        if self.board == Board::Microvm && self.nodes > 1 {
            return Err(Refusal::Undescribed(self.nodes));
        }
        if let Some(Slots {
            slots,
            max_memory_mib,
        }) = self.hotplug
        {
            if slots == 0 || slots > MOST_SLOTS {
                return Err(Refusal::Slots(slots));
            }
            if max_memory_mib <= self.memory_mib {
                return Err(Refusal::NoMoreMemory {
                    max_memory_mib,
                    memory_mib: self.memory_mib,
                });
            }
            if self.board == Board::Microvm || self.balloon {
                return Err(Refusal::NoHotplug);
            }
        }
        if system == System::Linux && self.clock == Clock::Instructions && self.cpus > 1 {
            return Err(Refusal::LinuxCpus(self.cpus));
        }
        Ok(())
    }

    /// Whether `accelerator` can run it.
    ///
    /// # Errors
    /// [`Refusal`], as for [`check`](Self::check).
    pub fn check_accelerator(&self, accelerator: Accelerator) -> Result<(), Refusal> {
        if accelerator == Accelerator::Kvm {
            return match self.clock {
                Clock::Wall => Ok(()),
                Clock::Instructions => Err(Refusal::KvmCounts),
            };
        }
        let most_mib = self.board.most_emulated_mib();
        if self.memory_mib > most_mib {
            return Err(Refusal::BeyondReach {
                memory_mib: self.memory_mib,
                most_mib,
                board: self.board,
            });
        }
        Ok(())
    }

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
        for (board, most_gib) in [(Board::Q35, 978), (Board::Pc, 1009), (Board::Microvm, 1023)] {
            let mut machine = Machine {
                board,
                ..machine(most_gib << 10, 1, 1)
            };
            assert_eq!(machine.check_accelerator(Accelerator::Tcg), Ok(()));
            machine.memory_mib += 1;
            let refusal = machine.check_accelerator(Accelerator::Tcg).unwrap_err();
            let text = refusal.to_string();
            assert!(text.contains("40 bits"), "{text}");
            assert!(text.contains(&format!("{most_gib}G")), "{text}");
            assert_eq!(machine.check_accelerator(Accelerator::Kvm), Ok(()));
        }
    }
}
