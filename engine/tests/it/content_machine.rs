//! What is known of free memory: kept, lost and used by requests for zeros, on machines whose
//! answers are known.

use crate::kit;

use std::sync::Mutex;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{AllocError, BlockError, Content, Cursor, Frames, Hooks, Request};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB};
use kit::{Machine, Uninitialised, above_huge, added, huge, page, range};

/// A kernel that zeroes, and lists what.
#[derive(Default)]
struct Kernel {
    zeroed: Mutex<Vec<FrameRange>>,
}

impl Hooks for Kernel {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        self.zeroed.lock().unwrap().push(range);
        true
    }
}

impl Kernel {
    fn leaked() -> &'static Self {
        Box::leak(Box::default())
    }

    /// Frames zeroed since the last look.
    fn frames(&self) -> u64 {
        let zeroed = core::mem::take(&mut *self.zeroed.lock().unwrap());
        zeroed.iter().map(|range| range.count()).sum()
    }
}

fn machine() -> Frames<'static> {
    added(2 * GIANT_BYTES)
}

fn zero_frames(frames: &Frames<'_>) -> u64 {
    frames.validate().unwrap();
    frames.statistics().zero.frames
}

/// Lets a worker zero all that is free and unknown, a huge frame at a time.
fn zero_all(frames: &Frames<'_>, most: u64) -> u64 {
    let mut cursor = Cursor::new(NodeId(0));
    let mut count = 0;
    while count < most && cursor.rounds() == 0 {
        if let Some(block) = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 4096) {
            block.back(Content::Zero).unwrap();
            count += 1;
        }
    }
    count
}

#[test]
fn a_huge_frame_freed_as_zero_serves_a_request_for_zeros_once() {
    let kernel = Kernel::leaked();
    let frames = machine().with_hooks(kernel);
    let start = frames.allocate(huge()).unwrap();
    frames
        .free_frames_with(kit::block(start, Order::HUGE), Content::Zero)
        .unwrap();
    assert_eq!(zero_frames(&frames), HUGE_FRAMES);
    // Others leave it alone.
    let other = frames.allocate(huge()).unwrap();
    let other_page = frames.allocate(page()).unwrap();
    assert_eq!(zero_frames(&frames), HUGE_FRAMES);
    assert_eq!(frames.allocate(huge().zeroed()), Ok(start));
    assert_eq!((kernel.frames(), zero_frames(&frames)), (0, 0));
    frames.free(start, Order::HUGE).unwrap();
    assert_eq!(zero_frames(&frames), 0);
    let zeroed = frames.allocate(huge().zeroed()).unwrap();
    assert_eq!(kernel.frames(), HUGE_FRAMES);
    for block in [zeroed, other] {
        frames.free(block, Order::HUGE).unwrap();
    }
    frames.free(other_page, Order::PAGE).unwrap();
    frames.validate().unwrap();
}

#[test]
fn a_kernel_that_zeroes_nothing_gets_what_is_known_or_an_error() {
    let frames = machine();
    let request = huge().zeroed();
    let before = frames.statistics();
    assert_eq!(
        frames.allocate(request),
        Err(AllocError::NotZeroed { request })
    );
    let row = frames.allocate_frames(HUGE_FRAMES + 188, 1, page().zeroed());
    assert!(matches!(row, Err(AllocError::NotZeroed { .. })), "{row:?}");
    assert_eq!(frames.statistics().free_frames, before.free_frames);
    assert_eq!(zero_all(&frames, 3), 3);
    for _ in 0..3 {
        frames.allocate(request).unwrap();
    }
    let error = frames.allocate(request).unwrap_err();
    assert!(error.to_string().contains("`Hooks::zero`"), "{error}");
    frames.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn giants_keep_what_is_known_of_their_parts() {
    let kernel = Kernel::leaked();
    let frames = machine().with_hooks(kernel);
    // All of one giant frame, and a fifth of the other.
    let more = GIANT_HUGES / 5;
    let huges = GIANT_HUGES + more;
    assert_eq!(zero_all(&frames, huges), huges);
    let known = frames.statistics();
    assert_eq!((known.free_giants, known.zero.giants), (2, 1));
    assert_eq!(
        (known.zero.huges, known.zero.frames),
        (huges, huges * HUGE_FRAMES)
    );
    // One that is known first, then the other one: what of it is not known is zeroed.
    let giant = Request::new(Order::GIANT).zeroed();
    let first = frames.allocate(giant).unwrap();
    assert_eq!((first, kernel.frames()), (Frame::new(4 * GIANT_FRAMES), 0));
    let second = frames.allocate(giant).unwrap();
    assert_eq!(
        (second, kernel.frames()),
        (
            Frame::new(5 * GIANT_FRAMES),
            (GIANT_HUGES - more) * HUGE_FRAMES
        )
    );
    // What lies below is stale: nothing of it counts.
    frames.free(first, Order::GIANT).unwrap();
    assert_eq!(zero_frames(&frames), 0);
    frames.allocate(huge().zeroed()).unwrap();
    assert_eq!(kernel.frames(), HUGE_FRAMES);
    frames
        .free_frames_with(kit::block(second, Order::GIANT), Content::Zero)
        .unwrap();
    assert_eq!(zero_frames(&frames), GIANT_FRAMES);
    // Kept on split.
    frames
        .allocate(Request::new(above_huge(3)).zeroed())
        .unwrap();
    assert_eq!(
        (kernel.frames(), zero_frames(&frames)),
        (0, GIANT_FRAMES - 8 * HUGE_FRAMES)
    );
}

/// Of pages nothing is known: they come from what is broken up, and from zeros last.
#[test]
fn pages_leave_zero_huge_frames_alone_while_there_are_others() {
    let kernel = Kernel::leaked();
    let frames = added(2 * HUGE_BYTES).with_hooks(kernel);
    assert_eq!(zero_all(&frames, 1), 1);
    let pages: Vec<_> = (0..HUGE_FRAMES)
        .map(|_| frames.allocate(page().zeroed()).unwrap())
        .collect();
    assert_eq!(
        (kernel.frames(), zero_frames(&frames)),
        (HUGE_FRAMES, HUGE_FRAMES)
    );
    // The last huge frame is broken up: its first page needs no zeroing, of the rest nothing is known.
    let row = frames.allocate_frames(20, 1, page().zeroed()).unwrap();
    assert_eq!((kernel.frames(), zero_frames(&frames)), (0, 0));
    frames.allocate(page().zeroed()).unwrap();
    assert_eq!(kernel.frames(), 1);
    // Merged of pages that are freed as zero: not known.
    frames.free_frames(row).unwrap();
    for page in pages {
        frames
            .free_frames_with(kit::block(page, Order::PAGE), Content::Zero)
            .unwrap();
    }
    assert_eq!(zero_frames(&frames), 0);
    assert_eq!(frames.statistics().free_huges, 1);
}

#[test]
fn a_row_freed_as_zero_is_known_as_far_as_it_is_huge_frames() {
    let frames = machine();
    let row = frames
        .allocate_frames(HUGE_FRAMES, HUGE_FRAMES, page())
        .unwrap();
    frames.free_frames_with(row, Content::Zero).unwrap();
    assert_eq!(zero_frames(&frames), HUGE_FRAMES);
    let row = frames
        .allocate_frames(4 * HUGE_FRAMES - 48, HUGE_FRAMES, page())
        .unwrap();
    frames.free_frames_with(row, Content::Zero).unwrap();
    // The first one was left alone.
    assert_eq!(zero_frames(&frames), 4 * HUGE_FRAMES);
}

#[test]
fn reported_memory_is_zero_only_if_the_device_says_so() {
    let kernel = Kernel::leaked();
    let frames = machine().with_hooks(kernel);
    let mut cursor = Cursor::new(NodeId(0));
    while let Some(block) = frames.borrow_free(&mut cursor, Order::GIANT, Content::Unknown, 64) {
        assert_eq!((block.node(), block.zone()), (NodeId(0), ZoneKind::Normal));
        block.back(Content::Reported).unwrap();
    }
    let statistics = frames.statistics();
    assert_eq!(statistics.reported.giants, statistics.free_giants);
    assert_eq!(
        statistics.reported.frames,
        statistics.free_giants * GIANT_FRAMES
    );
    frames.allocate(huge().zeroed()).unwrap();
    assert_eq!(kernel.frames(), HUGE_FRAMES);
    frames.set_reported_is_zero(true);
    frames.allocate(huge().zeroed()).unwrap();
    assert_eq!(kernel.frames(), 0);
    frames.set_reported_is_zero(false);
    frames.allocate(page().zeroed()).unwrap();
    assert_eq!(kernel.frames(), 1);
    frames.validate().unwrap();
}

#[test]
fn what_is_borrowed_is_in_work_and_comes_back() {
    let frames = added(2 * HUGE_BYTES);
    let before = frames.statistics();
    let mut cursor = Cursor::new(NodeId(0));
    let mut borrow = |content| frames.borrow_free(&mut cursor, Order::HUGE, content, 8);
    let block = borrow(Content::Unknown).expect("a free huge frame");
    assert_eq!(frames.statistics().in_work_frames, HUGE_FRAMES);
    assert_eq!(
        frames.statistics().free_frames,
        before.free_frames - HUGE_FRAMES
    );
    let error = loop {
        if let Err(error) = frames.allocate(huge()) {
            break error;
        }
    };
    assert!(
        matches!(
            error,
            AllocError::OutOfMemory {
                in_work: HUGE_FRAMES,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("{HUGE_FRAMES} frames are with a worker")),
        "{error}"
    );
    let start = block.range().start();
    drop(block);
    assert_eq!(frames.statistics().in_work_frames, 0);
    assert_eq!(frames.statistics().zero.frames, 0);
    assert_eq!(frames.allocate(huge()), Ok(start));
    assert!(borrow(Content::Unknown).is_none());
    frames.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn a_cpu_cuts_zero_pages_from_a_huge_frame_and_its_lists_hold_unknown_content_only() {
    let kernel = Kernel::leaked();
    let frames = kit::with_cpus(machine().with_hooks(kernel), 1);
    assert_eq!(zero_all(&frames, 3), 3);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    // Lists leave it alone.
    let (some, large) = (cpu.allocate(page()).unwrap(), cpu.allocate(huge()).unwrap());
    assert_eq!(zero_frames(&frames), 3 * HUGE_FRAMES);
    cpu.free(some, Order::PAGE).unwrap();
    let cached = cpu.cached_frames();
    let zero: Vec<_> = (0..HUGE_FRAMES)
        .map(|_| cpu.allocate(page().zeroed()).unwrap())
        .collect();
    assert!(!zero.contains(&some));
    assert_eq!(
        (kernel.frames(), zero_frames(&frames)),
        (0, 2 * HUGE_FRAMES)
    );
    assert_eq!(cpu.cached_frames(), cached);
    // Each mobility has its own.
    let of_both = [page(), page().movable()].map(|page| cpu.allocate(page.zeroed()).unwrap());
    assert_ne!(
        of_both[0].get() / HUGE_FRAMES,
        of_both[1].get() / HUGE_FRAMES
    );
    assert_eq!((kernel.frames(), zero_frames(&frames)), (0, 0));
    assert_eq!(cpu.cached_frames(), cached + 2 * (HUGE_FRAMES - 1));
    assert_eq!(kit::zeroed_frames(&frames, NodeId(0)).hit, HUGE_FRAMES + 2);
    // What is freed goes to the lists.
    cpu.free(of_both[0], Order::PAGE).unwrap();
    assert_eq!(cpu.allocate(page()), Ok(of_both[0]));
    // What is left of it is drained as any pages.
    cpu.drain().unwrap();
    assert_eq!((cpu.cached_frames(), zero_frames(&frames)), (0, 0));
    // Once nothing is known the cached ones are zeroed.
    cpu.free(large, Order::HUGE).unwrap();
    assert_eq!(cpu.allocate(huge().zeroed()), Ok(large));
    assert_eq!(kernel.frames(), HUGE_FRAMES);
    let row = cpu.allocate_frames(3, 1, page().zeroed()).unwrap();
    assert_eq!((row.count(), kernel.frames()), (3, 3));
    let mut many = [Frame::new(0); 100];
    assert_eq!(frames.allocate_bulk(page().zeroed(), &mut many), Ok(100));
    assert_eq!(kernel.frames(), 100);
}

/// What the host brings back as zeros is cut likewise, as long as its device promises that.
#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn a_cpu_cuts_pages_that_the_host_brings_back_as_long_as_that_is_promised() {
    let kernel = Kernel::leaked();
    let frames = kit::with_cpus(machine().with_hooks(kernel), 1);
    let mut cursor = Cursor::new(NodeId(0));
    let block = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 64);
    block.unwrap().back(Content::Reported).unwrap();
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    cpu.allocate(page().zeroed()).unwrap();
    assert_eq!(
        (kernel.frames(), frames.statistics().reported.frames),
        (1, HUGE_FRAMES)
    );
    frames.set_reported_is_zero(true);
    cpu.allocate(page().zeroed()).unwrap();
    assert_eq!(
        (kernel.frames(), frames.statistics().reported.frames),
        (0, 0)
    );
    frames.set_reported_is_zero(false);
    cpu.allocate(page().zeroed()).unwrap();
    assert_eq!(kernel.frames(), 1);
    let seen = kit::zeroed_frames(&frames, NodeId(0));
    assert_eq!((seen.hit, seen.reported, seen.missed), (0, 1, 2));
}

/// A giant frame of which one part is in the zone DMA and the other in DMA32.
#[test]
fn a_worker_finds_all_zones_of_a_giant_frame() {
    let memory = [(0, kit::range(0, 2 * GIB))];
    let machine = kit::Machine {
        // There is nothing to find in DMA.
        reserved: vec![kit::range(0, 16 * MIB)],
        ..kit::Machine::new(&memory)
    };
    let frames = machine.frames();
    let mut cursor = Cursor::new(NodeId(0));
    while cursor.rounds() == 0 {
        if let Some(block) = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 64) {
            block.back(Content::Reported).unwrap();
        }
    }
    let statistics = frames.statistics();
    assert_eq!(statistics.reported.huges, statistics.free_huges);
}

#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn a_layout_says_which_memory_is_zero_from_the_start() {
    let kernel = Kernel::leaked();
    let memory = [(0, range(MIB, 2 * GIB)), (0, range(4 * GIB, 6 * GIB))];
    let mut machine = Machine::new(&memory);
    // In the middle of a page's huge frame, of a giant frame, and where nothing is known.
    machine.reserved = vec![
        range(4 * GIB + 3 * MIB, 4 * GIB + 3 * MIB + 2 * PAGE_BYTES),
        range(GIB + MIB, GIB + 2 * MIB),
    ];
    // From the middle of a huge frame below 4 GiB.
    let zero = [
        FrameRange::new(GIB / PAGE_BYTES + 7, 2 * GIB / PAGE_BYTES).unwrap(),
        FrameRange::new(4 * GIB / PAGE_BYTES, 8 * GIB / PAGE_BYTES).unwrap(),
    ];
    let zero: &'static [FrameRange] = Box::leak(Box::new(zero));
    let platform = Box::leak(Box::new(Uninitialised::default()));
    let layout = machine.layout().with_zero_memory(zero);
    let frames = Frames::build(layout, platform).unwrap().with_hooks(kernel);
    let before = frames.statistics();
    frames.validate().unwrap(); // starts the tables
    assert_eq!(frames.statistics(), before);
    // All that is free as huge frames from 1 GiB on.
    let low = frames.zone(NodeId(0), ZoneKind::Dma32).statistics();
    let tables = frames.metadata().reserved_bytes / PAGE_BYTES;
    assert!(tables > 0 && before.zero.frames < before.free_frames);
    assert_eq!(low.zero.frames, (GIB - HUGE_BYTES) / PAGE_BYTES);
    let high = frames.zone(NodeId(0), ZoneKind::Normal).statistics();
    assert_eq!(high.zero.huges, high.free_huges);
    assert_eq!(high.zero.giants, high.free_giants);
    // The first GiB of requests for zeros writes nothing.
    for _ in 0..GIB / HUGE_BYTES {
        frames.allocate(huge().zeroed()).unwrap();
    }
    assert_eq!(kernel.frames(), 0);
    frames.validate().unwrap();
}

/// Rows of frames, and what crosses from one content to the other.
#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn rows_of_frames_are_zeroed_where_they_are_not_zero() {
    let kernel = Kernel::leaked();
    let frames = machine().with_hooks(kernel);
    assert_eq!(zero_all(&frames, 3), 3);
    let all = PhysRange::with_size(4 * GIANT_BYTES, 2 * GIANT_BYTES)
        .unwrap()
        .inner_frames();
    let row = frames
        .allocate_frames(all.count(), 1, page().zeroed())
        .unwrap();
    assert_eq!((row, kernel.frames()), (all, all.count() - 3 * HUGE_FRAMES));
    frames.free_frames(row).unwrap();
    // Others leave what is known alone, requests for zeros begin with it.
    assert_eq!(zero_all(&frames, 4), 4);
    let other = frames
        .allocate_frames(HUGE_FRAMES + 188, 1, page())
        .unwrap();
    assert_eq!(zero_frames(&frames), 4 * HUGE_FRAMES);
    let zero = frames
        .allocate_frames(HUGE_FRAMES + 188, 1, page().zeroed())
        .unwrap();
    // Of the rest of a huge frame nothing is known.
    assert_eq!(
        (kernel.frames(), zero_frames(&frames)),
        (0, 2 * HUGE_FRAMES)
    );
    for row in [other, zero] {
        frames.free_frames(row).unwrap();
    }
    let row = frames.allocate_frames(all.count(), 1, page()).unwrap();
    frames.free_frames_with(row, Content::Zero).unwrap();
    assert_eq!(frames.statistics().zero.giants, 2);
    // Huge frames that are known to be zero, and what lies at the end of one.
    frames
        .allocate_frames(HUGE_FRAMES + 188, 1, page().zeroed())
        .unwrap();
    assert_eq!(kernel.frames(), 0);
    frames.validate().unwrap();
}

/// A block below a huge frame is none that anything could be known of: a worker gets a huge frame.
#[test]
fn a_worker_gets_huge_frames_at_least() {
    let frames = added(2 * HUGE_BYTES);
    let held = frames.allocate(page()).unwrap();
    let mut cursor = Cursor::new(NodeId(0));
    let block = frames.borrow_free(&mut cursor, Order::PAGE, Content::Unknown, 100);
    let block = block.unwrap();
    assert_eq!(block.range().count(), HUGE_FRAMES);
    let none = frames.borrow_free(&mut cursor, Order::PAGE, Content::Unknown, 100);
    assert!(none.is_none());
    block.back(Content::Zero).unwrap();
    assert_eq!(zero_frames(&frames), HUGE_FRAMES);
    frames.free(held, Order::PAGE).unwrap();
}

/// To the tables what a worker has is allocated: another call can free it, and the worker is told
/// when it gives it back. All counts are right.
#[test]
fn what_is_freed_while_a_worker_has_it_is_reported_when_it_comes_back() {
    for (order, freed) in [
        (Order::HUGE, Order::PAGE),
        (Order::HUGE, Order::HUGE),
        (Order::GIANT, Order::PAGE),
        (Order::GIANT, Order::GIANT),
    ] {
        for held in [false, true] {
            let frames = machine();
            let before = frames.statistics();
            let mut cursor = Cursor::new(NodeId(0));
            let block = frames.borrow_free(&mut cursor, order, Content::Unknown, 1000);
            let mut block = block.unwrap();
            let frame = block.range().start();
            frames.free(frame, freed).unwrap();
            if held {
                block.hold();
            }
            let told = block.back(Content::Zero);
            assert_eq!(told, Err(BlockError::FreedTwice { frame, order }));
            frames.validate().unwrap();
            let now = frames.statistics();
            let left = order.frames() - freed.frames();
            assert_eq!(
                (now.free_frames, now.in_work_frames),
                (before.free_frames - left, 0)
            );
            assert_eq!(
                (now.zero.frames, kit::zeroed_frames(&frames, NodeId(0)).made),
                (0, 0)
            );
        }
    }
}

/// At the end of memory, where pages of a huge frame are taken one by one.
#[test]
fn what_an_isolation_takes_at_the_end_of_memory_is_known_no_more() {
    let bytes = 2 * HUGE_BYTES + 3 * PAGE_BYTES;
    let frames = added(bytes);
    let all = PhysRange::with_size(4 * GIANT_BYTES, bytes).unwrap();
    let all = all.inner_frames();
    frames.allocate_range(all).unwrap();
    frames.free_frames_with(all, Content::Zero).unwrap();
    assert_eq!(zero_frames(&frames), 2 * HUGE_FRAMES);
    let taken = frames.isolate(all).unwrap().take().unwrap();
    assert_eq!((taken, zero_frames(&frames)), (all, 0));
    frames.free_frames(all).unwrap();
    assert_eq!(zero_frames(&frames), 0);
}

/// A worker that sees many refills backs off: requests that found no zeros are no reason to.
#[test]
fn requests_for_zeros_without_stock_refill_no_more_than_others() {
    let kernel = Kernel::leaked();
    let refills = [page(), page().zeroed()].map(|page| {
        let frames = kit::with_cpus(machine().with_hooks(kernel), 1);
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        for _ in 0..200 {
            cpu.allocate(page).unwrap();
        }
        frames.cpu_events(0).unwrap().refills
    });
    assert_eq!(refills[0], refills[1]);
}

/// The tables do not tell whose a block is: a worker whose block was freed and handed out again frees
/// it beneath its next owner, as any second free does.
#[test]
fn what_was_freed_and_handed_out_while_a_worker_has_it_is_freed_by_its_return() {
    let frames = machine();
    let mut cursor = Cursor::new(NodeId(0));
    let block = (frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 1000)).unwrap();
    let start = block.range().start();
    frames.free(start, Order::HUGE).unwrap();
    frames
        .allocate_range(kit::block(start, Order::HUGE))
        .unwrap();
    assert_eq!(block.back(Content::Unknown), Ok(()));
    assert_eq!(
        frames.free(start, Order::HUGE),
        Err(BlockError::NotAllocated {
            frame: start,
            order: Order::HUGE
        })
    );
}
