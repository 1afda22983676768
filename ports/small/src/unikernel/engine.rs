//! The engine's allocator, by a CPU's lists.

use core::mem::MaybeUninit;

use firstlight::addr::{FrameRange, Order, PhysRange};
use firstlight::firmware::fdt::Fdt;
use firstlight::frames::{CpuCache, Frames, PerCpu, Request};

#[cfg(not(feature = "start"))]
use crate::ranges::frames;
#[cfg(feature = "start")]
use crate::start::frames;

/// The calls of one CPU, interrupts off.
struct Calls;

// SAFETY: nothing else runs.
unsafe impl PerCpu for Calls {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        call(&CPUS[0])
    }

    fn frames(&self) -> &'static Frames<'static> {
        // SAFETY: `start` has written it.
        unsafe { (*(&raw const FRAMES)).assume_init_ref() }
    }
}

static CPUS: [CpuCache; 1] = [CpuCache::new()];
static mut FRAMES: MaybeUninit<Frames<'static>> = MaybeUninit::uninit();

pub(crate) fn start(tree: &Fdt<'_>, kernel: PhysRange) -> Option<()> {
    // SAFETY: called once.
    let place = unsafe { &mut *(&raw mut FRAMES) };
    place.write(frames(tree, kernel)?).provide_cpus(&CPUS).ok()
}

pub(crate) fn allocate(frames: u64, align: u64) -> Option<FrameRange> {
    let request = Request::new(Order::PAGE);
    Calls.allocate_frames(frames, align, request).ok()
}

pub(crate) fn free(row: FrameRange) -> Option<()> {
    Calls.free_frames(row).ok()
}

pub(crate) fn free_frames() -> u64 {
    Calls.frames().statistics().free_frames
}
