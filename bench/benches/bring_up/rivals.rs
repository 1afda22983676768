//! Allocators from the Rust registry as contestants, and the floor of every
//! allocator that begins with a descriptor for each page: a memset.
//!
//! Each gets the ranges that are free in the machine's layout, as it wants
//! them; finding them is not timed.

use std::marker::PhantomData;
use std::slice;

use bitmap_allocator::{BitAlloc, BitAlloc256M, BitAllocCascade16};
use buddy_slab_allocator::{BuddyAllocator, SlabPoolTrait};
use buddy_system_allocator::FrameAllocator;
use firstlight::addr::{Order, PAGE_BYTES};
use firstlight_bench::machine::{GIB, Machine};
use firstlight_host::reserve::Reservation;
use free_list::{FreeList, PageLayout, PageRange};

use crate::contest::{Contestant, Game, Live, Sample, play};

const PAGE: usize = PAGE_BYTES as usize;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("64-bit addresses")
}

/// Bytes resident of a reservation, to print.
fn resident(space: Option<&Reservation>) -> String {
    let bytes = space.and_then(|space| space.resident_bytes().ok());
    bytes.map_or("?".into(), |bytes| {
        format!("{:.1} MiB resident", bytes as f64 / 1048576.0)
    })
}

// ---- buddy_system_allocator ---------------------------------------------

/// A tree set of free blocks for each order, on the heap.
pub(crate) struct BuddySystem;

impl Live for FrameAllocator<33> {
    fn take(&mut self, order: Order) -> Option<u64> {
        self.alloc(size(order.frames())).map(|frame| frame as u64)
    }

    fn give(&mut self, frame: u64, order: Order) {
        self.dealloc(size(frame), size(order.frames()));
    }
}

impl Contestant for BuddySystem {
    fn name(&self) -> &'static str {
        "buddy_system_allocator"
    }

    fn refresh(&mut self, _: &Machine) {}

    fn run(&mut self, game: &Game<'_>) -> Sample {
        play(game.task, || {
            let mut frames = FrameAllocator::<33>::new();
            for range in game.free {
                frames.add_frame(size(range.start().get()), size(range.end().get()));
            }
            frames
        })
    }

    fn written(&self) -> String {
        "tree nodes on the heap".into()
    }
}

// ---- free-list -------------------------------------------------------------

/// A sorted list of free ranges.
pub(crate) struct Ranges;

impl Live for FreeList<16> {
    fn take(&mut self, order: Order) -> Option<u64> {
        let bytes = size(order.bytes());
        let layout = PageLayout::from_size_align(bytes, bytes).ok()?;
        let range = self.allocate(layout).ok()?;
        Some((range.start() / PAGE) as u64)
    }

    fn give(&mut self, frame: u64, order: Order) {
        let range = PageRange::from_start_len(size(frame) * PAGE, size(order.bytes()));
        // SAFETY: nothing lives in these addresses; they are only counted.
        let freed = range.map(|range| unsafe { self.deallocate(range) });
        debug_assert!(matches!(freed, Ok(Ok(()))));
    }
}

impl Contestant for Ranges {
    fn name(&self) -> &'static str {
        "free-list"
    }

    fn refresh(&mut self, _: &Machine) {}

    fn run(&mut self, game: &Game<'_>) -> Sample {
        play(game.task, || {
            let mut list = FreeList::<16>::new();
            for range in game.free {
                let bytes = range.bytes();
                let range = PageRange::new(size(bytes.start().get()), size(bytes.end().get()));
                let range = range.expect("whole pages");
                // SAFETY: nothing lives in these addresses; they are only counted.
                unsafe { list.deallocate(range) }.expect("ranges are disjoint");
            }
            list
        })
    }

    fn written(&self) -> String {
        "16 B a range, in the value".into()
    }
}

// ---- bitmap-allocator ------------------------------------------------------

/// A tree of 16-bit words over a bit for each page, of type `B`.
pub(crate) struct Bitmap<B> {
    space: Option<Reservation>,
    bits: PhantomData<B>,
}

/// The largest size the crate names: 2^28 pages, 1 TiB.
pub(crate) type Bitmap1T = Bitmap<BitAlloc256M>;
/// One level more, which can be named outside: 16 TiB.
pub(crate) type Bitmap16T = Bitmap<BitAllocCascade16<BitAlloc256M>>;

impl<B> Default for Bitmap<B> {
    fn default() -> Self {
        Self {
            space: None,
            bits: PhantomData,
        }
    }
}

struct Bits<'a, B>(&'a mut B);

impl<B: BitAlloc> Live for Bits<'_, B> {
    fn take(&mut self, order: Order) -> Option<u64> {
        let found = if order == Order::PAGE {
            self.0.alloc()
        } else {
            let order_log2 = usize::from(order.get());
            self.0
                .alloc_contiguous(None, size(order.frames()), order_log2)
        };
        found.map(|frame| frame as u64)
    }

    fn give(&mut self, frame: u64, order: Order) {
        if order == Order::PAGE {
            self.0.dealloc(size(frame));
        } else {
            self.0.dealloc_contiguous(size(frame), size(order.frames()));
        }
    }
}

/// Types all of whose bits may be zero, and are then empty bitmaps.
///
/// # Safety
/// The type must be made of integers only.
pub(crate) unsafe trait ZeroIsEmpty: BitAlloc {}
// SAFETY: arrays of structures of one u16 each.
unsafe impl ZeroIsEmpty for BitAlloc256M {}
// SAFETY: as above.
unsafe impl ZeroIsEmpty for BitAllocCascade16<BitAlloc256M> {}

impl<B: ZeroIsEmpty> Contestant for Bitmap<B> {
    fn name(&self) -> &'static str {
        "bitmap-allocator"
    }

    fn excuse(&self, machine: &Machine) -> Option<String> {
        let most = B::CAP as u64 * PAGE_BYTES;
        (machine.end_bytes() > most).then(|| {
            let bytes = size_of::<B>() as u64 * machine.end_bytes().div_ceil(most);
            format!(
                "its largest useful type ends at {} TiB; one more level would write {} GiB",
                most / (1024 * GIB),
                bytes / GIB
            )
        })
    }

    fn refresh(&mut self, _: &Machine) {
        self.space = Reservation::new(size_of::<B>()).ok();
    }

    fn run(&mut self, game: &Game<'_>) -> Sample {
        let space = self.space.as_ref().expect("address space");
        let bits = space.base().cast::<B>();
        // SAFETY: the reservation is page-aligned, as large as B, zero where
        // nobody wrote, and borrowed by this call alone.
        let bits = unsafe { &mut *bits.as_ptr() };
        play(game.task, || {
            for range in game.free {
                bits.insert(size(range.start().get())..size(range.end().get()));
            }
            Bits(bits)
        })
    }

    fn written(&self) -> String {
        resident(self.space.as_ref())
    }
}

// ---- buddy-slab-allocator --------------------------------------------------

/// 12 bytes a page at the start of each range, and free lists through them.
#[derive(Default)]
pub(crate) struct BuddySlab {
    space: Option<Reservation>,
}

/// Descriptors of larger machines would take 12 GiB and more.
const BUDDY_SLAB_MOST_BYTES: u64 = 1024 * GIB;

struct Platform;

#[ax_crate_interface::impl_interface]
impl buddy_slab_allocator::interface::BuddySlabIf for Platform {
    fn virt_to_phys(vaddr: usize) -> usize {
        vaddr
    }

    fn slab_pool() -> &'static dyn SlabPoolTrait {
        unreachable!("no slab is asked for")
    }
}

impl Live for BuddyAllocator {
    fn take(&mut self, order: Order) -> Option<u64> {
        // It can't align to more than a page: a range begins with descriptors.
        let block = self.alloc_pages(size(order.frames()), PAGE);
        block.ok().map(|address| (address / PAGE) as u64)
    }

    fn give(&mut self, frame: u64, order: Order) {
        self.dealloc_pages(size(frame) * PAGE, size(order.frames()));
    }
}

impl Contestant for BuddySlab {
    fn name(&self) -> &'static str {
        "buddy-slab-allocator"
    }

    fn excuse(&self, machine: &Machine) -> Option<String> {
        (machine.end_bytes() > BUDDY_SLAB_MOST_BYTES).then(|| {
            let bytes = machine.frames() * 12;
            format!(
                "writes {} GiB of descriptors, more than this test takes",
                bytes / GIB
            )
        })
    }

    fn refresh(&mut self, machine: &Machine) {
        self.space = Reservation::new(size(machine.end_bytes())).ok();
    }

    fn run(&mut self, game: &Game<'_>) -> Sample {
        let space = self.space.as_mut().expect("address space");
        let base = space.base();
        play(game.task, || {
            let mut buddy = BuddyAllocator::new();
            for range in game.free {
                let bytes = range.bytes();
                // SAFETY: the reservation ends where the machine's memory does;
                // ranges are disjoint, so this is the only slice over these bytes.
                let region = unsafe {
                    let start = base.add(size(bytes.start().get()));
                    slice::from_raw_parts_mut(start.as_ptr(), size(bytes.bytes()))
                };
                // A range too small for its own descriptors is lost.
                // SAFETY: the region is writable, stays, and overlaps no other.
                let _ = unsafe { buddy.add_region(region) };
            }
            buddy
        })
    }

    fn written(&self) -> String {
        resident(self.space.as_ref())
    }
}

// ---- memset ------------------------------------------------------------------

/// Writing `BYTES` for each page: the least an allocator does that begins with
/// a descriptor for each. It allocates nothing.
#[derive(Default)]
pub(crate) struct Memset<const BYTES: usize> {
    descriptors: Vec<u8>,
}

struct Nothing;

impl Live for Nothing {
    fn take(&mut self, _: Order) -> Option<u64> {
        None
    }

    fn give(&mut self, _: u64, _: Order) {}
}

/// Bytes of memory that could be used now.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl<const BYTES: usize> Contestant for Memset<BYTES> {
    fn name(&self) -> &'static str {
        match BYTES {
            64 => "memset of 64 B a page",
            _ => "memset of 8 B a page",
        }
    }

    fn excuse(&self, machine: &Machine) -> Option<String> {
        let bytes = machine.frames() * BYTES as u64;
        let held = self.descriptors.len() as u64;
        (bytes > (available_bytes() + held) / 2 || bytes > 8 * GIB)
            .then(|| format!("{} GiB of descriptors, too much for this host", bytes / GIB))
    }

    fn refresh(&mut self, machine: &Machine) {
        // The same memory every time, after one touch, in huge pages as a
        // kernel would have it: the floor, warm.
        if self.descriptors.is_empty() {
            let bytes = size(machine.frames()) * BYTES;
            self.descriptors.reserve_exact(bytes);
            let start = self.descriptors.as_mut_ptr();
            let lead = start.align_offset(PAGE);
            // SAFETY: whole pages inside what was just allocated; the advice
            // changes no content. A kernel may refuse it, which slows us only.
            let _ = unsafe {
                let bytes = bytes.saturating_sub(lead) / PAGE * PAGE;
                libc::madvise(start.add(lead).cast(), bytes, libc::MADV_HUGEPAGE)
            };
            self.descriptors.resize(bytes, 1);
        }
    }

    fn run(&mut self, game: &Game<'_>) -> Sample {
        play(game.task, || {
            self.descriptors.fill(0);
            std::hint::black_box(&mut self.descriptors);
            Nothing
        })
    }

    fn written(&self) -> String {
        format!("{:.1} MiB", self.descriptors.len() as f64 / 1048576.0)
    }
}
