//! The machines: segments of any node and zone, beside each other as no firmware has them.

extern crate std;

use core::ops::Range;
use std::boxed::Box;
use std::vec::Vec;

use super::content::Contents;
use super::machine::{Comes, Machine};
use super::plain::{FREE, HUGE, Model, PINNED, RESERVED};
use super::steps::lens;
use crate::addr::{Frame, FrameRange};
use crate::frames::metadata::Metadata;
use crate::frames::tests::kit::{
    Extent, blank_segment_with, frames, none_pinned, pinned, segments_with, zones,
};
use crate::frames::word::geometry::GIANT_FRAMES as GIANT;
use crate::frames::zone::Segments;
use crate::frames::zone::segment::ZoneSegment;
use crate::frames::{Content, CpuCache, Frames, Hooks, NewMemory, WaterMarks, ZoneMarks};
use crate::layout::{Layout, LayoutPolicy};
use crate::node::{NodeId, ZoneKind};
use ZoneKind::{Dma, Dma32, Movable, Normal};
use proptest::prelude::*;

/// Where memory comes and goes: across the end of a zone, and of a giant frame.
pub(super) fn span() -> FrameRange {
    let first = LayoutPolicy::DEFAULT.dma32_end.get() - 3 * HUGE - 7;
    frames(first, first + if cfg!(miri) { 700 } else { 6 * HUGE + 19 })
}

/// Where memory of all zones comes: some huge frames before the end of a giant frame, some behind it.
pub(super) fn window() -> FrameRange {
    let first = 65 * GIANT - 4 * HUGE;
    frames(first, first + 10 * HUGE)
}

/// Where the content of memory is modelled: one giant frame whole, others cut.
pub(super) const CONTENT: Range<u64> = 5 * GIANT - 700..7 * GIANT + 3;

/// Memory of each node and zone, ascending, and what is reserved of it.
pub(super) type Rows = (Vec<Extent>, Vec<FrameRange>);

/// Two nodes, unaligned ends, a hole, zone borders, a sliver of another node in one giant frame, reserved ranges of every
/// alignment.
pub(super) fn all_borders() -> Rows {
    let extents = [
        (frames(1, 159), 0, Dma),
        (frames(256, 4096), 0, Dma),
        (frames(4096, GIANT - 100), 0, Dma32),
        (frames(GIANT, 3 * GIANT), 0, Normal),
        (frames(3 * GIANT, 3 * GIANT + 700), 1, Normal),
        (frames(3 * GIANT + 700, 4 * GIANT + 512), 1, Movable),
        // More than a giant frame, but only one that is all inside.
        (frames(4 * GIANT + 512 + 7, 6 * GIANT + 3), 1, Normal),
    ];
    let reserved = [
        frames(0, 16),
        frames(600, 601),
        frames(1024, 2048),
        frames(GIANT - 1000, GIANT + 5),
        frames(2 * GIANT + 511, 2 * GIANT + 513),
        frames(3 * GIANT + 1024, 3 * GIANT + 1024 + 512 * 100),
    ];
    (extents.to_vec(), reserved.to_vec())
}

/// A few hundred pages, for Miri.
pub(super) fn sliver() -> Rows {
    let extents = [
        (frames(1, 159), 0, Dma),
        (frames(256, 700), 0, Dma),
        (frames(700, 1600), 1, Normal),
    ];
    let reserved = [frames(0, 16), frames(600, 601), frames(1540, 1551)];
    (extents.to_vec(), reserved.to_vec())
}

/// Holes, unaligned ends, several nodes and zones that meet anywhere.
pub(super) fn any_rows(nodes: u16) -> impl Strategy<Value = Rows> {
    let gap = prop_oneof![2 => Just(0u64), 2 => 1u64..600, 1 => Just(GIANT / 2)];
    let most = if cfg!(miri) { 3 } else { 7 };
    let extents = prop::collection::vec((gap, lens(), 0..nodes, 0usize..4), 1..most);
    let reserved = prop::collection::vec((0u64..2 * GIANT, 1u64..1500), 0..5);
    (extents, reserved).prop_map(move |(rows, holes)| {
        let (mut at, mut extents) = (0, Vec::<Extent>::new());
        for (gap, len, node, zone) in rows {
            let zone = ZoneKind::ALL[zone];
            // Two of the same node and zone that touch would be one.
            let last = extents.last();
            let is_one = last.is_some_and(|last| (last.1, last.2) == (node, zone));
            at += if is_one { gap.max(1) } else { gap };
            extents.push((frames(at, at + len), node, zone));
            at += len;
        }
        // All nodes have a number, if not memory.
        extents.push((frames(at + 5, at + 6), nodes - 1, Normal));
        let (mut end, mut reserved) = (0, Vec::new());
        for (start, len) in holes {
            let start = end + start % (at + 1) / 2;
            end = start + len;
            reserved.push(frames(start, end));
        }
        (extents, reserved)
    })
}

/// Lists of some pages, none of huge frames; fallback from zone to zone.
pub(super) fn small() -> Rows {
    let extents = [
        (frames(256, 2304), 0, Dma),
        (frames(5120, 6144), 0, Dma32),
        // A hole of 16 pages in the middle of a word of a bitmap.
        (frames(4 * GIANT, 4 * GIANT + 2848), 0, Normal),
        (frames(4 * GIANT + 2864, 4 * GIANT + 5888), 0, Normal),
        (frames(5 * GIANT, 5 * GIANT + 3072), 1, Normal),
    ];
    (extents.to_vec(), Vec::new())
}

/// Large enough for bump blocks, and for lists of huge frames.
pub(super) fn large() -> Rows {
    let extents = [
        (frames(4 * GIANT - 16384, 4 * GIANT), 0, Dma32),
        (frames(4 * GIANT, 4 * GIANT + 76807), 0, Normal),
        (frames(6 * GIANT, 6 * GIANT + 66560), 1, Normal),
    ];
    (extents.to_vec(), Vec::new())
}

fn leak<T>(all: impl IntoIterator<Item = T>) -> &'static mut [T] {
    all.into_iter().collect::<Vec<_>>().leak()
}

impl Machine {
    /// An allocator and its model, with caches for CPUs on these nodes.
    fn new(frames: Frames<'static>, model: Model, homes: &'static [u16], comes: Comes) -> Self {
        if !homes.is_empty() {
            let caches: &[_] = leak(homes.iter().map(|_| CpuCache::new()));
            frames.provide_cpus(caches).unwrap();
        }
        let extents = model.extents.clone().into_iter();
        let borders = extents.flat_map(|extent| [extent.0.start(), extent.0.end()]);
        Self {
            borders: borders.collect(),
            at_start: frames.statistics(),
            frames: Box::leak(Box::new(frames)),
            model,
            homes,
            cpus: homes.iter().map(|_| None).collect(),
            held: Vec::new(),
            isolations: Vec::new(),
            comes,
            marks: &[],
            content: None,
        }
    }

    /// All of its memory is there from the start. The last pages that CPUs might have are pinned.
    pub(super) fn of_rows((extents, reserved): &Rows, homes: &'static [u16]) -> Self {
        let last = extents.last().expect("some memory").0.end().get();
        let end = frames(last.saturating_sub(37), last);
        let (list, mut taken) = (none_pinned(), reserved.clone());
        let list = if homes.is_empty() { list } else { pinned(end) };
        taken.extend((!homes.is_empty()).then_some(end));
        let segments = segments_with(extents, &taken, list);
        let mut model = Model::new(FrameRange::EMPTY, extents);
        for &(extent, ..) in extents {
            assert!(model.turn(extent, FREE), "two overlap");
            for range in &taken {
                let this = if *range == end { PINNED } else { RESERVED };
                model.turn(range.intersect(extent), this);
            }
        }
        let frames = Frames::of_segments(Layout::none(), segments, list, Metadata::default());
        let mut machine = Self::new(frames, model, homes, Comes::Nowhere);
        let ends = taken.iter().flat_map(|range| [range.start(), range.end()]);
        machine.borders.extend(ends);
        machine
    }

    /// One CPU. Nothing of the span is memory at first.
    pub(super) fn of_span(span: FrameRange, hooks: Option<&'static dyn Hooks>) -> Self {
        let border = LayoutPolicy::DEFAULT.dma32_end.get();
        let (start, end) = (span.start().get(), span.end().get());
        let low = (start, end.min(border), Dma32);
        let parts = [low, (start.max(border), end, Normal)].into_iter();
        let parts = parts.filter(|(start, end, _)| start < end);
        let parts = parts.map(|(start, end, zone)| (frames(start, end), 0, zone));
        let tables = usize::try_from(Frames::bytes_for(span, 1000).unwrap()).unwrap();
        let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(tables))).unwrap();
        let frames = match hooks {
            Some(hooks) => frames.with_hooks(hooks),
            None => frames,
        };
        let model = Model::new(span, &parts.collect::<Vec<_>>());
        Self::new(frames, model, &[0], Comes::ToSpan)
    }

    /// One CPU, on node 1. Memory of node 0, and a window for both nodes, which is node 1's by itself; counted for water
    /// marks.
    pub(super) fn of_window(window: FrameRange) -> Self {
        let first = window.start().get();
        let boot = frames(first - 12 * HUGE, first - 4 * HUGE);
        let of_window = [(1, Normal), (1, Movable), (0, Normal), (0, Movable)];
        let of_window = of_window.map(|(node, zone)| (window, node, zone));
        let mut extents = std::vec![(boot, 0, Normal)];
        extents.extend(of_window);
        let list = pinned(window);
        let all = leak(extents.iter().map(|&(range, node, zone)| {
            let is_boot = range == boot;
            let segment = blank_segment_with(range, if is_boot { list } else { pinned(window) });
            let segment = ZoneSegment::new(segment, NodeId(node), zone, is_boot.then_some(&[]));
            if is_boot {
                segment
            } else {
                segment.of_window()
            }
        }));
        let segments = Segments::new(all, zones(2));
        let none = WaterMarks::default();
        let marks = of_window.map(|(_, node, zone)| ZoneMarks::new(NodeId(node), zone, none));
        let marks: &[_] = leak(marks);
        let frames = Frames::of_segments(Layout::none(), segments, list, Metadata::default());
        let mut model = Model::new(window, &extents);
        model.turn(boot, FREE);
        let frames = frames.with_water_marks(marks);
        Self {
            marks,
            ..Self::new(frames, model, &[1], Comes::ToWindow)
        }
    }

    /// One CPU, and a hole; all of it of this content.
    pub(super) fn of_content(content: Content, device_zeroes: bool) -> Self {
        let (start, end) = (CONTENT.start, CONTENT.end);
        let hole = 6 * GIANT + 2 * HUGE - 24..6 * GIANT + 3 * HUGE;
        let span = frames(start, end);
        let mut contents = Contents::new(span, content, device_zeroes);
        let mut machine = Self::of_span(span, Some(contents.hooks()));
        for (start, end) in [(start, start + 1), (hole.start, hole.end), (end - 1, end)] {
            contents.truth().say(frames(start, end), Content::Unknown);
        }
        for part in [frames(start, hole.start), frames(hole.end, end)] {
            let memory = NewMemory::new(part.addrs()).holds(content);
            machine.frames.add(memory).unwrap();
            machine.model.turn(part, FREE);
        }
        let seen = machine.frames.statistics();
        assert_eq!(seen.zero.frames, contents.truth().said_zero);
        machine.frames.validate().unwrap();
        assert_eq!(machine.frames.statistics(), seen);
        contents.sums.made = u64::from(content == Content::Zero) * seen.free_frames;
        let ends = [hole.start, hole.end].map(Frame::new);
        machine.borders.extend(ends);
        // It does not come and go.
        Self {
            content: Some(contents),
            at_start: seen,
            comes: Comes::Nowhere,
            ..machine
        }
    }
}
