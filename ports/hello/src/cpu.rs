//! What a CPU caches, once the CPUs are counted: most allocations and frees of a kernel go through [`ThisCpu`]. A
//! kernel with more CPUs has more caches in this list.

use firstlight_frames::frames::{CpuCache, CpusProvided, Frames, PerCpu};
use x86_64::instructions::interrupts::without_interrupts;

use crate::FRAMES;

/// The most CPUs.
const MOST: usize = 16;
static CPUS: [CpuCache; MOST] = [const { CpuCache::new() }; MOST];

/// Once the CPUs are counted: each caches its part of memory.
pub fn counted(frames: &Frames<'_>, cpus: usize) -> Result<(), CpusProvided> {
    frames.provide_cpus(CPUS.get(..cpus).unwrap_or(&CPUS))
}

/// The number of the CPU that code runs on; of a local APIC, say.
fn number() -> usize {
    0
}

/// The CPU that code runs on.
pub struct ThisCpu;

// SAFETY: with interrupts off the code stays on its CPU, and no other runs there.
unsafe impl PerCpu for ThisCpu {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        without_interrupts(|| call(&CPUS[number()]))
    }

    fn frames(&self) -> &'static Frames<'static> {
        FRAMES.wait()
    }
}
