//! Views of blocks against a model that looks at every range for every block.

use crate::kit;

use std::collections::BTreeSet;

use firstlight::addr::{Frame, FrameRange, PAGE_BYTES};
use firstlight::blocks::{
    Added, Block, BlockId, BlockMemory, BlockSize, BlockState, Blocks, ValidZones, WithAdded,
};
use firstlight::layout::{CoreSize, Layout, LayoutPolicy};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIB, MIB, Machine, range};
use proptest::prelude::*;

/// What is compared of a block.
type Facts = (u64, BlockState, String, Vec<u16>, u64, bool);

fn facts<M: BlockMemory>(block: &Block<'_, M>) -> Facts {
    let nodes = block.nodes().map(|node| node.0).collect();
    let zones = block.zones().to_string();
    (
        block.id().0,
        block.state(),
        zones,
        nodes,
        block.present_frames(),
        block.is_removable(),
    )
}

/// The facts from all ranges, one block at a time.
fn expected(layout: &Layout<'_>, added: &[Added], size: BlockSize, id: u64) -> Option<Facts> {
    let frames = FrameRange::new(id * size.frames(), (id + 1) * size.frames()).unwrap();
    let shared = |other: FrameRange| frames.intersect(other).count();
    let (mut nodes, mut zones) = (BTreeSet::new(), BTreeSet::new());
    let (mut present, mut states) = (0, BTreeSet::new());
    for range in layout.ranges() {
        if shared(range.frames) > 0 {
            nodes.insert(range.node.0);
            present += shared(range.frames);
            states.insert("online");
            let spans = layout.zones().iter().filter(|zone| zone.node == range.node);
            zones.extend(
                spans
                    .filter(|zone| shared(zone.span) > 0)
                    .map(|zone| zone.kind),
            );
        }
    }
    for one in added.iter().filter(|one| shared(one.frames) > 0) {
        nodes.insert(one.node.0);
        present += shared(one.frames);
        zones.insert(one.zone);
        states.insert(one.state.name());
    }
    // Offline if all of it is.
    let state = match states.last()? {
        &"online" => BlockState::Online,
        _ => BlockState::Offline,
    };
    let zone = zones
        .first()
        .filter(|_| zones.len() == 1 && nodes.len() == 1);
    let text = match (zone, state) {
        (None, _) => "none".to_owned(),
        (Some(zone), BlockState::Online) => zone.name().to_owned(),
        (Some(ZoneKind::Movable), BlockState::Offline) => "Movable Normal".to_owned(),
        (Some(zone), BlockState::Offline) => format!("{zone} Movable"),
    };
    let reserved = layout.early().reserved().iter();
    let fixed = reserved
        .map(|region| shared(region.range.outer_frames()))
        .sum::<u64>()
        > 0;
    let removable =
        state == BlockState::Offline || present == size.frames() && zone.is_some() && !fixed;
    Some((
        id,
        state,
        text,
        nodes.into_iter().collect(),
        present,
        removable,
    ))
}

fn check<M: BlockMemory>(view: &Blocks<M>, layout: &Layout<'_>, added: &[Added]) {
    let size = view.size();
    let end = added
        .iter()
        .map(|one| one.frames.end())
        .fold(layout.end(), Ord::max);
    let all: Vec<Facts> = (0..=end.get() / size.frames() + 1)
        .filter_map(|id| {
            let want = expected(layout, added, size, id);
            let got = view.get(BlockId(id));
            assert_eq!(got.as_ref().map(facts), want);
            want
        })
        .collect();
    assert_eq!(
        view.iter().map(|block| facts(&block)).collect::<Vec<_>>(),
        all
    );
    assert_eq!(view.count(), all.len() as u64);

    let mut runs: Vec<(u64, u64, Facts)> = Vec::new();
    for one in &all {
        match runs.last_mut() {
            Some((_, last, like))
                if *last + 1 == one.0 && (like.1, &like.2, &like.3) == (one.1, &one.2, &one.3) =>
            {
                *last = one.0;
            }
            _ => runs.push((one.0, one.0, one.clone())),
        }
    }
    let got = view.runs().map(|run| {
        let nodes: Vec<_> = run.nodes().map(|node| node.0).collect();
        (
            run.first.0,
            run.last.0,
            run.state(),
            run.zones().to_string(),
            nodes,
        )
    });
    let want = runs
        .into_iter()
        .map(|(first, last, like)| (first, last, like.1, like.2, like.3));
    assert_eq!(got.collect::<Vec<_>>(), want.collect::<Vec<_>>());
}

fn machine() -> impl Strategy<Value = Machine> {
    // Mostly in steps of 64 MiB, sometimes of a page.
    let length = prop_oneof![4 => (1..40u64).prop_map(|units| units * 64 * MIB), 1 => (1..3000u64).prop_map(|pages| pages * PAGE_BYTES)];
    let row = (
        prop_oneof![2 => Just(0), 1 => length.clone()],
        length.clone(),
        0..3u16,
    );
    let reserved = (0..4 * GIB, 1..8 * MIB);
    let core = prop_oneof![
        Just(None),
        (1..100u32).prop_map(|percent| Some(CoreSize::Percent(percent)))
    ];
    (
        prop::collection::vec(row, 1..8),
        prop::collection::vec(reserved, 0..3),
        core,
    )
        .prop_map(|(rows, reserved, kernelcore)| {
            let mut at = MIB;
            let memory = rows.into_iter().map(|(hole, bytes, node)| {
                let start = at + hole;
                at = start + bytes;
                (node, range(start, at))
            });
            let mut machine = Machine::new(&memory.collect::<Vec<_>>());
            machine.reserved = reserved
                .into_iter()
                .map(|(at, bytes)| range(at, at + bytes))
                .collect();
            machine.policy = Some(LayoutPolicy {
                kernelcore,
                ..LayoutPolicy::DEFAULT
            });
            machine
        })
}

fn sizes() -> impl Strategy<Value = BlockSize> {
    (27..=32u32).prop_map(|shift| BlockSize::new(1 << shift).unwrap())
}

/// Memory above what there is at boot.
fn added() -> impl Strategy<Value = Vec<(u64, u64, u16, bool, bool)>> {
    let one = (0..6u64, 1..20u64, 0..3u16, any::<bool>(), any::<bool>());
    prop::collection::vec(one, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

    #[test]
    fn each_block_has_the_facts_of_its_ranges(machine in machine(), size in sizes(), rows in added()) {
        let layout = machine.layout();
        check(&Blocks::new(&layout, size), &layout, &[]);

        let unit = BlockSize::SMALLEST.frames();
        let mut at = layout.end().get().next_multiple_of(unit);
        let added: Vec<Added> = rows.into_iter().map(|(hole, units, node, online, movable)| {
            let start = at + hole * unit;
            at = start + units * unit;
            Added {
                frames: FrameRange::new(start, at).unwrap(),
                node: NodeId(node),
                zone: if movable { ZoneKind::Movable } else { ZoneKind::Normal },
                state: if online { BlockState::Online } else { BlockState::Offline },
            }
        }).collect();
        let memory = WithAdded::new(&layout, &added).unwrap();
        check(&Blocks::new(memory, size), &layout, &added);
    }
}

#[test]
fn added_memory_must_not_meet_what_is_there() {
    let layout = Machine::new(&[(0, range(MIB, GIB))]).layout();
    let one = |start: u64, end: u64| Added {
        frames: FrameRange::new(start / PAGE_BYTES, end / PAGE_BYTES).unwrap(),
        node: NodeId(0),
        zone: ZoneKind::Normal,
        state: BlockState::Online,
    };
    let is_refused = |added: &[Added]| WithAdded::new(&layout, added).is_none();
    assert!(!is_refused(&[one(GIB, 2 * GIB), one(2 * GIB, 3 * GIB)]));
    assert!(is_refused(&[one(GIB - MIB, 2 * GIB)]));
    assert!(is_refused(&[
        one(GIB, 2 * GIB),
        one(2 * GIB - MIB, 3 * GIB)
    ]));
    assert!(is_refused(&[one(2 * GIB, 3 * GIB), one(GIB, 2 * GIB)]));
    assert!(is_refused(&[one(GIB, GIB)]));
}

/// The numbers published for 2 TiB: 16,384 blocks of 128 MiB where memory is full, 16,288 where 12 GiB
/// are missing; in one run each way, whatever the size.
#[test]
fn two_tib_are_few_runs_at_any_size() {
    let full = Machine::new(&[(0, range(0, 2048 * GIB))]).layout();
    let holes = Machine::new(&[(0, range(0, 3 * GIB)), (0, range(15 * GIB, 2048 * GIB))]).layout();
    for shift in 27..=31 {
        let size = BlockSize::new(1 << shift).unwrap();
        let blocks = Blocks::new(&full, size);
        assert_eq!(blocks.count(), (2048 * GIB) >> shift);
        // DMA and DMA32 share the first block.
        assert_eq!(blocks.runs().count(), 3);
        assert_eq!(
            blocks.runs().map(|run| run.count()).sum::<u64>(),
            blocks.count()
        );
        assert_eq!(
            blocks.get(BlockId(blocks.count())).map(|block| block.id()),
            None
        );
    }
    let blocks = Blocks::new(&holes, BlockSize::SMALLEST);
    assert_eq!(blocks.count(), 16_288);
    assert_eq!(blocks.iter().count(), 16_288);
    let last = blocks.of(Frame::new(2048 * GIB / PAGE_BYTES - 1)).unwrap();
    assert_eq!(
        (last.id(), last.zones()),
        (BlockId(16_383), ValidZones::One(ZoneKind::Normal))
    );
}
