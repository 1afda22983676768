//! Unaccepted memory comes online when it is needed, once, and nothing of it
//! is touched or handed out before.

use crate::kit;

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use firstlight::acceptance::{Acceptance, Pending};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::early::EarlyFlags;
use firstlight::frames::{AllocError, DrainRequest, Exhausted, Frames, Hooks, Request};
use firstlight::memmap::{Memmap, MemmapPolicy, PageDescriptor, SectionState};
use firstlight::node::{NodeId, NodeMask, ZoneKind};
use firstlight::platform::{NotAccepted, Platform};
use kit::{HUGE_BYTES, HUGE_FRAMES, MIB, Machine, Uninitialised, range};

/// Half a huge frame, 1 MiB with pages of 4 KiB.
const UNIT: u64 = HUGE_BYTES / 2;
const MEMORY_END: u64 = 256 * UNIT;

/// A guest of 128 units of accepted memory, and more on two nodes that is not.
fn guest() -> Machine {
    let mut machine = Machine::new(&[
        (0, range(MIB, 128 * UNIT)),
        (0, range(128 * UNIT, 192 * UNIT + 5 * PAGE_BYTES)),
        (1, range(192 * UNIT + 5 * PAGE_BYTES, MEMORY_END)),
    ]);
    machine.memory[1].2 = EarlyFlags::UNACCEPTED;
    machine.memory[2].2 = EarlyFlags::UNACCEPTED;
    // The loader put something into memory it did not accept for us.
    machine
        .reserved
        .push(range(140 * UNIT + PAGE_BYTES, 140 * UNIT + 4 * PAGE_BYTES));
    machine
}

/// Counts how often each frame was accepted.
struct Guest {
    times: Vec<AtomicU8>,
    calls: AtomicU64,
    /// Refuses chunks that contain this frame.
    bad: Option<Frame>,
}

impl Guest {
    fn new(bad: Option<Frame>) -> &'static Self {
        Box::leak(Box::new(Self {
            times: (0..MEMORY_END / PAGE_BYTES)
                .map(|_| AtomicU8::new(0))
                .collect(),
            calls: AtomicU64::new(0),
            bad,
        }))
    }

    fn times(&self, number: u64) -> u8 {
        self.times[usize::try_from(number).unwrap()].load(Ordering::Relaxed)
    }
}

// SAFETY: `map` refuses everything: tables lie with another platform.
unsafe impl Platform for Guest {
    fn map(&self, _: PhysRange) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn accept(&self, range: PhysRange) -> Result<(), NotAccepted> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(range.bytes() <= HUGE_BYTES && !range.is_empty());
        let frames = range.inner_frames();
        assert_eq!(frames.addrs(), range);
        if self.bad.is_some_and(|bad| frames.contains(bad)) {
            return Err(NotAccepted { range, code: 0xbad });
        }
        for number in frames.start().get()..frames.end().get() {
            let times = &self.times[usize::try_from(number).unwrap()];
            assert_eq!(times.fetch_add(1, Ordering::Relaxed), 0, "accepted twice");
        }
        Ok(())
    }
}

fn tables() -> &'static Uninitialised {
    Box::leak(Box::new(Uninitialised::default()))
}

fn slots(count: usize) -> &'static mut [Pending] {
    Box::leak((0..count).map(|_| Pending::default()).collect())
}

/// What the kernel of these tests adds to allocation.
struct Kernel<P: 'static> {
    frames: OnceLock<Frames<'static>>,
    acceptance: Acceptance<'static, P>,
    /// Requests to drain.
    drains: AtomicU64,
    /// Another CPU accepts all that is left, just after this CPU found nothing anywhere.
    races: AtomicBool,
}

impl<P: Platform + Sync> Kernel<P> {
    /// `frames` that accept memory when they are exhausted.
    fn start(
        frames: Frames<'static>,
        acceptance: Acceptance<'static, P>,
    ) -> (&'static Frames<'static>, &'static Self) {
        let kernel: &Self = Box::leak(Box::new(Self {
            frames: OnceLock::new(),
            acceptance,
            drains: AtomicU64::new(0),
            races: AtomicBool::new(false),
        }));
        let frames = kit::with_cpus(frames.with_hooks(kernel), 2);
        (kernel.frames.get_or_init(|| frames), kernel)
    }
}

impl<P: Platform + Sync> Hooks for Kernel<P> {
    fn exhausted(&self, request: &Request, what: Exhausted) -> bool {
        let frames = self.frames.get().unwrap();
        if what.is_all() && self.races.swap(false, Ordering::Relaxed) {
            self.acceptance.accept_all(frames, NodeId(0));
        }
        self.acceptance.accept_for(frames, request, what)
    }

    fn drain(&self, _: &DrainRequest<'_>) {
        self.drains.fetch_add(1, Ordering::Relaxed);
    }
}

/// Frames that accept memory when they are exhausted, and what does it.
fn accepting<P: Platform + Sync>(
    machine: &Machine,
    platform: &'static P,
) -> (&'static Frames<'static>, &'static Kernel<P>) {
    let (frames, pending) = bring_up(machine);
    Kernel::start(frames, Acceptance::new(platform, pending, &|_| {}))
}

/// Frames, and what is pending of them.
fn bring_up(machine: &Machine) -> (Frames<'static>, &'static [Pending]) {
    let layout = machine.layout();
    let pending = Pending::list(&layout, slots(8)).unwrap();
    (Frames::build(layout, tables()).unwrap(), pending)
}

fn unaccepted(number: u64) -> bool {
    (128 * UNIT..MEMORY_END).contains(&(number * PAGE_BYTES))
}

fn reserved(number: u64) -> bool {
    (140 * UNIT + PAGE_BYTES..140 * UNIT + 4 * PAGE_BYTES).contains(&(number * PAGE_BYTES))
}

#[test]
fn what_is_pending_is_unaccepted_and_not_reserved() {
    let layout = guest().layout();
    let full = Pending::list(&layout, slots(2)).unwrap_err();
    assert_eq!((full.capacity, full.needed), (2, 3));
    let pending = Pending::list(&layout, slots(3)).unwrap();
    let frames: u64 = pending.iter().map(|own| own.frames().count()).sum();
    assert_eq!(frames, (128 * UNIT / PAGE_BYTES) - 3);
    let nodes: Vec<_> = pending.iter().map(|own| own.node().0).collect();
    assert_eq!(nodes, [0, 0, 1]);
    let none = Machine::new(&[(0, range(MIB, 64 * UNIT))]).layout();
    assert!(Pending::list(&none, &mut []).unwrap().is_empty());
    let mut nomap = guest();
    nomap.memory[2].2 = EarlyFlags::UNACCEPTED.with(EarlyFlags::NOMAP);
    assert_eq!(Pending::list(&nomap.layout(), slots(8)).unwrap().len(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame")]
fn memory_comes_online_when_nothing_else_is_left() {
    let platform = Guest::new(None);
    let (frames, Kernel { acceptance, .. }) = accepting(&guest(), platform);
    let before = frames.statistics().free_frames;
    let mut count = 0u64;
    let mut seen = vec![false; usize::try_from(MEMORY_END / PAGE_BYTES).unwrap()];
    while let Ok(frame) = frames.allocate(Request::new(Order::PAGE)) {
        let number = frame.get();
        // Nothing is accepted while there is something else.
        if count < before {
            assert_eq!(platform.calls.load(Ordering::Relaxed), 0);
            assert!(!unaccepted(number));
        } else {
            assert_eq!(
                platform.times(number),
                1,
                "handed out before it was accepted"
            );
            // And no more than is needed.
            let accepted = acceptance.accepted().online_frames;
            assert!(accepted <= count - before + HUGE_FRAMES);
        }
        let seen = &mut seen[usize::try_from(number).unwrap()];
        assert!(!core::mem::replace(seen, true), "{frame} twice");
        count += 1;
    }
    let accepted = acceptance.accepted();
    assert_eq!(accepted.online_frames, accepted.total_frames);
    assert_eq!(count, before + accepted.total_frames);
    for number in 0..MEMORY_END / PAGE_BYTES {
        let expected = u8::from(unaccepted(number) && !reserved(number));
        assert_eq!(platform.times(number), expected, "frame {number:#x}");
    }
    frames.validate().unwrap();
}

#[test]
fn what_is_accepted_is_known_to_be_zero() {
    let (frames, Kernel { acceptance, .. }) = accepting(&guest(), Guest::new(None));
    let before = frames.statistics();
    assert_eq!(before.zero.frames, 0);
    acceptance.accept_all(frames, NodeId(0));
    let accepted = acceptance.accepted();
    assert_eq!(accepted.online_frames, accepted.total_frames);
    let now = frames.statistics();
    assert_eq!(now.free_frames, before.free_frames + accepted.online_frames);
    // All but pages of huge frames that were split before, of which nothing is known.
    assert!(now.zero.frames > 0 && now.zero.frames <= accepted.online_frames);
    assert!(now.zero.frames >= accepted.online_frames - 4 * HUGE_FRAMES);
    frames.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame")]
fn workers_and_allocations_accept_each_frame_once() {
    let mut layout = guest().layout();
    let memmap = Memmap::reserve(&mut layout, tables(), MemmapPolicy::default());
    let memmap: &Memmap<'_, PageDescriptor> = Box::leak(Box::new(memmap.unwrap()));
    let pending = Pending::list(&layout, slots(8)).unwrap();
    let frames = Frames::build(layout, tables()).unwrap();
    let platform = Guest::new(None);
    let describe = Box::leak(Box::new(|chunk: FrameRange| memmap.make_range_ready(chunk)));
    let acceptance = Acceptance::new(platform, pending, describe);
    let (frames, Kernel { acceptance, .. }) = Kernel::start(frames, acceptance);
    let before = frames.statistics().free_frames;
    let taken: u64 = std::thread::scope(|scope| {
        scope.spawn(|| acceptance.accept_all(frames, NodeId(1)));
        let threads = [0, 1].map(|node| {
            scope.spawn(move || {
                let mut cpu = frames.cpu(node.into(), NodeId(node)).unwrap();
                let mut taken = 0;
                while let Ok(frame) = cpu.allocate(Request::new(Order::PAGE)) {
                    if unaccepted(frame.get()) {
                        assert_eq!(platform.times(frame.get()), 1);
                        assert_eq!(memmap.state(frame), Some(SectionState::Ready));
                    }
                    taken += 1;
                }
                assert_eq!(cpu.cached_frames(), 0);
                taken
            })
        });
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    // Out of memory was reported only once there was none.
    assert_eq!(taken, before + acceptance.accepted().total_frames);
    assert_eq!(frames.statistics().free_frames, 0);
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame of a node")]
fn what_came_online_since_the_last_search_is_found() {
    let (frames, kernel) = accepting(&guest(), Guest::new(None));
    // Of node 0 all is used; of node 1 nothing is accepted.
    let here = Request::new(Order::PAGE).only_on(NodeId(0));
    while frames.allocate(here).is_ok() {}
    let left = kernel.acceptance.accepted();
    assert!(left.online_frames < left.total_frames);
    kernel.races.store(true, Ordering::Relaxed);
    assert!(frames.allocate(Request::new(Order::PAGE)).is_ok());
    let none_left = kernel.acceptance.accepted();
    assert_eq!(none_left.online_frames, none_left.total_frames);
}

#[test]
fn a_request_accepts_only_what_it_may_have() {
    let huge = Request::new(Order::HUGE);
    let mask = NodeMask::of_bits(0b10_0010).unwrap();
    let of_node_1 = [huge.only_on(NodeId(1)), huge.on(NodeId(0)).among(mask)];
    let [(frames, acceptance), _] = of_node_1.map(|request| {
        let platform = Guest::new(None);
        let (frames, Kernel { acceptance, .. }) = accepting(&guest(), platform);
        let frame = frames.allocate(request).unwrap();
        assert!(frame.addr().get() > 192 * UNIT);
        // The first chunk is what is left of one; the second is whole.
        assert_eq!(platform.calls.load(Ordering::Relaxed), 2);
        (frames, acceptance)
    });
    let wrong = frames.allocate(Request::new(Order::PAGE).on(NodeId(9)));
    assert!(matches!(wrong, Err(AllocError::NoSuchNode { .. })));
    let giant = frames.allocate(Request::new(Order::GIANT));
    assert!(matches!(giant, Err(AllocError::OutOfMemory { .. })));
    let accepted = acceptance.accepted();
    assert_eq!(accepted.online_frames, accepted.total_frames);
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame of two nodes")]
fn memory_is_accepted_before_other_nodes_are_used_and_caches_drained() {
    let mut machine = Machine::new(&[
        (0, range(16 * UNIT, 24 * UNIT)),
        (0, range(24 * UNIT, 64 * UNIT)),
        (1, range(64 * UNIT, 96 * UNIT)),
        (1, range(96 * UNIT, 128 * UNIT)),
    ]);
    machine.memory[1].2 = EarlyFlags::UNACCEPTED;
    machine.memory[3].2 = EarlyFlags::UNACCEPTED;
    let platform = Guest::new(None);
    let (frames, kernel) = accepting(&machine, platform);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let held = cpu.allocate(Request::new(Order::PAGE)).unwrap();
    assert!(cpu.cached_frames() > 0, "nothing to be drained");

    let on_node_1 = |frame: Frame| frame.addr().get() >= 64 * UNIT;
    let accepted = |from: u64, to: u64| {
        let frames = (from * UNIT) / PAGE_BYTES..(to * UNIT) / PAGE_BYTES;
        frames
            .map(|number| u64::from(platform.times(number)))
            .sum::<u64>()
    };
    let mut remote = 0;
    loop {
        let taken = frames.allocate(Request::new(Order::PAGE));
        let Ok(frame) = taken else { break };
        if !on_node_1(frame) {
            assert_eq!(
                remote, 0,
                "other nodes helped out before {frame} was accepted"
            );
        } else {
            // Free memory there before unaccepted memory.
            assert_eq!(accepted(24, 64), 40 * UNIT / PAGE_BYTES);
            assert!(remote >= 30 * UNIT / PAGE_BYTES || accepted(96, 128) == 0);
            remote += 1;
        }
        // Before memory of other nodes is accepted.
        let drained = kernel.drains.load(Ordering::Relaxed) > 0;
        assert_eq!(drained, accepted(96, 128) > 0);
    }
    assert_eq!(accepted(96, 128), 32 * UNIT / PAGE_BYTES);
    cpu.free(held, Order::PAGE).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame of a node")]
fn a_row_by_a_cpu_is_of_memory_that_is_accepted_near_before_it_is_of_another_node() {
    let mut machine = Machine::new(&[
        (0, range(16 * UNIT, 24 * UNIT)),
        (0, range(24 * UNIT, 64 * UNIT)),
        (1, range(64 * UNIT, 128 * UNIT)),
    ]);
    machine.memory[1].2 = EarlyFlags::UNACCEPTED;
    let (frames, _) = accepting(&machine, Guest::new(None));
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut row = || cpu.allocate_frames(3, 1, Request::new(Order::PAGE));
    let mut is_near = true;
    let mut near = 0;
    while let Ok(row) = row() {
        is_near &= row.start().addr().get() < 64 * UNIT;
        near += u64::from(is_near);
    }
    assert!(
        !is_near && near > 40 * UNIT / PAGE_BYTES / 4,
        "{near} rows of 3"
    );
}

#[test]
fn refused_memory_stays_unavailable() {
    let bad = Frame::new(150 * UNIT / PAGE_BYTES);
    let (frames, Kernel { acceptance, .. }) = accepting(&guest(), Guest::new(Some(bad)));
    acceptance.accept_all(frames, NodeId(0));
    let accepted = acceptance.accepted();
    assert_eq!(accepted.refused_frames, HUGE_FRAMES);
    assert_eq!(accepted.online_frames + HUGE_FRAMES, accepted.total_frames);
    assert_eq!(frames.is_allocated(bad), Some(true));
    assert_eq!(
        frames.is_allocated(Frame::new(bad.get() + HUGE_FRAMES)),
        Some(false)
    );
}

#[test]
fn a_platform_that_accepts_nothing_leaves_all_unavailable() {
    /// With the engine's default.
    struct Plain;
    // SAFETY: refuses everything.
    unsafe impl Platform for Plain {
        fn map(&self, _: PhysRange) -> Option<NonNull<u8>> {
            None
        }
    }
    let (frames, Kernel { acceptance, .. }) = accepting(&guest(), &Plain);
    let before = frames.statistics();
    let request = Request::new(Order::GIANT);
    assert_eq!(
        frames.allocate(request),
        Err(AllocError::OutOfMemory {
            request,
            frames: request.order().frames(),
            align_frames: request.order().frames(),
            held_by_cpus: 0,
            in_work: 0,
        })
    );
    let accepted = acceptance.accepted();
    assert_eq!(accepted.refused_frames, accepted.total_frames);
    assert_eq!(frames.statistics(), before);
    // SAFETY: it accepts nothing.
    let error = unsafe { Plain.accept(range(0, PAGE_BYTES)) }.unwrap_err();
    assert!(error.to_string().contains("can't accept"), "{error}");
}

#[test]
fn memory_of_other_kinds_is_left_alone() {
    for flag in [
        EarlyFlags::NOMAP,
        EarlyFlags::DRIVER_MANAGED,
        EarlyFlags::PRESERVED,
    ] {
        let mut machine = guest();
        machine.memory[2].2 = EarlyFlags::UNACCEPTED.with(flag);
        let platform = Guest::new(None);
        let (frames, Kernel { acceptance, .. }) = accepting(&machine, platform);
        acceptance.accept_all(frames, NodeId(1));
        let border = (192 * UNIT + 5 * PAGE_BYTES) / PAGE_BYTES;
        for number in 128 * UNIT / PAGE_BYTES..MEMORY_END / PAGE_BYTES {
            let expected = u8::from(number < border && !reserved(number));
            assert_eq!(platform.times(number), expected, "frame {number:#x}");
        }
        assert_ne!(frames.is_allocated(Frame::new(border)), Some(false));
    }
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame of a zone")]
fn a_request_for_lower_zones_accepts_nothing_above() {
    let platform = Guest::new(None);
    let (frames, _) = accepting(&guest(), platform);
    let low = Request::new(Order::PAGE).zone(ZoneKind::Dma);
    while let Ok(frame) = frames.allocate(low) {
        assert!(frame.addr().get() < 16 * MIB);
    }
    assert_eq!(platform.calls.load(Ordering::Relaxed), 0);
    // What is not accepted lies in DMA32, and requests for another zone leave it alone.
    let other = Request::new(Order::PAGE).only_zone(ZoneKind::Normal);
    assert!(frames.allocate(other).is_err());
    assert_eq!(platform.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_chunk_whose_acceptance_panics_stays_unavailable() {
    /// Panics once.
    struct Panics(&'static Guest, AtomicU64);
    // SAFETY: `map` refuses everything.
    unsafe impl Platform for Panics {
        fn map(&self, _: PhysRange) -> Option<NonNull<u8>> {
            None
        }

        unsafe fn accept(&self, range: PhysRange) -> Result<(), NotAccepted> {
            if self.1.fetch_add(1, Ordering::Relaxed) == 3 {
                panic!("a platform panics for this test");
            }
            // SAFETY: the caller's promise.
            unsafe { self.0.accept(range) }
        }
    }
    static PLATFORM: OnceLock<Panics> = OnceLock::new();
    let platform = PLATFORM.get_or_init(|| Panics(Guest::new(None), AtomicU64::new(0)));
    let (frames, Kernel { acceptance, .. }) = accepting(&guest(), platform);
    let accept = || acceptance.accept_all(frames, NodeId(0));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(accept)).is_err());
    let request = Request::new(Order::GIANT);
    let none = frames.allocate(request);
    assert!(matches!(none, Err(AllocError::OutOfMemory { .. })));
    let accepted = acceptance.accepted();
    assert_eq!(accepted.online_frames + HUGE_FRAMES, accepted.total_frames);
    let unavailable: Vec<_> = (128 * UNIT / PAGE_BYTES..MEMORY_END / PAGE_BYTES)
        .filter(|&number| !reserved(number) && platform.0.times(number) == 0)
        .collect();
    assert_eq!(unavailable.len() as u64, HUGE_FRAMES);
    let is_unavailable = |&number: &u64| frames.is_allocated(Frame::new(number)) == Some(true);
    assert!(unavailable.iter().all(is_unavailable));
}
/// A CPU of node 3 gets what is near to it, also once all nodes are exhausted.
#[test]
fn near_memory_is_accepted_before_far() {
    let of = |node: u64| (16 + 16 * node) * UNIT;
    let mut machine = Machine::new(&[]);
    for (node, start) in (0..4).map(|node| (node, of(node.into()))) {
        let (ready, rest) = (start + 8 * UNIT, start + 16 * UNIT);
        let parts = [
            (start, ready, EarlyFlags::NONE),
            (ready, rest, EarlyFlags::UNACCEPTED),
        ];
        let parts = parts.map(|(start, end, flags)| (node, range(start, end), flags));
        machine.memory.extend(parts);
    }
    machine.distances = vec![
        10, 20, 20, 20, //
        20, 10, 20, 30, //
        20, 20, 10, 15, //
        20, 30, 15, 10,
    ];
    let platform = Guest::new(None);
    let (frames, _) = accepting(&machine, platform);
    let near: Vec<_> = frames.fallback(NodeId(3)).map(|node| node.0).collect();
    assert_eq!(near, [3, 2, 0, 1]);
    let mut cpu = frames.cpu(0, NodeId(3)).unwrap();
    let mut accepted = Vec::new();
    while cpu.allocate(Request::new(Order::HUGE)).is_ok() {
        for node in near.iter().copied() {
            let mut frames = of(node.into()) / PAGE_BYTES..of(u64::from(node) + 1) / PAGE_BYTES;
            if !accepted.contains(&node) && frames.any(|frame| platform.times(frame) > 0) {
                accepted.push(node);
            }
        }
    }
    assert_eq!(accepted, near);
}
