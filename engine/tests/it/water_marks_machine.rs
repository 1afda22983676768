//! Water marks of zones on whole machines.

use crate::kit;

use std::sync::{Mutex, OnceLock};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{
    AllocError, Crossing, Frames, Hooks, Request, WaterMark, WaterMarks, ZoneMarks,
};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, above_huge, range};

#[derive(Default)]
struct Log(Mutex<Vec<Crossing>>);

impl Hooks for Log {
    fn crossed(&self, crossing: Crossing) {
        self.0.lock().unwrap().push(crossing);
    }
}

const NORMAL: (NodeId, ZoneKind) = (NodeId(0), ZoneKind::Normal);
const MARKS: WaterMarks = WaterMarks {
    min: 1000,
    low: 2000,
    high: 3000,
    lowmem_reserve: [0; 4],
};

/// Pages `first` to `end` behind `at`.
fn pages_from(at: u64, first: u64, end: u64) -> PhysRange {
    range(at + first * PAGE_BYTES, at + end * PAGE_BYTES)
}

/// Zone DMA is 4,096 pages: 16 MiB of 4 KiB each, as by default.
const DMA_OF_PAGES: LayoutPolicy = LayoutPolicy {
    dma_end: Frame::new(4096),
    ..LayoutPolicy::DEFAULT
};

/// Zone Normal of node 0 is watched, the rest is not.
fn watched(cpus: usize) -> (Frames<'static>, &'static ZoneMarks, &'static Log) {
    let machine = Machine::new(&[
        (0, range(MIB, 64 * MIB)),
        (0, range(4 * GIB, 4 * GIB + 512 * HUGE_BYTES)),
        (1, range(32 * GIB, 33 * GIB)),
    ]);
    let zones: &'static _ = Box::leak(Box::new([ZoneMarks::new(NORMAL.0, NORMAL.1, MARKS)]));
    let log: &'static Log = Box::leak(Box::default());
    let frames = machine.frames().with_hooks(log).with_water_marks(zones);
    let frames = kit::with_cpus(frames, cpus);
    let [zone] = zones;
    (frames, zone, log)
}

fn exact(frames: &Frames<'_>) -> u64 {
    frames.zone(NORMAL.0, NORMAL.1).statistics().free_frames
}

#[test]
fn every_crossing_is_reported_once() {
    let (frames, zone, log) = watched(0);
    let free = exact(&frames);
    assert_eq!(zone.free_frames(), free);
    let page = Request::new(Order::PAGE).only_on(NodeId(0));
    let page = page.from_reserve();
    let mut held: Vec<_> = (0..free).map(|_| frames.allocate(page).unwrap()).collect();
    assert_eq!(zone.free_frames(), 0);
    // From here on it comes from a zone without marks.
    held.push(frames.allocate(page).unwrap());
    for frame in held {
        frames.free(frame, Order::PAGE).unwrap();
    }
    assert_eq!(zone.free_frames(), free);
    let reported = log.0.lock().unwrap().clone();
    let crossing = |mark, below, free_frames| Crossing {
        node: NORMAL.0,
        zone: NORMAL.1,
        mark,
        below,
        free_frames,
    };
    use WaterMark::{High, Low, Min};
    assert_eq!(
        reported,
        [
            crossing(High, true, 2999),
            crossing(Low, true, 1999),
            crossing(Min, true, 999),
            crossing(Min, false, 1000),
            crossing(Low, false, 2000),
            crossing(High, false, 3000),
        ]
    );
}

/// What a worker has for a step is free for the marks; what it holds for long is not.
#[cfg(feature = "content")]
#[test]
fn what_a_worker_holds_for_long_counts_as_allocated() {
    use firstlight::frames::{Content, Cursor};
    let (frames, zone, log) = watched(0);
    let free = exact(&frames);
    let mut cursor = Cursor::new(NodeId(0));
    let mut borrow = || loop {
        let block = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 512);
        if let Some(block) = block.filter(|block| block.zone() == NORMAL.1) {
            return block;
        }
    };
    let (mut one, other) = (borrow(), borrow());
    assert_eq!(
        (zone.free_frames(), exact(&frames)),
        (free, free - 2 * HUGE_FRAMES)
    );
    one.hold();
    one.hold();
    assert_eq!(zone.free_frames(), free - HUGE_FRAMES);
    let leaked = other.leak();
    assert_eq!(zone.free_frames(), exact(&frames));
    assert_eq!(frames.statistics().in_work_frames, 0);
    frames.validate().unwrap();
    one.back(Content::Reported).unwrap();
    frames.free_frames(leaked).unwrap();
    assert_eq!((zone.free_frames(), exact(&frames)), (free, free));
    assert!(log.0.lock().unwrap().is_empty());
}

#[test]
fn the_count_is_exact_whichever_way_frames_go() {
    let (frames, zone, _) = watched(2);
    let agree = |what: &str| assert_eq!(zone.free_frames(), exact(&frames), "{what}");
    let mut cpus = [0, 1].map(|cpu| frames.cpu(cpu, NodeId(0)).unwrap());
    let mut held = Vec::new();
    for step in 0..3000 {
        let order = Order::new([0, 0, 0, 3, Order::HUGE.get()][step % 5]).unwrap();
        let request = Request::new(order);
        let request = if step % 2 == 0 {
            request
        } else {
            request.movable()
        };
        let cpu = &mut cpus[step % 3 % 2];
        if let Ok(frame) = cpu.allocate(request) {
            held.push((frame, order));
        }
        agree("allocated");
        if step % 3 == 2 && !held.is_empty() {
            let (frame, order) = held.swap_remove(step * 31 % held.len());
            cpu.free(frame, order).unwrap();
            agree("freed");
        }
        if step % 100 == 99 {
            cpu.drain().unwrap();
            agree("drained");
        }
    }
    for (step, (frame, order)) in held.into_iter().enumerate() {
        cpus[step % 2].free(frame, order).unwrap();
    }
    // Two pages and a huge frame freed twice: what is refused is not counted.
    for order in [Order::PAGE, Order::HUGE] {
        let frame = cpus[0].allocate(Request::new(order)).unwrap();
        cpus[0].free(frame, order).unwrap();
        cpus[0].free(frame, order).unwrap();
        assert!(cpus[0].drain().is_err());
        agree("freed twice");
    }
    drop(cpus);
    agree("at the end");
    let block = (Frame::new(4 * GIB / PAGE_BYTES + HUGE_FRAMES), Order::HUGE);
    frames.allocate_range(kit::block(block.0, block.1)).unwrap();
    agree("allocated at");
    frames.free(block.0, block.1).unwrap();
    let odd = FrameRange::new(block.0.get() + 5, block.0.get() + 1234).unwrap();
    frames.allocate_range(odd).unwrap();
    agree("a range allocated");
    frames.free_frames(odd).unwrap();
    agree("a range freed");
    let on_zero = Request::new(Order::PAGE).only_on(NodeId(0));
    let row = frames.allocate_frames(777, 1, on_zero).unwrap();
    agree("a row of frames");
    frames.free_frames(row).unwrap();
    let mut pages = [Frame::new(0); 500];
    assert_eq!(frames.allocate_bulk(on_zero, &mut pages), Ok(500));
    agree("many");
    frames.free_bulk(&pages, Order::PAGE).unwrap();
    agree("many freed");
    let away = FrameRange::new(block.0.get(), block.0.get() + 2 * HUGE_FRAMES).unwrap();
    let before = zone.free_frames();
    frames.isolate(away).unwrap().take().unwrap();
    assert_eq!(zone.free_frames(), before - 2 * HUGE_FRAMES);
    agree("taken");
}

#[test]
fn crossings_by_several_cpus_alternate() {
    let (frames, zone, log) = watched(4);
    let free = exact(&frames);
    let rounds = if cfg!(miri) { 2 } else { 20 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let frames = &frames;
            scope.spawn(move || {
                let mut cpu = frames.cpu(thread, NodeId(0)).unwrap();
                let page = Request::new(Order::PAGE).only_on(NodeId(0));
                for _ in 0..rounds {
                    let count = if cfg!(miri) { 100 } else { free / 4 };
                    let held: Vec<_> = (0..count).map_while(|_| cpu.allocate(page).ok()).collect();
                    for frame in held {
                        cpu.free(frame, Order::PAGE).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(zone.free_frames(), free);
    let reported = log.0.lock().unwrap();
    for mark in [WaterMark::Min, WaterMark::Low, WaterMark::High] {
        let of_mark = reported.iter().filter(|crossing| crossing.mark == mark);
        let below = of_mark.clone().filter(|crossing| crossing.below).count();
        assert_eq!(of_mark.count(), 2 * below, "as often below as above");
    }
    frames.validate().unwrap();
}

/// Requests more than there is when a mark is crossed.
#[derive(Default)]
struct Greedy {
    frames: OnceLock<&'static Frames<'static>>,
    reported: Mutex<Vec<u64>>,
}

impl Hooks for Greedy {
    fn crossed(&self, _: Crossing) {
        let wanted = Request::new(Order::GIANT);
        match self.frames.get().map(|frames| frames.allocate(wanted)) {
            Some(Err(AllocError::OutOfMemory { held_by_cpus, .. })) => {
                self.reported.lock().unwrap().push(held_by_cpus);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A refill announces what it may cache before it takes anything: at most a list.
#[test]
fn a_refill_that_fails_midway_reports_its_crossing() {
    let frames = Machine::new(&[(0, range(16 * MIB, 16 * MIB + 256 * PAGE_BYTES))]).frames();
    let high = frames.statistics().free_frames;
    let marks = WaterMarks {
        min: 0,
        low: 0,
        high,
        lowmem_reserve: [0; 4],
    };
    let greedy: &'static Greedy = Box::leak(Box::default());
    let zones: &'static _ = Box::leak(Box::new([ZoneMarks::new(
        NodeId(0),
        ZoneKind::Dma32,
        marks,
    )]));
    let frames = frames.with_hooks(greedy).with_water_marks(zones);
    let frames: &'static _ = Box::leak(Box::new(kit::with_cpus(frames, 1)));
    assert!(greedy.frames.set(frames).is_ok());
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    cpu.allocate(Request::new(Order::PAGE)).unwrap();
    // A list of two pages is refilled with one.
    assert_eq!(*greedy.reported.lock().unwrap(), [1]);
}

/// A part of a block is freed by another thread while the block is: what was freed before the
/// error is counted.
#[test]
fn a_free_that_fails_midway_is_counted_as_far_as_it_came() {
    let frames = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES))]).frames();
    let marks = WaterMarks {
        min: 0,
        low: 0,
        high: 0,
        lowmem_reserve: [0; 4],
    };
    let zones: &'static [_] = Box::leak(Box::new([ZoneMarks::new(
        NodeId(0),
        ZoneKind::Normal,
        marks,
    )]));
    let frames = frames
        .with_hooks(Box::leak(Box::new(Log::default())))
        .with_water_marks(zones);
    let mut failed = 0;
    for round in 0..3000 {
        let block = frames.allocate(Request::new(above_huge(4))).unwrap();
        let part = Frame::new(block.get() + HUGE_FRAMES * (round % 15 + 1));
        let start = std::sync::Barrier::new(2);
        let (whole, page) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                frames.free(part, Order::HUGE)
            });
            start.wait();
            (frames.free(block, above_huge(4)), other.join().unwrap())
        });
        failed += u32::from(whole.is_err());
        if whole.is_err() {
            assert_eq!(page, Ok(()));
            // What is left of it.
            for huge in 0..16 {
                let huge = Frame::new(block.get() + HUGE_FRAMES * huge);
                if frames.is_allocated(huge) == Some(true) {
                    frames.free(huge, Order::HUGE).unwrap();
                }
            }
        }
        frames.validate().unwrap();
        assert_eq!(zones[0].free_frames(), frames.statistics().free_frames);
    }
    assert!(failed > 0, "the part was freed first at least once");
}

/// What the marks keep: `min` for requests of the reserve, more where a higher zone would do.
#[test]
fn a_reserve_is_kept_for_those_who_may_use_it() {
    let mut machine = Machine::new(&[
        (0, pages_from(0, 256, 4096)),
        (0, pages_from(4 * GIB, 0, 16_384)),
        (1, pages_from(6 * GIB, 0, 16_384)),
    ]);
    machine.policy = Some(DMA_OF_PAGES);
    let marks = |min, of_normal, of_movable| WaterMarks {
        min,
        low: 2 * min,
        high: 3 * min,
        lowmem_reserve: [9999, 9999, of_normal, of_movable],
    };
    let zones: &'static [ZoneMarks] = Box::leak(Box::new([
        ZoneMarks::new(NodeId(0), ZoneKind::Dma, marks(100, 2000, 3000)),
        ZoneMarks::new(NodeId(0), ZoneKind::Normal, marks(1000, 9999, 0)),
        ZoneMarks::new(NodeId(1), ZoneKind::Normal, marks(500, 9999, 0)),
    ]));
    for by_cpu in [false, true] {
        let frames = kit::with_cpus(machine.frames().with_water_marks(zones), 1);
        let mut cpu = by_cpu.then(|| frames.cpu(0, NodeId(0)).unwrap());
        let mut take = |request: Request| match &mut cpu {
            Some(cpu) => cpu.allocate(request),
            None => frames.allocate(request),
        };
        let page = Request::new(Order::PAGE);
        if !by_cpu {
            // Many at a time, as far as it goes.
            let mut pages = vec![Frame::new(0); 60_000];
            assert!(frames.allocate_bulk(page, &mut pages).unwrap() < pages.len());
        }
        while take(page).is_ok() {}
        let free = |zone: &ZoneMarks| zone.free_frames();
        assert_eq!(
            zones.iter().map(free).collect::<Vec<_>>(),
            [2100, 1000, 500]
        );
        // Runs of frames, and huge frames, keep to it too.
        assert!(frames.allocate_frames(3, 1, page).is_err());
        assert!(take(Request::new(Order::HUGE)).is_err());
        // Who needs this zone may take all but the reserve.
        let low = page.zone(ZoneKind::Dma);
        while take(low).is_ok() {}
        assert_eq!(zones[0].free_frames(), 100);
        let urgent = page.from_reserve();
        (0..1000).for_each(|_| assert!(take(urgent).unwrap().addr().get() >= 4 * GIB));
        while take(urgent).is_ok() {}
        assert_eq!(frames.statistics().free_frames, 0);
    }
}

#[test]
fn what_a_request_leaves_in_a_zone_is_by_the_highest_it_could_have_had() {
    let mut machine = Machine::new(&[
        (0, pages_from(0, 256, 4096)),
        (0, pages_from(0, 4096, 12_288)),
        (0, pages_from(4 * GIB, 0, 4096)),
    ]);
    machine.policy = Some(DMA_OF_PAGES);
    let zone = |zone, lowmem_reserve| {
        let marks = WaterMarks {
            lowmem_reserve,
            ..WaterMarks::default()
        };
        ZoneMarks::new(NodeId(0), zone, marks)
    };
    let zones: &'static [ZoneMarks; 3] = Box::leak(Box::new([
        zone(ZoneKind::Dma, [9999, 500, 2000, 3000]),
        zone(ZoneKind::Dma32, [9999, 9999, 700, 900]),
        zone(ZoneKind::Normal, [9999, 9999, 9999, 50]),
    ]));
    let frames = machine.frames().with_water_marks(zones);
    let page = Request::new(Order::PAGE);
    for (request, left) in [
        (page.movable(), [3000, 900, 50]),
        (page, [2000, 700, 0]),
        (page.zone(ZoneKind::Dma32), [500, 0, 0]),
        (page.zone(ZoneKind::Dma), [0, 0, 0]),
    ] {
        while frames.allocate(request).is_ok() {}
        let free = zones.each_ref().map(ZoneMarks::free_frames);
        assert_eq!(free, left, "{request:?}");
    }
}

#[test]
fn many_pages_at_a_time_keep_the_reserve() {
    let (frames, zone, _) = watched(0);
    let request = Request::new(Order::PAGE).only_on(NodeId(0));
    let request = request.only_zone(NORMAL.1);
    // All but 2000 frames are taken, in huge frames that are broken up.
    let mut held: Vec<_> =
        std::iter::from_fn(|| frames.allocate(request.from_reserve()).ok()).collect();
    held.sort_unstable();
    for page in held.split_off(held.len() - 2000) {
        frames.free(page, Order::PAGE).unwrap();
    }
    let mut pages = [Frame::new(0); 1500];
    assert_eq!(frames.allocate_bulk(request, &mut pages), Ok(1000));
    assert_eq!((zone.free_frames(), exact(&frames)), (1000, 1000));
    assert_eq!(frames.allocate_bulk(request, &mut pages), Ok(0));
    let urgent = frames.allocate_bulk(request.from_reserve(), &mut pages[..700]);
    assert_eq!(urgent, Ok(700));
    assert_eq!((zone.free_frames(), exact(&frames)), (300, 300));
}
