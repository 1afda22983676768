//! Workers over real memory: what they zero, what they leave alone, and that no byte of one owner is
//! seen by the next.

use crate::kit;
use crate::kit::real;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysAddr};
use firstlight::frames::{AllocError, Content, Cursor, Frames, RangeError, Request};
use firstlight::node::NodeId;
use firstlight::parallel::{Worker as Thread, Workers};
use firstlight::zeroing::{Knob, Memory, free_zeroed, zero_on_cpus};
use kit::{GIANT_BYTES, GIANT_FRAMES, HUGE_BYTES, HUGE_FRAMES, huge, page};
use real::{Kernel, MS, RealMemory, eager, is_filled, run, zero_bytes};

/// What the machine has: 64 MiB with pages of 4 KiB.
const BYTES: u64 = 32 * HUGE_BYTES;
const FRAMES: u64 = 32 * HUGE_FRAMES;
/// Order of a huge frame.
const HUGE: u8 = Order::HUGE.get();

fn memory() -> RealMemory {
    RealMemory::new(32)
}

#[test]
fn all_that_is_free_is_zeroed_once_and_handed_out_as_zero() {
    let memory = memory();
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let zeroing = eager(&frames, &memory.mapped);
    let mut worker = zeroing.worker(NodeId(0));
    assert_eq!(run(&mut worker, 0), BYTES);
    assert_eq!(zero_bytes(&frames), BYTES);
    // Nothing is ever zeroed twice.
    assert_eq!(run(&mut worker, 10_000 * MS), 0);
    for order in [Order::HUGE; 2] {
        let block = frames.allocate(Request::new(order).zeroed()).unwrap();
        assert!(is_filled(memory.block(block, order), 0));
    }
    let seen = zeroing.statistics();
    assert_eq!(kernel.check.wrong(), 0);
    assert_eq!((seen.zeroed_bytes, seen.missed_bytes), (BYTES, 0));
    assert_eq!(seen.hit_bytes, 2 * HUGE_BYTES);
    assert_eq!(seen.wasted_bytes, 0);
    // A request for anything has none of it as long as there is other memory; then it wastes.
    let plain = frames.allocate(huge()).unwrap();
    assert_eq!(zeroing.statistics().wasted_bytes, HUGE_BYTES);
    frames.free(plain, Order::HUGE).unwrap();
    assert_eq!(frames.allocate(huge()), Ok(plain));
    assert_eq!(zeroing.statistics().wasted_bytes, HUGE_BYTES);
}

/// Memory that runs something while it zeroes.
struct During<'r, F> {
    memory: &'r RealMemory,
    during: F,
}

// SAFETY: what `memory` does.
unsafe impl<F: Fn(FrameRange) + Sync> Memory for During<'_, F> {
    unsafe fn zero(&self, range: FrameRange) {
        (self.during)(range);
        // SAFETY: the caller's.
        unsafe { self.memory.mapped.zero(range) }
    }

    unsafe fn first_not_zero(&self, range: FrameRange) -> Option<PhysAddr> {
        // SAFETY: likewise.
        unsafe { self.memory.mapped.first_not_zero(range) }
    }
}

#[test]
fn a_step_hides_one_batch_and_no_more() {
    let memory = memory();
    let frames = memory.frames();
    let calls = AtomicU64::new(0);
    let slow = During {
        memory: &memory,
        during: |range: FrameRange| {
            calls.fetch_add(1, Ordering::Relaxed);
            let seen = frames.statistics();
            assert_eq!(
                (range.count(), seen.in_work_frames),
                (HUGE_FRAMES, HUGE_FRAMES)
            );
            assert_eq!(seen.free_frames, FRAMES - HUGE_FRAMES);
            // All the rest can be had; then the error says what is missing.
            let taken: Vec<Frame> = std::iter::from_fn(|| frames.allocate(huge()).ok()).collect();
            assert_eq!(taken.len(), 31);
            let error = frames.allocate(huge()).unwrap_err();
            assert!(
                matches!(
                    error,
                    AllocError::OutOfMemory {
                        in_work: HUGE_FRAMES,
                        ..
                    }
                ),
                "{error}"
            );
            for block in taken {
                // What they hold is theirs to say.
                frames
                    .free_frames_with(kit::block(block, Order::HUGE), Content::Zero)
                    .unwrap();
            }
        },
    };
    let zeroing = eager(&frames, &slow);
    let mut worker = zeroing.worker(NodeId(0));
    assert_eq!(worker.step(|| 0).zeroed_bytes, HUGE_BYTES);
    assert_eq!(
        (calls.load(Ordering::Relaxed), zero_bytes(&frames)),
        (1, BYTES)
    );
    assert_eq!(frames.statistics().in_work_frames, 0);
}

#[test]
fn what_a_worker_has_is_not_allocated_and_who_frees_it_is_reported() {
    let memory = memory();
    let frames = memory.frames();
    let is_wild = AtomicBool::new(false);
    let slow = During {
        memory: &memory,
        during: |range: FrameRange| {
            let (start, last) = (range.start(), range.end().get() - 1);
            for (frame, order) in [
                (start, Order::HUGE),
                (start, Order::PAGE),
                (Frame::new(last), Order::PAGE),
            ] {
                let range = kit::block(frame, order);
                let in_use = Err(RangeError::InUse { range, frame });
                assert_eq!(frames.allocate_range(range), in_use);
            }
            if is_wild.load(Ordering::Relaxed) {
                frames.free(start, Order::PAGE).unwrap();
            }
        },
    };
    let zeroing = eager(&frames, &slow);
    for batch_bytes in [HUGE_BYTES, 4 * HUGE_BYTES] {
        zeroing.set(Knob::BatchBytes, batch_bytes).unwrap();
        let mut worker = zeroing.worker(NodeId(0));
        assert_eq!(worker.step(|| 0).zeroed_bytes, batch_bytes);
        let seen = frames.statistics();
        assert_eq!((seen.free_frames, seen.in_work_frames), (FRAMES, 0));
    }
    assert_eq!(zero_bytes(&frames), 5 * HUGE_BYTES);
    // Another call frees what is not its own.
    is_wild.store(true, Ordering::Relaxed);
    zeroing.set(Knob::BatchBytes, HUGE_BYTES).unwrap();
    assert_eq!(
        zeroing.worker(NodeId(0)).step(|| 0).zeroed_bytes,
        HUGE_BYTES
    );
    assert_eq!(zeroing.statistics().freed_twice_bytes, HUGE_BYTES);
    assert_eq!(zero_bytes(&frames), 5 * HUGE_BYTES);
    let seen = frames.statistics();
    assert_eq!(
        (seen.free_frames, seen.in_work_frames),
        (FRAMES - (HUGE_FRAMES - 1), 0)
    );
    frames.validate().unwrap();
}

#[test]
fn a_worker_that_dies_loses_no_frame_and_no_knowledge_is_gained() {
    let memory = memory();
    let frames = memory.frames();
    let dying = During {
        memory: &memory,
        during: |_: FrameRange| panic!("the machine dies"),
    };
    let zeroing = eager(&frames, &dying);
    let worker = std::panic::AssertUnwindSafe(Cell::new(Some(zeroing.worker(NodeId(0)))));
    std::panic::catch_unwind(|| {
        let mut worker = worker.take().unwrap();
        worker.step(|| 0);
    })
    .unwrap_err();
    let seen = frames.statistics();
    assert_eq!((seen.free_frames, seen.in_work_frames), (FRAMES, 0));
    assert_eq!(zero_bytes(&frames), 0);
}

#[test]
fn what_the_host_has_is_left_to_it() {
    let memory = memory();
    let frames = memory.frames();
    let mut cursor = Cursor::new(NodeId(0));
    for _ in 0..8 {
        let block = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 512);
        block.unwrap().back(Content::Reported).unwrap();
    }
    let zeroing = eager(&frames, &memory.mapped);
    assert_eq!(
        run(&mut zeroing.worker(NodeId(0)), 0),
        BYTES - 8 * HUGE_BYTES
    );
    let seen = frames.statistics();
    assert_eq!((seen.zero.huges, seen.reported.huges), (24, 8));
}

/// Writes its mark to every byte of what it gets; whether all was zero before.
fn owner(memory: &RealMemory, block: Frame, order: Order, mark: u8) -> bool {
    let bytes = memory.block(block, order);
    let is_zero = is_filled(bytes, 0);
    bytes.fill(mark);
    is_zero
}

#[test]
fn zeroed_at_free_no_byte_of_one_owner_is_seen_by_the_next() {
    let memory = memory();
    let frames = kit::with_cpus(memory.frames(), 1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    // What was there before there were owners.
    run(&mut eager(&frames, &memory.mapped).worker(NodeId(0)), 0);
    let mut held: Vec<(Frame, Order)> = Vec::new();
    for turn in 0..3000u32 {
        let order = Order::new([0, 0, 0, 3, HUGE][turn as usize % 5]).unwrap();
        if turn % 3 == 2 && !held.is_empty() {
            let (block, order) = held.swap_remove(turn as usize * 7 % held.len());
            // SAFETY: the block's owner is done with it.
            unsafe {
                if turn % 2 == 0 {
                    free_zeroed(&frames, &memory.mapped, kit::block(block, order)).unwrap();
                } else {
                    memory.mapped.zero(FrameRange::block(block, order).unwrap());
                    cpu.free(block, order).unwrap();
                }
            }
        } else if let Ok(block) = cpu.allocate(Request::new(order)) {
            assert!(owner(&memory, block, order, turn as u8 | 1), "{turn}");
            held.push((block, order));
        }
    }
    frames.validate().unwrap();
}

/// Every aligned block of a machine some of which is free or absent: refused, and not a byte of its
/// neighbours is gone. All others are freed.
#[test]
#[cfg_attr(miri, ignore = "megabytes are too slow there")]
fn zeroed_at_free_only_what_is_allocated_is_written() {
    let memory = RealMemory::new(8);
    // The last 700 pages are absent.
    let (pages, present) = (8 * HUGE_FRAMES, 8 * HUGE_FRAMES - 700);
    let first = 4 * GIANT_FRAMES;
    let span = FrameRange::new(first, first + pages).unwrap();
    let tables = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
    let mut tables = vec![std::mem::MaybeUninit::uninit(); tables];
    let frames = Frames::over(span, &mut tables).unwrap();
    let memory_of = FrameRange::new(first, first + present).unwrap();
    frames.add(memory_of.addrs()).unwrap();
    // All is allocated, but a huge frame and a page here and there.
    let mut allocated: Vec<bool> = (0..pages).map(|page| page < present).collect();
    let place = |frame: Frame| (frame.get() - first) as usize;
    while frames.allocate(page()).is_ok() {}
    let free = Frame::new(first + HUGE_FRAMES);
    frames.free(free, Order::HUGE).unwrap();
    allocated[place(free)..place(free) + HUGE_FRAMES as usize].fill(false);
    let huge = |number| number * HUGE_FRAMES;
    for page in [huge(2) + 6, huge(4) - 1, huge(4), huge(5) + 140] {
        frames.free(Frame::new(first + page), Order::PAGE).unwrap();
        allocated[page as usize] = false;
    }
    let all = memory.block(Frame::new(first), Order::of_block(pages).unwrap());
    all.fill(0x77);
    let before = frames.statistics();
    let mut refused = 0;
    for order in (0..=HUGE + 3).rev() {
        let (order, pages) = (Order::new(order).unwrap(), 1usize << order);
        for at in (0..allocated.len()).step_by(pages) {
            let frame = Frame::new(first + at as u64);
            if allocated[at..at + pages].iter().all(|is| *is) {
                continue;
            }
            refused += 1;
            // SAFETY: what of it has an owner is this test's.
            let error = unsafe { free_zeroed(&frames, &memory.mapped, kit::block(frame, order)) };
            let is_absent = (at + pages) as u64 > present;
            match error.unwrap_err() {
                RangeError::NotAllocated { .. } => {}
                RangeError::Reserved { .. } | RangeError::OutsideMemory { .. } if is_absent => {}
                other => panic!("{frame} {order}: {other}"),
            }
        }
    }
    assert!(refused > 1000 && is_filled(all, 0x77));
    assert_eq!(frames.statistics(), before);
    // What is allocated is freed, zero, and its neighbours are as they were.
    let block = Frame::new(first + huge(3));
    let order = Order::new(8).unwrap();
    // SAFETY: as above.
    unsafe { free_zeroed(&frames, &memory.mapped, kit::block(block, order)) }.unwrap();
    let zero = all.iter().filter(|byte| **byte == 0).count();
    assert_eq!(zero as u64, 256 * PAGE_BYTES);
    assert!(is_filled(memory.block(block, order), 0));
    // Of a part of a huge frame nothing is known.
    assert_eq!(frames.statistics().zero.frames, 0);
    frames
        .allocate_range(kit::block(free, Order::HUGE))
        .unwrap();
    // SAFETY: as above.
    unsafe { free_zeroed(&frames, &memory.mapped, kit::block(free, Order::HUGE)) }.unwrap();
    assert_eq!(frames.statistics().zero.frames, HUGE_FRAMES);
}

#[test]
fn zeroed_in_the_background_nothing_is_seen_after_the_window() {
    let memory = memory();
    let frames = memory.frames();
    let zeroing = eager(&frames, &memory.mapped);
    zeroing.set(Knob::DelayMs, 10).unwrap();
    let (mut worker, mut now) = (zeroing.worker(NodeId(0)), 0);
    run(&mut worker, now);
    for mark in 1..20u8 {
        let mut held: Vec<(Frame, Order)> = Vec::new();
        for order in [0, 0, 1, HUGE, 4, HUGE, 0] {
            let order = Order::new(order).unwrap();
            let block = frames.allocate(Request::new(order)).unwrap();
            assert!(owner(&memory, block, order, mark), "{mark} {order}");
            held.push((block, order));
        }
        // One page stays: the others of its huge frame wait for it.
        let kept = held.remove(0).0;
        for (block, order) in held {
            frames.free(block, order).unwrap();
        }
        // The window: the delay, and as long as zeroing takes.
        now += 10 * MS;
        run(&mut worker, now);
        let seen = frames.statistics();
        assert_eq!(seen.free_huges, seen.zero.huges, "{mark}");
        frames.free(kept, Order::PAGE).unwrap();
        now += 10 * MS;
        let zeroed = run(&mut worker, now);
        let seen = frames.statistics();
        assert_eq!(
            seen.free_frames, seen.zero.frames,
            "{mark} {zeroed} {seen:?}"
        );
    }
}

#[test]
fn workers_beside_owners_lose_no_byte_and_show_none() {
    let memory = memory();
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    let zeroing = eager(&frames, &memory.mapped);
    zeroing.set(Knob::BusyPerMs, 0).unwrap();
    let (stop, clock) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut worker = zeroing.worker(NodeId(0));
                while !stop.load(Ordering::Relaxed) {
                    // A clock that jumps: no step waits.
                    worker.step(|| clock.fetch_add(5000 * MS, Ordering::Relaxed));
                }
            });
        }
        let owners: Vec<_> = (1..3u8)
            .map(|mark| {
                let (frames, memory) = (&frames, &memory);
                scope.spawn(move || {
                    for turn in 0..400 {
                        let order = Order::new([0, HUGE, 2, 5][turn % 4]).unwrap();
                        let request = Request::new(order).zeroed();
                        let Ok(block) = frames.allocate(request) else {
                            continue;
                        };
                        assert!(owner(memory, block, order, mark));
                        let bytes = memory.block(block, order);
                        assert!(is_filled(bytes, mark));
                        frames.free(block, order).unwrap();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(
        (kernel.check.wrong(), frames.statistics().free_frames),
        (0, FRAMES)
    );
    frames.validate().unwrap();
}

#[test]
fn a_page_that_is_not_zero_is_found_and_zeroed() {
    let memory = memory();
    let kernel = Kernel::new(&memory);
    let frames = memory.frames().with_hooks(&kernel);
    // A host that promises zeros and does not keep it.
    frames.set_reported_is_zero(true);
    let mut cursor = Cursor::new(NodeId(0));
    let block = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 512);
    block.unwrap().back(Content::Reported).unwrap();
    let block = frames.allocate(huge().zeroed()).unwrap();
    assert!(is_filled(memory.block(block, Order::HUGE), 0));
    assert_eq!(kernel.check.wrong(), 1);
    let wrong_at = kernel.check.wrong_at().unwrap();
    assert!(
        FrameRange::block(block, Order::HUGE)
            .unwrap()
            .contains(wrong_at.frame())
    );
    assert_eq!(kit::zeroed_frames(&frames, NodeId(0)).missed, HUGE_FRAMES);
}

struct Threads;

impl Workers for Threads {
    fn run(&self, workers: &[Thread], work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for index in 0..workers.len() {
                scope.spawn(move || work(index));
            }
        });
    }
}

#[test]
fn several_cpus_zero_a_giant_frame_each_byte_once() {
    // Sixteen chunks would be too much for a test: what counts is which ranges are zeroed.
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
    let giant = FrameRange::block(Frame::new(3 * GIANT_FRAMES), Order::GIANT).unwrap();
    let listed = Listed(Mutex::default());
    let mut cpus: [Thread; 4] = std::array::from_fn(|_| Thread::new(NodeId(0)));
    // SAFETY: nothing is written.
    let report = unsafe { zero_on_cpus(&listed, NodeId(0), giant, &mut cpus, &Threads) }.unwrap();
    assert_eq!(
        (report.frames, report.chunks),
        (GIANT_FRAMES, GIANT_BYTES / (128 << 20))
    );
    let mut ranges = listed.0.into_inner().unwrap();
    ranges.sort_by_key(|range| range.start());
    let mut next = giant.start();
    for range in ranges {
        assert_eq!(range.start(), next);
        next = range.end();
    }
    assert_eq!(next, giant.end());
    let nobody = Listed(Mutex::default());
    // SAFETY: likewise.
    unsafe { zero_on_cpus(&nobody, NodeId(0), giant, &mut [], &Threads) }.unwrap_err();
    assert!(nobody.0.into_inner().unwrap().is_empty());
}
