//! The allocator's tables on whole machines: their size, the memory they lie in, what is written when,
//! and that their former content does not matter.

use crate::kit;

use std::cell::RefCell;
use std::ptr::NonNull;

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::early::EarlyFlags;
use firstlight::frames::{BuildError, Frames, HotplugError, Refusal, Request};
use firstlight::layout::{CoreSize, LayoutPolicy};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::platform::Platform;
use kit::{
    GIANT_BYTES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, Uninitialised, range,
};

/// Memory full of one word, which can be looked at.
struct Filled {
    with: u32,
    /// In the order of the requests.
    pieces: RefCell<Vec<(NonNull<u8>, usize)>>,
}

// SAFETY: every range gets memory of its own, leaked and on a border of pages.
unsafe impl Platform for Filled {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(range.bytes()).ok()?;
        let layout = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES as usize).ok()?;
        // SAFETY: the engine maps no empty range, and all of it is ours to fill.
        let start = unsafe {
            let start = NonNull::new(std::alloc::alloc(layout))?;
            let words = start.cast::<u32>();
            (0..bytes / 4).for_each(|at| words.add(at).write(self.with));
            start
        };
        self.pieces.borrow_mut().push((start, bytes));
        Some(start)
    }
}

impl Filled {
    fn new(with: u32) -> &'static Self {
        Box::leak(Box::new(Self {
            with,
            pieces: RefCell::default(),
        }))
    }

    /// Bytes of each piece that were written, in words of four.
    fn written_bytes(&self) -> Vec<u64> {
        let untouched = self.with;
        let pieces = self.pieces.borrow();
        let written = pieces.iter().map(|&(start, bytes)| {
            let words = start.cast::<u32>();
            // SAFETY: mapped above, all of it initialised; not written meanwhile.
            let word = |index| unsafe { words.add(index).read() };
            let count = (0..bytes / 4).filter(|&at| word(at) != untouched).count();
            4 * count as u64
        });
        written.collect()
    }
}

/// Two nodes of 64 GiB each, with the usual holes and something reserved.
fn machine() -> Machine {
    let mut machine = Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 3 * GIB)),
        (0, range(4 * GIB, 65 * GIB)),
        (1, range(65 * GIB, 129 * GIB)),
    ]);
    machine.reserved.push(range(GIB + 0x7000, GIB + 5 * MIB));
    machine
}

/// Goes through all levels of both nodes, and says what came out.
fn transcript(frames: &Frames<'_>) -> Vec<Option<Frame>> {
    let mut results = Vec::new();
    let mut held = Vec::new();
    let (huge, giant) = (Order::HUGE.get(), Order::GIANT.get());
    for step in 0..600u64 {
        let order =
            [0, 0, 3, huge, 0, 7, huge + 4, giant, 8, 1][usize::try_from(step % 10).unwrap()];
        let order = Order::new(order).unwrap();
        let request = Request::new(order).on(NodeId(u16::from(step % 3 == 0)));
        let frame = frames.allocate(request).ok();
        results.push(frame);
        held.extend(frame.map(|frame| (frame, order)));
        if step % 4 == 3 {
            let (frame, order) = held.swap_remove(usize::try_from(step * 7).unwrap() % held.len());
            // In parts, or as it was: a page of it opens it from above.
            if step % 8 == 3 {
                frames.free(frame, Order::PAGE).unwrap();
                results.push(frames.allocate(Request::new(Order::PAGE)).ok());
                held.extend(results[results.len() - 1].map(|frame| (frame, Order::PAGE)));
                let rest = (0..order.get()).filter_map(Order::new);
                held.extend(rest.map(|half| (Frame::new(frame.get() + half.frames()), half)));
            } else {
                frames.free(frame, order).unwrap();
            }
        }
        if step % 16 == 0 {
            let inside = Frame::new((2 * GIB + step * 3 * MIB) / PAGE_BYTES + step);
            let at = frames
                .allocate_range(kit::block(inside, Order::PAGE))
                .ok()
                .map(|()| inside);
            results.push(at);
            held.extend(at.map(|frame| (frame, Order::PAGE)));
        }
    }
    frames.validate().unwrap();
    for (frame, order) in held {
        frames.free(frame, order).unwrap();
    }
    frames.validate().unwrap();
    results
}

#[test]
#[cfg_attr(miri, ignore = "fills megabytes")]
fn tables_are_written_before_they_are_read() {
    // Huge frames that are free, split for either mobility with free pages, and allocated, where
    // they are read.
    let transcripts = [1, 0x183, 0x18b, 4, 0, !0].map(|with| {
        let frames = Frames::build(machine().layout(), Filled::new(with)).unwrap();
        let before = frames.statistics();
        let reported = transcript(&frames);
        assert_eq!(frames.statistics(), before, "filled with {with:#x}");
        (before, reported)
    });
    let [first, others @ ..] = &transcripts;
    assert!(others.iter().all(|other| other == first));
}

#[test]
#[cfg_attr(miri, ignore = "fills megabytes")]
fn nothing_but_lists_is_written_before_the_first_call() {
    let platform = Filled::new(0xa5a5_a5a5);
    let machine = machine();
    let layout = machine.layout();
    let frames = Frames::build(layout, platform).unwrap();
    let lists = frames.metadata().written_bytes;
    let [written, tables @ ..] = &platform.written_bytes()[..] else {
        panic!("no lists");
    };
    assert!(tables.len() == 2 && tables.iter().all(|&written| written == 0));
    assert!(*written > 0 && *written <= lists, "{written}");

    // Counting writes nothing; any other call starts its segment.
    assert!(frames.statistics().free_frames > 0);
    assert_eq!(frames.metadata().written_bytes, lists);
    let layout = frames.layout();
    for segment in layout.segments() {
        assert!(frames.is_allocated(segment.frames.start()).is_some());
    }
    let ranges = layout.early().memory().len() + layout.early().reserved().len();
    let most = 16 * 128 + 8192 * (2 + ranges as u64);
    let written: u64 = platform.written_bytes().iter().sum();
    let reported = frames.metadata().written_bytes;
    assert!(
        written <= reported && reported <= most,
        "{written} <= {reported} <= {most}"
    );

    // One page of a giant frame: the words of its huge frames, and one bitmap.
    let page = Request::new(Order::PAGE).on(NodeId(1));
    frames.allocate(page).unwrap();
    let more = platform.written_bytes().iter().sum::<u64>() - written;
    assert!(more <= 8 + GIANT_HUGES * 4 + HUGE_FRAMES / 8, "{more}");
}

/// Bytes of tables for a huge frame: a word and a bitmap.
const HUGE_TABLES: u64 = 4 + HUGE_FRAMES / 8;

/// 8 bytes a giant frame and [`HUGE_TABLES`] a huge frame, also where only a part of it is memory;
/// more than one of it as whole huge frames.
fn room_for(ranges: &[PhysRange]) -> u64 {
    let bytes = ranges.iter().map(|range| {
        let spanned = |unit: u64| range.end().get().div_ceil(unit) - range.start().get() / unit;
        8 * spanned(GIANT_BYTES) + HUGE_TABLES * spanned(HUGE_BYTES)
    });
    // Tables begin on lines.
    let bytes = bytes.sum::<u64>() + 256 * ranges.len() as u64;
    let whole = bytes.next_multiple_of(HUGE_BYTES);
    if whole - bytes <= bytes / 8 {
        whole
    } else {
        bytes.next_multiple_of(PAGE_BYTES)
    }
}

#[test]
#[cfg_attr(
    feature = "page-64k",
    ignore = "the tables of a GiB are less than a page"
)]
#[cfg_attr(miri, ignore = "machines of terabytes")]
fn space_for_tables_follows_memory() {
    let gibs = |from: u64, to: u64| range(from * GIB, to * GIB);
    for nodes in [
        vec![vec![gibs(4, 5)]],
        vec![vec![gibs(4, 20)], vec![gibs(20, 21)]],
        vec![vec![gibs(4, 516)], vec![gibs(516, 1028)]],
        // Holes of terabytes between.
        vec![vec![gibs(4, 516)], vec![gibs(50_000, 50_512)]],
        vec![vec![
            gibs(4, 260),
            gibs(10_004, 10_260),
            gibs(20_004, 20_260),
        ]],
    ] {
        let rows = (0..)
            .zip(&nodes)
            .flat_map(|(node, ranges)| ranges.iter().map(move |&range| (node, range)));
        let frames = Machine::new(&rows.collect::<Vec<_>>()).frames();
        let reserved = frames.metadata().reserved_bytes;
        let tables: u64 = nodes.iter().map(|ranges| room_for(ranges)).sum();
        let lists = reserved.checked_sub(tables);
        assert!(
            lists.is_some_and(|lists| lists <= 2 * PAGE_BYTES),
            "{reserved} bytes, {tables} of them tables: {nodes:?}"
        );
        let all = frames.layout().present_frames();
        assert!(reserved - 2 * PAGE_BYTES <= all * 15 / 100, "{reserved}");
    }
}

/// Two nodes of 4 GiB each; the first has the usual holes.
fn two_nodes() -> Machine {
    Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 3 * GIB)),
        (0, range(4 * GIB, 5 * GIB)),
        (1, range(5 * GIB, 9 * GIB)),
    ])
}

#[test]
fn too_little_memory_is_an_error_with_its_size() {
    let tiny = Machine::new(&[(0, range(PAGE_BYTES, 2 * PAGE_BYTES))]);
    let error = tiny.build().map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            BuildError::NoSpace {
                node: NodeId(0),
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("bytes that describe the frames of node 0"),
        "{error}"
    );

    let platform = Box::leak(Box::new(Uninitialised {
        broken: true,
        ..Default::default()
    }));
    let error = Frames::build(two_nodes().layout(), platform)
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, BuildError::NotMapped { .. }), "{error}");
}

/// The allocator's tables.
fn tables(frames: &Frames<'_>) -> impl Iterator<Item = firstlight::addr::PhysRange> {
    let owners = frames.layout().early().owners().to_vec();
    owners
        .into_iter()
        .filter(|reserved| reserved.owner() == "frame allocator tables")
        .map(|reserved| reserved.range)
}

#[test]
fn tables_keep_off_preserved_and_movable_memory() {
    let mut machine = Machine::new(&[(0, range(4 * GIB, 6 * GIB))]);
    machine
        .memory
        .push((0, range(6 * GIB, 7 * GIB), EarlyFlags::PRESERVED));
    assert!(tables(&machine.frames()).all(|table| table.end().get() <= 6 * GIB));

    let mut machine = two_nodes();
    machine.policy = Some(LayoutPolicy {
        movablecore: Some(CoreSize::Frames(2 * GIB / PAGE_BYTES)),
        ..LayoutPolicy::DEFAULT
    });
    let frames = machine.frames();
    let movable: Vec<_> = frames
        .layout()
        .zones()
        .iter()
        .filter(|z| z.kind == ZoneKind::Movable)
        .collect();
    assert_eq!(movable.len(), 2);
    for table in tables(&frames) {
        assert!(
            movable
                .iter()
                .all(|zone| !zone.span.addrs().overlaps(table)),
            "{table} is in Movable"
        );
    }
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "tables of this machine are less than a huge frame of 32 MiB"
)]
fn tables_fit_where_whole_huge_frames_do_not() {
    // 32 GiB need 2.1 MiB of tables; 3.5 MiB are free, none of it two huge frames.
    let mut machine = Machine::new(&[(0, range(4 * GIB, 36 * GIB))]);
    machine.reserved.push(range(4 * GIB, 5 * GIB + MIB));
    machine
        .reserved
        .push(range(5 * GIB + 4 * MIB + MIB / 2, 36 * GIB));
    let frames = machine.frames();
    assert!(frames.statistics().free_frames > 200);
    frames.validate().unwrap();
}

/// A list of ranges that are not free joins the two; only one of them may be freed.
#[test]
fn what_is_reserved_for_ever_behind_what_is_freeable_stays_reserved() {
    let mut layout = Machine::new(&[(0, range(4 * GIB, 5 * GIB))]).layout();
    let (disk, kernel) = (4 * GIB + 2 * HUGE_BYTES, 4 * GIB + 4 * HUGE_BYTES);
    layout
        .reserve_freeable(range(disk, kernel), "disk")
        .unwrap();
    layout
        .reserve(range(kernel, kernel + 2 * HUGE_BYTES), "kernel")
        .unwrap();
    let frames = Frames::build(layout, Box::leak(Box::new(Uninitialised::default()))).unwrap();
    let before = frames.statistics();
    for at in [4 * GIB, disk, kernel, kernel + HUGE_BYTES] {
        let added = frames.add(range(at, at + MIB));
        assert!(
            matches!(
                added,
                Err(HotplugError {
                    why: Refusal::Present,
                    ..
                })
            ),
            "{added:?}"
        );
    }
    assert_eq!(frames.statistics(), before);
    for at in [kernel, kernel + HUGE_BYTES] {
        let frame = Frame::new(at / PAGE_BYTES);
        assert!(frames.free(frame, Order::PAGE).is_err());
        assert!(frames.free(frame, Order::HUGE).is_err());
    }
    frames
        .free(Frame::new(disk / PAGE_BYTES), Order::HUGE)
        .unwrap();
    frames.validate().unwrap();
}
