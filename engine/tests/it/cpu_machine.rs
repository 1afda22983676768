//! CPUs with caches on whole machines.

use crate::kit;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use firstlight::addr::{Frame, Order, PAGE_BYTES};
use firstlight::frames::{
    AllocError, BlockError, Cpu, CpuError, DrainRequest, Frames, Hooks, Request,
};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, HUGE_FRAMES, MIB, Machine, huge, page, range};

fn small() -> Machine {
    Machine::new(&[
        (0, range(PAGE_BYTES, 0x9f000)),
        (0, range(MIB, 64 * MIB + 3 * PAGE_BYTES)),
        (1, range(65 * MIB, 130 * MIB)),
    ])
}

fn large() -> Machine {
    Machine {
        policy: Some(kit::DMA32_OF_GIANTS),
        ..Machine::new(&[
            (0, range(MIB, 3 * GIANT_BYTES)),
            (0, range(4 * GIANT_BYTES, 7 * GIANT_BYTES)),
            (1, range(7 * GIANT_BYTES, 11 * GIANT_BYTES)),
        ])
    }
}

#[test]
fn all_of_memory_goes_through_two_cpus_and_back() {
    for machine in [small(), large()] {
        let frames = machine.frames_with_cpus(2);
        let free = frames.statistics();
        let mut cpus = [0, 1].map(|cpu| {
            frames
                .cpu(cpu, NodeId(u16::try_from(cpu).unwrap()))
                .unwrap()
        });
        assert_eq!((cpus[0].home(), cpus[1].home()), (NodeId(0), NodeId(1)));
        let order = if free.free_giants > 0 {
            Order::HUGE
        } else {
            Order::PAGE
        };
        let mut seen = BTreeSet::new();
        for step in 0.. {
            let cpu: &mut Cpu<'_, '_> = &mut cpus[step % 2];
            match cpu.allocate(Request::new(order)) {
                Ok(frame) => assert!(seen.insert(frame), "{frame} twice"),
                Err(AllocError::OutOfMemory { held_by_cpus, .. }) => {
                    // Only what the other CPU caches is left.
                    let other = &mut cpus[(step + 1) % 2];
                    assert_eq!(held_by_cpus, other.cached_frames());
                    if held_by_cpus == 0 {
                        break;
                    }
                    other.poll();
                    assert_eq!(other.cached_frames(), 0);
                }
                Err(error) => panic!("{error}"),
            }
        }
        let all = if order == Order::PAGE {
            free.free_frames
        } else {
            free.free_huges
        };
        assert_eq!(seen.len() as u64, all);
        for (step, frame) in seen.into_iter().enumerate() {
            cpus[step % 2].free(frame, order).unwrap();
        }
        drop(cpus);
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

#[test]
fn the_block_freed_last_is_allocated_first() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    for request in [page(), page().movable(), huge(), huge().movable()] {
        let [one, other] = [0, 1].map(|_| cpu.allocate(request).unwrap());
        cpu.free(one, request.order()).unwrap();
        cpu.free(other, request.order()).unwrap();
        assert_eq!(cpu.allocate(request), Ok(other));
        assert_eq!(cpu.allocate(request), Ok(one));
    }
}

#[test]
fn a_frame_free_in_the_shared_levels_is_refused_at_once() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    for order in [Order::PAGE, Order::HUGE, Order::GIANT] {
        let frame = frames.allocate(Request::new(order)).unwrap();
        frames.free(frame, order).unwrap();
        let refused = Err(BlockError::NotAllocated { frame, order });
        assert_eq!(cpu.free(frame, order), refused);
    }
    let never = Frame::new(1);
    let outside = BlockError::OutsideMemory {
        frame: never,
        order: Order::PAGE,
    };
    assert_eq!(cpu.free(never, Order::PAGE), Err(outside));
    let odd = Frame::new(4 * GIANT_BYTES / PAGE_BYTES + 1);
    assert!(matches!(
        cpu.free(odd, Order::HUGE),
        Err(BlockError::Misaligned { .. })
    ));
}

#[test]
#[cfg_attr(feature = "check-double-free", ignore = "refused at once")]
fn a_double_free_into_caches_is_reported_by_the_drain() {
    for order in [Order::PAGE, Order::HUGE] {
        let frames = large().frames_with_cpus(2);
        let free = frames.statistics();
        let mut one = frames.cpu(0, NodeId(0)).unwrap();
        let mut other = frames.cpu(1, NodeId(0)).unwrap();
        let frame = one.allocate(Request::new(order)).unwrap();
        let named = Err(BlockError::FreedTwice { frame, order });
        // Twice into one cache.
        one.free(frame, order).unwrap();
        one.free(frame, order).unwrap();
        assert_eq!(one.drain(), named);
        assert_eq!(one.drain(), Ok(()));
        // Once into each of two.
        let frame = one.allocate(Request::new(order)).unwrap();
        let named = Err(BlockError::FreedTwice { frame, order });
        one.free(frame, order).unwrap();
        other.free(frame, order).unwrap();
        assert_eq!(one.drain(), Ok(()));
        assert_eq!(other.drain(), named);
        drop((one, other));
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

#[test]
fn a_full_list_reports_a_double_free_and_is_flushed() {
    let frames = large().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let pages: Vec<_> = (0..1000).map(|_| cpu.allocate(page()).unwrap()).collect();
    cpu.free(pages[0], Order::PAGE).unwrap();
    let found: Vec<_> = pages
        .iter()
        .filter_map(|&page| cpu.free(page, Order::PAGE).err())
        .collect();
    let frame = pages[0];
    let order = Order::PAGE;
    assert_eq!(found, [BlockError::FreedTwice { frame, order }]);
    cpu.drain().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
fn pages_beside_a_hole_are_freed_to_their_own_segment() {
    // Two runs of the same node and zone, and 16 pages between them that are no memory, all
    // in one word of a bitmap.
    let machine = Machine::new(&[
        (
            0,
            range(4 * GIANT_BYTES, 5 * GIANT_BYTES + 288 * PAGE_BYTES),
        ),
        (
            0,
            range(5 * GIANT_BYTES + 304 * PAGE_BYTES, 6 * GIANT_BYTES),
        ),
    ]);
    let frames = machine.frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let border = (5 * GIANT_BYTES + 288 * PAGE_BYTES) / PAGE_BYTES;
    let pages: Vec<_> = (border - 8..border)
        .chain(border + 16..border + 24)
        .collect();
    for &page in &pages {
        frames
            .allocate_range(kit::block(Frame::new(page), Order::PAGE))
            .unwrap();
    }
    for &page in &pages {
        cpu.free(Frame::new(page), Order::PAGE).unwrap();
    }
    cpu.drain().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
    for &page in &pages {
        assert_eq!(frames.is_allocated(Frame::new(page)), Some(false));
    }
}

#[test]
fn movable_and_unmovable_pages_share_no_huge_frame_while_there_is_a_choice() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut kinds = [BTreeSet::new(), BTreeSet::new()];
    let mut held = Vec::new();
    for step in 0..20_000 {
        let movable = step % 3 == 0;
        let request = if movable { page().movable() } else { page() };
        // One in four past the cache.
        let frame = if step % 4 == 0 {
            frames.allocate(request).unwrap()
        } else {
            cpu.allocate(request).unwrap()
        };
        kinds[usize::from(movable)].insert(frame.get() / HUGE_FRAMES);
        held.push(frame);
        if step % 5 == 4 {
            let frame = held.swap_remove(step * 7 % held.len());
            cpu.free(frame, Order::PAGE).unwrap();
        }
    }
    assert!(kinds[0].is_disjoint(&kinds[1]));
    assert!(kinds[0].len() < 40 && kinds[1].len() < 30, "packed");
}

#[test]
fn a_huge_frame_stays_with_its_mobility_until_it_is_free_as_a_whole() {
    let frames = large().frames_with_cpus(1);
    let on = |request: Request| request.only_on(NodeId(1));
    let start = frames.allocate(on(huge().movable())).unwrap();
    // Freed in part it serves its own mobility only.
    for page in 0..100 {
        let page = Frame::new(start.get() + page);
        frames.free(page, Order::PAGE).unwrap();
    }
    let is_inside = |frame: Frame| frame.get() / HUGE_FRAMES == start.get() / HUGE_FRAMES;
    let unmovable = frames.allocate(on(page())).unwrap();
    assert!(!is_inside(unmovable));
    for _ in 0..100 {
        assert!(is_inside(frames.allocate(on(page().movable())).unwrap()));
    }
    // Free as a whole it serves the next request of either mobility, and keeps that one.
    frames.free(start, Order::HUGE).unwrap();
    frames
        .allocate_range(kit::block(start, Order::PAGE))
        .unwrap();
    assert!(!is_inside(frames.allocate(on(page().movable())).unwrap()));
    frames.validate().unwrap();
}

#[test]
fn the_other_mobility_is_the_last_fallback() {
    let frames = small().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut count = 0;
    while cpu.allocate(page().only_on(NodeId(0))).is_ok() {
        count += 1;
    }
    let kept = frames.statistics().free_frames;
    assert!(count > 0 && frames.allocate(page().only_on(NodeId(0))).is_err());
    // All of node 0 was unmovable; one page of it freed serves a movable request.
    let node_1 = frames.allocate(page().only_on(NodeId(1))).unwrap();
    assert_eq!(frames.statistics().free_frames, kept - 1);
    let frame = Frame::new(MIB / PAGE_BYTES + 3);
    frames.free(frame, Order::PAGE).unwrap();
    let movable = page().movable().only_on(NodeId(0));
    assert_eq!(cpu.allocate(movable), Ok(frame));
    frames.free(node_1, Order::PAGE).unwrap();
    drop(cpu);
    frames.validate().unwrap();
}

#[test]
fn requests_for_other_zones_and_nodes_bypass_the_cache() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let normal = cpu.allocate(page()).unwrap();
    assert!(
        normal.addr().get() >= 4 * GIANT_BYTES,
        "the highest zone first"
    );
    let low = cpu.allocate(page().zone(ZoneKind::Dma32)).unwrap();
    assert!(low.addr().get() < 4 * GIANT_BYTES);
    let far = cpu.allocate(page().on(NodeId(1))).unwrap();
    assert!(far.addr().get() >= 7 * GIANT_BYTES);
    let held = cpu.cached_frames();
    // Frames of other zones and nodes are not cached.
    cpu.free(low, Order::PAGE).unwrap();
    cpu.free(far, Order::PAGE).unwrap();
    assert_eq!(cpu.cached_frames(), held);
    assert_eq!(frames.is_allocated(low), Some(false));
    cpu.free(normal, Order::PAGE).unwrap();
    assert_eq!(cpu.cached_frames(), held + 1);
}

#[test]
fn a_slot_serves_one_cpu_at_a_time() {
    let frames = large().frames_with_cpus(1);
    let cpu = frames.cpu(0, NodeId(0)).unwrap();
    assert_eq!(frames.cpu(0, NodeId(0)).unwrap_err(), CpuError::Taken);
    drop(cpu);
    drop(frames.cpu(0, NodeId(0)).unwrap());
    let (cpu, cpus) = (1, 1);
    assert_eq!(
        frames.cpu(1, NodeId(0)).unwrap_err(),
        CpuError::NoSuchCpu { cpu, cpus }
    );
    let (node, nodes) = (NodeId(2), 2);
    assert_eq!(
        frames.cpu(0, node).unwrap_err(),
        CpuError::NoSuchNode { node, nodes }
    );
    drop(frames.cpu(0, NodeId(1)).unwrap());
}

#[test]
fn a_request_with_no_drain_drains_no_cpu() {
    let frames = small().frames_with_cpus(2);
    let mut cpus = [0, 1].map(|cpu| frames.cpu(cpu, NodeId(0)).unwrap());
    for cpu in &mut cpus {
        let page = cpu.allocate(page()).unwrap();
        cpu.free(page, Order::PAGE).unwrap();
    }
    let held = cpus.each_ref().map(Cpu::cached_frames);
    assert!(held[0] > 0 && held[1] > 0);
    // There is no such block.
    let giant = Request::new(Order::GIANT);
    assert!(cpus[0].allocate(giant.no_drain()).is_err());
    cpus[1].poll();
    assert_eq!(cpus.each_ref().map(Cpu::cached_frames), held);
    assert!(cpus[0].allocate(giant).is_err());
    cpus[1].poll();
    assert_eq!(cpus.each_ref().map(Cpu::cached_frames), [0, 0]);
}

/// Waits until no drain is pending.
struct Wait;

impl Hooks for Wait {
    fn drain(&self, request: &DrainRequest<'_>) {
        while request.pending_frames() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn threads_share_a_small_machine_and_lose_nothing() {
    let threads = 4;
    let machine = small();
    let frames = kit::with_cpus(machine.frames(), threads).with_hooks(&Wait);
    let free = frames.statistics();
    let owners: Vec<_> = (0..130 * MIB / PAGE_BYTES)
        .map(|_| AtomicU32::new(0))
        .collect();
    let rounds = if cfg!(miri) { 40 } else { 60_000 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (frames, owners) = (&frames, &owners);
            scope.spawn(move || churn(frames, owners, thread, rounds));
        }
    });
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Allocates and frees at random, up to the last page.
fn churn(frames: &Frames<'_>, owners: &[AtomicU32], thread: usize, rounds: u32) {
    let node = NodeId(u16::from(thread % 2 == 1));
    let mut cpu = frames.cpu(thread, node).unwrap();
    let name = u32::try_from(thread).unwrap() + 1;
    let mark = |frame: Frame, order: Order, from, to| {
        for frame in frame.get()..frame.get() + order.frames() {
            let old = owners[usize::try_from(frame).unwrap()].swap(to, Relaxed);
            assert_eq!(old, from, "{frame} has two owners");
        }
    };
    let mut seed = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let mut held: Vec<(Frame, Order)> = Vec::new();
    for _ in 0..rounds {
        // More is allocated than freed, until memory is out.
        if random(9) < 5 {
            let order = Order::new([0, 0, 0, 0, 0, 0, 2, 4, 9, 9][random(10)]).unwrap();
            let request = Request::new(order);
            let request = if random(2) == 0 {
                request
            } else {
                request.movable()
            };
            match cpu.allocate(request) {
                Ok(frame) => {
                    mark(frame, order, 0, name);
                    held.push((frame, order));
                }
                Err(_) => {
                    for (frame, order) in held.drain(held.len() / 2..) {
                        mark(frame, order, name, 0);
                        cpu.free(frame, order).unwrap();
                    }
                }
            }
        } else if !held.is_empty() {
            let (frame, order) = held.swap_remove(random(held.len()));
            mark(frame, order, name, 0);
            cpu.free(frame, order).unwrap();
        }
        if random(1000) == 0 {
            cpu.drain().unwrap();
        }
    }
    for (frame, order) in held {
        mark(frame, order, name, 0);
        cpu.free(frame, order).unwrap();
    }
}

/// Beyond the end of memory the bitmap of a huge frame is set, as if it were allocated.
#[test]
fn a_block_across_the_end_of_a_segment_is_refused_by_a_cpu_too() {
    // The first range ends three pages into a block of 8; the tables lie in the second.
    let machine = Machine::new(&[
        (0, range(MIB, 64 * MIB + 3 * PAGE_BYTES)),
        (0, range(72 * MIB, 96 * MIB)),
    ]);
    let frames = machine.frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let statistics = frames.statistics();
    let order = Order::new(3).unwrap();
    let start = Frame::new(64 * MIB / PAGE_BYTES);
    for page in 0..3 {
        frames
            .allocate_range(kit::block(Frame::new(start.get() + page), Order::PAGE))
            .unwrap();
    }
    let outside = Err(BlockError::OutsideMemory {
        frame: start,
        order,
    });
    assert_eq!(frames.free(start, order), outside);
    assert_eq!(cpu.free(start, order), outside);
    assert_eq!(cpu.cached_frames(), 0);
    for page in 0..3 {
        cpu.free(Frame::new(start.get() + page), Order::PAGE)
            .unwrap();
    }
    cpu.close().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), statistics);
}

#[cfg(feature = "check-double-free")]
#[test]
fn a_block_freed_twice_in_a_row_is_reported_at_once() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    for order in [Order::PAGE, Order::new(3).unwrap(), Order::HUGE] {
        let frame = cpu.allocate(Request::new(order)).unwrap();
        cpu.free(frame, order).unwrap();
        let named = Err(BlockError::FreedTwice { frame, order });
        assert_eq!(cpu.free(frame, order), named);
    }
    cpu.drain().unwrap();
    frames.validate().unwrap();
}

#[test]
fn what_a_cpu_does_besides_its_lists_is_counted() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let page = cpu.allocate(Request::new(Order::PAGE)).unwrap();
    let seen = frames.cpu_events(0).unwrap();
    assert_eq!((seen.refills, seen.misses, seen.flushes), (1, 0, 0));
    cpu.free(page, Order::PAGE).unwrap();
    (0..100).for_each(|_| {
        let page = cpu.allocate(Request::new(Order::PAGE)).unwrap();
        cpu.free(page, Order::PAGE).unwrap();
    });
    assert_eq!(frames.cpu_events(0).unwrap(), seen, "all from the lists");
    let giant = cpu.allocate(Request::new(Order::GIANT)).unwrap();
    cpu.free(giant, Order::GIANT).unwrap();
    cpu.drain().unwrap();
    let now = frames.cpu_events(0).unwrap();
    assert_eq!((now.misses, now.drains), (1, seen.drains + 1));
    assert_eq!(frames.cpu_events(1), None);
    cpu.close().unwrap();
    assert_eq!(
        frames.cpu_events(0),
        Some(Default::default()),
        "for the next"
    );
}

#[test]
fn a_drain_is_requested_of_those_that_cache_something() {
    let frames = small().frames_with_cpus(2);
    assert_eq!(frames.request_drain().cpus().count(), 0, "no CPU is there");
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut other = frames.cpu(1, NodeId(1)).unwrap();
    let request = frames.request_drain();
    assert_eq!(request.cpus().count(), 0, "nothing is cached");
    let frame = cpu.allocate(page()).unwrap();
    cpu.free(frame, Order::PAGE).unwrap();
    let cached = frames.statistics().cached_frames;
    assert_ne!(cached, 0);
    let request = frames.request_drain();
    assert_eq!(request.cpus().collect::<Vec<_>>(), [0]);
    assert_eq!(request.pending_frames(), cached);
    // The other has nothing to say of it.
    other.poll();
    assert_eq!(request.cpus().collect::<Vec<_>>(), [0]);
    cpu.poll();
    assert_eq!((request.cpus().count(), request.pending_frames()), (0, 0));
    assert_eq!(frames.statistics().cached_frames, 0);
}
