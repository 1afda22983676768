//! CPUs' caches as a kernel uses them: threads in the place of CPUs, one at a time on each.

use crate::kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};

use firstlight::addr::{FrameRange, Order};
use firstlight::frames::{
    AllocError, BlockError, CpuCache, CpuError, CpusProvided, Frames, PerCpu, RangeError, Request,
};
use firstlight::node::NodeId;
use kit::{GIANT_FRAMES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, caches, range};

/// A thread that runs on a CPU keeps others off it.
struct OnCpu {
    cache: &'static CpuCache,
    frames: &'static Frames<'static>,
    _alone: MutexGuard<'static, ()>,
}

// SAFETY: it is made with its CPU locked.
unsafe impl PerCpu for OnCpu {
    fn with_cache<R>(&self, call: impl FnOnce(&'static CpuCache) -> R) -> R {
        call(self.cache)
    }

    fn frames(&self) -> &'static Frames<'static> {
        self.frames
    }
}

/// A machine of some CPUs.
struct Cpus {
    frames: &'static Frames<'static>,
    caches: &'static [CpuCache],
    locks: &'static [Mutex<()>],
}

const PAGE: Request = Request::new(Order::PAGE);

impl Cpus {
    fn new(cpus: usize) -> Self {
        Self::of(cpus, 64 * MIB)
    }

    /// With so much memory.
    fn of(cpus: usize, bytes: u64) -> Self {
        let machine = Machine::new(&[(0, range(4 * GIB, 4 * GIB + bytes))]);
        let (frames, caches) = (machine.frames(), caches(cpus));
        frames.provide_cpus(caches).unwrap();
        let locks: Vec<_> = (0..cpus).map(|_| Mutex::default()).collect();
        Self {
            frames: Box::leak(Box::new(frames)),
            caches,
            locks: locks.leak(),
        }
    }

    /// Whose caches are not provided yet.
    fn uncounted(cpus: usize, bytes: u64) -> Self {
        let machine = Machine::new(&[(0, range(4 * GIB, 4 * GIB + bytes))]);
        Self {
            frames: Box::leak(Box::new(machine.frames())),
            ..Self::of(cpus, bytes)
        }
    }

    fn on(&self, cpu: usize) -> OnCpu {
        OnCpu {
            cache: &self.caches[cpu],
            frames: self.frames,
            _alone: self.locks[cpu].lock().unwrap(),
        }
    }

    fn assert_all_free(&self) {
        for cpu in 0..self.caches.len() {
            self.on(cpu).close().unwrap();
        }
        let statistics = self.frames.statistics();
        assert_eq!(statistics.free_frames, statistics.managed_frames);
        self.frames.validate().unwrap();
    }
}

#[test]
fn threads_take_turns_on_cpus() {
    let (cpus, rounds) = (&Cpus::new(2), if cfg!(miri) { 8 } else { 3000 });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..rounds {
                    let on = cpus.on((thread + round) % 2);
                    if held.len() < 3 {
                        held.push(on.allocate(PAGE).unwrap());
                    } else {
                        held.drain(..)
                            .for_each(|page| on.free(page, Order::PAGE).unwrap());
                    }
                }
                held.iter()
                    .for_each(|&page| cpus.frames.free(page, Order::PAGE).unwrap());
            });
        }
    });
    cpus.assert_all_free();
}

/// All that the fast ways serve, huge frames too, what they leave to the others, and what is refused.
#[test]
fn any_number_of_frames_through_a_cache() {
    let cpus = Cpus::of(1, 256 * HUGE_BYTES);
    let on = cpus.on(0);
    let shapes = [
        (1, 1),
        (1, 8),
        (2, 1),
        (3, 1),
        (5, 16),
        (64, 64),
        (128, 1),
        (200, 256),
        (HUGE_FRAMES, HUGE_FRAMES),
        (700, 1),
    ];
    // The second round finds what the first one left in the lists.
    for round in 0..2 {
        let mut all: Vec<FrameRange> = Vec::new();
        for (frames, align) in shapes {
            let found = on.allocate_frames(frames, align, PAGE).unwrap();
            assert_eq!(found.count(), frames, "round {round}");
            assert_eq!(found.start().get() % align, 0, "round {round}");
            assert!(all.iter().all(|other| other.intersect(found).is_empty()));
            all.push(found);
        }
        let larger = on.allocate_frames(1, 1, Request::new(Order::HUGE)).unwrap();
        assert!(larger.start().is_aligned(Order::HUGE));
        all.push(larger);
        all.into_iter()
            .for_each(|found| on.free_frames(found).unwrap());
    }
    let huge = on.allocate_frames(HUGE_FRAMES, HUGE_FRAMES, PAGE).unwrap();
    let before = on.with(|cpu| cpu.cached_frames()).unwrap();
    on.free_frames(huge).unwrap();
    assert_eq!(on.with(|cpu| cpu.cached_frames()), Ok(before + HUGE_FRAMES));
    assert_eq!(on.allocate_frames(HUGE_FRAMES, 1, PAGE), Ok(huge));
    on.free_frames(huge).unwrap();
    let none = on.allocate_frames(0, 1, PAGE);
    assert_eq!(none, Err(AllocError::NoFrames));
    for align_frames in [0, 3] {
        let bad = on.allocate_frames(4, align_frames, PAGE);
        assert_eq!(bad, Err(AllocError::BadAlignment { align_frames }));
    }
    on.free_frames(FrameRange::EMPTY).unwrap();
    for frames in [1, 4, 64] {
        let free = FrameRange::new(3 * GIANT_FRAMES, 3 * GIANT_FRAMES + frames).unwrap();
        let refused = on.free_frames(free);
        assert!(matches!(refused, Err(RangeError::OutsideMemory { .. })));
    }
    drop(on);
    cpus.assert_all_free();
}

/// What was freed twice is found when a list is flushed, and the call that does so says it.
#[test]
#[cfg_attr(
    miri,
    ignore = "fills and flushes lists of 1500 pages; another test closes a cache with one freed twice"
)]
fn frames_freed_twice_as_ranges_are_reported() {
    let cpus = Cpus::of(1, 256 * HUGE_BYTES);
    let on = cpus.on(0);
    let pages: Vec<_> = (0..1500)
        .map(|_| on.allocate_frames(1, 1, PAGE).unwrap())
        .collect();
    let free = |page: &FrameRange| on.free_frames(*page);
    assert!(pages.iter().all(|page| free(page).is_ok()));
    let twice = pages.iter().take(200).filter_map(|page| free(page).err());
    let twice = twice.chain(on.close().err().map(|error| match error {
        BlockError::FreedTwice { frame, order } => RangeError::FreedTwice { frame, order },
        other => panic!("{other}"),
    }));
    let is_right = |error: &RangeError| {
        let (twice, free) = ("freed twice", "not allocated");
        let said = error.to_string();
        said.contains(twice) || said.contains(free)
    };
    let seen: Vec<_> = twice.collect();
    assert!(!seen.is_empty() && seen.iter().all(is_right), "{seen:?}");
    drop(on);
    cpus.assert_all_free();
}

#[test]
fn a_call_inside_a_call_and_a_cache_that_is_taken_or_missing_are_refused() {
    let cpus = Cpus::new(2);
    let on = cpus.on(0);
    let page = on.allocate(PAGE).unwrap();
    let in_call = CpuError::InCall;
    // As a handler would that interrupts the call.
    let inner = on.with(|_| {
        let pages = FrameRange::block(page, Order::PAGE).unwrap();
        assert_eq!(on.with(|_| ()), Err(in_call));
        assert_eq!(on.allocate(PAGE), Err(AllocError::Cpu(in_call)));
        assert_eq!(
            on.allocate_frames(3, 1, PAGE),
            Err(AllocError::Cpu(in_call))
        );
        assert_eq!(on.free(page, Order::PAGE), Err(BlockError::Cpu(in_call)));
        assert_eq!(on.free_frames(pages), Err(RangeError::Cpu(in_call)));
        assert_eq!(on.close(), Err(BlockError::Cpu(in_call)));
    });
    assert_eq!(inner, Ok(()));
    on.free(page, Order::PAGE).unwrap();
    // By its index, and one that was not provided.
    let other = cpus.on(1);
    let by_index = cpus.frames.cpu(1, NodeId(0)).unwrap();
    assert_eq!(other.with(|_| ()), Err(CpuError::Taken));
    drop(by_index);
    assert_eq!(other.with(|_| ()), Ok(()));
    let taken = cpus.frames.cpu(1, NodeId(0)).unwrap_err();
    assert_eq!(taken, CpuError::Taken);
    let strange = OnCpu {
        cache: &caches(1)[0],
        ..Cpus::new(1).on(0)
    };
    let missing = AllocError::Cpu(CpuError::NotProvided);
    assert_eq!(strange.allocate(PAGE), Err(missing));
    drop((on, other));
    cpus.assert_all_free();
}

#[test]
fn a_cache_works_again_after_a_call_that_panicked_and_after_close() {
    let cpus = Cpus::new(1);
    let on = cpus.on(0);
    let panics = AssertUnwindSafe(|| on.with(|_| panic!("of a caller")));
    assert!(catch_unwind(panics).is_err());
    for _ in 0..2 {
        let page = on.allocate(PAGE).unwrap();
        on.free(page, Order::PAGE).unwrap();
        on.close().unwrap();
    }
    drop(on);
    cpus.assert_all_free();
}

// ---- CPUs that are counted after memory --------------------------------------------

#[test]
fn cpus_that_are_counted_after_memory_get_their_caches_then() {
    let cpus = Cpus::uncounted(4, 64 * MIB);
    let before = cpus.frames.statistics();
    let early = cpus.frames.allocate(PAGE).unwrap();
    let none = AllocError::Cpu(CpuError::NotProvided);
    assert_eq!(cpus.on(0).allocate(PAGE), Err(none));
    assert_eq!(cpus.frames.request_drain().cpus().count(), 0);

    cpus.frames.provide_cpus(cpus.caches).unwrap();
    for cpu in 0..4 {
        let page = cpus.on(cpu).allocate(PAGE).unwrap();
        cpus.on(cpu).free(page, Order::PAGE).unwrap();
    }
    cpus.on(3).free(early, Order::PAGE).unwrap();
    assert!(cpus.frames.statistics().cached_frames >= 4);
    // A request for all there is has them give it back.
    assert_eq!(cpus.frames.request_drain().cpus().count(), 4);
    cpus.assert_all_free();
    assert_eq!(cpus.frames.statistics(), before);
}

#[test]
#[cfg_attr(
    miri,
    ignore = "640 MiB twice take a fifth of all; the tests beside it reach the same unsafe code"
)]
fn caches_are_as_large_as_the_cpus_that_are_counted_allow() {
    // Huge frames are cached where each CPU has 32 of them.
    for (counted, caches_huge) in [(4, true), (16, false)] {
        let cpus = Cpus::uncounted(counted, 320 * HUGE_BYTES);
        cpus.frames.provide_cpus(cpus.caches).unwrap();
        let huge = cpus.frames.allocate(Request::new(Order::HUGE)).unwrap();
        cpus.on(0).free(huge, Order::HUGE).unwrap();
        let cached = cpus.frames.statistics().cached_frames;
        assert_eq!(
            cached == HUGE_FRAMES,
            caches_huge,
            "{counted} CPUs: {cached}"
        );
        cpus.assert_all_free();
    }
}

#[test]
fn caches_are_provided_once() {
    let cpus = &Cpus::uncounted(1, 64 * MIB);
    cpus.frames.provide_cpus(&[]).unwrap(); // none are none
    let tries: Vec<Result<(), CpusProvided>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|count| scope.spawn(move || cpus.frames.provide_cpus(caches(count))))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let provided = tries.iter().position(Result::is_ok).unwrap() + 1;
    assert_eq!(tries.iter().filter(|tried| tried.is_ok()).count(), 1);
    let refused = cpus.frames.provide_cpus(caches(2)).unwrap_err();
    assert_eq!(refused, CpusProvided { cpus: provided });
    assert!(
        refused
            .to_string()
            .starts_with(&format!("caches for {provided} CPUs"))
    );
    // Those that were there from the start are not replaced either.
    let cpus = Cpus::new(3);
    let refused = cpus.frames.provide_cpus(caches(8)).unwrap_err();
    assert_eq!(refused.cpus, 3);
    let page = cpus.on(2).allocate(PAGE).unwrap();
    cpus.on(2).free(page, Order::PAGE).unwrap();
}
