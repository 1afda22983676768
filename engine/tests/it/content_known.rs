//! Requests for zeros on kernels that zero nothing, or not always: what is known to be zero is found
//! wherever the request may have it, and what is not handed out stays known.

use crate::kit;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{AllocError, Content, Cursor, Exhausted, Frames, Hooks, Request};
use firstlight::node::{NodeId, NodeMask, ZoneKind};
use kit::{GIANT_BYTES, GIANT_FRAMES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, Machine};
use kit::{above_huge, added, below_giant, huge, page, range};

fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A free block is known to be zero from now on.
fn make_zero(frames: &Frames<'_>, start: Frame, order: Order) {
    frames.allocate_range(kit::block(start, order)).unwrap();
    frames
        .free_frames_with(kit::block(start, order), Content::Zero)
        .unwrap();
}

fn not_zeroed(found: Result<Frame, AllocError>) {
    assert!(
        matches!(found, Err(AllocError::NotZeroed { .. })),
        "{found:?}"
    );
}

/// What is known, by content and level; the counts of all levels are right.
fn known(frames: &Frames<'_>) -> [u64; 5] {
    frames.validate().unwrap();
    let seen = frames.statistics();
    let (zero, reported) = (seen.zero, seen.reported);
    [
        zero.frames,
        zero.huges,
        zero.giants,
        reported.frames,
        reported.huges,
    ]
}

#[test]
fn zeros_of_lower_zones_and_other_nodes_are_found() {
    let memory = [
        (0, range(0, 2 * GIB)),
        (0, range(4 * GIB, 5 * GIB)),
        (1, range(8 * GIB, 10 * GIB)),
    ];
    let machine = Machine {
        policy: Some(kit::DMA_OF_HUGES),
        ..Machine::new(&memory)
    };
    let frames = machine.frames();
    let (low, far) = (
        Frame::new(GIB / PAGE_BYTES),
        Frame::new(9 * GIB / PAGE_BYTES),
    );
    make_zero(&frames, low, Order::HUGE);
    make_zero(&frames, far, Order::HUGE);
    let request = huge().zeroed().on(NodeId(0));
    // Not where the request may not have it.
    not_zeroed(frames.allocate(request.only_zone(ZoneKind::Normal).only_on(NodeId(0))));
    not_zeroed(frames.allocate(request.only_zone(ZoneKind::Dma)));
    assert_eq!(known(&frames)[..2], [2 * HUGE_FRAMES, 2]);
    // The zone below of the node itself first, then the other node.
    assert_eq!(frames.allocate(request), Ok(low));
    not_zeroed(frames.allocate(request.only_on(NodeId(0))));
    assert_eq!(frames.allocate(request), Ok(far));
    let error = frames.allocate(request).unwrap_err();
    assert_eq!(error, AllocError::NotZeroed { request });
    // What serves them is counted where it lies.
    let hits = [0, 1].map(|node| kit::zeroed_frames(&frames, NodeId(node)).hit);
    assert_eq!((hits, known(&frames)[0]), ([HUGE_FRAMES, HUGE_FRAMES], 0));
}

/// A search for zeros to be had at once looks at a few giant frames; one that has no other way
/// looks at all.
#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn zeros_are_found_however_far_they_are() {
    let frames = added(200 * GIANT_BYTES);
    let giant = |number: u64| Frame::new((4 + number) * GIANT_FRAMES);
    // Split giant frames of which all is free but a page, on the way.
    let mut held = Vec::new();
    for number in (0..196).step_by(20) {
        frames
            .allocate_range(kit::block(giant(number), Order::PAGE))
            .unwrap();
        held.push(giant(number));
    }
    let inside = Frame::new(giant(150).get() + 5 * HUGE_FRAMES);
    for (block, order_of) in [
        (giant(199), Order::GIANT),
        (
            Frame::new(giant(120).get() + GIANT_FRAMES / 2),
            below_giant(3),
        ),
        (inside, Order::HUGE),
    ] {
        make_zero(&frames, block, order_of);
        let request = Request::new(order_of).zeroed();
        let rest = frames.statistics().zero.frames;
        assert_eq!(frames.allocate(request), Ok(block));
        assert_eq!(frames.statistics().zero.frames, rest - order_of.frames());
        not_zeroed(frames.allocate(request));
    }
    // A row that ends in the middle of what is known: of the rest nothing is.
    frames
        .free_frames_with(kit::block(inside, Order::HUGE), Content::Zero)
        .unwrap();
    let row = frames.allocate_frames(300, 4, page().zeroed()).unwrap();
    assert_eq!(row.start(), inside);
    let row = frames.allocate_frames(HUGE_FRAMES - 300, 1, page().zeroed());
    assert!(matches!(row, Err(AllocError::NotZeroed { .. })), "{row:?}");
    assert_eq!(known(&frames)[0], 0);
}

/// From 32 huge frames (64 MiB) a CPU on it keeps one; below that each page breaks up one.
#[test]
fn zero_pages_are_cut_by_each_cpu_that_caches_huge_frames() {
    for (huges, expected) in [(32, 3 * HUGE_FRAMES), (31, 3)] {
        let frames = kit::with_cpus(added(huges * HUGE_BYTES), 1);
        for huge in 0..3 {
            let start = Frame::new(4 * GIANT_FRAMES + huge * HUGE_FRAMES);
            make_zero(&frames, start, Order::HUGE);
        }
        let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
        let pages = (0..).take_while(|_| cpu.allocate(page().zeroed()).is_ok());
        assert_eq!(pages.count() as u64, expected, "{huges}");
    }
}

/// Without a CPU each request breaks up a huge frame; a CPU cuts all pages of one.
#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn a_cpu_finds_all_zero_pages_of_a_kernel_that_zeroes_nothing() {
    let frames = kit::with_cpus(added(3 * GIANT_BYTES), 1);
    let mut cpu = frames.cpu(0, NodeId(0)).unwrap();
    // Its lists are full of pages that may hold anything.
    let some = cpu.allocate(page()).unwrap();
    cpu.free(some, Order::PAGE).unwrap();
    let block = Frame::new(6 * GIANT_FRAMES + HUGE_FRAMES);
    frames
        .allocate_range(kit::block(Frame::new(6 * GIANT_FRAMES), Order::PAGE))
        .unwrap();
    make_zero(&frames, block, Order::HUGE);
    // Also those of a request among some nodes.
    let here = NodeMask::of_bits(0b1).unwrap();
    for number in 0..HUGE_FRAMES {
        let request = page().zeroed();
        let request = if number % 2 == 0 {
            request
        } else {
            request.among(here)
        };
        let page = cpu.allocate(request).unwrap();
        assert_eq!(page.get() / HUGE_FRAMES, block.get() / HUGE_FRAMES);
    }
    not_zeroed(cpu.allocate(page().zeroed()));
    for huge in 0..3 {
        make_zero(
            &frames,
            Frame::new(4 * GIANT_FRAMES + (10 + huge) * HUGE_FRAMES),
            Order::HUGE,
        );
    }
    // Those that were had are the caller's.
    let mut pages = [Frame::new(0); 20];
    assert_eq!(frames.allocate_bulk(page().zeroed(), &mut pages), Ok(3));
    assert_eq!(known(&frames)[0], 0);
    let none = frames.allocate_bulk(page().zeroed(), &mut pages);
    assert!(
        matches!(none, Err(AllocError::NotZeroed { .. })),
        "{none:?}"
    );
}

/// A giant frame of all contents.
#[test]
#[cfg_attr(miri, ignore = "many frames")]
fn what_a_request_gives_back_is_known_as_before() {
    let frames = added(GIANT_BYTES);
    let mut cursor = Cursor::new(NodeId(0));
    // Every other huge frame may hold anything.
    let each = (GIANT_HUGES / 8).min(25);
    for number in 0..4 * each as usize {
        let block = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 512);
        let content = [
            Content::Zero,
            Content::Unknown,
            Content::Reported,
            Content::Unknown,
        ];
        block.unwrap().back(content[number % 4]).unwrap();
    }
    let before = known(&frames);
    assert_eq!(
        before,
        [each * HUGE_FRAMES, each, 0, each * HUGE_FRAMES, each]
    );
    for promised in [false, true] {
        frames.set_reported_is_zero(promised);
        for order_of in [above_huge(1), above_huge(3), Order::GIANT] {
            not_zeroed(frames.allocate(Request::new(order_of).zeroed()));
            assert_eq!(known(&frames), before, "{order_of}");
        }
        let row = frames.allocate_frames(6 * HUGE_FRAMES - 72, 1, page().zeroed());
        assert!(matches!(row, Err(AllocError::NotZeroed { .. })), "{row:?}");
        assert_eq!(known(&frames), before);
    }
    let seen = kit::zeroed_frames(&frames, NodeId(0));
    assert_eq!(seen.served(), 0);
    // Pages come from what is unknown.
    for order_of in [0, 1, 3, 8] {
        let block = frames.allocate(Request::new(order(order_of))).unwrap();
        frames.free(block, order(order_of)).unwrap();
        assert_eq!(known(&frames), before, "{order_of}");
    }
}

/// A kernel that zeroes so many frames and no more, and may say that nothing is zero.
#[derive(Default)]
struct Kernel {
    left: AtomicU64,
    /// Whether what is known is not so.
    lies: AtomicU64,
    frames: OnceLock<&'static Frames<'static>>,
    reclaims: AtomicU64,
    /// A page that another CPU takes while this one zeroes.
    to_take: AtomicU64,
}

impl Hooks for Kernel {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let zeroes = left >= range.count();
        if zeroes {
            self.left.store(left - range.count(), Ordering::Relaxed);
        }
        let page = self.to_take.swap(0, Ordering::Relaxed);
        if page > 0 {
            let frames = self.frames.get().unwrap();
            frames
                .allocate_range(kit::block(Frame::new(page), Order::PAGE))
                .unwrap();
        }
        zeroes
    }

    unsafe fn is_zero(&self, _: FrameRange) -> bool {
        self.lies.load(Ordering::Relaxed) == 0
    }

    fn exhausted(&self, _: &Request, _: Exhausted) -> bool {
        self.reclaims.fetch_add(1, Ordering::Relaxed);
        false
    }
}

#[test]
fn what_was_zeroed_before_the_kernel_refused_is_known() {
    let kernel: &'static Kernel = Box::leak(Box::default());
    let frames = added(4 * HUGE_BYTES).with_hooks(kernel);
    kernel.left.store(HUGE_FRAMES + 188, Ordering::Relaxed);
    // Zero, unknown, zero, unknown: the second unknown part is refused.
    let first = 4 * GIANT_FRAMES;
    for huge in [0, 2] {
        make_zero(&frames, Frame::new(first + huge * HUGE_FRAMES), Order::HUGE);
    }
    not_zeroed(frames.allocate(Request::new(above_huge(2)).zeroed()));
    // There is memory: nothing is reclaimed for want of zeros.
    assert_eq!(kernel.reclaims.load(Ordering::Relaxed), 0);
    assert_eq!(kernel.left.load(Ordering::Relaxed), 188);
    assert_eq!(known(&frames)[0], 3 * HUGE_FRAMES);
    let seen = kit::zeroed_frames(&frames, NodeId(0));
    assert_eq!((seen.served(), seen.made), (0, 3 * HUGE_FRAMES));
    // Once all is zeroed the same request is served.
    kernel.left.store(HUGE_FRAMES, Ordering::Relaxed);
    frames
        .allocate(Request::new(above_huge(2)).zeroed())
        .unwrap();
    let seen = kit::zeroed_frames(&frames, NodeId(0));
    assert_eq!((seen.hit, seen.missed), (3 * HUGE_FRAMES, HUGE_FRAMES));
}

/// A row that is not taken after all, because another CPU was faster, is no hit, and what was zeroed
/// of it is known to be zero.
#[test]
fn of_a_row_that_is_not_taken_nothing_is_wasted() {
    let kernel: &'static Kernel = Box::leak(Box::default());
    let frames: &'static Frames<'_> = Box::leak(Box::new(added(4 * HUGE_BYTES).with_hooks(kernel)));
    assert!(kernel.frames.set(frames).is_ok());
    kernel.left.store(u64::MAX, Ordering::Relaxed);
    let first = 4 * GIANT_FRAMES;
    make_zero(frames, Frame::new(first), Order::HUGE);
    let before = kit::zeroed_frames(frames, NodeId(0));
    // Of two huge frames one is zeroed; then the third is not all free any more.
    kernel
        .to_take
        .store(first + 2 * HUGE_FRAMES + 276, Ordering::Relaxed);
    let row = frames.allocate_frames(3 * HUGE_FRAMES, 1, page().zeroed());
    assert!(
        matches!(row, Err(AllocError::OutOfMemory { .. })),
        "{row:?}"
    );
    let seen = kit::zeroed_frames(frames, NodeId(0));
    assert_eq!((seen.served(), seen.made - before.made), (0, HUGE_FRAMES));
    assert_eq!(known(frames)[0], 2 * HUGE_FRAMES);
    let row = frames
        .allocate_frames(2 * HUGE_FRAMES, 1, page().zeroed())
        .unwrap();
    assert_eq!(row.start(), Frame::new(first));
    let seen = kit::zeroed_frames(frames, NodeId(0));
    assert_eq!(
        (seen.hit, seen.missed, known(frames)[0]),
        (2 * HUGE_FRAMES, 0, 0)
    );
}

/// A row ends in a huge frame that the host has, of which the kernel writes a part before it refuses.
#[test]
fn what_was_written_to_is_reported_no_more() {
    let kernel: &'static Kernel = Box::leak(Box::default());
    let frames = added(2 * HUGE_BYTES).with_hooks(kernel);
    let first = Frame::new(4 * GIANT_FRAMES);
    frames
        .allocate_range(kit::block(first, Order::HUGE))
        .unwrap();
    let mut cursor = Cursor::new(NodeId(0));
    let second = frames.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 2048);
    second.unwrap().back(Content::Reported).unwrap();
    frames.free(first, Order::HUGE).unwrap();
    assert_eq!(known(&frames)[3..], [HUGE_FRAMES, 1]);
    kernel.left.store(HUGE_FRAMES + 64, Ordering::Relaxed);
    let row = frames.allocate_frames(HUGE_FRAMES + 88, 1, page().zeroed());
    assert!(matches!(row, Err(AllocError::NotZeroed { .. })), "{row:?}");
    assert_eq!(known(&frames), [HUGE_FRAMES, 1, 0, 0, 0]);
    assert_eq!(frames.statistics().free_frames, 2 * HUGE_FRAMES);
}

/// What is not zero after all is known as such no more, and found by no request again.
#[test]
fn what_a_kernel_finds_not_to_be_zero_is_forgotten() {
    let kernel: &'static Kernel = Box::leak(Box::default());
    let frames = added(4 * HUGE_BYTES).with_hooks(kernel);
    make_zero(&frames, Frame::new(4 * GIANT_FRAMES), Order::HUGE);
    kernel.lies.store(1, Ordering::Relaxed);
    not_zeroed(frames.allocate(huge().zeroed()));
    kernel.lies.store(0, Ordering::Relaxed);
    assert_eq!(known(&frames)[0], 0);
    not_zeroed(frames.allocate(huge().zeroed()));
    assert_eq!(kit::zeroed_frames(&frames, NodeId(0)).hit, 0);
}

#[test]
fn zeros_come_from_the_nodes_of_a_mask() {
    let memory = [0, 1, 2].map(|node| {
        (
            node,
            range((4 + u64::from(node)) * GIB, (5 + u64::from(node)) * GIB),
        )
    });
    let frames = Machine::new(&memory).frames();
    let start = |node: u64| Frame::new((4 + node) * GIB / PAGE_BYTES);
    for node in [0, 2] {
        make_zero(&frames, start(node), Order::HUGE);
    }
    let request = huge().zeroed().among(NodeMask::of_bits(0b110).unwrap());
    assert_eq!(frames.allocate(request), Ok(start(2)));
    let error = frames.allocate(request).unwrap_err();
    assert_eq!(error, AllocError::NotZeroed { request });
}
