//! A machine, the owner of each of its frames, and what must hold while no call is in flight.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{AllocError, DrainRequest, Frames, Hooks, Request, Statistics};
use firstlight::node::ZoneKind;

use crate::frames_stress::coming::{AWAY, Piece, has_two_zones};
use crate::kit::{GIB, HUGE_BYTES, MIB, Machine, range};

/// Waits while drains are pending, but not for ever: a thread at a barrier does not drain.
struct Wait;

impl Hooks for Wait {
    fn drain(&self, request: &DrainRequest<'_>) {
        for _ in 0..50 {
            if request.pending_frames() == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// A machine, and the owner of each of its frames.
pub(crate) struct Yard {
    pub(crate) name: &'static str,
    pub(crate) frames: Frames<'static>,
    pub(crate) memory: Vec<FrameRange>,
    pub(crate) nodes: u16,
    /// Orders of the requests.
    pub(crate) orders: &'static [u8],
    pub(crate) at_start: Statistics,
    pub(crate) owners: Vec<AtomicU32>,
    /// Blocks on their way from one thread to another.
    pub(crate) post: Mutex<Vec<(Frame, Order)>>,
    pub(crate) cached_frames: AtomicU64,
    pub(crate) in_caches: AtomicU64,
    /// Memory that comes and goes.
    pub(crate) pieces: Vec<Mutex<Piece>>,
    /// Frames that are memory now, more than at the start.
    pub(crate) came: AtomicI64,
    /// How often some came or went.
    pub(crate) changes: AtomicU64,
    /// How many isolations were taken.
    pub(crate) isolated: AtomicU64,
}

/// Memory of the start that is offline, in so many pieces at most.
const OFFLINE: usize = 3;
/// DIMMs of each machine.
const DIMMS: u64 = 4;

pub(crate) fn machines(threads: usize) -> [Yard; 2] {
    // 1 MiB with pages of 4 KiB.
    const HALF: u64 = HUGE_BYTES / 2;
    const HUGE: u8 = Order::HUGE.get();
    const GIANT: u8 = Order::GIANT.get();
    let pages = |count| count * PAGE_BYTES;
    let small = [
        (0, pages(1), pages(0x9f)),
        // A hole of 16 pages, in the middle of a word of a bitmap.
        (0, HALF, 41 * HALF + pages(32)),
        (0, 41 * HALF + pages(48), 64 * HALF + pages(3)),
        (1, 65 * HALF, 130 * HALF),
    ];
    let large = [
        (0, MIB, 3 * GIB),
        (0, 4 * GIB, 6 * GIB + pages(7)),
        (1, 6 * GIB + 5 * MIB, 9 * GIB),
    ];
    let pages = &[0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 7, 8, HUGE, HUGE, HUGE + 1];
    let blocks = &[
        0,
        0,
        0,
        0,
        0,
        1,
        2,
        4,
        6,
        7,
        8,
        HUGE,
        HUGE,
        HUGE,
        HUGE + 1,
        HUGE + 2,
        HUGE + 4,
        GIANT - 1,
        GIANT,
    ];
    [
        Yard::new("small machine", threads, pages, &small, (1, 2 * HUGE_BYTES)),
        Yard::new("large machine", threads, blocks, &large, (0, 256 * MIB)),
    ]
}

impl Yard {
    fn new(
        name: &'static str,
        threads: usize,
        orders: &'static [u8],
        memory: &[(u16, u64, u64)],
        (node, dimm): (u16, u64),
    ) -> Self {
        let rows = memory
            .iter()
            .map(|&(node, start, end)| (node, range(start, end)));
        let rows: Vec<_> = rows.collect();
        // DIMMs are as aligned as large, and some lie next to memory.
        let window = memory.last().unwrap().2.next_multiple_of(dimm);
        let window = range(window, window + DIMMS * dimm);
        let mut machine = Machine::new(&rows);
        machine.windows.push((node, window));
        let frames = machine.frames_with_cpus(threads).with_hooks(&Wait);
        let memory = memory.iter().map(|&(_, start, end)| {
            FrameRange::new(start / PAGE_BYTES, end / PAGE_BYTES).expect("ascending pages")
        });
        let memory: Vec<_> = memory.chain([window.inner_frames()]).collect();
        let end = memory.last().unwrap().end().get();
        let dimms = (0..DIMMS).map(|at| window.start().get() + at * dimm);
        let dimms = dimms.map(|start| range(start, start + dimm).inner_frames());
        let pieces = dimms.clone().map(Piece::dimm);
        let pieces = pieces.chain((0..OFFLINE).map(|_| Piece::of_start()));
        let yard = Self {
            name,
            at_start: frames.statistics(),
            frames,
            memory,
            nodes: rows.iter().map(|row| row.0 + 1).max().unwrap(),
            orders,
            owners: (0..end).map(|_| AtomicU32::new(0)).collect(),
            post: Mutex::default(),
            cached_frames: AtomicU64::new(0),
            in_caches: AtomicU64::new(0),
            pieces: pieces.collect(),
            came: AtomicI64::new(0),
            changes: AtomicU64::new(0),
            isolated: AtomicU64::new(0),
        };
        for dimm in dimms {
            assert!(has_two_zones(&yard, dimm.start()));
            yard.mark(dimm, 0, AWAY);
        }
        yard
    }

    /// Marks frames with another owner; of large blocks one in each word of a bitmap.
    pub(crate) fn mark(&self, frames: FrameRange, from: u32, to: u32) {
        let step = if is_marked_sparsely(frames.count()) {
            64
        } else {
            1
        };
        for frame in (frames.start().get()..frames.end().get()).step_by(step) {
            let old = self.owners[usize::try_from(frame).unwrap()].swap(to, Relaxed);
            assert_eq!(old, from, "frame {frame} of {frames} has another owner");
        }
    }

    /// While all threads wait: recounts everything, and proves refusals by a search of all frames.
    pub(crate) fn check(&self, all_freed: bool, order: Order) {
        self.frames.validate().unwrap();
        if all_freed {
            let mut pieces: Vec<_> = self.pieces.iter().map(|one| one.lock().unwrap()).collect();
            // Those of the start first: they may be parts of DIMMs.
            let reset = pieces.iter_mut().rev();
            reset.for_each(|piece| piece.reset(self));
            assert_eq!(self.came.load(Relaxed), 0);
            self.frames.validate().unwrap();
        }
        let now = self.frames.statistics();
        let came = self.came.load(Relaxed);
        let expected = self.at_start.managed_frames.checked_add_signed(came);
        assert_eq!(Some(now.managed_frames), expected);
        let posted = self.post.lock().unwrap();
        let posted: u64 = posted.iter().map(|block| block.1.frames()).sum();
        let held = self.cached_frames.swap(0, Relaxed) + posted;
        let kept = self.in_caches.swap(0, Relaxed);
        let expected = self.at_start.free_frames.checked_add_signed(came);
        assert_eq!(Some(now.free_frames + held + kept), expected);
        if all_freed {
            assert_eq!((now, held, kept), (self.at_start, 0, 0));
        }
        let any_zone = |order| Request::new(order).zone(ZoneKind::Movable);
        match self.frames.allocate(any_zone(order).no_drain()) {
            Ok(frame) => self.frames.free(frame, order).unwrap(),
            Err(_) => assert_eq!(
                self.find_free(order),
                None,
                "refused, but free with {order}"
            ),
        }
        match self.frames.allocate(any_zone(Order::PAGE)) {
            Ok(frame) => self.frames.free(frame, Order::PAGE).unwrap(),
            Err(AllocError::OutOfMemory { held_by_cpus, .. }) => {
                assert_eq!((now.free_frames, held_by_cpus), (0, kept));
            }
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.frames.statistics(), now);
    }

    /// Searches all frames for a free block.
    fn find_free(&self, order: Order) -> Option<u64> {
        let is_free = |frame| self.frames.is_allocated(Frame::new(frame)) == Some(false);
        self.memory.iter().find_map(|memory| {
            let size = order.frames();
            let first = memory.start().get().next_multiple_of(size);
            let mut starts = (first..memory.end().get())
                .step_by(usize::try_from(size).unwrap())
                .filter(|start| start + size <= memory.end().get());
            starts.find(|&start| (start..start + size).all(is_free))
        })
    }
}

pub(crate) const fn is_marked_sparsely(frames: u64) -> bool {
    frames > 4096
}
