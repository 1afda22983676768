//! Reporting to hosts that take, refuse, fall silent and lie.

use crate::kit;
use crate::kit::real;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::background::Next;
use firstlight::frames::{AllocError, Content, Cursor, Frames, RangeError, Request};
use firstlight::node::NodeId;
use firstlight::reporting::{Host, HostError, Knob, Reporter};
use firstlight::zeroing::{self, Zeroing};
use kit::{GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, HUGE_BYTES, HUGE_FRAMES, huge, page};
use real::{Kernel, RealMemory};

const MS: u64 = 1_000_000;
/// Order of a huge frame.
const HUGE: u64 = Order::HUGE.get() as u64;
/// Frames of the machine, 64 MiB with pages of 4 KiB.
const FRAMES: u64 = 32 * HUGE_FRAMES;

/// A device: it lists what it is given, and answers as it is set to.
struct Device<'r> {
    memory: &'r RealMemory,
    reports: Mutex<Vec<Vec<FrameRange>>>,
    answer: Mutex<Result<(), HostError>>,
    is_released: AtomicBool,
    capacity: usize,
    /// What it leaves in memory that it was given.
    content: u8,
}

impl<'r> Device<'r> {
    fn new(memory: &'r RealMemory) -> Self {
        Self {
            memory,
            reports: Mutex::default(),
            answer: Mutex::new(Ok(())),
            is_released: AtomicBool::new(true),
            capacity: 32,
            content: 0,
        }
    }

    fn answers(&self, answer: Result<(), HostError>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Frames that it was given since the last look.
    fn frames(&self) -> u64 {
        let reports = core::mem::take(&mut *self.reports.lock().unwrap());
        reports.iter().flatten().map(|range| range.count()).sum()
    }
}

impl Host for Device<'_> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn report(&self, ranges: &[FrameRange]) -> Result<(), HostError> {
        assert!(!ranges.is_empty() && ranges.len() <= self.capacity);
        self.reports.lock().unwrap().push(ranges.to_vec());
        // What a host does with it, whatever it answers: the content is gone.
        for range in ranges {
            for frame in range.start().get()..range.end().get() {
                let frame = Frame::new(frame);
                self.memory.block(frame, Order::PAGE).fill(self.content);
            }
        }
        *self.answer.lock().unwrap()
    }

    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }
}

fn on<'f, 'm, 'r>(frames: &'f Frames<'m>, device: &'f Device<'r>) -> Reporter<'f, 'm, Device<'r>> {
    let mut reporter = Reporter::new(frames, device);
    reporter.set(Knob::Enabled, 1).unwrap();
    reporter
}

/// A whole pass, from `now_ns` on; steps.
fn pass(reporter: &mut Reporter<'_, '_, Device<'_>>, now_ns: u64) -> u32 {
    for steps in 1..10_000 {
        if let Next::At(at) = reporter.step(now_ns) {
            assert!(at > now_ns);
            return steps;
        }
    }
    panic!("the pass does not come to an end");
}

fn reported(frames: &Frames<'_>) -> u64 {
    frames.validate().unwrap();
    frames.statistics().reported.frames
}

#[test]
fn a_pass_reports_a_sixteenth_and_then_rests() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let device = Device::new(&memory);
    let mut reporter = Reporter::new(&frames, &device);
    // Off until it is switched on.
    assert_eq!(reporter.step(3), Next::At(3 + 2000 * MS));
    reporter.set(Knob::Enabled, 1).unwrap();
    let mut now = 0;
    for done in 1..=16 {
        pass(&mut reporter, now);
        assert_eq!(device.frames(), 2 * HUGE_FRAMES);
        assert_eq!(reported(&frames), done * 2 * HUGE_FRAMES);
        // Called too early it does nothing.
        assert_eq!(reporter.step(now + 1), Next::At(now + 2000 * MS));
        assert_eq!(device.frames(), 0);
        now += 2000 * MS;
    }
    // All of it; nothing is reported twice.
    pass(&mut reporter, now);
    assert_eq!((device.frames(), reported(&frames)), (0, FRAMES));
    let seen = reporter.statistics();
    assert_eq!(
        (seen.reported_bytes, seen.reports, seen.passes),
        (32 * HUGE_BYTES, 16, 17)
    );
    // What is handed out is the guest's again, and is reported once it is free.
    let block = frames.allocate(huge()).unwrap();
    assert_eq!(reported(&frames), FRAMES - HUGE_FRAMES);
    frames.free(block, Order::HUGE).unwrap();
    pass(&mut reporter, now + 2000 * MS);
    assert_eq!((device.frames(), reported(&frames)), (HUGE_FRAMES, FRAMES));
}

#[test]
fn without_a_budget_one_pass_reports_all_in_batches() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let device = Device {
        capacity: 5,
        ..Device::new(&memory)
    };
    let mut reporter = on(&frames, &device);
    reporter.set(Knob::BudgetOneIn, 0).unwrap();
    let kept = frames.allocate(huge()).unwrap();
    pass(&mut reporter, 0);
    let reports = device.reports.lock().unwrap().clone();
    // At most five blocks each; neighbours are one range.
    assert_eq!(reports.len(), 7);
    for report in &reports {
        let frames: u64 = report.iter().map(|range| range.count()).sum();
        assert!(frames <= 5 * HUGE_FRAMES && report.len() <= 2, "{report:?}");
        assert!(report.iter().all(|range| !range.contains(kept)));
    }
    assert_eq!(reported(&frames), 31 * HUGE_FRAMES);
}

#[test]
fn pages_only_if_they_are_wanted_and_zeros_not_at_all() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let device = Device::new(&memory);
    let zeroing = Zeroing::new(&frames, &memory.mapped);
    for (knob, value) in [
        (zeroing::Knob::Enabled, 1),
        (zeroing::Knob::LowBytes, 4 * HUGE_BYTES),
    ] {
        zeroing.set(knob, value).unwrap();
    }
    let mut worker = zeroing.worker(NodeId(0));
    while worker.step(|| 0).next == Next::Now {}
    let held = frames.allocate(page()).unwrap();
    let mut reporter = on(&frames, &device);
    reporter.set(Knob::BudgetOneIn, 0).unwrap();
    pass(&mut reporter, 0);
    let seen = frames.statistics();
    assert_eq!((seen.zero.huges, seen.reported.huges), (4, 27));
    assert_eq!(seen.reported.frames, 27 * HUGE_FRAMES);
    // Nothing below a huge frame.
    reporter.set(Knob::Order, HUGE - 1).unwrap_err();
    pass(&mut reporter, 10_000 * MS);
    assert_eq!(reported(&frames), 27 * HUGE_FRAMES);
    frames.free(held, Order::PAGE).unwrap();
    frames.validate().unwrap();
}

#[test]
fn devices_that_fail_lose_no_frame_and_promise_nothing() {
    let memory = RealMemory::new(32);
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let device = Device::new(&memory);
    let mut reporter = on(&frames, &device);
    for (failures, failure) in (1..).zip([
        HostError::NotOffered,
        HostError::NoAnswer { waited_ns: 7 },
        HostError::Reset,
        HostError::WrongAnswer { seen: 9 },
    ]) {
        device.answers(Err(failure));
        reporter.set(Knob::Enabled, 1).unwrap();
        assert_eq!(reporter.failure(), None);
        assert_eq!(reporter.step(0), Next::At(2000 * MS));
        assert_eq!(reporter.failure(), Some(failure));
        assert!(!reporter.knobs().enabled && !failure.to_string().is_empty());
        assert_eq!(reporter.statistics().failures, failures);
        let seen = frames.statistics();
        assert_eq!((seen.free_frames, seen.in_work_frames), (FRAMES, 0));
        assert_eq!(reported(&frames), 0);
        // Off: the device is left alone.
        device.frames();
        reporter.step(10_000 * MS);
        assert_eq!(device.frames(), 0);
        // Switched off again, or otherwise set, it still says why.
        reporter.set(Knob::Enabled, 0).unwrap();
        reporter.set(Knob::BudgetOneIn, 16).unwrap();
        assert_eq!(reporter.failure(), Some(failure));
    }
    device.answers(Ok(()));
    reporter.set(Knob::Enabled, 1).unwrap();
    pass(&mut reporter, 0);
    assert_eq!(reported(&frames), 2 * HUGE_FRAMES);
}

#[test]
fn what_a_dead_device_may_still_drop_is_nobodys_until_it_lets_go() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let device = Device::new(&memory);
    let mut reporter = on(&frames, &device);
    let failure = HostError::Unreleased { waited_ns: 1 };
    device.answers(Err(failure));
    device.is_released.store(false, Ordering::Relaxed);
    reporter.step(0);
    assert_eq!(reporter.statistics().unreleased_frames, 2 * HUGE_FRAMES);
    // Switched on again, it waits for the device.
    reporter.set(Knob::Enabled, 1).unwrap();
    device.frames();
    reporter.step(1);
    assert_eq!(device.frames(), 0);
    let given = device.reports.lock().unwrap().len();
    assert_eq!(given, 0);
    let mut taken = Vec::new();
    let error = loop {
        match frames.allocate(huge()) {
            Ok(block) => taken.push(block),
            Err(error) => break error,
        }
    };
    // Not soon: they are no worker's.
    assert!(
        matches!(error, AllocError::OutOfMemory { in_work: 0, .. }),
        "{error}"
    );
    assert_eq!(taken.len(), 30);
    let held: Vec<FrameRange> = reporter.unreleased().collect();
    assert_eq!(
        held.iter().map(|range| range.count()).sum::<u64>(),
        2 * HUGE_FRAMES
    );
    frames.validate().unwrap();
    device.is_released.store(true, Ordering::Relaxed);
    device.answers(Ok(()));
    reporter.set(Knob::Enabled, 0).unwrap();
    reporter.step(2);
    assert_eq!(reporter.statistics().unreleased_frames, 0);
    assert_eq!(frames.statistics().free_frames, 2 * HUGE_FRAMES);
    for block in taken {
        frames.free(block, Order::HUGE).unwrap();
    }
    assert_eq!(reported(&frames), 0);
}

#[test]
fn a_reporter_that_ends_frees_what_the_device_let_go_of_and_nothing_else() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let device = Device::new(&memory);
    let dead = |frames| {
        let mut reporter = on(frames, &device);
        device.answers(Err(HostError::Unreleased { waited_ns: 1 }));
        device.is_released.store(false, Ordering::Relaxed);
        reporter.step(0);
        assert_eq!(reporter.statistics().unreleased_frames, 2 * HUGE_FRAMES);
        reporter
    };
    // The device was reset meanwhile.
    let reporter = dead(&frames);
    device.is_released.store(true, Ordering::Relaxed);
    drop(reporter);
    let seen = frames.statistics();
    assert_eq!((seen.free_frames, seen.reported.frames), (FRAMES, 0));
    // It was not: what it may still drop is allocated, in no call in flight, and freed by hand once
    // it was.
    let reporter = dead(&frames);
    let held: Vec<FrameRange> = reporter.unreleased().collect();
    drop(reporter);
    let seen = frames.statistics();
    assert_eq!(
        (seen.free_frames, seen.in_work_frames),
        (FRAMES - 2 * HUGE_FRAMES, 0)
    );
    frames.validate().unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| frames.allocate(huge()).ok()).collect();
    assert_eq!(taken.len(), 30);
    for block in taken {
        assert!(held.iter().all(|range| !range.contains(block)));
        frames.free(block, Order::HUGE).unwrap();
    }
    for range in held {
        frames.free_frames(range).unwrap();
    }
    assert_eq!(frames.statistics().free_frames, FRAMES);
    assert_eq!(reported(&frames), 0);
}

/// A host whose driver panics, or does something else, while it has a report.
struct During<F>(F);

impl<F: Fn(&[FrameRange]) + Sync> Host for During<F> {
    unsafe fn report(&self, ranges: &[FrameRange]) -> Result<(), HostError> {
        (self.0)(ranges);
        Ok(())
    }
}

#[test]
fn what_a_driver_had_that_panicked_stays_allocated() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let driver = During(|_: &[FrameRange]| panic!("the driver dies"));
    let mut reporter = Reporter::new(&frames, &driver);
    reporter.set(Knob::Enabled, 1).unwrap();
    let step = std::panic::AssertUnwindSafe(|| reporter.step(0));
    std::panic::catch_unwind(step).unwrap_err();
    drop(reporter);
    let seen = frames.statistics();
    assert_eq!(
        (seen.free_frames, seen.in_work_frames),
        (FRAMES - 2 * HUGE_FRAMES, 0)
    );
    assert_eq!(reported(&frames), 0);
}

#[test]
fn what_is_being_reported_is_not_allocated_and_who_frees_it_is_reported() {
    let memory = RealMemory::new(32);
    let frames = memory.frames();
    let tried = Mutex::new(0);
    let host = During(|ranges: &[FrameRange]| {
        for range in ranges {
            let last = Frame::new(range.end().get() - 1);
            for (frame, order) in [
                (range.start(), Order::HUGE),
                (range.start(), Order::PAGE),
                (last, Order::PAGE),
            ] {
                let range = kit::block(frame, order);
                let in_use = Err(RangeError::InUse { range, frame });
                assert_eq!(frames.allocate_range(range), in_use);
            }
        }
        let mut tried = tried.lock().unwrap();
        *tried += 1;
        if *tried == 4 {
            frames.free(ranges[0].start(), Order::PAGE).unwrap();
        }
    });
    let mut reporter = Reporter::new(&frames, &host);
    reporter.set(Knob::Enabled, 1).unwrap();
    for order in [HUGE, HUGE + 1, HUGE + 3] {
        reporter.set(Knob::Order, order).unwrap();
        reporter.step(order * 100_000 * MS);
    }
    assert_eq!(*tried.lock().unwrap(), 3);
    assert_eq!(frames.statistics().free_frames, FRAMES);
    reporter.set(Knob::Order, HUGE).unwrap();
    reporter.step((HUGE + 4) * 100_000 * MS);
    assert_eq!(reporter.statistics().freed_twice_frames, HUGE_FRAMES);
    assert_eq!(frames.statistics().free_frames, FRAMES - (HUGE_FRAMES - 1));
    frames.validate().unwrap();
}

#[test]
fn a_step_looks_at_a_bounded_number_of_words() {
    // 64 giant frames, in which there is nothing to report: all is known to be zero, or in use.
    let frames =
        kit::Machine::new(&[(0, kit::range(64 * GIANT_BYTES, 128 * GIANT_BYTES))]).frames();
    let host = During(|_: &[FrameRange]| {});
    let mut reporter = Reporter::new(&frames, &host);
    let mut held = Vec::new();
    for at in 64..128u64 {
        // Of each one page is in use, so that its huge frames are looked at.
        let page = Frame::new(at * GIANT_FRAMES);
        frames
            .allocate_range(kit::block(page, Order::PAGE))
            .unwrap();
        held.push(page);
    }
    reporter.set(Knob::Enabled, 1).unwrap();
    reporter.set(Knob::BudgetOneIn, 0).unwrap();
    let mut now = 0;
    // Half a giant frame is a word for each huge frame, 256 with pages of 4 KiB.
    let (half, half_words) = (u64::from(Order::GIANT.get()) - 1, GIANT_HUGES / 2 + 1);
    for (order, one, most) in [
        (half, half_words, 1),
        (half, half_words, 300),
        (HUGE, 2, 1),
        (HUGE, 2, 1000),
    ] {
        reporter.set(Knob::Order, order).unwrap();
        reporter.set(Knob::StepWords, most).unwrap();
        now += 10_000 * MS;
        let (mut steps, begin) = (0, reporter.statistics().words);
        loop {
            let before = reporter.statistics().words;
            let next = reporter.step(now);
            let words = reporter.statistics().words - before;
            assert!(words <= most + one, "{words} of {most} for order {order}");
            steps += 1;
            if next != Next::Now {
                break;
            }
        }
        // Each giant frame's word is looked at, so there are as many steps as that takes.
        let words = reporter.statistics().words - begin;
        assert!(
            words >= 64 && steps >= words / (most + one),
            "{steps} {words}"
        );
    }
    for page in held {
        frames.free(page, Order::PAGE).unwrap();
    }
    frames.validate().unwrap();
}

/// Memory that was reported, handed out for a request for zeros: brought back, zeroed, lies that
/// were found.
fn zeros_of_reported(content: u8, reads_zero: u64) -> (u64, u64, u64) {
    let memory = RealMemory::new(32);
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let device = Device {
        content,
        ..Device::new(&memory)
    };
    let mut reporter = on(&frames, &device);
    reporter.set(Knob::BudgetOneIn, 0).unwrap();
    reporter.set(Knob::ReadsZero, reads_zero).unwrap();
    pass(&mut reporter, 0);
    assert_eq!(reported(&frames), FRAMES);
    let block = frames.allocate(huge().zeroed()).unwrap();
    let bytes = memory.block(block, Order::HUGE);
    assert!(real::is_filled(bytes, 0));
    let seen = kit::zeroed_frames(&frames, NodeId(0));
    // It is no stock of a worker's.
    assert_eq!((seen.hit, seen.made), (0, 0));
    (seen.reported, seen.missed, kernel.check.wrong())
}

#[test]
fn a_promise_is_used_and_a_lie_is_found() {
    // Without a promise it is zeroed, whatever it holds.
    assert_eq!(zeros_of_reported(0, 0), (0, HUGE_FRAMES, 0));
    assert_eq!(zeros_of_reported(7, 0), (0, HUGE_FRAMES, 0));
    assert_eq!(zeros_of_reported(0, 1), (HUGE_FRAMES, 0, 0));
    // A host that lies is found, and its block zeroed.
    assert_eq!(zeros_of_reported(7, 1), (0, HUGE_FRAMES, 1));
}

/// A worker's giant frame of which some is isolated comes back whole.
#[test]
fn a_borrowed_giant_frame_that_is_isolated_comes_back_whole() {
    let frames = kit::Machine::new(&[(0, kit::range(64 * GIANT_BYTES, 66 * GIANT_BYTES))]).frames();
    let before = frames.statistics();
    let mut cursor = Cursor::new(NodeId(0));
    let borrowed = frames.borrow_free(&mut cursor, Order::GIANT, Content::Unknown, 512);
    let borrowed = borrowed.unwrap();
    let range = borrowed.range();
    let part = FrameRange::new(
        range.start().get() + HUGE_FRAMES,
        range.start().get() + 2 * HUGE_FRAMES,
    )
    .unwrap();
    drop(frames.isolate(part).unwrap());
    let isolation = frames.isolate(part).unwrap();
    borrowed.back(Content::Zero).unwrap();
    drop(isolation);
    frames.validate().unwrap();
    let now = frames.statistics();
    assert_eq!(now.free_frames, before.free_frames);
    assert_eq!(now.zero.frames, range.count());
    // As a worker's giant frame of which nothing was isolated.
    let whole = frames.allocate(Request::new(Order::GIANT).zeroed());
    assert_eq!(whole, Ok(range.start()));
}
