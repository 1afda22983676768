//! Which machines cannot be, and what can.

use super::error::Refusal;
use super::hotplug::MOST_SLOTS;
use super::machine::{
    Accelerator, Board, Clock, Firmware, LEAST_MIB, LEAST_UEFI_MIB, MOST_CPUS, MOST_NODES, Machine,
    Processor, Slots, System,
};

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
            if !matches!(self.board, Board::Q35 | Board::Pc) || self.balloon {
                return Err(Refusal::NoHotplug);
            }
        }
        let is_uefi = self.firmware == Firmware::Uefi;
        let has_loader = matches!(self.board, Board::Q35 | Board::Pc | Board::VirtAarch64);
        if is_uefi && (system == System::Linux || !has_loader) {
            return Err(Refusal::NoUefi);
        }
        if is_uefi && self.memory_mib < LEAST_UEFI_MIB {
            return Err(Refusal::LittleForUefi(self.memory_mib));
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
            let processor = self.board.processor();
            // What shows that KVM works, and how our image ends, is made for PCs.
            if processor != Processor::X86_64 || !processor.is_of_host() {
                return Err(Refusal::KvmOther(processor));
            }
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
}
