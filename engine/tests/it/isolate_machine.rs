//! Ranges taken out of use on whole machines.

use crate::kit;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{BlockError, DrainRequest, Holder, Hooks, Refusal, Request};
use firstlight::node::NodeId;
use kit::{GIANT_BYTES, GIANT_HUGES, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, page, range};

fn machine() -> Machine {
    Machine {
        policy: Some(kit::DMA32_OF_GIANTS),
        ..Machine::new(&[
            (0, range(MIB, 3 * GIANT_BYTES)),
            (0, range(4 * GIANT_BYTES, 7 * GIANT_BYTES)),
            (
                1,
                range(7 * GIANT_BYTES, 7 * GIANT_BYTES + 64 * MIB + 5 * PAGE_BYTES),
            ),
        ])
    }
}

fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start / PAGE_BYTES, end / PAGE_BYTES).unwrap()
}

#[test]
fn nothing_is_allocated_from_an_isolated_range_until_it_is_released() {
    let all = machine().frames_with_cpus(1);
    let free = all.statistics();
    // Beyond a giant frame, from the middle of one to the middle of another.
    let away = frames(4 * GIANT_BYTES + 512 * MIB, 6 * GIANT_BYTES + 256 * MIB);
    let isolation = all.isolate(away).unwrap();
    assert_eq!(isolation.first_in_use(), None);
    assert_eq!(
        all.statistics().free_frames,
        free.free_frames - away.count()
    );
    all.validate().unwrap();
    let mut cpu = all.cpu(0, NodeId(0)).unwrap();
    let mut held = Vec::new();
    for order in [
        Order::GIANT,
        Order::HUGE,
        Order::new(3).unwrap(),
        Order::PAGE,
    ] {
        while let Ok(frame) = cpu.allocate(Request::new(order)) {
            assert!(!away.contains(frame), "{frame} is isolated");
            held.push((frame, order));
        }
    }
    assert_eq!(all.statistics().free_frames, 0);
    assert!(
        all.allocate_range(kit::block(away.start(), Order::PAGE))
            .is_err()
    );
    assert!(
        all.allocate_range(kit::block(away.start(), Order::HUGE))
            .is_err()
    );
    drop(isolation);
    assert_eq!(all.statistics().free_frames, away.count());
    all.validate().unwrap();
    held.into_iter()
        .for_each(|(frame, order)| cpu.free(frame, order).unwrap());
    drop(cpu);
    all.validate().unwrap();
    assert_eq!(all.statistics(), free);
}

#[test]
fn frames_freed_into_an_isolated_range_stay_there() {
    let all = machine().frames_with_cpus(1);
    let free = all.statistics();
    let away = frames(4 * GIANT_BYTES, 7 * GIANT_BYTES);
    // The allocator's own tables.
    let reserved = all.isolate(away).unwrap().frames_in_use();
    let mut cpu = all.cpu(0, NodeId(0)).unwrap();
    let giant = all.allocate(Request::new(Order::GIANT)).unwrap();
    let three = Order::new(3).unwrap();
    let held: Vec<_> = [Order::PAGE, three, Order::HUGE, Order::PAGE, Order::HUGE]
        .into_iter()
        .map(|order| (cpu.allocate(Request::new(order)).unwrap(), order))
        .collect();
    cpu.drain().unwrap();
    let isolation = all.isolate(away).unwrap();
    let in_use: u64 = held.iter().map(|(_, order)| order.frames()).sum();
    assert_eq!(
        isolation.frames_in_use(),
        reserved + in_use + Order::GIANT.frames()
    );
    all.validate().unwrap();
    // In parts, as a whole, and through a cache that must not keep it.
    all.free(giant, Order::HUGE).unwrap();
    let second = Frame::new(giant.get() + HUGE_FRAMES);
    assert_eq!(
        isolation.first_in_use().map(|f| f.get() / HUGE_FRAMES),
        Some(second.get() / HUGE_FRAMES)
    );
    all.free(second, Order::PAGE).unwrap();
    assert_eq!(
        all.free(second, Order::PAGE),
        Err(BlockError::NotAllocated {
            frame: second,
            order: Order::PAGE
        })
    );
    for page in 1..HUGE_FRAMES {
        cpu.free(Frame::new(second.get() + page), Order::PAGE)
            .unwrap();
    }
    for huge in 2..GIANT_HUGES {
        cpu.free(Frame::new(giant.get() + huge * HUGE_FRAMES), Order::HUGE)
            .unwrap();
    }
    for (frame, order) in held {
        cpu.free(frame, order).unwrap();
    }
    assert_eq!(
        (cpu.cached_frames(), isolation.frames_in_use()),
        (0, reserved)
    );
    all.validate().unwrap();
    drop(isolation);
    all.validate().unwrap();
    assert_eq!(all.statistics(), free);
    // Without the tables it is taken, and is allocated as any other block.
    let isolation = all
        .isolate(frames(4 * GIANT_BYTES, 6 * GIANT_BYTES))
        .unwrap();
    let taken = isolation.take().unwrap();
    assert_eq!(taken, frames(4 * GIANT_BYTES, 6 * GIANT_BYTES));
    all.validate().unwrap();
    assert_eq!(
        all.statistics().free_frames,
        free.free_frames - taken.count()
    );
    assert_eq!(all.is_allocated(taken.start()), Some(true));
    for giant in 4..6 {
        all.free(Frame::new(giant * GIANT_BYTES / PAGE_BYTES), Order::GIANT)
            .unwrap();
    }
    drop(cpu);
    all.validate().unwrap();
    assert_eq!(all.statistics(), free);
}

#[test]
fn a_range_in_use_is_not_taken_and_is_released() {
    let all = machine().frames_with_cpus(1);
    let low = frames(MIB, 3 * GIANT_BYTES);
    let isolation = all.isolate(low).unwrap();
    assert_eq!(isolation.first_in_use(), None);
    drop(isolation);
    let page = all
        .allocate(page().zone(firstlight::node::ZoneKind::Dma32))
        .unwrap();
    let free = all.statistics();
    let isolation = all.isolate(low).unwrap();
    assert_eq!(isolation.first_in_use(), Some(page));
    let in_use = Refusal::InUse {
        frames: 1,
        holder: Holder::Allocation,
        held_by_cpus: 0,
        in_work: 0,
    };
    let refused = kit::refused_at(low.addrs(), page, in_use);
    assert_eq!(isolation.take(), Err(refused));
    assert_eq!(all.statistics(), free);
    all.validate().unwrap();
}

#[test]
fn only_ends_of_memory_may_be_unaligned() {
    let all = machine().frames_with_cpus(1);
    let first = frames(MIB, HUGE_BYTES);
    let isolation = all.isolate(first).unwrap();
    assert_eq!(isolation.frames_in_use(), 0);
    all.validate().unwrap();
    let taken = isolation.take().unwrap();
    all.validate().unwrap();
    for frame in 0..5 {
        let frame = Frame::new(taken.start().get() + frame);
        assert_eq!(all.is_allocated(frame), Some(true));
        all.free(frame, Order::PAGE).unwrap();
    }
    all.validate().unwrap();
    let odd = frames(4 * GIANT_BYTES, 4 * GIANT_BYTES + 3 * PAGE_BYTES);
    assert_eq!(
        all.isolate(odd).unwrap_err(),
        kit::refused(odd.addrs(), Refusal::Misaligned)
    );
    let hole = frames(3 * GIANT_BYTES, 4 * GIANT_BYTES);
    assert_eq!(
        all.isolate(hole).unwrap_err(),
        kit::refused(hole.addrs(), Refusal::NotMemory)
    );
    // Over a hole, and over another isolation.
    let free = all.statistics();
    let across = frames(2 * GIANT_BYTES, 5 * GIANT_BYTES);
    let first = all
        .isolate(frames(
            4 * GIANT_BYTES + HUGE_BYTES,
            4 * GIANT_BYTES + 2 * HUGE_BYTES,
        ))
        .unwrap();
    let frame = first.range().start();
    let both = all.isolate(across).unwrap_err();
    assert_eq!(
        both,
        kit::refused_at(across.addrs(), frame, Refusal::Isolated)
    );
    drop(first);
    assert_eq!(all.statistics(), free);
    drop(all.isolate(across).unwrap());
    assert_eq!(all.statistics(), free);
    all.validate().unwrap();
}

/// The CPUs that each drain request had to reach.
#[derive(Default)]
struct Reached(Mutex<Vec<Vec<usize>>>);

impl Hooks for Reached {
    fn drain(&self, request: &DrainRequest<'_>) {
        self.0.lock().unwrap().push(request.cpus().collect());
    }
}

#[test]
fn a_cpu_with_an_empty_cache_is_requested_to_drain_too() {
    let reached: &'static Reached = Box::leak(Box::default());
    let all = kit::with_cpus(machine().frames(), 3).with_hooks(reached);
    let mut cpu = all.cpu(1, NodeId(0)).unwrap();
    let away = frames(5 * GIANT_BYTES, 6 * GIANT_BYTES);
    drop(all.isolate(away).unwrap());
    cpu.poll();
    drop(all.isolate(away).unwrap());
    cpu.close().unwrap();
    // No CPU has a slot any more.
    drop(all.isolate(away).unwrap());
    assert_eq!(*reached.0.lock().unwrap(), [vec![1], vec![1], vec![]]);
}

/// Waits until `at` has come to `step`: spins first, then yields.
fn meet(at: &AtomicU32, step: u32) {
    let mut spins = 0;
    while at.load(Ordering::Acquire) < step {
        spins += 1;
        if spins > 10_000 {
            std::thread::yield_now();
        }
    }
}

/// A call in flight may cache frames it took before the range was isolated: the next call of
/// its CPU frees them.
#[test]
fn isolated_frames_cached_by_a_call_are_freed_by_the_next() {
    let all = Machine::new(&[(
        0,
        range(4 * GIANT_BYTES, 4 * GIANT_BYTES + 128 * HUGE_BYTES),
    )])
    .frames_with_cpus(1);
    // All is in use but one huge frame, and that in part: it is where a refill goes.
    let huge = Request::new(Order::HUGE);
    let first = all.allocate(huge).unwrap();
    while all.allocate(huge).is_ok() {}
    while all.allocate(page()).is_ok() {}
    let away = FrameRange::block(first, Order::HUGE).unwrap();
    let free = FrameRange::new(away.start().get() + 1, away.end().get()).unwrap();
    all.free_frames(free).unwrap();
    let rounds = 3000;
    let (cpu_at, isolation_at) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (all, cpu_at, isolation_at) = (&all, &cpu_at, &isolation_at);
        scope.spawn(move || {
            let mut cpu = all.cpu(0, NodeId(0)).unwrap();
            for round in 0..rounds {
                cpu_at.store(3 * round + 1, Ordering::Release);
                meet(isolation_at, 3 * round + 1);
                let got = cpu.allocate(page().no_drain());
                cpu_at.store(3 * round + 2, Ordering::Release);
                meet(isolation_at, 3 * round + 2);
                cpu.poll();
                let held = cpu.cached_frames();
                if let Ok(got) = got {
                    all.free(got, Order::PAGE).unwrap();
                }
                // On failure the other thread ends first.
                let end = if held > 0 { u32::MAX } else { 3 * round + 3 };
                cpu_at.store(end, Ordering::Release);
                assert_eq!(held, 0, "round {round}");
                meet(isolation_at, 3 * round + 3);
            }
        });
        for round in 0..rounds {
            isolation_at.store(3 * round + 1, Ordering::Release);
            meet(cpu_at, 3 * round + 1);
            (0..round % 256).for_each(|_| std::hint::spin_loop());
            let isolation = all.isolate(away).unwrap();
            meet(cpu_at, 3 * round + 2);
            isolation_at.store(3 * round + 2, Ordering::Release);
            meet(cpu_at, 3 * round + 3);
            drop(isolation);
            isolation_at.store(3 * round + 3, Ordering::Release);
            if cpu_at.load(Ordering::Acquire) == u32::MAX {
                break;
            }
        }
    });
    all.validate().unwrap();
}
