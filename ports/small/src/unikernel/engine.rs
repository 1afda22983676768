//! The engine's allocator, by a CPU's lists.

use core::mem::MaybeUninit;

use firstlight::addr::{FrameRange, Order, PhysRange};
use firstlight::firmware::fdt::Fdt;
use firstlight::frames::{CpuCell, CpuSlot, Frames, PerCpu, Request};

#[cfg(not(feature = "start"))]
use crate::ranges::frames;
#[cfg(feature = "start")]
use crate::start::frames;

/// The calls of one CPU, interrupts off.
struct Calls;

// SAFETY: nothing else runs; the cell is static.
unsafe impl PerCpu for Calls {
    fn with_cell<R>(&self, call: impl FnOnce(&CpuCell) -> R) -> R {
        call(&CELL)
    }

    fn frames(&self) -> &'static Frames<'static> {
        // SAFETY: `start` has written it.
        unsafe { (*(&raw const FRAMES)).assume_init_ref() }
    }

    fn cpu(&self) -> usize {
        0
    }
}

static CELL: CpuCell = CpuCell::new();
static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }; 1];
static mut FRAMES: MaybeUninit<Frames<'static>> = MaybeUninit::uninit();

pub(crate) fn start(tree: &Fdt<'_>, kernel: PhysRange) -> Option<()> {
    // SAFETY: called once.
    let place = unsafe { &mut *(&raw mut FRAMES) };
    place.write(frames(tree, kernel)?).provide_cpus(&SLOTS).ok()
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
