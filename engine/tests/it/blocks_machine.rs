//! Blocks of an allocator beside a plain model: memory comes, goes offline, comes online and is
//! removed, and each block shows what each of its huge frames is.

use crate::kit;

use std::collections::{BTreeMap, BTreeSet};

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::blocks::{Block, BlockId, BlockMemory, BlockSize, BlockState, Blocks, SizePolicy};
use firstlight::frames::{Frames, Request};
use firstlight::layout::{ExtentKind, LayoutPolicy};
use firstlight::node::ZoneKind;
use kit::{
    GIANT_BYTES, GIANT_HUGES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, Machine, built,
    layout_with_windows, range,
};
use proptest::prelude::*;

/// Memory of the start ends with half a huge frame.
const MEMORY: (u64, u64) = (3 * GIB, 5 * GIB + 128 * MIB + HUGE_BYTES / 2);
/// Each is in the middle of the largest blocks; the last two touch, on different nodes.
const WINDOWS: [(u32, u64, u64); 3] = [
    (0, 6 * GIB + 64 * MIB, 8 * GIB),
    (1, 9 * GIB, 10 * GIB + 64 * MIB),
    (2, 10 * GIB + 64 * MIB, 12 * GIB),
];

fn machine(movable_node: bool) -> Frames<'static> {
    let policy = LayoutPolicy {
        movable_node,
        ..LayoutPolicy::DEFAULT
    };
    let windows = WINDOWS.map(|(node, start, end)| (node, range(start, end)));
    let reserved = [range(4 * GIB + 300 * MIB, 4 * GIB + 301 * MIB)];
    let memory = range(MEMORY.0, MEMORY.1);
    let layout = layout_with_windows(memory, &reserved, &windows, &policy);
    built(layout)
}

/// What is compared of a block.
type Facts = (u64, BlockState, String, Vec<u16>, u64, bool);

fn facts<M: BlockMemory>(block: &Block<'_, M>) -> Facts {
    let nodes = block.nodes().map(|node| node.0).collect();
    let zones = block.zones().to_string();
    let (present, removable) = (block.present_frames(), block.is_removable());
    (
        block.id().0,
        block.state(),
        zones,
        nodes,
        present,
        removable,
    )
}

/// Huge frames by number: those that came, and whether they are offline; what is fixed.
struct Model {
    start_offline: BTreeSet<u64>,
    came: BTreeMap<u64, bool>,
    fixed: BTreeSet<u64>,
    /// Those that may be split for movable pages.
    movable: BTreeSet<u64>,
    movable_node: bool,
}

impl Model {
    fn new(frames: &Frames<'_>, movable_node: bool) -> Self {
        let extents = frames.layout().extents();
        let taken = extents.filter(|extent| extent.kind != ExtentKind::Usable);
        let huges = taken.flat_map(|extent| {
            let (first, last) = (extent.frames.start().get(), extent.frames.end().get() - 1);
            first / HUGE_FRAMES..=last / HUGE_FRAMES
        });
        Self {
            start_offline: BTreeSet::new(),
            came: BTreeMap::new(),
            fixed: huges.collect(),
            movable: BTreeSet::new(),
            movable_node,
        }
    }

    /// Node, zone and state of a huge frame that has memory, and how many frames.
    fn huge(&self, huge: u64) -> Option<(u16, ZoneKind, bool, u64)> {
        let at = huge * HUGE_BYTES;
        if (MEMORY.0..MEMORY.1).contains(&at) {
            let frames = HUGE_BYTES.min(MEMORY.1 - at) / PAGE_BYTES;
            let zone = if at < 4 * GIB {
                ZoneKind::Dma32
            } else {
                ZoneKind::Normal
            };
            return Some((0, zone, self.start_offline.contains(&huge), frames));
        }
        let zone = if self.movable_node {
            ZoneKind::Movable
        } else {
            ZoneKind::Normal
        };
        let is_offline = *self.came.get(&huge)?;
        let mut windows = (0..).zip(WINDOWS);
        let (node, _) = windows.find(|(_, (_, start, end))| (*start..*end).contains(&at))?;
        Some((node, zone, is_offline, HUGE_FRAMES))
    }

    fn block(&self, size: BlockSize, id: u64) -> Option<Facts> {
        let huges = size.bytes() / HUGE_BYTES;
        let all = id * huges..(id + 1) * huges;
        let there: Vec<_> = all.clone().filter_map(|huge| self.huge(huge)).collect();
        let (_, zone, ..) = *there.first()?;
        let nodes: BTreeSet<_> = there.iter().map(|one| one.0).collect();
        let present = there.iter().map(|one| one.3).sum::<u64>();
        let is_offline = there.iter().all(|one| one.2);
        let one_zone = nodes.len() == 1 && there.iter().all(|one| one.1 == zone);
        let zones = match (one_zone, is_offline) {
            (false, _) => "none".to_owned(),
            (true, false) => zone.name().to_owned(),
            (true, true) if zone == ZoneKind::Movable => "Movable Normal".to_owned(),
            (true, true) => format!("{} Movable", zone.name()),
        };
        let is_free = || all.clone().all(|huge| !self.fixed.contains(&huge));
        let removable = is_offline || present == size.frames() && one_zone && is_free();
        let state = if is_offline {
            BlockState::Offline
        } else {
            BlockState::Online
        };
        Some((
            id,
            state,
            zones,
            nodes.into_iter().collect(),
            present,
            removable,
        ))
    }

    fn check(&self, frames: &Frames<'_>, size: BlockSize) {
        let view = Blocks::new(frames, size);
        let ids = 0..16 * GIB / size.bytes();
        let all: Vec<Facts> = ids
            .filter_map(|id| {
                let want = self.block(size, id);
                assert_eq!(view.get(BlockId(id)).as_ref().map(facts), want);
                want
            })
            .collect();
        let listed: Vec<_> = view.iter().map(|block| facts(&block)).collect();
        assert_eq!(listed, all);
        assert_eq!(view.count(), all.len() as u64);
        let mut runs: Vec<(u64, u64, BlockState, String, Vec<u16>)> = Vec::new();
        for (id, state, zones, nodes, ..) in all {
            match runs.last_mut() {
                Some(run)
                    if run.1 + 1 == id && (run.2, &run.3, &run.4) == (state, &zones, &nodes) =>
                {
                    run.1 = id;
                }
                _ => runs.push((id, id, state, zones, nodes)),
            }
        }
        let seen = view.runs().map(|run| {
            let nodes = run.nodes().map(|node| node.0).collect();
            (
                run.first.0,
                run.last.0,
                run.state(),
                run.zones().to_string(),
                nodes,
            )
        });
        assert_eq!(seen.collect::<Vec<_>>(), runs);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u64, u64),
    Offline(u64, u64),
    Online(u64, u64),
    Remove(u64, u64),
    /// A page that can be moved or not, at this huge frame.
    Page(u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = 128 * MIB / HUGE_BYTES;
    // A place anywhere, the size of a few huge frames, of a block, or of a giant frame.
    let huges = (
        MEMORY.0 / HUGE_BYTES..12 * GIB / HUGE_BYTES,
        0..4_u8,
        1..70_u64,
    );
    let range = huges.prop_map(move |(at, kind, some)| match kind {
        0 => (at, some),
        1 => (at / block * block, block),
        2 => (at / block * block, block * (1 + some / 4)),
        _ => (at / GIANT_HUGES * GIANT_HUGES, GIANT_HUGES),
    });
    let step =
        (0..10_u8, range, any::<bool>()).prop_map(|(kind, (at, count), movable)| match kind {
            0..=3 => Step::Add(at, count),
            4..=6 => Step::Offline(at, count),
            7 => Step::Online(at, count),
            8 => Step::Remove(at, count),
            _ => Step::Page(at, movable),
        });
    prop::collection::vec(step, 1..40)
}

fn bytes(at: u64, count: u64) -> PhysRange {
    range(at * HUGE_BYTES, (at + count) * HUGE_BYTES)
}

fn apply(frames: &Frames<'_>, model: &mut Model, step: Step) {
    let is_start = |huge: u64| huge * HUGE_BYTES < MEMORY.1;
    match step {
        Step::Add(at, count) => {
            if frames.add(bytes(at, count)).is_ok() {
                model
                    .came
                    .extend((at..at + count).map(|huge| (huge, false)));
            }
        }
        Step::Offline(at, count) => {
            if frames.offline(bytes(at, count)).is_ok() {
                for huge in at..at + count {
                    if is_start(huge) {
                        model.start_offline.insert(huge);
                    } else {
                        model.came.insert(huge, true);
                    }
                }
            }
        }
        Step::Online(at, count) => {
            if frames.online(bytes(at, count)).is_ok() {
                for huge in at..at + count {
                    if !model.start_offline.remove(&huge) {
                        model.came.insert(huge, false);
                    }
                }
            }
        }
        Step::Remove(at, count) => {
            if frames.remove(bytes(at, count)).is_ok() {
                model
                    .came
                    .retain(|huge, _| !(at..at + count).contains(huge));
            }
        }
        Step::Page(at, true) => {
            let request = Request::new(Order::PAGE).movable();
            let request = if at % 2 == 0 {
                request.zone(ZoneKind::Movable)
            } else {
                request
            };
            if let Ok(page) = frames.allocate(request) {
                model.movable.insert(page.get() / HUGE_FRAMES);
            }
        }
        Step::Page(at, false) => {
            let page = Frame::new(at * HUGE_FRAMES + 7);
            if !model.movable.contains(&at)
                && frames.allocate_range(kit::block(page, Order::PAGE)).is_ok()
            {
                model.fixed.insert(at);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 96 }, ..ProptestConfig::default() })]

    #[test]
    fn blocks_show_what_comes_and_goes(movable_node in any::<bool>(), steps in steps()) {
        let frames = machine(movable_node);
        let mut model = Model::new(&frames, movable_node);
        let sizes = [27, 28, 30, 32].map(|shift| BlockSize::new(1 << shift).unwrap());
        for (at, step) in steps.into_iter().enumerate() {
            apply(&frames, &mut model, step);
            model.check(&frames, sizes[at % sizes.len()]);
        }
        sizes.into_iter().for_each(|size| model.check(&frames, size));
        frames.validate().unwrap();
    }
}

/// Before anything comes or goes an allocator shows what its layout shows, but for what is fixed.
#[test]
fn an_allocator_shows_the_blocks_of_its_layout() {
    let ranges = [
        (0, MIB, 3 * GIB),
        (0, 4 * GIB, 6 * GIB + 37 * PAGE_BYTES),
        (1, 7 * GIB, 9 * GIB),
    ];
    let memory = ranges.map(|(node, start, end)| (node, range(start, end)));
    let frames = Machine::new(&memory).frames();
    for shift in 27..=32 {
        let size = BlockSize::new(1 << shift).unwrap();
        let (now, start) = (
            Blocks::new(&frames, size),
            Blocks::new(frames.layout(), size),
        );
        let plain = |facts: Facts| (facts.0, facts.1, facts.2, facts.3, facts.4);
        let now = now.iter().map(|block| plain(facts(&block)));
        let start = start.iter().map(|block| plain(facts(&block)));
        assert_eq!(now.collect::<Vec<_>>(), start.collect::<Vec<_>>());
    }
}

/// Memory that comes range by range, to an allocator without a layout.
#[test]
fn an_allocator_without_a_layout_shows_what_was_added() {
    let frames = kit::added(GIB + PAGE_BYTES);
    let blocks = Blocks::new(&frames, BlockSize::SMALLEST);
    assert_eq!((blocks.count(), blocks.runs().count()), (9, 1));
    let first = 4 * GIANT_BYTES / BlockSize::SMALLEST.bytes();
    let ends = [first, first + 8].map(|id| blocks.get(BlockId(id)).unwrap());
    assert_eq!(
        ends.map(|block| block.present_frames()),
        [128 * MIB / PAGE_BYTES, 1]
    );
    assert_eq!(ends.map(|block| block.is_removable()), [true, false]);
    assert!(blocks.get(BlockId(first - 1)).is_none() && blocks.get(BlockId(first + 9)).is_none());
}

/// Memory of the start may end anywhere: it does not leave.
#[test]
fn windows_for_memory_that_comes_lower_the_size_of_blocks() {
    let memory = range(4 * GIB, 70 * GIB);
    for (windows, dimm_bytes) in [
        (vec![], None),
        (vec![(0, range(128 * GIB, 144 * GIB))], Some(16 * GIB)),
        (
            vec![
                (0, range(128 * GIB, 144 * GIB)),
                (1, range(160 * GIB, 161 * GIB + 512 * MIB)),
            ],
            Some(512 * MIB),
        ),
    ] {
        let layout = layout_with_windows(memory, &[], &windows, &LayoutPolicy::DEFAULT);
        let policy = SizePolicy::of(&layout, true);
        let expected = SizePolicy {
            end_bytes: 70 * GIB,
            is_virtual: true,
            dimm_bytes,
            ..SizePolicy::default()
        };
        assert_eq!(policy, expected);
    }
}
