//! Which frames are described before the other CPUs run, and which afterwards.
//!
//! Every zone but a node's last is described at once: low memory is needed early.
//! Of the last zone, descriptors are written up to the first
//! section boundary that has at least [`LayoutPolicy::eager_frames`] described
//! frames before it; the rest of the node is deferred to workers. A node that
//! ends before such a boundary has nothing deferred.

use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;

use super::zones::{self, Bounds};
use super::{Layout, LayoutPolicy, Node, NodeRange, SectionSize};

/// What one node describes early, and what it leaves to the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferral {
    /// The node.
    pub node: NodeId,
    /// Present frames described before the workers run.
    pub eager_frames: u64,
    /// First frame left to the workers; `None` when nothing is.
    pub first_deferred: Option<Frame>,
    /// Present frames left to the workers.
    pub deferred_frames: u64,
    /// CPUs of the node, and so its workers at most; a node without CPUs gets one of another.
    pub cpus: u32,
}

impl Layout<'_> {
    /// What each node with memory describes early and what it defers, by node.
    pub fn deferrals(&self) -> impl Iterator<Item = Deferral> + Clone + '_ {
        let with_memory = self.nodes.iter().filter(|node| node.has_memory());
        with_memory.map(|node| Deferral {
            node: node.id,
            eager_frames: node.eager_frames,
            first_deferred: node.first_deferred,
            deferred_frames: node.present_frames - node.eager_frames,
            cpus: node.cpus,
        })
    }
}

/// Sets `eager_frames` and `first_deferred` of every node: one pass over the
/// ranges in address order, as the descriptors are written.
pub(super) fn plan(
    nodes: &mut [Node],
    ranges: &[NodeRange],
    bounds: &Bounds,
    policy: &LayoutPolicy,
) {
    // Frames described of the zone being written; starts anew at a zone that
    // ends elsewhere, so an interleaved node describes more than one section.
    let mut described = 0;
    let mut zone_end = None;
    for range in ranges {
        let Some(node) = nodes.get_mut(usize::from(range.node.0)) else {
            continue;
        };
        let rule = node.movable_rule(policy);
        let mut left = range.frames;
        while !left.is_empty() {
            let (kind, piece) = zones::front(bounds, rule, range.mirror, left);
            left = FrameRange::new(piece.end().get(), left.end().get()).unwrap_or_default();
            let end = zones::span(bounds, rule, node.span, kind).end();
            if zone_end != Some(end) {
                zone_end = Some(end);
                described = 0;
            }
            if end < node.span.end() {
                node.eager_frames += piece.count();
            } else if node.first_deferred.is_none() {
                let needed = policy.eager_frames.saturating_sub(described);
                node.first_deferred = boundary(piece, needed, policy.section);
                let eager_end = node.first_deferred.unwrap_or(piece.end());
                let eager = eager_end.get() - piece.start().get();
                node.eager_frames += eager;
                described += eager;
            }
        }
    }
}

/// The first section boundary in `piece` that has `needed` of its frames before it.
fn boundary(piece: FrameRange, needed: u64, section: SectionSize) -> Option<Frame> {
    let earliest = piece.start().get().checked_add(needed)?;
    let boundary = earliest.checked_next_multiple_of(section.frames())?;
    (boundary < piece.end().get()).then_some(Frame::new(boundary))
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use crate::layout::SECTION_FRAMES;

    #[test]
    fn the_boundary_needs_a_section_before_it_and_frames_after() {
        const SECTION: u64 = SECTION_FRAMES;
        let boundary = |start, end, needed| {
            let piece = FrameRange::new(start, end).unwrap();
            boundary(piece, needed, SectionSize::SMALLEST).map(Frame::get)
        };
        assert_eq!(
            boundary(SECTION / 8, 8 * SECTION - 32, SECTION),
            Some(2 * SECTION)
        );
        assert_eq!(
            boundary(2 * SECTION, 4 * SECTION, SECTION),
            Some(3 * SECTION)
        );
        assert_eq!(boundary(SECTION / 8, 2 * SECTION, SECTION), None);
        assert_eq!(
            boundary(SECTION / 8, 2 * SECTION + 1, SECTION),
            Some(2 * SECTION)
        );
        assert_eq!(boundary(2 * SECTION, 4 * SECTION, 0), Some(2 * SECTION));
        assert_eq!(boundary(2 * SECTION + 1, 4 * SECTION, 0), Some(3 * SECTION));
        assert_eq!(boundary(u64::MAX - 5, u64::MAX, SECTION), None);
        let gib = SectionSize::new(1 << 30).unwrap();
        let piece = FrameRange::new(SECTION / 8, 32 * SECTION).unwrap();
        let at = super::boundary(piece, SECTION, gib);
        assert_eq!(at, Some(Frame::new(8 * SECTION)));
    }
}
