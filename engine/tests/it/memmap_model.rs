//! Descriptors against a plain model: a set of what is ready.

use crate::kit;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::layout::{SECTION_FRAMES, ZoneSegment};
use firstlight::memmap::{Descriptor, Memmap, MemmapPolicy, SectionPlace, SectionState};
use firstlight::node::{NodeId, ZoneKind};
use kit::leak;
use proptest::prelude::*;

/// Its place, and a count.
struct Marked(AtomicU64);

fn word(place: SectionPlace) -> u64 {
    place.section << 40 | u64::from(place.node.0) << 32
}

// SAFETY: an atomic integer.
unsafe impl Descriptor for Marked {
    fn template(place: SectionPlace) -> Self {
        Self(AtomicU64::new(word(place)))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Of(u64),
    Peek(u64),
    Prepare(Vec<u64>, u8),
    MakeReady(u64, u64),
}

/// Frames that the machines of this test have.
const END: u64 = 5 * SECTION_FRAMES;

/// A frame, often near the border of a section.
fn frame() -> impl Strategy<Value = u64> {
    let border = (0..6u64, 0..8u64).prop_map(|(section, at)| section * SECTION_FRAMES + at);
    prop_oneof![
        0..END + 100,
        border.prop_map(|frame| frame.saturating_sub(4))
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let block = (prop::collection::vec(frame(), 0..5), 0..=Order::GIANT.get());
    prop_oneof![
        3 => frame().prop_map(Op::Of),
        3 => frame().prop_map(Op::Peek),
        3 => block.prop_map(|(blocks, order)| {
            let aligned = |block| block >> order << order;
            Op::Prepare(blocks.into_iter().map(aligned).collect(), order)
        }),
        1 => (frame(), 0..70_000u64).prop_map(|(start, count)| Op::MakeReady(start, start + count)),
    ]
}

/// Segments between some borders, every other one of which may be a hole.
fn segments() -> impl Strategy<Value = Vec<ZoneSegment>> {
    let cuts = prop::collection::btree_set(frame(), 2..7);
    (cuts, any::<u8>()).prop_map(|(cuts, holes)| {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let pairs = cuts.windows(2).zip(0..).map(|(pair, index)| ZoneSegment {
            frames: FrameRange::new(pair[0], pair[1]).unwrap(),
            node: NodeId(index),
            zone: ZoneKind::Normal,
        });
        let is_memory =
            |segment: &ZoneSegment| segment.node.0 == 0 || holes >> segment.node.0 & 1 == 0;
        pairs.filter(is_memory).collect()
    })
}

/// The plain model.
struct Model {
    segments: Vec<ZoneSegment>,
    /// Segment and section.
    ready: BTreeSet<(NodeId, u64)>,
    marks: BTreeMap<u64, u64>,
}

impl Model {
    /// Segment and section of a frame.
    fn part(&self, frame: u64) -> Option<(NodeId, u64)> {
        let has = |segment: &&ZoneSegment| segment.frames.contains(Frame::new(frame));
        let segment = self.segments.iter().find(has)?;
        Some((segment.node, frame / SECTION_FRAMES))
    }

    fn touch(&mut self, start: u64, end: u64) {
        for frame in start..end.min(END + 200) {
            self.ready.extend(self.part(frame));
        }
    }

    fn is_ready(&self, frame: u64) -> bool {
        self.part(frame)
            .is_some_and(|part| self.ready.contains(&part))
    }
}

/// Marks a descriptor, which must be what it was left as.
fn mark(model: &mut Model, frame: u64, descriptor: &Marked) {
    let (node, section) = model.part(frame).unwrap();
    let place = SectionPlace {
        node,
        zone: ZoneKind::Normal,
        section,
    };
    let marks = model.marks.entry(frame).or_default();
    let before = descriptor.0.fetch_add(1, Ordering::Relaxed);
    assert_eq!(before, word(place) + *marks, "frame {frame:#x}");
    *marks += 1;
}

fn run(memmap: &Memmap<'_, Marked>, model: &mut Model, ops: Vec<Op>) {
    for op in ops {
        match op {
            Op::Of(frame) => {
                let descriptor = memmap.of(Frame::new(frame));
                assert_eq!(descriptor.is_some(), model.part(frame).is_some());
                if let Some(descriptor) = descriptor {
                    model.touch(frame, frame + 1);
                    mark(model, frame, descriptor);
                }
            }
            Op::Peek(frame) => {
                let descriptor = memmap.peek(Frame::new(frame));
                assert_eq!(descriptor.is_some(), model.is_ready(frame), "{frame:#x}");
                assert_eq!(memmap.is_ready(Frame::new(frame)), model.is_ready(frame));
                let state = model
                    .part(frame)
                    .map(|part| match model.ready.contains(&part) {
                        true => SectionState::Ready,
                        false => SectionState::Untouched,
                    });
                assert_eq!(memmap.state(Frame::new(frame)), state);
                if let Some(descriptor) = descriptor {
                    mark(model, frame, descriptor);
                }
            }
            Op::Prepare(blocks, order) => {
                let order = Order::new(order).unwrap();
                let frames: Vec<_> = blocks.iter().copied().map(Frame::new).collect();
                memmap.prepare(&frames, order);
                for block in blocks {
                    model.touch(block, block + order.frames());
                }
            }
            Op::MakeReady(start, end) => {
                memmap.make_range_ready(FrameRange::new(start, end).unwrap());
                model.touch(start, end);
            }
        }
        let progress = memmap.progress();
        assert_eq!(progress.ready_sections, model.ready.len() as u64);
        assert_eq!(
            progress.touched_sections + progress.worked_sections,
            progress.ready_sections
        );
    }
}

fn storage(bytes: u64) -> &'static mut [MaybeUninit<u8>] {
    leak(MaybeUninit::uninit(), usize::try_from(bytes).unwrap())
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "writes whole sections")]
    fn every_descriptor_is_what_the_model_says(
        segments in segments(),
        is_linear in any::<bool>(),
        ops in prop::collection::vec(op(), 1..30),
    ) {
        let policy = MemmapPolicy::default();
        let (memmap, segments) = if is_linear {
            // One span without holes, and with one node.
            let (first, last) = (segments[0], segments[segments.len() - 1]);
            let (start, end) = (first.frames.start().get(), last.frames.end().get());
            let frames = FrameRange::new(start, end).unwrap();
            let segment = ZoneSegment { frames, ..first };
            let memory = storage((frames.count() + 8) * 8);
            let first = memory.as_mut_ptr().cast::<u64>();
            let first = first.wrapping_byte_add(first.align_offset(8)).cast::<Marked>();
            let base = first.wrapping_sub(usize::try_from(start).unwrap());
            let directory = storage(Memmap::<Marked>::directory_bytes(frames) as u64);
            // SAFETY: there is space for these frames, leaked, which no other code uses.
            let memmap = unsafe { Memmap::linear(base, frames, directory, policy) }.unwrap();
            (memmap, vec![segment])
        } else {
            let (directory, bytes) = Memmap::<Marked>::bytes_for(&segments).unwrap();
            let (directory, memory) = (storage(directory), storage(bytes));
            let memmap = Memmap::in_memory(&segments, directory, memory, policy).unwrap();
            (memmap, segments)
        };
        let mut model = Model {
            segments,
            ready: BTreeSet::new(),
            marks: BTreeMap::new(),
        };
        run(&memmap, &mut model, ops);
    }
}
