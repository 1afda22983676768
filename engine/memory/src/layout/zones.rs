//! Which zone a frame lies in, and what each zone of a node spans.
//!
//! Pure functions over a machine-wide set of [`Bounds`]: the address limits of
//! DMA, DMA32 and Normal, clamped to the memory there is. A node's Movable zone
//! starts at a frame chosen by `movable` and takes everything of the node from
//! there up, whatever address zone that would have been.

use crate::addr::{Frame, FrameRange};
use crate::node::ZoneKind;

use super::LayoutPolicy;

/// The frames DMA, DMA32 and Normal may hold on this machine, in that order;
/// they touch each other, and any may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    zones: [FrameRange; 3],
}

impl Bounds {
    /// Cuts `memory` (first present frame to the end of the last) at the limits of `policy`.
    pub(super) fn new(policy: &LayoutPolicy, memory: FrameRange) -> Self {
        let mut start = memory.start().get();
        let limits = [policy.dma_end.get(), policy.dma32_end.get(), u64::MAX];
        let zones = limits.map(|limit| {
            let end = limit.min(memory.end().get()).max(start);
            let zone = FrameRange::new(start, end).unwrap_or_default();
            start = end;
            zone
        });
        Self { zones }
    }

    /// The frames zone `kind` may hold; Movable has no limits of its own.
    pub(super) fn of(&self, kind: ZoneKind) -> FrameRange {
        match kind {
            ZoneKind::Dma => self.zones[0],
            ZoneKind::Dma32 => self.zones[1],
            ZoneKind::Normal => self.zones[2],
            ZoneKind::Movable => FrameRange::EMPTY,
        }
    }

    /// First frame a spread Movable zone may take: the start of the highest zone with any frames.
    pub(super) fn highest_start(&self) -> Frame {
        let highest = self.zones.iter().rev().find(|zone| !zone.is_empty());
        highest.map_or(Frame::new(0), |zone| zone.start())
    }

    /// The address zone of `frame`, and where that zone ends.
    fn address_zone(&self, frame: Frame) -> (ZoneKind, Frame) {
        let kinds = [ZoneKind::Dma, ZoneKind::Dma32];
        for (kind, zone) in kinds.into_iter().zip(&self.zones) {
            if frame < zone.end() {
                return (kind, zone.end());
            }
        }
        (ZoneKind::Normal, Frame::new(u64::MAX))
    }
}

/// Where a node's Movable zone starts and what is exempt from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct MovableRule {
    /// First movable frame of the node.
    pub(super) start: Option<Frame>,
    /// Mirrored frames stay in their address zone (`kernelcore=mirror`).
    pub(super) spare_mirrored: bool,
}

/// The zone that the front of `frames` lies in, and how far it reaches.
///
/// `frames` is not empty; the result is its longest prefix of one zone.
pub(super) fn front(
    bounds: &Bounds,
    rule: MovableRule,
    mirrored: bool,
    frames: FrameRange,
) -> (ZoneKind, FrameRange) {
    let start = frames.start();
    let exempt = rule.spare_mirrored && mirrored;
    let movable_start = rule.start.filter(|_| !exempt);
    if movable_start.is_some_and(|movable| start >= movable) {
        return (ZoneKind::Movable, frames);
    }
    let (kind, zone_end) = bounds.address_zone(start);
    let end = movable_start
        .map_or(zone_end, |movable| zone_end.min(movable))
        .min(frames.end());
    (
        kind,
        FrameRange::new(start.get(), end.get()).unwrap_or(frames),
    )
}

/// What zone `kind` of a node spans, holes included; empty if it has none.
///
/// A zone reaches from one address limit to the other, cut only by the ends of
/// the *node*: a hole at a limit belongs to the zone's span. So do kernels
/// count, and so do tools that read `/proc/zoneinfo` expect it.
pub(super) fn span(
    bounds: &Bounds,
    rule: MovableRule,
    node: FrameRange,
    kind: ZoneKind,
) -> FrameRange {
    if kind == ZoneKind::Movable {
        let Some(start) = rule.start else {
            return FrameRange::EMPTY;
        };
        return FrameRange::new(start.get().max(node.start().get()), node.end().get())
            .unwrap_or_default();
    }
    let zone = bounds.of(kind).intersect(node);
    match rule.start {
        // Mirrored frames above the start stay in the zone, so it keeps its span.
        Some(start) if !rule.spare_mirrored => {
            let end = zone.end().min(start).max(zone.start());
            FrameRange::new(zone.start().get(), end.get()).unwrap_or_default()
        }
        _ => zone,
    }
}

#[cfg(test)]
#[cfg(not(firstlight_loom))]
mod tests {
    use super::*;
    use crate::addr::PAGE_BYTES;

    fn frames(start: u64, end: u64) -> FrameRange {
        FrameRange::new(start, end).unwrap()
    }

    fn bounds(first: u64, end: u64) -> Bounds {
        Bounds::new(&LayoutPolicy::DEFAULT, frames(first, end))
    }

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn bounds_touch_and_clamp() {
        for (first, end, want) in [
            (
                1,
                4_456_448,
                [(1, 4096), (4096, 1 << 20), (1 << 20, 4_456_448)],
            ),
            (1, 262_112, [(1, 4096), (4096, 262_112), (262_112, 262_112)]),
            (8192, 9000, [(8192, 8192), (8192, 9000), (9000, 9000)]),
            (
                1 << 24,
                1 << 25,
                [(1 << 24, 1 << 24), (1 << 24, 1 << 24), (1 << 24, 1 << 25)],
            ),
            (0, 0, [(0, 0), (0, 0), (0, 0)]),
        ] {
            assert_eq!(bounds(first, end).zones, want.map(|(s, e)| frames(s, e)));
        }
    }

    #[test]
    fn zones_of_other_processors() {
        const GIB: u64 = (1 << 30) / PAGE_BYTES;
        let zones = |policy: LayoutPolicy, first: u64, end: u64| {
            Bounds::new(&policy, frames(first, end))
                .zones
                .map(|zone| (zone.start().get(), zone.end().get()))
        };
        let arm = |bits, first: u64, end| {
            zones(LayoutPolicy::arm64(first * PAGE_BYTES, bits), first, end)
        };
        let all = |first, end| [(first, end), (end, end), (end, end)];
        // All below 4 GiB is DMA, where all devices reach that far.
        assert_eq!(arm(32, GIB, 3 * GIB), all(GIB, 3 * GIB));
        let two = [(GIB, 4 * GIB), (4 * GIB, 4 * GIB), (4 * GIB, 9 * GIB)];
        assert_eq!(arm(32, GIB, 9 * GIB), two);
        assert_eq!(arm(40, GIB, 9 * GIB), two);
        let three = [(GIB, 2 * GIB), (2 * GIB, 4 * GIB), (4 * GIB, 9 * GIB)];
        assert_eq!(arm(31, GIB, 9 * GIB), three);
        // No device reaches the first byte: as if all reached 4 GiB.
        assert_eq!(arm(30, GIB, 9 * GIB), two);
        assert_eq!(
            arm(0, 1, 9 * GIB),
            [(1, 4 * GIB), (4 * GIB, 4 * GIB), (4 * GIB, 9 * GIB)]
        );
        // Nothing is below 4 GiB.
        assert_eq!(arm(32, 4 * GIB, 9 * GIB), all(4 * GIB, 9 * GIB));
        let none = [(2 * GIB, 2 * GIB), (2 * GIB, 4 * GIB), (4 * GIB, 9 * GIB)];
        assert_eq!(zones(LayoutPolicy::riscv64(), 2 * GIB, 9 * GIB), none);
    }

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn spread_movable_starts_in_the_highest_zone_with_room() {
        assert_eq!(bounds(1, 4_456_448).highest_start(), Frame::new(1 << 20));
        assert_eq!(bounds(1, 262_112).highest_start(), Frame::new(4096));
        assert_eq!(bounds(1, 200).highest_start(), Frame::new(1));
        assert_eq!(bounds(0, 0).highest_start(), Frame::new(0));
    }

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn front_cuts_at_limits_and_at_movable() {
        let bounds = bounds(1, 4_456_448);
        let rule = MovableRule {
            start: Some(Frame::new(2_360_320)),
            spare_mirrored: false,
        };
        let mut left = frames(1, 4_456_448);
        let mut seen = [(ZoneKind::Dma, 0); 4];
        for slot in &mut seen {
            let (kind, piece) = front(&bounds, rule, false, left);
            *slot = (kind, piece.end().get());
            left = frames(piece.end().get(), left.end().get());
        }
        assert!(left.is_empty());
        assert_eq!(
            seen,
            [
                (ZoneKind::Dma, 4096),
                (ZoneKind::Dma32, 1 << 20),
                (ZoneKind::Normal, 2_360_320),
                (ZoneKind::Movable, 4_456_448)
            ]
        );
    }

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn mirrored_frames_are_spared_only_where_the_rule_says_so() {
        let bounds = bounds(1, 4_456_448);
        let start = Some(Frame::new(1 << 20));
        let high = frames(2_000_000, 3_000_000);
        for (spare_mirrored, mirrored, want) in [
            (true, true, ZoneKind::Normal),
            (true, false, ZoneKind::Movable),
            (false, true, ZoneKind::Movable),
        ] {
            let rule = MovableRule {
                start,
                spare_mirrored,
            };
            assert_eq!(front(&bounds, rule, mirrored, high), (want, high));
        }
    }

    #[test]
    #[cfg_attr(
        any(feature = "page-16k", feature = "page-64k"),
        ignore = "frames of 4 KiB"
    )]
    fn spans_follow_the_node_and_the_limits() {
        let bounds = bounds(1, 2_359_296);
        let none = MovableRule::default();
        let node = frames(768_256, 2_359_296);
        assert_eq!(span(&bounds, none, node, ZoneKind::Dma).count(), 0);
        assert_eq!(
            span(&bounds, none, node, ZoneKind::Dma32),
            frames(768_256, 1 << 20)
        );
        assert_eq!(
            span(&bounds, none, node, ZoneKind::Normal),
            frames(1 << 20, 2_359_296)
        );
        assert!(span(&bounds, none, node, ZoneKind::Movable).is_empty());
        let low = MovableRule {
            start: Some(Frame::new(800_000)),
            spare_mirrored: false,
        };
        assert_eq!(
            span(&bounds, low, node, ZoneKind::Dma32),
            frames(768_256, 800_000)
        );
        assert!(span(&bounds, low, node, ZoneKind::Normal).is_empty());
        assert_eq!(
            span(&bounds, low, node, ZoneKind::Movable),
            frames(800_000, 2_359_296)
        );
    }
}
