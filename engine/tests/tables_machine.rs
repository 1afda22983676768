//! The allocator's tables on whole machines: how large they are, what of them is written when,
//! and that what lay there before does not matter.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]

mod kit;

use std::cell::RefCell;
use std::ptr::NonNull;

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::node::NodeId;
use firstlight::platform::Platform;
use kit::{GIB, MIB, Machine, range};

/// Memory full of one byte, which can be looked at.
struct Filled {
    with: u8,
    /// In the order of the requests.
    pieces: RefCell<Vec<(NonNull<u8>, usize)>>,
}

// SAFETY: every range gets memory of its own, leaked and on a border of pages.
unsafe impl Platform for Filled {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let bytes = usize::try_from(range.bytes()).ok()?;
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).ok()?;
        // SAFETY: the engine never asks for nothing, and all of it is ours to fill.
        let start = unsafe {
            let start = NonNull::new(std::alloc::alloc(layout))?;
            start.write_bytes(self.with, bytes);
            start
        };
        self.pieces.borrow_mut().push((start, bytes));
        Some(start)
    }
}

impl Filled {
    fn new(with: u8) -> &'static Self {
        Box::leak(Box::new(Self {
            with,
            pieces: RefCell::default(),
        }))
    }

    /// Bytes of each piece that were written, in words of four.
    fn written_bytes(&self) -> Vec<u64> {
        let untouched = u32::from_ne_bytes([self.with; 4]);
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
    let mut told = Vec::new();
    let mut held = Vec::new();
    for step in 0..600u64 {
        let order = [0, 0, 3, 9, 0, 7, 13, 18, 8, 1][usize::try_from(step % 10).unwrap()];
        let order = Order::new(order).unwrap();
        let request = Request::new(order).on(NodeId(u16::from(step % 3 == 0)));
        let frame = frames.allocate(request).ok();
        told.push(frame);
        held.extend(frame.map(|frame| (frame, order)));
        if step % 4 == 3 {
            let (frame, order) = held.swap_remove(usize::try_from(step * 7).unwrap() % held.len());
            // In parts, or as it was: a page of it opens it from above.
            if step % 8 == 3 {
                frames.free(frame, Order::PAGE).unwrap();
                told.push(frames.allocate(Request::new(Order::PAGE)).ok());
                held.extend(told[told.len() - 1].map(|frame| (frame, Order::PAGE)));
                let rest = (0..order.get()).filter_map(Order::new);
                held.extend(rest.map(|half| (Frame::new(frame.get() + half.frames()), half)));
            } else {
                frames.free(frame, order).unwrap();
            }
        }
        if step % 16 == 0 {
            let inside = Frame::new((2 * GIB + step * 3 * MIB) / PAGE_BYTES + step);
            let claimed = frames.claim(inside, Order::PAGE).ok().map(|()| inside);
            told.push(claimed);
            held.extend(claimed.map(|frame| (frame, Order::PAGE)));
        }
    }
    frames.validate().unwrap();
    for (frame, order) in held {
        frames.free(frame, order).unwrap();
    }
    frames.validate().unwrap();
    told
}

#[test]
#[cfg_attr(miri, ignore = "fills megabytes")]
fn whatever_lies_in_the_tables_is_written_before_it_is_read() {
    // Free, split and allocated huge frames, where they are read.
    let transcripts = [0x59, 0x5b, 0, 0xff].map(|with| {
        let frames = Frames::build(machine().layout(), Filled::new(with)).unwrap();
        let before = frames.statistics();
        let told = transcript(&frames);
        assert_eq!(frames.statistics(), before, "filled with {with:#x}");
        (before, told)
    });
    let [first, others @ ..] = &transcripts;
    assert!(others.iter().all(|other| other == first));
}

#[test]
#[cfg_attr(miri, ignore = "fills megabytes")]
fn nothing_but_lists_is_written_before_somebody_asks() {
    let platform = Filled::new(0xa5);
    let machine = machine();
    let layout = machine.layout();
    let frames = Frames::build(layout, platform).unwrap();
    let lists = frames.metadata().written_bytes;
    let [written, tables @ ..] = &platform.written_bytes()[..] else {
        panic!("no lists");
    };
    assert!(tables.len() == 2 && tables.iter().all(|&written| written == 0));
    assert!(*written > 0 && *written <= lists, "{written}");

    // Counting starts every segment.
    assert!(frames.statistics().free_frames > 0);
    let layout = frames.layout();
    let ranges = layout.early().memory().len() + layout.early().reserved().len();
    let most = 16 * 128 + 8192 * (2 + ranges as u64);
    let written: u64 = platform.written_bytes().iter().sum();
    let told = frames.metadata().written_bytes;
    assert!(
        written <= told && told <= most,
        "{written} <= {told} <= {most}"
    );

    // One page of a giant frame: the words of its huge frames, and one bitmap.
    let page = Request::new(Order::PAGE).on(NodeId(1));
    frames.allocate(page).unwrap();
    let more = platform.written_bytes().iter().sum::<u64>() - written;
    assert!(more <= 8 + 512 * 4 + 64, "{more}");
}

/// 8 bytes a giant frame and 68 a huge frame, also where only a part of it is memory; more than
/// 2 MiB of it as whole huge frames.
fn room_for(ranges: &[PhysRange]) -> u64 {
    let bytes = ranges.iter().map(|range| {
        let spanned = |unit: u64| range.end().get().div_ceil(unit) - range.start().get() / unit;
        8 * spanned(GIB) + 68 * spanned(2 * MIB)
    });
    // Tables begin on lines.
    let bytes = bytes.sum::<u64>() + 256 * ranges.len() as u64;
    let unit = if bytes < 2 * MIB { PAGE_BYTES } else { 2 * MIB };
    bytes.next_multiple_of(unit)
}

#[test]
#[cfg_attr(miri, ignore = "machines of terabytes")]
fn room_for_tables_follows_what_is_memory() {
    let gibs = |from: u64, to: u64| range(from * GIB, to * GIB);
    for nodes in [
        vec![vec![gibs(4, 5)]],
        vec![vec![gibs(4, 20)], vec![gibs(20, 21)]],
        vec![vec![gibs(4, 516)], vec![gibs(516, 1028)]],
        // The same with holes of terabytes.
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
        assert!(reserved - 2 * PAGE_BYTES <= all * 27 / 100, "{reserved}");
    }
}
