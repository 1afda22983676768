//! What a CPU caches, once the CPUs are counted: most allocations and frees of a kernel go through [`ThisCpu`]. A
//! kernel with more CPUs has a cell in each CPU's data.

use firstlight_frames::frames::{CpuCell, CpuSlot, CpusProvided, Frames, PerCpu};
use x86_64::instructions::interrupts::without_interrupts;

use crate::FRAMES;

/// The most CPUs.
const MOST: usize = 16;
/// What other CPUs see of each, and its cache.
static SLOTS: [CpuSlot; MOST] = [const { CpuSlot::new() }; MOST];
static CELLS: [CpuCell; MOST] = [const { CpuCell::new() }; MOST];

/// Once the CPUs are counted: each caches its part of memory.
pub fn counted(frames: &Frames<'_>, cpus: usize) -> Result<(), CpusProvided> {
    frames.provide_cpus(SLOTS.get(..cpus).unwrap_or(&SLOTS))
}

/// The number of the CPU that code runs on; of a local APIC, say.
fn number() -> usize {
    0
}

/// The CPU that code runs on.
pub struct ThisCpu;

// SAFETY: with interrupts off the code stays on its CPU, and no other runs there; cells are static.
unsafe impl PerCpu for ThisCpu {
    fn with_cell<R>(&self, call: impl FnOnce(&CpuCell) -> R) -> R {
        without_interrupts(|| call(&CELLS[number()]))
    }

    fn frames(&self) -> &'static Frames<'static> {
        FRAMES.wait()
    }

    fn cpu(&self) -> usize {
        number()
    }
}
