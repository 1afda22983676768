//! Ranges: given ones, and frames in a row anywhere.

use super::super::plain::FREE;
use super::{Place, Steps, Via, step};
use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
use crate::frames::tests::kit::allocate_frames;
use crate::frames::{RangeError, Request};
use crate::node::{NodeId, NodeZone, ZoneKind};
use proptest::prelude::*;

/// Allocates these frames.
pub(crate) fn at(places: BoxedStrategy<Place>) -> Steps {
    step("at", places, |on, place| {
        let (range, before) = (place.range(on), on.before());
        let is_used = |frame| !on.is_available(frame);
        let faults = (on.model.first_hole(range), on.model.first(range, is_used));
        let expected = match faults {
            (Some(frame), _) => Err(RangeError::OutsideMemory { range, frame }),
            (None, Some(frame)) => Err(RangeError::InUse { range, frame }),
            (None, None) => Ok(()),
        };
        assert_eq!(on.frames.allocate_range(range), expected);
        if expected.is_ok() {
            on.receive(range, None, &before);
        }
    })
}

/// How many frames in a row, aligned to so many bits, and for which request.
type Wanted = (
    BoxedStrategy<u64>,
    BoxedStrategy<u32>,
    BoxedStrategy<Request>,
);

/// Frames in a row.
pub(crate) fn row(via: BoxedStrategy<Via>, wanted: Wanted) -> Steps {
    let how = (via, wanted);
    step("row", how, |on, (via, (frames, bits, request))| {
        let (align, before) = (1 << bits, on.before());
        let found = match on.cpu(via) {
            Some(cpu) => cpu.allocate_frames(frames, align, request),
            None => on.frames.allocate_frames(frames, align, request),
        };
        let align = align.max(request.order().frames());
        match found {
            Ok(range) => {
                assert_eq!((range.count(), range.start().get() % align), (frames, 0));
                on.receive(range, Some((via, request)), &before);
            }
            Err(error) => on.refused(error, (via, request), (frames, align), &before),
        }
    })
}

/// Frames in a row by a search alone: in the first node and zone that has them.
pub(crate) fn search(wanted: Wanted) -> Steps {
    step("search", wanted, |on, (frames, bits, request)| {
        let (align, segments) = (1 << bits, &on.frames.nodes.segments);
        let all = u16::try_from(segments.nodes()).unwrap();
        let first = request.node().unwrap_or_default().0;
        let count = if request.is_only_node() { 1 } else { all };
        let nodes = (0..count).map(|more| NodeId((first + more) % all));
        let zones = ZoneKind::ALL.into_iter().rev();
        let zones = zones.filter(|zone| request.zones().contains(*zone));
        let of = |node| zones.clone().map(move |zone| NodeZone { node, zone });
        let can_be_had = |frame| on.model.is(frame, FREE);
        let has_space = |of: &NodeZone| on.model.has_space(*of, (frames, align), can_be_had);
        let expected = nodes.clone().flat_map(of).find(has_space);
        let wanted = RangeRequest {
            frames,
            align_frames: align,
            content: ContentRequest::Any,
            mobility: request.mobility(),
        };
        let found = allocate_frames(segments, nodes, request.zones(), wanted);
        let home = found.map(|range| on.model.zone_of(range).expect("inside one zone"));
        assert_eq!(home, expected, "{wanted:?}");
        if let Some(range) = found {
            assert_eq!((range.count(), range.start().get() % align), (frames, 0));
            on.receive(range, Some((Via::Shared, request)), &on.before());
        }
    })
}
