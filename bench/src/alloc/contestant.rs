//! The allocators: [`Contestant`]. Each is built afresh from the free ranges of the
//! [`Ground`] for each turn, and passed to a [`Visitor`].

use super::ground::Ground;
use super::task::{Task, UnknownName, Workload};
use crate::heap;
use crate::machine::cpu_caches;
use crate::rivals::{Bitmap, Bitmap1T, BuddyLeaves, BuddySlab, BuddySystem, Ranges};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{Cpu, CpuError, DrainRequest, Frames, Hooks};
use firstlight::node::NodeId;
use firstlight_host::metadata::MetadataSpace;
use firstlight_host::reserve::Reservation;
use firstlight_workloads::Allocator;
use firstlight_workloads::lists::{Lifo, SpinLifo, Stack, own};
use firstlight_workloads::locked::Locked;
use firstlight_workloads::ours::Ours;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// An allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// Ours.
    Firstlight,
    /// The floor: a list for each thread.
    Lifo,
    /// The yardstick: one list behind a spin lock.
    SpinLifo,
    /// The crate `buddy_system_allocator`.
    BuddySystem,
    /// The crate `bitmap-allocator`.
    Bitmap,
    /// The crate `buddy-slab-allocator`.
    BuddySlab,
    /// The crate `free-list`.
    FreeList,
    /// The crate `buddy-alloc`.
    BuddyAlloc,
}

/// Code that works with any allocator.
pub trait Visitor {
    /// Works with `allocator`; `touched` counts the bytes that it has written to.
    ///
    /// # Errors
    /// Errors of the host.
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>>;
}

/// The blocks that lists are built for.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Order of the blocks in a list that knows one only.
    pub order: Order,
    /// Threads.
    pub threads: usize,
}

impl Contestant {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Firstlight,
        Self::SpinLifo,
        Self::Lifo,
        Self::BuddySystem,
        Self::Bitmap,
        Self::BuddySlab,
        Self::FreeList,
        Self::BuddyAlloc,
    ];

    /// Its name in records and options: that of the crate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firstlight => "firstlight",
            Self::Lifo => "lifo",
            Self::SpinLifo => "spin-lifo",
            Self::BuddySystem => "buddy_system_allocator",
            Self::Bitmap => "bitmap-allocator",
            Self::BuddySlab => "buddy-slab-allocator",
            Self::FreeList => "free-list",
            Self::BuddyAlloc => "buddy-alloc",
        }
    }

    /// Whether it is another project's crate, and no list of ours.
    #[must_use]
    pub const fn is_rival(self) -> bool {
        !matches!(self, Self::Firstlight | Self::Lifo | Self::SpinLifo)
    }

    /// A remark on its figures.
    #[must_use]
    pub const fn note(self) -> Option<&'static str> {
        match self {
            Self::Firstlight | Self::SpinLifo => None,
            Self::Lifo => Some("a list for each thread, nothing shared or checked: the floor"),
            Self::BuddySystem => Some("behind a spin lock; its heap is counted where a round ends"),
            Self::Bitmap => Some("behind a spin lock; ends at 1 TiB"),
            Self::BuddySlab => Some("behind a spin lock; blocks are aligned to a page only"),
            Self::FreeList => {
                Some("behind a spin lock; its list is in order, searched from the front")
            }
            Self::BuddyAlloc => Some(
                "behind a spin lock; keeps its lists in free pages, for which 16 bytes stand here",
            ),
        }
    }

    /// Why it cannot do this task, if it cannot.
    #[must_use]
    pub fn unsupported(self, task: &Task) -> Option<&'static str> {
        match (self, task.workload) {
            (Self::Lifo | Self::SpinLifo, Workload::Mixed | Workload::Fragmentation) => {
                Some("a list neither splits nor merges blocks")
            }
            (Self::Lifo, Workload::CrossCpu) if task.threads > 1 => {
                Some("a list for each thread accepts no blocks of another")
            }
            _ => None,
        }
    }

    /// Builds the allocator over `ground` and passes it to `visitor`.
    ///
    /// # Errors
    /// Errors of the host, the engine or the visitor.
    pub fn show<V: Visitor>(
        self,
        ground: &Ground,
        need: Need,
        visitor: &mut V,
    ) -> Result<(), Box<dyn Error>> {
        let free = &ground.free;
        match self {
            Self::Firstlight => firstlight(ground, need.threads, visitor),
            Self::Lifo => lifo(ground, need, visitor),
            Self::SpinLifo => spin_lifo(ground, need.order, visitor),
            Self::BuddySystem => {
                let heap = Heap::begin();
                let buddy = Locked::new(BuddySystem::new(free), thread::yield_now);
                visitor.visit(&buddy, &|| heap.grown() + size_of_val(&buddy) as u64)
            }
            Self::FreeList => {
                let heap = Heap::begin();
                let ranges = Locked::new(Ranges::new(free), thread::yield_now);
                visitor.visit(&ranges, &|| heap.grown() + size_of_val(&ranges) as u64)
            }
            Self::Bitmap => {
                let mut space = Reservation::new(size_of::<Bitmap1T>())?;
                let bits = Bitmap::<Bitmap1T>::new(&mut space, free);
                let bits = Locked::new(
                    bits.ok_or("the machine is larger than 1 TiB")?,
                    thread::yield_now,
                );
                visitor.visit(&bits, &|| bits.lock().touched_bytes())
            }
            Self::BuddySlab => {
                let mut space = Reservation::new(ground.end_bytes())?;
                let buddy = BuddySlab::new(&mut space, free);
                let buddy = Locked::new(
                    buddy.ok_or("memory ends beyond the machine")?,
                    thread::yield_now,
                );
                visitor.visit(&buddy, &|| buddy.lock().touched_bytes())
            }
            Self::BuddyAlloc => {
                let mut space = Reservation::new(BuddyLeaves::space_bytes(ground.frames))?;
                let buddy = BuddyLeaves::new(&mut space, free);
                let buddy = Locked::new(buddy.ok_or("its lists do not fit")?, thread::yield_now);
                visitor.visit(&buddy, &|| buddy.lock().touched_bytes())
            }
        }
    }
}

/// A list for each thread.
fn lifo<V: Visitor>(ground: &Ground, need: Need, visitor: &mut V) -> Result<(), Box<dyn Error>> {
    let mut blocks: Vec<Frame> = ground.blocks(need.order).collect();
    let bytes = size_of_val(blocks.as_slice()) as u64;
    let each = blocks.len().div_ceil(need.threads.max(1)).max(1);
    let lists: Vec<_> = blocks
        .chunks_mut(each)
        .map(|part| {
            let len = part.len();
            own(Stack::new(part, len))
        })
        .collect();
    visitor.visit(&Lifo::new(&lists), &|| bytes)
}

/// One list for all.
fn spin_lifo<V: Visitor>(
    ground: &Ground,
    order: Order,
    visitor: &mut V,
) -> Result<(), Box<dyn Error>> {
    let mut blocks: Vec<Frame> = ground.blocks(order).collect();
    // The last is allocated first: let that be the lowest.
    blocks.reverse();
    let (len, bytes) = (blocks.len(), size_of_val(blocks.as_slice()) as u64);
    let list = SpinLifo::new(Stack::new(&mut blocks, len), thread::yield_now);
    visitor.visit(&list, &|| bytes)
}

/// The growth of the heap.
struct Heap(Option<u64>);

impl Heap {
    fn begin() -> Self {
        Self(heap::in_use_bytes())
    }

    /// 0 where the C library does not count.
    fn grown(&self) -> u64 {
        let now = heap::in_use_bytes().zip(self.0);
        now.map_or(0, |(now, before)| now.saturating_sub(before))
    }
}

/// Longest wait of a thread for the caches of the others.
const MOST_WAIT: Duration = Duration::from_micros(100);

/// Drains need no interrupt: a thread that works sees the request at its next call.
struct Patience;

impl Hooks for Patience {
    fn drain(&self, request: &DrainRequest<'_>) {
        let since = Instant::now();
        while request.pending_frames() > 0 && since.elapsed() < MOST_WAIT {
            thread::yield_now();
        }
    }
}

/// The engine, its metadata in untouched address space.
fn firstlight<V: Visitor>(
    ground: &Ground,
    threads: usize,
    visitor: &mut V,
) -> Result<(), Box<dyn Error>> {
    let mut storage = ground.machine.storage();
    let layout = ground.machine.layout(&mut storage)?;
    let space = MetadataSpace::new(ground.machine.metadata_bytes())?;
    let frames = Frames::build(layout, &space)?.with_hooks(&Patience);
    let caches = cpu_caches(threads);
    frames.provide_cpus(caches)?;
    let own_bytes = size_of_val(caches) + threads * size_of::<Cpu<'_, '_>>();
    let cpus: Vec<_> = (0..threads)
        .map(|index| Ok(own(frames.cpu(index, NodeId::default())?)))
        .collect::<Result<_, CpuError>>()?;
    visitor.visit(&Ours::new(&cpus), &|| {
        let tables = space.reservation().resident_bytes().unwrap_or_default();
        tables + own_bytes as u64
    })
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Contestant {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let mut all = Self::ALL.into_iter();
        all.find(|contestant| contestant.name() == text)
            .ok_or_else(|| UnknownName::new(text, Self::ALL.iter().map(|known| known.name())))
    }
}
