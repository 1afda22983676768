//! Allocators published as Rust crates, each built from the free ranges, behind the
//! trait [`Cpu`] of the workloads. None of them has a lock of its own; several threads
//! use one through a [`Locked`](firstlight_workloads::locked::Locked).
//!
//! | type | crate | its data |
//! |---|---|---|
//! | [`BuddySystem`] | `buddy_system_allocator` | a tree set of free blocks for each order, on the heap |
//! | [`Ranges`] | `free-list` | a sorted list of free ranges, on the heap when there are more than 16 |
//! | [`Bitmap`] | `bitmap-allocator` | a tree of 16-bit words over a bit for each page |
//! | [`BuddySlab`] | `buddy-slab-allocator` | 12 bytes a page at the start of each range |
//! | [`BuddyLeaves`] | `buddy-alloc` | list nodes inside free blocks, two bits a block |

#![expect(
    clippy::cast_possible_truncation,
    reason = "the crates speak of usize, which has 64 bits, as is asserted"
)]

use bitmap_allocator::{BitAlloc, BitAlloc256M, BitAllocCascade16};
use buddy_alloc::buddy_alloc::{BuddyAlloc, BuddyAllocParam};
use buddy_slab_allocator::{BuddyAllocator, SlabPoolTrait};
use buddy_system_allocator::FrameAllocator;
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight_host::reserve::Reservation;
use firstlight_workloads::Cpu;
use free_list::{FreeList, PageLayout, PageRange};
use std::fmt;
use std::ptr::NonNull;
use std::slice;

const PAGE: usize = PAGE_BYTES as usize;
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

const fn size(number: u64) -> usize {
    number as usize
}

fn frame(number: usize) -> Frame {
    Frame::new(number as u64)
}

/// `buddy_system_allocator`.
#[derive(Default)]
pub struct BuddySystem(FrameAllocator<33>);

impl BuddySystem {
    /// With `free` as its memory.
    #[must_use]
    pub fn new(free: &[FrameRange]) -> Self {
        let mut frames = FrameAllocator::new();
        for range in free {
            frames.add_frame(size(range.start().get()), size(range.end().get()));
        }
        Self(frames)
    }
}

impl Cpu for BuddySystem {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        self.0.alloc(size(order.frames())).map(frame)
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        self.0.dealloc(size(frame.get()), size(order.frames()));
        true
    }
}

/// `free-list`.
pub struct Ranges(FreeList<16>);

impl Ranges {
    /// With `free` as its memory: ranges that do not overlap.
    #[must_use]
    pub fn new(free: &[FrameRange]) -> Self {
        let mut list = FreeList::new();
        for range in free {
            let bytes = range.addrs();
            let range = PageRange::new(size(bytes.start().get()), size(bytes.end().get()));
            // SAFETY: nothing lives in these addresses; they are only counted.
            let added = range.map(|range| unsafe { list.deallocate(range) });
            debug_assert!(matches!(added, Ok(Ok(()))));
        }
        Self(list)
    }
}

impl Cpu for Ranges {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let bytes = size(order.bytes());
        let layout = PageLayout::from_size_align(bytes, bytes).ok()?;
        let range = self.0.allocate(layout).ok()?;
        Some(frame(range.start() / PAGE))
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        let range = PageRange::from_start_len(size(frame.get()) * PAGE, size(order.bytes()));
        // SAFETY: nothing lives in these addresses; they are only counted.
        let freed = range.map(|range| unsafe { self.0.deallocate(range) });
        matches!(freed, Ok(Ok(())))
    }
}

/// Types all of whose bits may be zero, and are then empty bitmaps.
///
/// # Safety
/// The type must be made of integers only.
pub unsafe trait ZeroIsEmpty: BitAlloc {}
// SAFETY: arrays of structures of one u16 each.
unsafe impl ZeroIsEmpty for BitAlloc256M {}
// SAFETY: as above.
unsafe impl ZeroIsEmpty for BitAllocCascade16<BitAlloc256M> {}

/// The largest size that `bitmap-allocator` names: 2^28 pages, 1 TiB.
pub type Bitmap1T = BitAlloc256M;
/// One level more, built from its public parts: 16 TiB.
pub type Bitmap16T = BitAllocCascade16<BitAlloc256M>;

/// `bitmap-allocator` of type `B`.
pub struct Bitmap<'s, B> {
    bits: NonNull<B>,
    space: &'s mut Reservation,
}

// SAFETY: its pointer leads into the reservation, which it borrows for itself alone;
// nothing in it is bound to a thread.
unsafe impl<B: Send> Send for Bitmap<'_, B> {}

impl<'s, B: ZeroIsEmpty> Bitmap<'s, B> {
    /// In `space`, which is fresh or held one of this type, with `free` as its memory;
    /// `None` if the space is smaller than `B` or the memory reaches beyond it.
    pub fn new(space: &'s mut Reservation, free: &[FrameRange]) -> Option<Self> {
        let inside = |range: &FrameRange| size(range.end().get()) <= B::CAP;
        if space.bytes() < size_of::<B>() || !free.iter().all(inside) {
            return None;
        }
        let bits = space.base().cast::<B>();
        let mut this = Self { bits, space };
        for range in free.iter().filter(|range| !range.is_empty()) {
            let range = size(range.start().get())..size(range.end().get());
            this.bits().insert(range);
        }
        Some(this)
    }
}

impl<B> Bitmap<'_, B> {
    fn bits(&mut self) -> &mut B {
        // SAFETY: the reservation is page-aligned, as large as B, holds integers only
        // (zero where nothing was written), and is borrowed mutably as long as this lives.
        unsafe { self.bits.as_mut() }
    }

    /// Bytes it has written to, in whole pages.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        self.space.resident_bytes().unwrap_or_default()
    }
}

impl<B: BitAlloc> Cpu for Bitmap<'_, B> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let found = if order == Order::PAGE {
            self.bits().alloc()
        } else {
            let order_log2 = usize::from(order.get());
            self.bits()
                .alloc_contiguous(None, size(order.frames()), order_log2)
        };
        found.map(frame)
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        if order == Order::PAGE {
            self.bits().dealloc(size(frame.get()))
        } else {
            let frames = size(order.frames());
            self.bits().dealloc_contiguous(size(frame.get()), frames)
        }
    }
}

/// `buddy-slab-allocator`.
///
/// Its blocks are not aligned to more than a page: a range begins with descriptors.
pub struct BuddySlab<'s> {
    buddy: BuddyAllocator,
    space: &'s mut Reservation,
}

struct Platform;

#[ax_crate_interface::impl_interface]
impl buddy_slab_allocator::interface::BuddySlabIf for Platform {
    fn virt_to_phys(vaddr: usize) -> usize {
        vaddr
    }

    fn slab_pool() -> &'static dyn SlabPoolTrait {
        unreachable!("no slab is requested")
    }
}

impl<'s> BuddySlab<'s> {
    /// With `free` as its memory, ranges that do not overlap, as parts of `space`; `None`
    /// if they reach beyond it. A range too small for its own descriptors is lost.
    pub fn new(space: &'s mut Reservation, free: &[FrameRange]) -> Option<Self> {
        let base = space.base();
        let mut buddy = BuddyAllocator::new();
        for bytes in free.iter().map(|range| range.addrs()) {
            if size(bytes.end().get()) > space.bytes() {
                return None;
            }
            // SAFETY: inside the reservation, as was just checked; ranges are
            // disjoint and the reservation is borrowed mutably by the allocator
            // built here, so this is the only slice over these bytes.
            let region = unsafe {
                let start = base.add(size(bytes.start().get()));
                slice::from_raw_parts_mut(start.as_ptr(), size(bytes.bytes()))
            };
            // SAFETY: the region is writable, stays, and overlaps no other.
            let _ = unsafe { buddy.add_region(region) };
        }
        Some(Self { buddy, space })
    }

    /// Bytes it has written to, in whole pages.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        self.space.resident_bytes().unwrap_or_default()
    }
}

impl Cpu for BuddySlab<'_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let block = self.buddy.alloc_pages(size(order.frames()), PAGE);
        block.ok().map(|address| frame(address / PAGE))
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        self.buddy
            .dealloc_pages(size(frame.get()) * PAGE, size(order.frames()));
        true
    }
}

/// Bytes that stand for a page in [`BuddyLeaves`].
const LEAF: usize = 16;

/// `buddy-alloc`.
///
/// It keeps its lists inside the free blocks and would write to every freed page. Here
/// 16 bytes, its smallest block, stand for a page: its lists lie closer together than
/// they would in real memory.
pub struct BuddyLeaves<'s> {
    buddy: BuddyAlloc,
    space: &'s mut Reservation,
}

// SAFETY: its pointers lead into the reservation, which it borrows for itself alone;
// nothing in it is bound to a thread.
unsafe impl Send for BuddyLeaves<'_> {}

impl<'s> BuddyLeaves<'s> {
    /// Address space for so many frames and its data about them.
    #[must_use]
    pub fn space_bytes(frames: u64) -> usize {
        // Two bits a block, twice as many blocks as frames, lists for each order.
        size(frames) * LEAF + size(frames) + (1 << 20)
    }

    /// With as many frames as `free` has, in a row, in `space`, which is fresh.
    pub fn new(space: &'s mut Reservation, free: &[FrameRange]) -> Option<Self> {
        let frames: u64 = free.iter().map(|range| range.count()).sum();
        let bytes = Self::space_bytes(frames);
        if space.bytes() < bytes {
            return None;
        }
        let base = space.base().as_ptr();
        let memory = BuddyAllocParam::new_with_zero_filled(base, bytes, LEAF);
        // SAFETY: readable, writable, zero, and borrowed mutably by what is made here.
        let buddy = unsafe { BuddyAlloc::new(memory) };
        Some(Self { buddy, space })
    }

    /// Bytes it has written to, in whole pages.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        self.space.resident_bytes().unwrap_or_default()
    }
}

impl Cpu for BuddyLeaves<'_> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let leaf = self.buddy.malloc(size(order.frames()) * LEAF);
        let at = leaf.addr().checked_sub(self.space.base().addr().get())?;
        Some(frame(at / LEAF))
    }

    fn free(&mut self, frame: Frame, _order: Order) -> bool {
        let at = size(frame.get()) * LEAF;
        if at >= self.space.bytes() {
            return false;
        }
        // SAFETY: inside the reservation.
        let leaf = unsafe { self.space.base().add(at) };
        self.buddy.free(leaf.as_ptr());
        true
    }
}

/// `Debug` of types whose crates have none.
macro_rules! named {
    ($($type:ty),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($type))
            }
        }
    )*};
}
named!(BuddySystem, Ranges, BuddySlab<'_>, BuddyLeaves<'_>);

impl<B> fmt::Debug for Bitmap<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bitmap")
    }
}
