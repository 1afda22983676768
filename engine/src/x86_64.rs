//! The traits of the crate `x86_64`: its page tables take their frames from ours.
//!
//! With the feature `x86_64`, `&Frames` and [`Cpu`] are a `FrameAllocator` and a
//! `FrameDeallocator` of frames of 4 KiB, 2 MiB and 1 GiB.
//!
//! ```
//! use firstlight::frames::Frames;
//! use x86_64::structures::paging::mapper::{MapToError, Mapper};
//! use x86_64::structures::paging::{
//!     FrameAllocator, OffsetPageTable, Page, PageTableFlags, Size2MiB,
//! };
//!
//! /// Maps a huge frame at `page`; page tables that are missing come from `frames`, too.
//! fn map_huge(
//!     table: &mut OffsetPageTable<'_>,
//!     page: Page<Size2MiB>,
//!     mut frames: &Frames<'_>,
//! ) -> Result<(), MapToError<Size2MiB>> {
//!     let huge = frames.allocate_frame().ok_or(MapToError::FrameAllocationFailed)?;
//!     let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
//!     // SAFETY: the frame is this call's, and nothing is mapped at the page.
//!     let mapped = unsafe { table.map_to(page, huge, flags, &mut frames) };
//!     mapped.map(|flush| flush.ignore()) // or .flush()
//! }
//! ```

use ::x86_64::PhysAddr;
use ::x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

use crate::addr::{Frame, Order, PAGE_SHIFT};
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

// SAFETY: the allocator hands a block out once until it is freed, aligned to its size.
unsafe impl<S: PageSize> FrameAllocator<S> for &Frames<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        self.allocate(Request::new(order::<S>())).ok().map(block)
    }
}

/// The trait has no error: a block that is refused, because it is free already or was never
/// allocated, is left as it is; with debug assertions that is a panic.
impl<S: PageSize> FrameDeallocator<S> for &Frames<'_> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let freed = self.free(first(frame), order::<S>());
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

// SAFETY: as for `Frames`; what the CPU caches is handed out by nothing else.
unsafe impl<S: PageSize> FrameAllocator<S> for Cpu<'_, '_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        self.allocate(Request::new(order::<S>())).ok().map(block)
    }
}

/// As for `&Frames`.
impl<S: PageSize> FrameDeallocator<S> for Cpu<'_, '_> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let freed = self.free(first(frame), order::<S>());
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}
