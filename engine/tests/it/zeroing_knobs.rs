//! What knobs make workers do: how much they zero, when, where, and how fast.

use crate::kit;
use crate::kit::real;

use std::cell::Cell;
use std::sync::Mutex;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysAddr};
use firstlight::background::Next;
use firstlight::frames::{Crossing, Hooks, WaterMarks, ZoneMarks};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::zeroing::{self, Knob, Knobs, Memory, Zeroing};
use kit::{GIANT_BYTES, GIANT_FRAMES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine};
use kit::{huge, page, range};
use real::{Kernel, MS, RealMemory, eager, run, zero_bytes};

/// What the machine has: 64 MiB with pages of 4 KiB.
const BYTES: u64 = 32 * HUGE_BYTES;

fn memory() -> RealMemory {
    RealMemory::new(32)
}

#[test]
fn knobs_decide_how_much_and_when() {
    let memory = memory();
    let frames = memory.frames();
    let zeroing = Zeroing::new(&frames, &memory.mapped);
    let mut worker = zeroing.worker(NodeId(0));
    // Off until it is switched on.
    assert_eq!(worker.step(|| 5).next, Next::At(5 + 1000 * MS));
    assert_eq!(zero_bytes(&frames), 0);
    zeroing.set(Knob::Enabled, 1).unwrap();
    zeroing.set(Knob::LowBytes, 4 * HUGE_BYTES).unwrap();
    zeroing.set(Knob::WakeBytes, BYTES).unwrap();
    // Less is free: nothing wakes it.
    let taken = frames.allocate(page()).unwrap();
    assert_eq!(run(&mut worker, 1000 * MS), 0);
    frames.free(taken, Order::PAGE).unwrap();
    assert_eq!(run(&mut worker, 2000 * MS), 4 * HUGE_BYTES);
    assert_eq!(zero_bytes(&frames), 4 * HUGE_BYTES);
    // A value that is refused changes nothing.
    let before = zeroing.knobs();
    let error = zeroing.set(Knob::BatchBytes, 3 * MIB).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "batch_bytes can't be 3145728: expected a power of two from {PAGE_BYTES} to {}",
            GIANT_BYTES / 2
        )
    );
    assert_eq!(zeroing.knobs(), before);
    // Larger batches, at a rate: two huge frames each 2 ms.
    for (knob, value) in [
        (Knob::BatchBytes, 2 * HUGE_BYTES),
        (Knob::LowBytes, 8 * HUGE_BYTES),
        (Knob::WakeBytes, PAGE_BYTES),
        (Knob::BytesPerSecond, 1000 * HUGE_BYTES),
    ] {
        zeroing.set(knob, value).unwrap();
    }
    let step = worker.step(|| 3000 * MS);
    assert_eq!((step.zeroed_bytes, step.next), (2 * HUGE_BYTES, Next::Now));
    let step = worker.step(|| 3000 * MS);
    assert_eq!((step.zeroed_bytes, step.next), (0, Next::At(3002 * MS)));
    assert_eq!(worker.step(|| 3002 * MS).zeroed_bytes, 2 * HUGE_BYTES);
    assert_eq!(run(&mut worker, 3010 * MS), 0);
    assert_eq!(zeroing.statistics().back_offs, 1);
    zeroing.set(Knob::Enabled, 0).unwrap();
    assert_eq!(worker.step(|| 3020 * MS).next, Next::At(4020 * MS));
    assert_eq!(zero_bytes(&frames), 8 * HUGE_BYTES);
}

const GIB_A_SECOND: u64 = GIB;
/// What a huge frame takes at that rate: 1,953,125 ns are 2 MiB.
const HUGE_NS: u64 = 1_953_125 * (HUGE_BYTES / (2 * MIB));

/// A byte a second is 24 days a batch of 2 MiB: a worker that met it looks again, and goes on at another rate.
#[test]
fn a_rate_holds_from_the_step_after_it_was_changed() {
    const SLOW: (Knob, u64) = (Knob::BytesPerSecond, 1);
    for rate in [0, GIB_A_SECOND] {
        let memory = memory();
        let frames = memory.frames();
        let zeroing = eager(&frames, &memory.mapped);
        let mut worker = zeroing.worker(NodeId(0));
        zeroing.set(SLOW.0, SLOW.1).unwrap();
        assert_eq!(worker.step(|| 0).zeroed_bytes, HUGE_BYTES);
        // The value that it has is no change.
        zeroing.set(SLOW.0, SLOW.1).unwrap();
        let waits = worker.step(|| MS);
        assert_eq!((waits.zeroed_bytes, waits.next), (0, Next::At(1001 * MS)));
        zeroing.set(Knob::BytesPerSecond, rate).unwrap();
        assert_eq!(worker.step(|| 1001 * MS).zeroed_bytes, HUGE_BYTES, "{rate}");
        let second = worker.step(|| 1001 * MS);
        let expected = match rate {
            0 => (HUGE_BYTES, Next::Now),
            _ => (0, Next::At(1001 * MS + HUGE_NS)),
        };
        assert_eq!((second.zeroed_bytes, second.next), expected);
    }
}

/// The rate is changed while a worker zeroes, which began at the old one.
#[test]
fn a_rate_that_is_changed_during_a_batch_is_not_outlived() {
    for (rate, charged) in [(0, None), (GIB_A_SECOND, Some(HUGE_NS))] {
        let memory = memory();
        let frames = memory.frames();
        let zeroing = eager(&frames, &memory.mapped);
        let mut worker = zeroing.worker(NodeId(0));
        zeroing.set(Knob::BytesPerSecond, 1).unwrap();
        let looks = Cell::new(0);
        // The step looks at the clock a second time when the batch is done.
        let step = worker.step(|| {
            if looks.replace(looks.get() + 1) == 1 {
                zeroing.set(Knob::BytesPerSecond, rate).unwrap();
            }
            0
        });
        assert_eq!((step.zeroed_bytes, looks.get()), (HUGE_BYTES, 2));
        let next = worker.step(|| 0).next;
        assert_eq!(next, charged.map_or(Next::Now, Next::At));
    }
}

#[test]
fn demand_raises_the_stock() {
    let memory = memory();
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let zeroing = Zeroing::new(&frames, &memory.mapped);
    for (knob, value) in [(Knob::Enabled, 1), (Knob::LowBytes, 0)] {
        zeroing.set(knob, value).unwrap();
    }
    let mut worker = zeroing.worker(NodeId(0));
    assert_eq!(run(&mut worker, 0), 0);
    // Eight misses: it keeps twice as much.
    let blocks: Vec<Frame> = (0..8)
        .map(|_| frames.allocate(huge().zeroed()).unwrap())
        .collect();
    assert_eq!(zeroing.statistics().missed_bytes, 8 * HUGE_BYTES);
    assert_eq!(run(&mut worker, 1), 16 * HUGE_BYTES);
    for block in blocks {
        frames.free(block, Order::HUGE).unwrap();
    }
    // Hits are demand too; nothing is zeroed for demand that is over.
    frames.allocate(huge().zeroed()).unwrap();
    assert_eq!(run(&mut worker, 20_000 * MS), 0);
    assert_eq!(zeroing.statistics().hit_bytes, HUGE_BYTES);
}

/// Memory of a large machine, of which only the ranges are kept.
#[derive(Default)]
struct Listed(Mutex<Vec<FrameRange>>);

// SAFETY: it writes nothing, and nothing is read.
unsafe impl Memory for Listed {
    unsafe fn zero(&self, range: FrameRange) {
        self.0.lock().unwrap().push(range);
    }

    unsafe fn first_not_zero(&self, _: FrameRange) -> Option<PhysAddr> {
        None
    }
}

#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn a_worker_keeps_to_its_node() {
    let giants = |start, end| range(start * GIANT_BYTES, end * GIANT_BYTES);
    let nodes = [(0, giants(4, 5)), (1, giants(8, 9))];
    let frames = Machine::new(&nodes).frames();
    let memory = Listed::default();
    let zeroing = eager(&frames, &memory);
    run(&mut zeroing.worker(NodeId(1)), 0);
    let zeroed = memory.0.lock().unwrap();
    assert!(
        zeroed
            .iter()
            .all(|zeroed| nodes[1].1.inner_frames().covers(*zeroed))
    );
    let of = |node| {
        let seen = frames.zone(NodeId(node), ZoneKind::Normal).statistics();
        (seen.zero.huges, seen.free_huges)
    };
    let (zero, free) = of(1);
    assert!(
        zero == free && free > GIANT_FRAMES / HUGE_FRAMES - 12,
        "{zero} of {free}"
    );
    assert_eq!(of(0).0, 0);
}

/// The least order keeps it from what is broken up, a larger one from what is beside that.
#[test]
fn blocks_below_the_least_order_are_left() {
    for (order_above, zeroed_huges) in [(0, 31), (1, 30), (4, 16)] {
        let memory = memory();
        let frames = memory.frames();
        let held = frames.allocate(page()).unwrap();
        let zeroing = eager(&frames, &memory.mapped);
        let order = u64::from(Order::HUGE.get()) + order_above;
        zeroing.set(Knob::MinOrder, order).unwrap();
        assert_eq!(
            run(&mut zeroing.worker(NodeId(0)), 0),
            zeroed_huges * HUGE_BYTES,
            "{order}"
        );
        frames.free(held, Order::PAGE).unwrap();
    }
}

#[test]
fn it_rests_while_a_cpu_refills_its_lists_often() {
    for busy_per_ms in [100, 0] {
        let memory = memory();
        let frames = kit::with_cpus(memory.frames(), 1);
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let zeroing = eager(&frames, &memory.mapped);
        zeroing.set(Knob::BusyPerMs, busy_per_ms).unwrap();
        let mut worker = zeroing.worker(NodeId(0));
        run(&mut worker, 0);
        for _ in 0..100 {
            let pages: Vec<Frame> = (0..500).map(|_| cpu.allocate(page()).unwrap()).collect();
            pages
                .into_iter()
                .for_each(|page| cpu.free(page, Order::PAGE).unwrap());
        }
        cpu.drain().unwrap();
        let step = worker.step(|| MS);
        if busy_per_ms == 0 {
            assert_eq!(step.next, Next::Now);
            continue;
        }
        assert_eq!((step.zeroed_bytes, step.next), (0, Next::At(2 * MS)));
        assert_eq!(zeroing.statistics().back_offs, 1);
        // It is quiet.
        assert!(run(&mut worker, 2 * MS) > 0);
    }
}

/// Water marks count what a worker has as free: none is crossed.
#[test]
fn a_worker_crosses_no_water_mark() {
    #[derive(Default)]
    struct Log(Mutex<Vec<Crossing>>);
    impl Hooks for Log {
        fn crossed(&self, crossing: Crossing) {
            self.0.lock().unwrap().push(crossing);
        }
    }
    let log = Log::default();
    let memory = memory();
    // A huge frame less is below every one of them.
    let marks = WaterMarks {
        min: 32 * HUGE_FRAMES,
        low: 32 * HUGE_FRAMES,
        high: 32 * HUGE_FRAMES,
        lowmem_reserve: [0; 4],
    };
    let zones = [ZoneMarks::new(NodeId(0), ZoneKind::Normal, marks)];
    let frames = memory.frames().with_hooks(&log).with_water_marks(&zones);
    assert_eq!(
        run(&mut eager(&frames, &memory.mapped).worker(NodeId(0)), 0),
        BYTES
    );
    assert_eq!(log.0.lock().unwrap().len(), 0);
    // As a request would.
    let from_reserve = huge().from_reserve();
    let block = frames.allocate(from_reserve).unwrap();
    assert_eq!(log.0.lock().unwrap().len(), 3);
    frames.free(block, Order::HUGE).unwrap();
}

/// The time of a step is what its clock says.
#[test]
fn the_time_that_zeroing_takes_is_counted() {
    let memory = memory();
    let frames = memory.frames();
    let zeroing = eager(&frames, &memory.mapped);
    let mut worker = zeroing.worker(NodeId(0));
    let clock = Cell::new(0);
    for _ in 0..3 {
        worker.step(|| clock.replace(clock.get() + 7));
    }
    let seen = zeroing.statistics();
    assert_eq!((seen.batches, seen.zeroing_ns), (3, 21));
}

#[test]
fn defaults_are_the_published_ones() {
    let knobs = Knobs::defaults();
    assert!(!knobs.enabled);
    assert_eq!(
        (knobs.min_order, zeroing::PAST_CACHES.get()),
        (Order::HUGE, 4)
    );
    assert_eq!(
        (knobs.wake_bytes, knobs.batch_bytes, knobs.delay_ms),
        (64 * MIB, HUGE_BYTES, 1000)
    );
}
