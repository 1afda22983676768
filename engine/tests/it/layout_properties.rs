//! Layouts of made-up machines against slow, frame-by-frame models.

use firstlight::addr::{Frame, FrameRange, PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory};
use firstlight::layout::{
    CoreSize, Deferral, Layout, LayoutPolicy, MovableOutcome, SECTION_FRAMES, SectionSize,
    Unavailable, Zone, ZoneSegment,
};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::start::{BootSlots, BootStorage};
use firstlight::topology::TopologyBuilder;
use proptest::prelude::*;

/// Memory: frames, node, flags.
type Row = (u64, u64, u16, EarlyFlags);

const NODES: u16 = 4;

/// A frame far up, at 1 PiB.
const FAR: u64 = (1 << 50) / PAGE_BYTES;

fn with_layout<R>(rows: &[Row], policy: &LayoutPolicy, then: impl FnOnce(Layout<'_>) -> R) -> R {
    let mut storage = BootStorage::<32, { NODES as usize }>::EMPTY;
    let slots = BootSlots::from(&mut storage);
    let mut early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
    for &(start, end, node, flags) in rows {
        let range = PhysRange::new(start * PAGE_BYTES, end * PAGE_BYTES).unwrap();
        early.add(range, flags).unwrap();
        early.set_node(range, NodeId(node)).unwrap();
    }
    let mut builder = TopologyBuilder::new(slots.topology);
    for node in 0..NODES {
        builder.pin(NodeId(node), node.into()).unwrap();
    }
    let topology = builder.finish(&mut |_| {});
    then(Layout::build(early, topology, policy, slots.layout).unwrap())
}

fn flags() -> impl Strategy<Value = EarlyFlags> {
    prop_oneof![
        3 => Just(EarlyFlags::NONE),
        1 => Just(EarlyFlags::MIRROR),
        1 => Just(EarlyFlags::HOTPLUG),
    ]
}

/// Up to ten rows with holes between them or none, from frame `base` up.
fn rows(base: u64, unit: u64) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop_oneof![Just(0), 1..3 * unit],
        1..4 * unit,
        0..NODES,
        flags(),
    );
    prop::collection::vec(row, 1..10).prop_map(move |rows| {
        let mut at = base;
        rows.into_iter()
            .map(|(hole, frames, node, flags)| {
                let start = at + hole;
                at = start + frames;
                (start, at, node, flags)
            })
            .collect()
    })
}

fn core_size() -> impl Strategy<Value = Option<CoreSize>> {
    prop_oneof![
        2 => Just(None),
        1 => (0..200_000u64).prop_map(|frames| Some(CoreSize::Frames(frames))),
        1 => (0..120u32).prop_map(|percent| Some(CoreSize::Percent(percent))),
    ]
}

fn policy() -> impl Strategy<Value = LayoutPolicy> {
    let bools = (any::<bool>(), any::<bool>(), any::<bool>());
    (
        core_size(),
        core_size(),
        bools,
        0..100_000u64,
        0..100_000u64,
        section(),
    )
        .prop_map(
            |(kernelcore, movablecore, (mirror, must, movable_node), dma, dma32, section)| {
                LayoutPolicy {
                    dma_end: Frame::new(dma),
                    dma32_end: Frame::new(dma + dma32),
                    kernelcore,
                    movablecore,
                    kernelcore_mirror: mirror,
                    mirror_must_exist: must,
                    movable_node,
                    section,
                    ..LayoutPolicy::DEFAULT
                }
            },
        )
}

/// Sections of 128 MiB to 1 GiB.
fn section() -> impl Strategy<Value = SectionSize> {
    (27..=30u32).prop_map(|shift| SectionSize::new(1 << shift).unwrap())
}

/// Frames of `extents` that are of `node` and `zone`.
fn sum(extents: &[ZoneSegment], node: NodeId, zone: ZoneKind) -> u64 {
    let of = extents
        .iter()
        .filter(|extent| extent.node == node && extent.zone == zone);
    of.map(|extent| extent.frames.count()).sum()
}

/// What must hold of any layout.
fn check(layout: &Layout<'_>, rows: &[Row]) {
    let extents: Vec<_> = layout.segments().collect();
    // Extents cut the memory into pieces and lose nothing.
    let mut at = 0;
    let mut pieces = extents.iter().copied();
    let mut extent = pieces.next();
    for &(start, end, node, _) in rows {
        at = start.max(at);
        while at < end {
            let current = extent.unwrap();
            assert!(
                current.frames.contains(Frame::new(at)),
                "{at} is in no extent"
            );
            assert_eq!(current.node, NodeId(node));
            at = current.frames.end().get().min(end);
            if at == current.frames.end().get() {
                extent = pieces.next();
            }
        }
    }
    assert_eq!(extent, None);
    for pair in extents.windows(2) {
        assert!(pair[0].frames.end() <= pair[1].frames.start());
        let joined = pair[0].frames.end() == pair[1].frames.start();
        let alike = (pair[0].node, pair[0].zone) == (pair[1].node, pair[1].zone);
        assert!(!(joined && alike), "{pair:?} are one");
    }
    // Zones hold what their extents hold, and lie around them.
    for node in layout.nodes() {
        for kind in ZoneKind::ALL {
            let zone = layout
                .zones_of(node.id)
                .iter()
                .find(|zone| zone.kind == kind);
            assert_eq!(
                zone.map_or(0, |zone| zone.present_frames),
                sum(&extents, node.id, kind)
            );
        }
        let zones: u64 = layout
            .zones_of(node.id)
            .iter()
            .map(|zone| zone.present_frames)
            .sum();
        assert_eq!(zones, node.present_frames);
        let ranges = layout.ranges_of(node.id);
        assert_eq!(
            ranges.map(|range| range.frames.count()).sum::<u64>(),
            node.present_frames
        );
        assert!(node.eager_frames <= node.present_frames);
    }
    for extent in &extents {
        let zone = layout
            .zones_of(extent.node)
            .iter()
            .find(|zone| zone.kind == extent.zone);
        assert!(zone.unwrap().span.covers(extent.frames));
        assert!(layout.node(extent.node).unwrap().span.covers(extent.frames));
    }
    let rows: u64 = rows.iter().map(|row| row.1 - row.0).sum();
    assert_eq!(layout.present_frames(), rows);
    let holes: u64 = layout.holes().map(FrameRange::count).sum();
    assert_eq!(holes + rows, layout.end().get());
}

/// Frames early described, one by one; for each node its first deferred frame.
fn eager_model(layout: &Layout<'_>, policy: &LayoutPolicy) -> Vec<(u64, Option<u64>)> {
    let mut expected = vec![(0, None); usize::from(NODES)];
    let (mut zone_end, mut described) = (0, 0);
    for extent in layout.segments() {
        let (eager, first) = &mut expected[usize::from(extent.node.0)];
        let zones = layout.zones_of(extent.node);
        let end = zones
            .iter()
            .find(|zone| zone.kind == extent.zone)
            .unwrap()
            .span
            .end();
        for frame in extent.frames.start().get()..extent.frames.end().get() {
            if end.get() != zone_end {
                (zone_end, described) = (end.get(), 0);
            }
            if end == layout.node(extent.node).unwrap().span.end() {
                if first.is_none()
                    && described >= policy.eager_frames
                    && frame % policy.section.frames() == 0
                {
                    *first = Some(frame);
                }
                if first.is_some() {
                    break;
                }
                described += 1;
            }
            *eager += 1;
        }
    }
    expected
}

/// Frames of holes in sections with memory, counted one by one.
fn unavailable_model(layout: &Layout<'_>, section_frames: u64) -> u64 {
    let has_memory = |section: u64| {
        let frames =
            FrameRange::new(section * section_frames, (section + 1) * section_frames).unwrap();
        layout
            .ranges()
            .iter()
            .any(|range| !range.frames.intersect(frames).is_empty())
    };
    let end = layout.end().get();
    let mut present = vec![false; usize::try_from(end).unwrap()];
    for range in layout.ranges() {
        let frames = range.frames.start().get()..range.frames.end().get();
        frames.for_each(|frame| present[usize::try_from(frame).unwrap()] = true);
    }
    let holes = (0..end.next_multiple_of(section_frames)).filter(|&frame| {
        !present
            .get(usize::try_from(frame).unwrap())
            .unwrap_or(&false)
    });
    holes
        .filter(|frame| has_memory(frame / section_frames))
        .count()
        .try_into()
        .unwrap()
}

/// What of a layout must not depend on where memory is cut into ranges.
#[derive(Debug, PartialEq)]
struct Shape {
    extents: Vec<ZoneSegment>,
    zones: Vec<Zone>,
    unavailable: Vec<Unavailable>,
    plans: Vec<Deferral>,
    sections: Vec<FrameRange>,
}

fn shape(layout: &Layout<'_>) -> Shape {
    Shape {
        extents: layout.segments().collect(),
        zones: layout.zones().to_vec(),
        unavailable: layout.unavailable().collect(),
        plans: layout.deferrals().collect(),
        sections: layout.sections().map(|run| run.frames()).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_partitioned(rows in rows(0, 30_000), policy in policy()) {
        with_layout(&rows, &policy, |layout| check(&layout, &rows));
    }

    #[test]
    fn memory_is_partitioned_far_up(rows in rows(FAR, FAR >> 8), policy in policy()) {
        with_layout(&rows, &policy, |layout| check(&layout, &rows));
    }

    /// Without mirrored memory to spare, no frame is spanned by two zones of a node.
    #[test]
    fn zones_of_a_node_are_disjoint(rows in rows(0, 30_000), mut policy in policy()) {
        policy.kernelcore_mirror = false;
        with_layout(&rows, &policy, |layout| {
            for node in layout.nodes() {
                for pair in layout.zones_of(node.id).windows(2) {
                    assert!(pair[0].span.end() <= pair[1].span.start(), "{pair:?}");
                    assert!(pair[0].kind < pair[1].kind);
                }
            }
        });
    }

    /// Cutting ranges up (which takes a flag that does not matter here) changes nothing.
    #[test]
    fn splitting_ranges_changes_nothing(
        rows in rows(0, 30_000), mut policy in policy(), cuts in prop::collection::vec(1..100_000u64, 0..8),
    ) {
        policy.movable_node = false;
        let plain: Vec<Row> = rows.iter().map(|row| (row.0, row.1, row.2, row.3.without(EarlyFlags::HOTPLUG))).collect();
        let mut split = plain.clone();
        for cut in cuts {
            if let Some(at) = split.iter().position(|row| row.0 < cut && cut < row.1) {
                let (start, end, node, flags) = split[at];
                split[at].1 = cut;
                split.insert(at + 1, (cut, end, node, flags.with(EarlyFlags::HOTPLUG)));
                prop_assert!(start < cut);
            }
        }
        let want = with_layout(&plain, &policy, |layout| shape(&layout));
        let got = with_layout(&split, &policy, |layout| shape(&layout));
        prop_assert_eq!(got, want);
    }

    /// The kernel gets what was requested, to within a frame a node, and movable memory the rest.
    #[test]
    fn spreading_keeps_the_kernels_share(rows in rows(0, 30_000), core in core_size(), movable in core_size()) {
        let policy = LayoutPolicy { kernelcore: core, movablecore: movable, ..LayoutPolicy::DEFAULT };
        with_layout(&rows, &policy, |layout| {
            let movable: u64 = layout.zones().iter()
                .filter(|zone| zone.kind == ZoneKind::Movable).map(|zone| zone.present_frames).sum();
            match layout.movable() {
                MovableOutcome::Spread { kernel_frames } => {
                    let kept = layout.present_frames() - movable;
                    assert!(kept + u64::from(NODES) >= kernel_frames, "{kept} of {kernel_frames}");
                }
                MovableOutcome::NothingToSplit { .. } | MovableOutcome::NotRequested => assert_eq!(movable, 0),
                other => panic!("{other}"),
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn deferral_is_what_a_walk_frame_by_frame_finds(rows in rows(0, 30_000), mut policy in policy()) {
        policy.eager_frames %= 2 * SECTION_FRAMES;
        with_layout(&rows, &policy, |layout| {
            let want = eager_model(&layout, &policy);
            let got: Vec<_> = layout.nodes().iter()
                .map(|node| (node.eager_frames, node.first_deferred.map(Frame::get))).collect();
            assert_eq!(got, want);
        });
    }

    #[test]
    fn unavailable_frames_are_what_a_count_finds(rows in rows(0, 30_000), section in section()) {
        let policy = LayoutPolicy { section, ..LayoutPolicy::DEFAULT };
        with_layout(&rows, &policy, |layout| {
            let counted: u64 = layout.unavailable().map(|hole| hole.frames).sum();
            assert_eq!(counted, unavailable_model(&layout, section.frames()));
            for run in layout.sections() {
                assert_eq!(run.size, section);
                let frames = run.frames();
                assert_eq!(frames.count(), run.count * section.frames());
                let inside = |at: Frame| frames.contains(at);
                assert!(layout.ranges().iter().any(|range| inside(range.frames.start())));
            }
        });
    }
}

#[test]
fn an_interleaved_node_describes_a_section_of_each_stretch() {
    const S: u64 = SECTION_FRAMES;
    let rows = [
        (0, 4 * S, 0, EarlyFlags::NONE),
        (4 * S, 8 * S, 1, EarlyFlags::NONE),
        (8 * S, 12 * S, 0, EarlyFlags::NONE),
    ];
    let policy = LayoutPolicy {
        dma_end: Frame::new(0),
        ..LayoutPolicy::DEFAULT
    };
    with_layout(&rows, &policy, |layout| {
        let zones: Vec<_> = layout
            .zones()
            .iter()
            .map(|zone| (zone.node.0, zone.span.count(), zone.present_frames))
            .collect();
        assert_eq!(zones, [(0, 12 * S, 8 * S), (1, 4 * S, 4 * S)]);
        let plans: Vec<_> = layout
            .deferrals()
            .map(|plan| (plan.eager_frames, plan.deferred_frames))
            .collect();
        assert_eq!(plans, [(S, 7 * S), (S, 3 * S)]);
        assert_eq!(layout.unavailable().count(), 0);
        assert_eq!(
            layout
                .sections()
                .map(|run| (run.first, run.count))
                .collect::<Vec<_>>(),
            [(0, 12)]
        );
    });
}

/// 512 GB in 32 blocks over 32 TiB: storage for 32 ranges, whatever lies between.
#[test]
fn scattered_memory_costs_what_its_ranges_cost() {
    const T: u64 = (1 << 40) / PAGE_BYTES;
    let rows: Vec<Row> = (0..32)
        .map(|block| {
            (
                block * T,
                block * T + T / 64,
                u16::try_from(block % 4).unwrap(),
                EarlyFlags::NONE,
            )
        })
        .collect();
    with_layout(&rows, &LayoutPolicy::DEFAULT, |layout| {
        assert_eq!(layout.present_frames() * PAGE_BYTES, 512 << 30);
        assert!(layout.end().addr().get() > 31 << 40);
        assert_eq!(layout.segments().count(), 32 + 2); // the first is cut at 16 MiB and 4 GiB
        assert_eq!(
            layout.sections().map(|run| run.count).sum::<u64>(),
            (512 << 30) >> 27
        );
        check(&layout, &rows);
    });
}

#[test]
fn mirrored_memory_above_unmirrored_is_not_lost() {
    const G: u64 = (1 << 30) / PAGE_BYTES;
    let rows = [
        (0, 4 * G, 0, EarlyFlags::MIRROR),
        (4 * G, 8 * G, 1, EarlyFlags::NONE),
        (8 * G, 9 * G, 1, EarlyFlags::MIRROR),
    ];
    let policy = LayoutPolicy {
        kernelcore_mirror: true,
        ..LayoutPolicy::DEFAULT
    };
    with_layout(&rows, &policy, |layout| {
        assert_eq!(
            layout.movable(),
            MovableOutcome::Mirror {
                unmirrored_low: false
            }
        );
        let zones: Vec<_> = layout
            .zones_of(NodeId(1))
            .iter()
            .map(|zone| (zone.kind, zone.present_frames))
            .collect();
        assert_eq!(zones, [(ZoneKind::Normal, G), (ZoneKind::Movable, 4 * G)]);
        check(&layout, &rows);
    });
}
