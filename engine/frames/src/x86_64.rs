//! The traits of the crate `x86_64`: its page tables take their frames from ours.
//!
//! With the feature `x86_64`, [`PageTableFrames`] of `&Frames`, of a `&mut` [`Cpu`], or of a `&mut`
//! [`EarlyMemory`] are a `FrameAllocator` and a `FrameDeallocator` of frames of 4 KiB, 2 MiB and 1 GiB.
//!
//! ```
//! use firstlight_frames::frames::Frames;
//! use firstlight_frames::x86_64::PageTableFrames;
//! use x86_64::structures::paging::mapper::{MapToError, Mapper};
//! use x86_64::structures::paging::{
//!     FrameAllocator, OffsetPageTable, Page, PageTableFlags, Size2MiB,
//! };
//!
//! /// Maps a huge frame at `page`; page tables that are missing come from `frames`, too.
//! fn map_huge(
//!     table: &mut OffsetPageTable<'_>,
//!     page: Page<Size2MiB>,
//!     frames: &Frames<'_>,
//! ) -> Result<(), MapToError<Size2MiB>> {
//!     // SAFETY: no code of this kernel frees frames that are not its own.
//!     let mut frames = unsafe { PageTableFrames::new(frames) };
//!     let huge = frames.allocate_frame().ok_or(MapToError::FrameAllocationFailed)?;
//!     let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
//!     // SAFETY: the frame is this call's, and nothing is mapped at the page.
//!     let mapped = unsafe { table.map_to(page, huge, flags, &mut frames) };
//!     mapped.map(|flush| flush.ignore()) // or .flush()
//! }
//! ```

use ::x86_64::PhysAddr;
use ::x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

#[cfg(any(feature = "page-16k", feature = "page-64k"))]
compile_error!(
    "the feature `x86_64` is for pages of 4 KiB, as the processor has them: expected neither `page-16k` nor `page-64k`"
);

use crate::addr::{Frame, FrameRange, Order, PAGE_BYTES, PAGE_SHIFT};
use crate::early::{EarlyMemory, EarlyRequest};
use crate::frames::{Cpu, Frames, Request};

/// The order of frames of this size: 0, 9 or 18.
const fn order<S: PageSize>() -> Order {
    match S::SIZE.trailing_zeros() - PAGE_SHIFT {
        18 => Order::GIANT,
        9 => Order::HUGE,
        _ => Order::PAGE,
    }
}

/// The block that begins at `frame`.
fn block<S: PageSize>(frame: Frame) -> PhysFrame<S> {
    PhysFrame::containing_address(PhysAddr::new_truncate(frame.addr().get()))
}

/// The first frame of a block.
fn first<S: PageSize>(block: PhysFrame<S>) -> Frame {
    crate::addr::PhysAddr::new(block.start_address().as_u64()).frame()
}

/// Blocks for the page tables and mappings of the crate `x86_64`: an allocator with the promise that its
/// frames become references.
#[derive(Debug)]
pub struct PageTableFrames<A>(A);

impl<A> PageTableFrames<A> {
    /// Of `&Frames`, of a `&mut Cpu`, or of a `&mut EarlyMemory` before there are frames.
    ///
    /// # Safety
    /// No code frees frames that are not its own: the
    /// [rule of frees](crate::frames#the-rule-of-frees).
    pub const unsafe fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

/// `&Frames`, a `&mut Cpu`, or a `&mut EarlyMemory`.
trait Allocator {
    fn allocate(&mut self, order: Order) -> Option<Frame>;

    /// The trait of the crate `x86_64` has no error: a block that is refused, because it is free already
    /// or was never allocated, is left as it is; with debug assertions that is a panic.
    fn free(&mut self, block: Frame, order: Order);
}

impl Allocator for &Frames<'_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        Frames::allocate(self, Request::new(order)).ok()
    }

    fn free(&mut self, block: Frame, order: Order) {
        let freed = Frames::free(self, block, order);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

impl Allocator for &mut Cpu<'_, '_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        Cpu::allocate(self, Request::new(order)).ok()
    }

    fn free(&mut self, block: Frame, order: Order) {
        let freed = Cpu::free(self, block, order);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

/// Below the current limit, from the current direction; what is not freed stays reserved for ever.
impl Allocator for &mut EarlyMemory<'_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let bytes = order.frames() * PAGE_BYTES;
        let request = EarlyRequest::new(bytes, bytes, "page tables");
        let block = EarlyMemory::allocate(self, &request).ok()?;
        Some(block.start().frame())
    }

    fn free(&mut self, block: Frame, order: Order) {
        let range = FrameRange::of(block, order.frames()).addrs();
        let freed = EarlyMemory::free(self, range);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

// SAFETY: a block is handed out once until it is freed, aligned to its size; no code but its owner frees
// it, by the promise of `new`. What a CPU caches is handed out by nothing else.
unsafe impl<S: PageSize, A: Allocator> FrameAllocator<S> for PageTableFrames<A> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        self.0.allocate(order::<S>()).map(block)
    }
}

impl<S: PageSize, A: Allocator> FrameDeallocator<S> for PageTableFrames<A> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        self.0.free(first(frame), order::<S>());
    }
}
