//! Ranges against a plain model: the list of what is free, rewritten in full
//! at every step. Machines are random: holes, unaligned ends, several nodes
//! and zones that meet anywhere.
//!
//! Every refusal is checked: the frame an error reports, and "none" only if the model has no such
//! range.

extern crate std;

use super::kit::{
    MANY_STEPS, RECOUNT_EVERY, RECOUNT_SOON, allocate_frames, cases, frames, long_cases, recount,
    segments, want,
};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::error::RangeError;
use crate::frames::range;
use crate::frames::request::ZoneChoice;
use crate::frames::search::BlockRequest;
use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{
    GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, is_in_one_huge,
};
use crate::frames::zone::Segments;
use crate::frames::zone::segment::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
use core::iter::once;
use proptest::prelude::*;
use std::vec::Vec;

type Extent = (FrameRange, u16, ZoneKind);

const GIANT: u64 = GIANT_FRAMES;
const HUGE: u64 = HUGE_FRAMES as u64;
const NODES: u16 = 3;

/// What is free, ascending, no two ranges touching; and where memory is.
struct Model {
    extents: Vec<Extent>,
    free: Vec<FrameRange>,
}

impl Model {
    fn new(extents: &[Extent], reserved: &[FrameRange]) -> Self {
        let mut model = Self {
            extents: extents.to_vec(),
            free: Vec::new(),
        };
        extents.iter().for_each(|extent| model.free(extent.0));
        reserved.iter().for_each(|&range| model.take(range));
        model
    }

    fn take(&mut self, taken: FrameRange) {
        let (start, end) = (taken.start().get(), taken.end().get());
        let rest = |range: FrameRange| {
            let (from, to) = (range.start().get(), range.end().get());
            [(from, to.min(start)), (from.max(end), to)]
        };
        let rest = self.free.drain(..).flat_map(rest);
        self.free = rest
            .filter_map(|(from, to)| FrameRange::new(from, to))
            .filter(|range| !range.is_empty())
            .collect();
    }

    fn free(&mut self, range: FrameRange) {
        self.free.push(range);
        self.free.sort_by_key(|range| range.start());
        let mut joined: Vec<FrameRange> = Vec::new();
        for &range in &self.free {
            match joined.last_mut() {
                Some(last) if last.end() == range.start() => {
                    *last = frames(last.start().get(), range.end().get());
                }
                _ => joined.push(range),
            }
        }
        self.free = joined;
    }

    fn free_frames(&self) -> u64 {
        self.free.iter().map(|range| range.count()).sum()
    }

    /// The first frame of `range` that none of `ranges` has.
    fn first_outside(range: FrameRange, ranges: impl Iterator<Item = FrameRange>) -> Option<Frame> {
        let mut at = range.start();
        for has in ranges {
            if has.contains(at) {
                at = has.end();
            }
        }
        (at < range.end()).then_some(at)
    }

    fn first_hole(&self, range: FrameRange) -> Option<Frame> {
        Self::first_outside(range, self.extents.iter().map(|extent| extent.0))
    }

    fn first_used(&self, range: FrameRange) -> Option<Frame> {
        Self::first_outside(range, self.free.iter().copied())
    }

    fn first_free(&self, range: FrameRange) -> Option<Frame> {
        let parts = self.free.iter().map(|free| free.intersect(range));
        let mut parts = parts.filter(|part| !part.is_empty());
        parts.next().map(FrameRange::start)
    }

    /// Whether a zone of a node has space.
    fn has_space(&self, node: u16, zone: ZoneKind, wanted: RangeRequest) -> bool {
        let mut extents = self.extents.iter();
        extents.any(|&(extent, on, of)| {
            (on, of) == (node, zone)
                && self.free.iter().any(|free| {
                    let free = free.intersect(extent);
                    let first = free.start().get().next_multiple_of(wanted.align_frames);
                    !free.is_empty() && first + wanted.frames <= free.end().get()
                })
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A block, or the first frames of one: `less` are left.
    Allocate {
        node: u16,
        order: u8,
        less: u32,
    },
    /// Around the border of something free or used.
    AllocateAt {
        border: usize,
        off: i64,
        len: u64,
    },
    /// Something held, or a part of it.
    Free {
        pick: usize,
        from: u64,
        len: u64,
    },
    Wild {
        border: usize,
        off: i64,
        len: u64,
    },
    Contiguous {
        node: u16,
        this_node_only: bool,
        zone: usize,
        len: u64,
        align: u32,
        movable: bool,
    },
}

/// A number of frames of any scale; small ones under Miri.
fn lens() -> impl Strategy<Value = u64> {
    let small = prop_oneof![3 => 1u64..40, 2 => 60u64..70, 3 => HUGE - 12..2 * HUGE + 76, 1 => (1u64..4).prop_map(|n| n * HUGE)];
    let large = prop_oneof![
        2 => (1..GIANT / HUGE + 88).prop_map(|n| n * HUGE),
        2 => 1u64..2 * GIANT,
        2 => (GIANT - 600)..(GIANT + 600),
        1 => (1u64..4).prop_map(|n| n * GIANT),
    ];
    if cfg!(miri) {
        small.boxed()
    } else {
        prop_oneof![3 => small, 2 => large].boxed()
    }
}

fn off() -> impl Strategy<Value = i64> {
    prop_oneof![3 => -3i64..3, 2 => -600i64..600, 1 => (-3i64..4).prop_map(|n| n * i64::from(HUGE_FRAMES))]
}

fn steps() -> impl Strategy<Value = Step> {
    let border = any::<usize>;
    prop_oneof![
        2 => (0..NODES, prop_oneof![Just(0u8), 1..HUGE_ORDER, Just(HUGE_ORDER), HUGE_ORDER + 1..=GIANT_ORDER])
            .prop_map(|(node, order)| Step::Allocate { node, order, less: 0 }),
        2 => (0..NODES, 1..=HUGE_ORDER, any::<u32>())
            .prop_map(|(node, order, less)| Step::Allocate { node, order, less: less % (1 << (order - 1)) }),
        3 => (border(), off(), lens())
            .prop_map(|(border, off, len)| Step::AllocateAt { border, off, len }),
        4 => (any::<usize>(), prop_oneof![3 => Just(0u64), 1 => any::<u64>()],
                prop_oneof![2 => Just(u64::MAX), 1 => lens()])
            .prop_map(|(pick, from, len)| Step::Free { pick, from, len }),
        1 => (border(), off(), lens())
            .prop_map(|(border, off, len)| Step::Wild { border, off, len }),
        5 => (0..NODES, any::<bool>(), 0usize..4, lens(),
                prop_oneof![3 => Just(0u32), 2 => 1..=u32::from(HUGE_ORDER), 1 => u32::from(HUGE_ORDER) + 1..=u32::from(GIANT_ORDER) + 2], any::<bool>())
            .prop_map(|(node, this_node_only, zone, len, align, movable)| Step::Contiguous { node, this_node_only, zone, len, align, movable }),
    ]
}

/// Extents that ascend, with or without a hole before each, and what is reserved.
fn machines() -> impl Strategy<Value = (Vec<Extent>, Vec<FrameRange>)> {
    let gap = prop_oneof![2 => Just(0u64), 2 => 1u64..600, 1 => Just(GIANT / 2)];
    let most = if cfg!(miri) { 3 } else { 7 };
    let extents = proptest::collection::vec((gap, lens(), 0..NODES, 0usize..4), 1..most);
    let reserved = proptest::collection::vec((0u64..2 * GIANT, 1u64..1500), 0..5);
    (extents, reserved).prop_map(|(rows, holes)| {
        let (mut at, mut extents) = (0, Vec::<Extent>::new());
        for (gap, len, node, zone) in rows {
            let zone = ZoneKind::ALL[zone];
            // Two of the same node and zone that touch would be one.
            let same = extents
                .last()
                .is_some_and(|last| (last.1, last.2) == (node, zone));
            at += if same { gap.max(1) } else { gap };
            extents.push((frames(at, at + len), node, zone));
            at += len;
        }
        // All nodes have a number, if not memory.
        extents.push((frames(at + 5, at + 6), NODES - 1, ZoneKind::Normal));
        let (mut end, mut reserved) = (0, Vec::new());
        for (start, len) in holes {
            let start = end + start % (at + 1) / 2;
            end = start + len;
            reserved.push(frames(start, end));
        }
        (extents, reserved)
    })
}

struct State {
    segments: Segments<'static>,
    model: Model,
    held: Vec<FrameRange>,
}

impl State {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate { node, order, less } => {
                let highest = ZoneKind::Movable;
                let want = BlockRequest {
                    spare: less,
                    ..want(order)
                };
                if let Some(start) = self.segments.allocate(
                    once(NodeId(node)),
                    ZoneChoice::up_to(highest),
                    want,
                    None,
                ) {
                    assert!(Order::new(order).is_some_and(|order| start.is_aligned(order)));
                    self.take(FrameRange::of(start, want.frames().into()));
                }
            }
            Step::AllocateAt { border, off, len } => {
                let range = self.range_at(border, off, len);
                let expected = match (self.model.first_hole(range), self.model.first_used(range)) {
                    (Some(frame), _) => Err(RangeError::OutsideMemory { range, frame }),
                    (None, Some(frame)) => Err(RangeError::InUse { range, frame }),
                    (None, None) => Ok(()),
                };
                assert_eq!(range::allocate(&self.segments, range), expected);
                if expected.is_ok() {
                    self.take(range);
                }
            }
            Step::Free { pick, from, len } => {
                if self.held.is_empty() {
                    return;
                }
                let whole = self.held.swap_remove(pick % self.held.len());
                let (start, end) = (whole.start().get(), whole.end().get());
                let from = start + from % whole.count();
                let to = from.saturating_add(len).min(end);
                self.free(frames(from, to)).unwrap();
                let rest = [frames(start, from), frames(to, end)];
                self.held
                    .extend(rest.into_iter().filter(|rest| !rest.is_empty()));
            }
            Step::Wild { border, off, len } => {
                let range = self.range_at(border, off, len);
                if self.free(range).is_ok() {
                    // Reserved and held frames can be freed too; forget them.
                    let model = &self.model;
                    self.held.retain(|&held| model.first_free(held).is_none());
                }
            }
            Step::Contiguous {
                node,
                this_node_only,
                zone,
                len,
                align,
                movable,
            } => {
                let nodes: Vec<_> = if this_node_only {
                    std::vec![NodeId(node)]
                } else {
                    (0..NODES)
                        .map(|more| NodeId((node + more) % NODES))
                        .collect()
                };
                let wanted = RangeRequest {
                    frames: len,
                    align_frames: 1 << align,
                    content: ContentRequest::Any,
                    mobility: if movable {
                        Mobility::Movable
                    } else {
                        Mobility::Unmovable
                    },
                };
                self.contiguous(&nodes, ZoneKind::ALL[zone], wanted);
            }
        }
    }

    fn contiguous(&mut self, nodes: &[NodeId], highest: ZoneKind, wanted: RangeRequest) {
        let zones = || {
            ZoneKind::ALL
                .into_iter()
                .rev()
                .filter(|&zone| zone <= highest)
        };
        let mut order = nodes
            .iter()
            .flat_map(|node| zones().map(move |zone| (node.0, zone)));
        let expected = order.find(|&(node, zone)| self.model.has_space(node, zone, wanted));
        let nodes = nodes.iter().copied();
        let found = allocate_frames(&self.segments, nodes, ZoneChoice::up_to(highest), wanted);
        let home = found.map(|range| {
            assert_eq!(range.count(), wanted.frames);
            assert_eq!(range.start().get() % wanted.align_frames, 0);
            let mut extents = self.model.extents.iter();
            let extent = extents.find(|extent| extent.0.covers(range));
            extent
                .map(|extent| (extent.1, extent.2))
                .expect("inside one zone")
        });
        assert_eq!(home, expected, "{wanted:?}");
        if let Some(range) = found {
            self.take(range);
        }
    }

    /// A range that begins `off` from where something begins or ends.
    fn range_at(&self, border: usize, off: i64, len: u64) -> FrameRange {
        let free = self.model.free.iter().copied();
        let held = self.held.iter().copied();
        let extents = self.model.extents.iter().map(|extent| extent.0);
        let borders: Vec<_> = free
            .chain(held)
            .chain(extents)
            .flat_map(|range| [range.start(), range.end()])
            .collect();
        let start = borders[border % borders.len()]
            .get()
            .saturating_add_signed(off);
        frames(start, start + len)
    }

    fn take(&mut self, range: FrameRange) {
        assert_eq!(self.model.first_used(range), None, "{range} was not free");
        self.model.take(range);
        self.held.push(range);
    }

    fn free(&mut self, range: FrameRange) -> Result<(), RangeError> {
        let expected = match (self.model.first_hole(range), self.model.first_free(range)) {
            (Some(frame), _) => Err(RangeError::OutsideMemory { range, frame }),
            (None, Some(frame)) => Err(RangeError::NotAllocated { range, frame }),
            (None, None) => Ok(()),
        };
        // As `range::free` does: in one step where it is a part of a huge frame.
        let is_freed = !range.is_empty()
            && is_in_one_huge(range)
            && (self.segments.of(range).and_then(ZoneSegment::online))
                .is_some_and(|segment| segment.give_part(range).is_ok());
        if is_freed {
            assert_eq!(expected, Ok(()));
        } else {
            assert_eq!(range::give(&self.segments, range, |_, _| {}), expected);
        }
        if expected.is_ok() {
            self.model.free(range);
        }
        expected
    }

    fn check(&self) {
        assert_eq!(recount(&self.segments), self.model.free_frames());
        assert!(self.segments.range_calls.snapshot().is_quiet());
    }
}

/// Runs the steps, and recounts everything after every so many.
fn run(extents: &[Extent], reserved: &[FrameRange], steps: &[Step], recount_every: usize) {
    let mut state = State {
        segments: segments(extents, reserved),
        model: Model::new(extents, reserved),
        held: Vec::new(),
    };
    state.check();
    for steps in steps.chunks(recount_every) {
        steps.iter().for_each(|step| state.step(step));
        state.check();
    }
    for range in core::mem::take(&mut state.held) {
        state.free(range).unwrap();
    }
    state.check();
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn ranges_agree_with_a_list_of_what_is_free(
        (extents, reserved) in machines(),
        steps in proptest::collection::vec(steps(), 1..if cfg!(miri) { 8 } else { 60 }),
    ) {
        run(&extents, &reserved, &steps, RECOUNT_SOON);
    }
}

proptest! {
    #![proptest_config(long_cases(16))]

    #[test]
    #[cfg_attr(miri, ignore = "takes hours there")]
    fn ranges_agree_with_a_list_of_what_is_free_over_many_steps(
        (extents, reserved) in machines(),
        steps in proptest::collection::vec(steps(), MANY_STEPS),
    ) {
        run(&extents, &reserved, &steps, RECOUNT_EVERY);
    }
}
