//! The memory of a CPU's cache: its size, its reuse by other CPUs, how much it holds.

use std::collections::BTreeSet;

use crate::kit;

use firstlight::addr::{Frame, Order, PAGE_BYTES};
use firstlight::frames::{BlockError, Cpu, CpuCache, CpuError, Frames, Request};
use firstlight::node::NodeId;
use kit::{
    GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, huge, page,
    range,
};

fn small() -> Machine {
    Machine::new(&[(0, range(MIB, 32 * HUGE_BYTES + 3 * PAGE_BYTES))])
}

/// Of gigabytes; less under Miri, which is slow to count them.
fn large() -> Machine {
    large_or(128 * MIB)
}

/// Twice 1,536 huge frames (3 GiB with pages of 4 KiB); of twice `miri` bytes under Miri.
fn large_or(miri: u64) -> Machine {
    let more = if cfg!(miri) { miri } else { 1536 * HUGE_BYTES };
    let high = 2048 * HUGE_BYTES;
    Machine {
        policy: Some(kit::ZONES_OF_HUGES),
        ..Machine::new(&[(0, range(MIB, more)), (0, range(high, high + more))])
    }
}

/// More pages than a list holds; few under Miri.
const MANY: usize = if cfg!(miri) { 40 } else { 700 };

/// Fills the lists and bump blocks of `cpu`; how many frames it caches then.
fn fill(cpu: &mut Cpu<'_, '_>) -> u64 {
    for request in [page(), page().movable(), huge(), huge().movable()] {
        let taken = [0; MANY].map(|_| cpu.allocate(request).unwrap());
        let few = if request.order() == Order::PAGE {
            MANY
        } else {
            7
        };
        for (count, frame) in taken.into_iter().enumerate() {
            if count < few {
                cpu.free(frame, request.order()).unwrap();
            }
        }
    }
    cpu.cached_frames()
}

#[test]
fn what_a_forgotten_cpu_cached_is_lost() {
    let frames = large().frames_with_cpus(2);
    let cpu_of = |cpu| frames.cpu(cpu, NodeId(0)).unwrap();
    let mut cpu = cpu_of(0);
    let lost = fill(&mut cpu);
    assert!(lost > MANY as u64);
    std::mem::forget(cpu);
    // The cache stays taken; what it held is not allocated again.
    let other = frames.cpu(0, NodeId(0));
    assert_eq!(other.unwrap_err(), CpuError::Taken);
    let free = frames.statistics();
    let mut cpu = cpu_of(1);
    assert_eq!(cpu.cached_frames(), 0);
    assert_eq!(cpu.drain(), Ok(()));
    assert_eq!(frames.statistics(), free);
    for request in [page(), page().movable(), huge(), huge().movable()] {
        let taken = [0; MANY].map(|_| {
            let frame = cpu.allocate(request).unwrap();
            (frame, cpu.free(frame, request.order()))
        });
        assert!(taken.iter().all(|(_, freed)| *freed == Ok(())));
    }
    assert_eq!(cpu.close(), Ok(()));
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
fn a_cache_moves_from_one_machine_to_another() {
    let caches = [const { CpuCache::new() }];
    for machine in [large(), small(), large()] {
        let frames = machine.frames();
        frames.provide_cpus(&caches).unwrap();
        let free = frames.statistics();
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let pages: Vec<_> = (0..4 * MANY)
            .map(|_| cpu.allocate(page()).unwrap())
            .collect();
        for (count, page) in pages.into_iter().enumerate() {
            cpu.free(page, Order::PAGE).unwrap();
            // A 128th in each list, whatever it held on the machine before. Miri is slow to count them.
            if !cfg!(miri) || count % 16 == 0 {
                assert!(cpu.cached_frames() <= free.free_frames / 4);
            }
        }
        assert!(cpu.cached_frames() > 0);
        cpu.close().unwrap();
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

#[test]
#[cfg_attr(feature = "check-double-free", ignore = "refused at once")]
fn close_reports_a_double_free() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let (frame, order) = (cpu.allocate(page()).unwrap(), Order::PAGE);
    cpu.free(frame, order).unwrap();
    cpu.free(frame, order).unwrap();
    assert_eq!(cpu.close(), Err(BlockError::FreedTwice { frame, order }));
    let cpu = frames.cpu(0, NodeId(0)).unwrap();
    assert_eq!(cpu.close(), Ok(()));
    frames.validate().unwrap();
}

/// A page of a huge frame, and the huge frame: the page is free, the rest stays allocated.
#[test]
#[cfg_attr(feature = "check-double-free", ignore = "refused at once")]
fn a_page_freed_beside_its_huge_frame_counts_once() {
    // Huge frames are cached from here on.
    let frames = large_or(256 * MIB).frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let (frame, order) = (frames.allocate(huge()).unwrap(), Order::HUGE);
    cpu.free(frame, Order::PAGE).unwrap();
    cpu.free(frame, order).unwrap();
    assert_eq!(cpu.drain(), Err(BlockError::FreedTwice { frame, order }));
    frames.validate().unwrap();
    assert_eq!(frames.is_allocated(frame), Some(false));
    for page in 1..HUGE_FRAMES {
        let page = firstlight::addr::Frame::new(frame.get() + page);
        assert_eq!(frames.is_allocated(page), Some(true));
        frames.free(page, Order::PAGE).unwrap();
    }
    // A dropped CPU reports nothing, and counts the same.
    let page = cpu.allocate(page()).unwrap();
    cpu.free(page, Order::PAGE).unwrap();
    cpu.free(page, Order::PAGE).unwrap();
    drop(cpu);
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Frees more blocks of an order and mobility than its list holds; calls `check` after each.
fn overfill(frames: &Frames<'_>, cpu: &mut Cpu<'_, '_>, request: Request, check: impl Fn(u64)) {
    // Allocated past the cache, and only a part of memory, so that no other list grows.
    let part = frames.statistics().free_frames / 4 / request.order().frames();
    let taken = (0..part.min(600)).map_while(|_| frames.allocate(request).ok());
    for frame in taken.collect::<Vec<_>>() {
        cpu.free(frame, request.order()).unwrap();
        check(cpu.cached_frames());
    }
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the hundred megabytes")]
fn a_cache_holds_at_most_its_part_of_any_machine() {
    for (huges, cpus) in [
        (4, 1),
        (32, 1),
        (32, 3),
        (25, 1),
        (256, 2),
        (512, 1),
        (2048, 1),
        (8192, 1),
    ] {
        let memory = range(4 * GIANT_BYTES, 4 * GIANT_BYTES + huges * HUGE_BYTES);
        let machine = Machine::new(&[(0, memory)]);
        let share = huges * HUGE_FRAMES / cpus as u64;
        let frames = machine.frames_with_cpus(cpus);
        let free = frames.statistics();
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let orders = || (0..=Order::HUGE.get()).rev().filter_map(Order::new);
        let requests =
            || orders().flat_map(|order| [Request::new(order), Request::new(order).movable()]);
        for request in requests() {
            let two = 2 * request.order().frames();
            let part = if request.order() == Order::HUGE {
                12
            } else {
                32
            };
            let most = (share / 128).max(if two <= share / part { two } else { 0 });
            overfill(&frames, &mut cpu, request, |held| {
                assert!(held <= most, "{held} of {share}, {request:?}");
            });
            cpu.drain().unwrap();
        }
        // All of them full, refilled too: of each mobility 64 huge frames at most.
        let most = 132 * HUGE_FRAMES + 4416;
        let check = |held| assert!(held <= most && held <= share / 3, "{held} of {share}");
        for request in requests() {
            if let Ok(frame) = cpu.allocate(request) {
                check(cpu.cached_frames());
                cpu.free(frame, request.order()).unwrap();
            }
            overfill(&frames, &mut cpu, request, check);
        }
        assert!(cpu.cached_frames() > (share / 128).min(16_000));
        cpu.close().unwrap();
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

/// So those that hold only what can be moved come back whole.
#[test]
#[cfg_attr(miri, ignore = "allocates gigabytes")]
fn huge_frames_of_each_mobility_are_of_giant_frames_of_their_own() {
    let machine = Machine::new(&[(0, range(4 * GIANT_BYTES, 8 * GIANT_BYTES))]);
    let frames = machine.frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let mut giants = [const { BTreeSet::new() }; 2];
    // Of each a giant frame and a half.
    for _ in 0..3 * GIANT_HUGES / 2 {
        for (request, giants) in [huge(), huge().movable()].into_iter().zip(&mut giants) {
            giants.insert(cpu.allocate(request).unwrap().get() / GIANT_FRAMES);
        }
    }
    let [unmovable, movable] = giants;
    assert_eq!((unmovable.len(), movable.len()), (2, 2));
    assert!(
        unmovable.is_disjoint(&movable),
        "{unmovable:?}, {movable:?}"
    );
}

/// They are counted by giant frame, in places that two of them may share.
#[test]
#[cfg_attr(miri, ignore = "tables of gigabytes")]
fn huge_frames_of_giant_frames_that_share_a_place_go_back_together() {
    let machine = Machine::new(&[(0, range(4 * GIANT_BYTES, 40 * GIANT_BYTES))]);
    let frames = machine.frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    let of = |giant: u64, huge: u64| Frame::new((4 + giant) * GIANT_FRAMES + huge * HUGE_FRAMES);
    let blocks: Vec<_> = (0..32)
        .flat_map(|huge| [0, 16, 1, 32].map(|giant| of(giant, huge)))
        .collect();
    for block in &blocks {
        frames
            .allocate_range(kit::block(*block, Order::HUGE))
            .unwrap();
    }
    // A flush of half a list, and the rest.
    for block in &blocks {
        cpu.free(*block, Order::HUGE).unwrap();
    }
    cpu.drain().unwrap();
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
fn a_cpu_and_its_cache_have_their_documented_sizes() {
    assert_eq!(size_of::<Cpu<'_, '_>>(), 144);
    // Of each order above 9 a line for each mobility is more.
    let more_orders = usize::from(Order::HUGE.get()) - 9;
    assert_eq!(size_of::<CpuCache>(), 12_800 + 64 * more_orders);
    assert_eq!(align_of::<CpuCache>(), 64);
}

#[test]
fn zeroed_memory_is_an_empty_cache() {
    let mut zeroed = Box::<CpuCache>::new_uninit();
    // SAFETY: space for one; its documentation allows zeroes.
    let cache = unsafe {
        zeroed.as_mut_ptr().write_bytes(0, 1);
        zeroed.assume_init()
    };
    let frames = large().frames();
    frames
        .provide_cpus(std::slice::from_ref(Box::leak(cache)))
        .unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    assert!(fill(&mut cpu) > 0);
    assert_eq!(cpu.close(), Ok(()));
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_static_cache_takes_no_space_in_the_file() {
    static CACHE: CpuCache = CpuCache::new();
    assert!(kit::zero::holds(&raw const CACHE));
}
