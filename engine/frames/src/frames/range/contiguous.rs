//! Contiguous frames, anywhere: [`allocate`].

use super::zeroed::{self, Untaken};
use crate::addr::FrameRange;
use crate::frames::error::AllocError;
use crate::frames::request::{Request, ZoneChoice};
use crate::frames::search::Pass;
use crate::frames::search::contiguous::{ContentRequest, Probed, RangeRequest, find};
use crate::frames::word::Content;
use crate::frames::word::geometry::HUGE_FRAMES;
use crate::frames::zone::gate::Gate;
use crate::frames::zone::{Nodes, Passes, Reach, Segments};
use crate::node::NodeId;
use crate::sync::pause;

/// Passes of a search, at most, while other CPUs change something.
const PASSES: u32 = 8;

/// Refuses requests that no memory could serve.
pub(crate) fn check(frames: u64, align_frames: u64) -> Result<(), AllocError> {
    if frames == 0 {
        Err(AllocError::NoFrames)
    } else if !align_frames.is_power_of_two() {
        Err(AllocError::BadAlignment { align_frames })
    } else {
        Ok(())
    }
}

/// What was found is not zero, and the kernel does not zero it; nothing is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotZeroed;

/// Takes `frames` contiguous frames of one node and zone, nearest to `first`; with `only_zero`
/// those that are known to be zero already.
pub(crate) fn allocate(
    nodes: &Nodes<'_>,
    first: NodeId,
    reach: Reach,
    frames: u64,
    align_frames: u64,
    request: &Request,
    only_zero: bool,
) -> Option<Result<FrameRange, NotZeroed>> {
    let want = RangeRequest {
        frames,
        align_frames,
        mobility: request.mobility(),
        content: if only_zero {
            let or_reported = nodes.known().is_zero(Content::Reported);
            ContentRequest::Zero { or_reported }
        } else if request.is_zeroed() && frames >= HUGE_FRAMES.into() {
            ContentRequest::KnownFirst
        } else {
            ContentRequest::Any
        },
    };
    let (segments, zones) = (&nodes.segments, request.zones());
    let gate = Gate::new(&segments.zones, request, frames);
    let gate = gate.as_ref();
    let mut refused = false;
    let mut take = |range| {
        if !request.is_zeroed() {
            return super::take(segments, range, want.mobility).is_ok();
        }
        let taken = zeroed::take(nodes, range, request);
        // No other range would do, unless it is zero already.
        refused = taken == Err(Untaken::NotZeroed) && !only_zero;
        taken.is_ok() || refused
    };
    let nodes_allowed = nodes.allowed(first, request, reach);
    let range = allocate_with(segments, nodes_allowed, want, zones, gate, &mut take)?;
    if refused {
        return Some(Err(NotZeroed));
    }
    nodes.count_range(range, -1);
    Some(Ok(range))
}

/// Takes a range from the first of `nodes` that has one.
#[cfg(test)]
pub(crate) fn allocate_on(
    segments: &Segments<'_>,
    nodes: impl Iterator<Item = NodeId> + Clone,
    want: RangeRequest,
    zones: ZoneChoice,
    gate: Option<&Gate<'_, '_>>,
) -> Option<FrameRange> {
    let mut take = |range| super::take(segments, range, want.mobility).is_ok();
    allocate_with(segments, nodes, want, zones, gate, &mut take)
}

/// A range of the first of `nodes` that has one; `take` takes what was found.
fn allocate_with(
    segments: &Segments<'_>,
    nodes: impl Iterator<Item = NodeId> + Clone,
    want: RangeRequest,
    zones: ZoneChoice,
    gate: Option<&Gate<'_, '_>>,
    take: &mut dyn FnMut(FrameRange) -> bool,
) -> Option<FrameRange> {
    let all = || {
        let all = nodes.clone().flat_map(|node| segments.on(node, zones));
        let allowed = all
            .filter(|segment| gate.is_none_or(|gate| gate.allows(segment.node(), segment.zone())));
        allowed.filter_map(|segment| segment.online())
    };
    let calls = || {
        let mut pass = Pass::default();
        pass.begin_calls(&segments.range_calls, u64::MAX);
        all().for_each(|online| pass.begin(online));
        pass
    };
    let mut left = Passes::new(PASSES);
    while left.is_any_left() {
        let mut pass = calls();
        for online in all() {
            let mut probed = Probed::default();
            let found = find(online, want, &mut probed, |range| {
                let taken = take(range);
                // Another CPU was faster.
                pass.changed |= !taken;
                taken
            });
            if found.is_some() {
                return found;
            }
            pass.opening |= probed.opening;
        }
        if calls().proves(Some(pass)) && !pass.changed && !pass.opening {
            return None;
        }
        left.count(pass.opening);
        pause();
    }
    None
}
