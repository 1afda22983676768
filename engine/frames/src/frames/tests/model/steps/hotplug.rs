//! Memory comes, goes offline, comes online in the same zone or another, and is removed.

use super::super::machine::{Comes, Machine};
use super::super::plain::{ABSENT, FREE, HUGE, OFFLINE, numbers, pieces};
use super::{Steps, step};
use crate::addr::{Frame, FrameRange};
use crate::frames::tests::kit::frames;
use crate::frames::{HotplugError, NewMemory, OnlinePolicy, Refusal};
use crate::node::{NodeId, NodeZone, ZoneKind};
use proptest::prelude::*;

/// The zones of a window.
const ZONES: [ZoneKind; 2] = [ZoneKind::Normal, ZoneKind::Movable];

// ---- Where ---------------------------------------------------------------------------

/// A part of the span, or one frame more.
pub(crate) fn parts(span: FrameRange) -> BoxedStrategy<FrameRange> {
    let (start, count) = (span.start().get(), span.count());
    let made = (0..count, prop_oneof![1..40_u64, 1..count]).prop_map(move |(from, len)| {
        let (from, len) = (from / 3 * 3, len.div_ceil(3) * 3);
        frames(start + from, start + (from + len).min(count + 1))
    });
    made.boxed()
}

/// Up to so many huge frames, from before the span to behind it.
pub(crate) fn huges(span: FrameRange, most: u64) -> BoxedStrategy<FrameRange> {
    let (start, end) = (span.start().get(), span.end().get());
    let ends = (start / HUGE - 1, end.div_ceil(HUGE) + 1);
    let made = (ends.0..ends.1, 1..=most);
    made.prop_map(move |(first, len)| frames(first * HUGE, (first + len).min(ends.1) * HUGE))
        .boxed()
}

/// Mostly whole huge frames inside.
pub(crate) fn going(span: FrameRange) -> BoxedStrategy<FrameRange> {
    let all = || huges(span, span.count() / HUGE + 3);
    let inside = all().prop_map(move |range| {
        let inner = inner(span, range);
        if inner.is_empty() { range } else { inner }
    });
    prop_oneof![6 => inside, 2 => all(), 1 => parts(span)].boxed()
}

/// The whole huge frames of the span that lie in `range`.
fn inner(span: FrameRange, range: FrameRange) -> FrameRange {
    let (start, end) = (span.start().get(), span.end().get());
    let whole = FrameRange::new(start.next_multiple_of(HUGE), end / HUGE * HUGE);
    whole.unwrap_or_default().intersect(range)
}

/// Whether these are whole huge frames of the span.
pub(super) fn is_whole(span: FrameRange, range: FrameRange) -> bool {
    let is_whole = |end: Frame| end.get().is_multiple_of(HUGE);
    is_whole(range.start()) && is_whole(range.end()) && inner(span, range) == range
}

fn zones() -> impl Strategy<Value = ZoneKind> {
    prop_oneof![9 => prop::sample::select(&ZONES[..]), 1 => Just(ZoneKind::Dma)]
}

/// The nodes and zones of a window; some that it can't have.
pub(crate) fn zones_of_window() -> BoxedStrategy<Option<NodeZone>> {
    let node = prop_oneof![9 => 0..2_u16, 1 => Just(2)];
    let of = |(node, zone)| {
        Some(NodeZone {
            node: NodeId(node),
            zone,
        })
    };
    (node, zones()).prop_map(of).boxed()
}

// ---- It comes -------------------------------------------------------------------------

/// To a zone or that of its address, free or offline.
pub(crate) fn add(
    ranges: BoxedStrategy<FrameRange>,
    zones: BoxedStrategy<Option<NodeZone>>,
    offline: f64,
) -> Steps {
    let how = (ranges, zones, prop::bool::weighted(offline));
    step("add", how, |on, (range, of, is_offline)| {
        let memory = NewMemory::new(range.addrs());
        let memory = of.map_or(memory, |of| memory.of(of));
        let (memory, this) = if is_offline {
            (memory.policy(OnlinePolicy::Offline), OFFLINE)
        } else {
            (memory, FREE)
        };
        let done = on.frames.add(memory);
        came(on, range, of, this, done);
    })
}

/// In use.
pub(crate) fn adopt(ranges: BoxedStrategy<FrameRange>) -> Steps {
    step("adopt", ranges, |on, range| {
        let done = on.frames.adopt(range.addrs());
        came(on, range, None, FREE, done);
        if done.is_ok() {
            on.hold(range);
        }
    })
}

fn came(
    on: &mut Machine,
    range: FrameRange,
    of: Option<NodeZone>,
    this: u32,
    done: Result<(), HotplugError>,
) {
    let model = &mut on.model;
    let is_inside = model.span.covers(range);
    // What is offline is named before what is free.
    let offline = model.first(range, |frame| model.is(frame, OFFLINE));
    let there = offline.or(model.first(range, |frame| !model.is(frame, ABSENT)));
    let Err(error) = done else {
        let can_be = |of: NodeZone| of.node.0 < 2 && ZONES.contains(&of.zone);
        assert!(is_inside && there.is_none() && of.is_none_or(can_be));
        assert!(model.turn(range, this));
        if let Some(of) = of {
            model.set_zone(range, Some(of));
        }
        return;
    };
    let is_right = match (error.why, of) {
        (Refusal::OutsideSpan, _) => !is_inside,
        // Also what is there later of a window.
        (Refusal::Present, Some(_)) => !model.is(error.frame.get(), ABSENT),
        (Refusal::Present, None) => is_inside && there == Some(error.frame),
        (Refusal::NoSuchNode { node, nodes: 2 }, Some(of)) => node == of.node && node.0 == 2,
        (Refusal::NotHere { wanted, usual }, Some(of)) => {
            (wanted, usual.node, of.zone) == (of, NodeId(1), ZoneKind::Dma)
        }
        _ => false,
    };
    assert!(is_right, "{error}, {there:?} is there");
}

// ---- It changes -----------------------------------------------------------------------

/// What becomes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Offline,
    /// As it was.
    Online,
    OnlineTo(ZoneKind),
    Remove,
}

/// To any zone of a window, or to one that it does not have.
pub(crate) fn online_to() -> BoxedStrategy<Change> {
    zones().prop_map(Change::OnlineTo).boxed()
}

pub(crate) fn change(ranges: BoxedStrategy<FrameRange>, changes: BoxedStrategy<Change>) -> Steps {
    step("change", (ranges, changes), |on, (range, change)| {
        if change == Change::Offline || on.comes == Comes::ToSpan {
            on.drain();
        }
        let (allocator, bytes) = (on.frames, range.addrs());
        let (from, to, done) = match change {
            Change::Offline => (FREE, OFFLINE, allocator.offline(bytes)),
            Change::Online => (OFFLINE, FREE, allocator.online(bytes)),
            Change::OnlineTo(zone) => (OFFLINE, FREE, allocator.online_to(bytes, zone)),
            Change::Remove => (OFFLINE, ABSENT, allocator.remove(bytes)),
        };
        let model = &on.model;
        match done {
            Ok(()) => {
                assert!(is_whole(model.span, range) && model.are(range, from));
                let isolated = model.first(range, |frame| model.is_isolated(frame));
                assert!(from != FREE || isolated.is_none());
                on.model.turn(range, to);
                for huge in pieces(range).filter(|_| on.comes == Comes::ToWindow) {
                    let of = on.model.zone_of(huge).expect("of one zone");
                    let of = match change {
                        Change::Remove => None,
                        Change::OnlineTo(zone) => Some(NodeZone { zone, ..of }),
                        Change::Offline | Change::Online => Some(of),
                    };
                    on.model.set_zone(huge, of);
                }
            }
            Err(HotplugError {
                why: Refusal::NotHere { wanted, .. },
                ..
            }) => {
                let is_right = !ZONES.contains(&wanted.zone);
                assert!(is_right && change == Change::OnlineTo(wanted.zone));
            }
            Err(error) => must_refuse(on, range, from, error),
        }
    })
}

/// Whether `range`, all of which should be `from`, was refused for a good reason.
pub(super) fn must_refuse(on: &Machine, range: FrameRange, from: u32, error: HotplugError) {
    let (model, at) = (&on.model, error.frame.get());
    let is_used = |frame| !model.is_any(frame, &[FREE, ABSENT, OFFLINE]);
    let isolated = model.first(range, |frame| model.is_isolated(frame));
    let is_free = from == FREE;
    let is_right = match error.why {
        Refusal::Misaligned => !is_whole(on.model.span, range),
        Refusal::NotMemory => model.is(at, ABSENT),
        Refusal::InUse { frames, .. } => {
            let mut used = numbers(range).filter(|&frame| is_used(frame));
            let first = used.next().map(Frame::new);
            is_free
                && isolated.is_none()
                && (first, 1 + used.count() as u64) == (Some(error.frame), frames)
        }
        Refusal::Isolated => is_free && isolated == Some(error.frame),
        Refusal::Offline => is_free && model.is(at, OFFLINE),
        Refusal::NotOffline => !is_free && !model.are(frames(at, at + HUGE), OFFLINE),
        _ => false,
    };
    assert!(is_right, "{range}: {error}");
}
