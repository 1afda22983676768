//! `alloc` on the frame allocator: small objects from `talc`, which takes its memory from [`Pages`] and gives
//! back what is empty. Any heap that grows does: `buddy_system_allocator`'s `LockedHeapWithRescue`, say.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use firstlight_frames::addr::{FrameRange, Order, PAGE_BYTES, PhysAddr, PhysRange};
use firstlight_frames::frames::Request;
use talc::{TalcLock, source::GlobalAllocSource};

use crate::FRAMES;

#[global_allocator]
static HEAP: TalcLock<spin::Mutex<()>, GlobalAllocSource<Pages>> =
    TalcLock::new(GlobalAllocSource::with_block_size(Pages, 64 << 10));

/// Whole pages of all memory, at the address they are mapped at.
#[derive(Debug)]
struct Pages;

/// The frames of a block at `address`, which is that of its memory.
fn frames_of(address: u64, layout: Layout) -> Option<FrameRange> {
    let bytes = (layout.size() as u64).checked_next_multiple_of(PAGE_BYTES)?;
    PhysRange::with_size(address, bytes).map(PhysRange::inner_frames)
}

// SAFETY: frames that are allocated are this call's alone, mapped to themselves, and hold the layout.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = || {
            let align = (layout.align() as u64).div_ceil(PAGE_BYTES);
            let count = frames_of(0, layout)?.count();
            let page = Request::new(Order::PAGE);
            let range = FRAMES.get()?.allocate_frames(count, align, page).ok()?;
            usize::try_from(range.addrs().start().get()).ok()
        };
        block().map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let range = frames_of(PhysAddr::new(block.addr() as u64).get(), layout);
        let freed = FRAMES
            .get()
            .zip(range)
            .map(|(frames, range)| frames.free_frames(range));
        debug_assert!(matches!(freed, Some(Ok(()))), "{freed:?}");
    }
}
