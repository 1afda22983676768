//! The rules of early allocation, one by one, and what hostile input meets.

use crate::kit::{MIB, range};

use firstlight::addr::{PAGE_BYTES, PhysAddr};
use firstlight::early::{
    Allocation, Direction, EarlyError, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest, EarlySet,
};
use firstlight::map::{Attributes, MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight::node::NodeId;

/// Runs `test` with memory 0..64 MiB on node 0 and 64..128 MiB on node 1.
fn with_two_nodes(test: impl FnOnce(EarlyMemory<'_>)) {
    let mut memory = [EarlyRegion::EMPTY; 16];
    let mut reserved = [EarlyRegion::EMPTY; 16];
    let mut owners = [Allocation::EMPTY; 16];
    let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
    early.add(range(0, 128 * MIB), EarlyFlags::NONE).unwrap();
    early.set_node(range(0, 64 * MIB), NodeId(0)).unwrap();
    early
        .set_node(range(64 * MIB, 128 * MIB), NodeId(1))
        .unwrap();
    test(early);
}

fn page(owner: &'static str) -> EarlyRequest {
    EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, owner)
}

#[test]
fn an_allocation_keeps_its_owner_and_its_node() {
    with_two_nodes(|mut early| {
        early.reserve(range(0, MIB), "firmware").unwrap();
        let taken = early.allocate(&page("node data").on(NodeId(0))).unwrap();
        assert_eq!(taken.end().get(), 64 * MIB);
        let seen = early.owners();
        let seen: Vec<_> = seen
            .iter()
            .map(|one| (one.range, one.node, one.owner()))
            .collect();
        let expected = [
            (range(0, MIB), None, "firmware"),
            (taken, Some(NodeId(0)), "node data"),
        ];
        assert_eq!(seen, expected);
        let start = 64 * MIB - PAGE_BYTES;
        let shown = format!("[{start:#018x}-0x0000000003ffffff] on node 0 for node data");
        assert_eq!(early.owners()[1].to_string(), shown);
        assert_eq!(Allocation::EMPTY.owner(), "");
    });
}

#[test]
fn a_full_node_falls_back_unless_this_node_only() {
    with_two_nodes(|mut early| {
        early
            .reserve(range(64 * MIB, 128 * MIB), "all of node 1")
            .unwrap();
        let taken = early.allocate(&page("any").on(NodeId(1))).unwrap();
        assert_eq!(taken.end().get(), 64 * MIB);
        let error = early
            .allocate(&page("exact").only_on(NodeId(1)))
            .unwrap_err();
        assert!(matches!(error, EarlyError::NoSpace { .. }));
        assert_eq!(
            error.to_string(),
            format!(
                "no {PAGE_BYTES} bytes aligned to {PAGE_BYTES:#x} for exact in 0x0..0xffffffffffffffff on node 1; \
                 the largest free range there is {} bytes",
                64 * MIB - PAGE_BYTES
            )
        );
    });
}

#[test]
fn mirrored_memory_comes_first_then_any() {
    with_two_nodes(|mut early| {
        early
            .set_flags(range(8 * MIB, 8 * MIB + PAGE_BYTES), EarlyFlags::MIRROR)
            .unwrap();
        // Even the mirrored memory of another node is better than the node's own.
        let first = early.allocate(&page("mirrored").on(NodeId(1))).unwrap();
        assert_eq!(first.start().get(), 8 * MIB);
        let second = early
            .allocate(&page("no mirror left").on(NodeId(1)))
            .unwrap();
        assert_eq!(second.end().get(), 128 * MIB);
    });
}

#[test]
fn hotpluggable_memory_is_avoided_on_request() {
    with_two_nodes(|mut early| {
        early
            .set_flags(range(64 * MIB, 128 * MIB), EarlyFlags::HOTPLUG)
            .unwrap();
        let before = early.allocate(&page("before")).unwrap();
        assert_eq!(before.end().get(), 128 * MIB);
        early.set_movable_node(true);
        assert_eq!(
            early.allocate(&page("after")).unwrap().end().get(),
            64 * MIB
        );
        assert!(early.allocate(&page("exact").only_on(NodeId(1))).is_err());
    });
}

#[test]
fn memory_that_must_not_be_touched_is_never_allocated() {
    for flag in [
        EarlyFlags::NOMAP,
        EarlyFlags::DRIVER_MANAGED,
        EarlyFlags::UNACCEPTED,
    ] {
        with_two_nodes(|mut early| {
            early.set_flags(range(MIB, 128 * MIB), flag).unwrap();
            assert_eq!(
                early.allocate(&page("low")).unwrap().end().get(),
                MIB,
                "{flag}"
            );
            early.clear_flags(range(2 * MIB, 3 * MIB), flag).unwrap();
            assert_eq!(
                early.allocate(&page("high")).unwrap().end().get(),
                3 * MIB,
                "{flag}"
            );
        });
    }
}

#[test]
fn the_first_page_is_never_allocated() {
    with_two_nodes(|mut early| {
        early.set_direction(Direction::BottomUp);
        assert_eq!(
            early.allocate(&page("lowest")).unwrap().start().get(),
            PAGE_BYTES
        );
        let whole = EarlyRequest::new(MIB, MIB, "aligned");
        assert_eq!(early.allocate(&whole).unwrap().start().get(), MIB);
        let low = page("page 0").within(PhysAddr::ZERO, PhysAddr::new(PAGE_BYTES));
        assert!(early.allocate(&low).is_err());
    });
}

#[test]
fn limits_hold_and_a_soft_minimum_gives_way() {
    with_two_nodes(|mut early| {
        early.set_limit(PhysAddr::new(32 * MIB));
        assert_eq!(
            early.allocate(&page("limited")).unwrap().end().get(),
            32 * MIB
        );
        let above = page("mapped").within(PhysAddr::new(40 * MIB), PhysAddr::new(48 * MIB));
        assert!(early.allocate(&above).is_err());
        let ignoring = EarlyRequest {
            ignore_limit: true,
            ..above
        };
        assert_eq!(early.allocate(&ignoring).unwrap().end().get(), 48 * MIB);
        let soft = EarlyRequest {
            soft_min: true,
            ..above
        };
        assert_eq!(
            early.allocate(&soft).unwrap().end().get(),
            32 * MIB - PAGE_BYTES
        );
    });
}

#[test]
fn an_allocation_does_not_cross_from_region_to_region() {
    with_two_nodes(|mut early| {
        early.reserve(range(65 * MIB, 128 * MIB), "high").unwrap();
        let wide = EarlyRequest::new(2 * MIB, 4096, "wide");
        // 63..65 MiB is free, but half of it is on the other node.
        assert_eq!(early.allocate(&wide).unwrap(), range(62 * MIB, 64 * MIB));
    });
}

#[test]
fn absurd_requests_are_refused_and_nothing_overflows() {
    with_two_nodes(|mut early| {
        let zero = early
            .allocate(&EarlyRequest::new(0, 8, "zero"))
            .unwrap_err();
        assert_eq!(zero, EarlyError::ZeroBytes { owner: "zero" });
        for align in [0, 3, u64::MAX] {
            let bad = early
                .allocate(&EarlyRequest::new(1, align, "odd"))
                .unwrap_err();
            assert_eq!(
                bad,
                EarlyError::BadAlign {
                    align,
                    owner: "odd"
                }
            );
        }
        early
            .add(range(u64::MAX - 4096, u64::MAX), EarlyFlags::NONE)
            .unwrap();
        let high = PhysAddr::new((1 << 63) + 1);
        for direction in [Direction::TopDown, Direction::BottomUp] {
            early.set_direction(direction);
            for (bytes, align) in [
                (u64::MAX, 1),
                (u64::MAX, 1 << 63),
                (1, 1 << 63),
                (8192, 4096),
            ] {
                let request = EarlyRequest::new(bytes, align, "huge");
                let request = request.within(high, PhysAddr::new(u64::MAX));
                let refused = early.allocate(&request);
                assert!(
                    matches!(refused, Err(EarlyError::NoSpace { .. })),
                    "{bytes} {align}"
                );
            }
        }
        let backwards = page("backwards").within(PhysAddr::new(MIB), PhysAddr::new(PAGE_BYTES));
        assert!(early.allocate(&backwards).is_err());
        assert_eq!(early.reserved(), []);
    });
}

#[test]
fn freeing_what_is_free_is_an_error() {
    with_two_nodes(|mut early| {
        let taken = early.allocate(&page("once")).unwrap();
        early.free(taken).unwrap();
        assert_eq!(
            early.free(taken),
            Err(EarlyError::NotReserved { range: taken })
        );
        let half = range(MIB, 3 * MIB);
        early.reserve(range(MIB, 2 * MIB), "half").unwrap();
        assert_eq!(
            early.free(half),
            Err(EarlyError::NotReserved { range: half })
        );
        assert_eq!(early.reserved_bytes(), MIB);
    });
}

#[test]
fn a_short_owner_log_counts_what_it_has_no_slot_for() {
    let mut memory = [EarlyRegion::EMPTY; 2];
    let mut reserved = [EarlyRegion::EMPTY; 8];
    let mut owners = [Allocation::EMPTY; 1];
    let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
    early.add(range(0, MIB), EarlyFlags::NONE).unwrap();
    early.reserve(range(0x1000, 0x4000), "kept").unwrap();
    assert_eq!(early.untracked(), 0);
    early.reserve(range(0x8000, 0x9000), "counted").unwrap();
    assert_eq!((early.owners().len(), early.untracked()), (1, 1));
    // Cut in the middle: the upper half finds no slot either.
    early.free(range(0x2000, 0x3000)).unwrap();
    assert_eq!(early.owners()[0].range, range(0x1000, 0x2000));
    assert_eq!(early.untracked(), 2);
}

#[test]
fn a_range_over_many_others_fills_every_gap() {
    const COUNT: usize = if cfg!(miri) { 50 } else { 20_000 };
    let mut memory = vec![EarlyRegion::EMPTY; 2 * COUNT + 1];
    let mut early = EarlyMemory::new(&mut memory, &mut [], &mut []);
    for at in 0..COUNT as u64 {
        early
            .add(
                range((2 * at + 1) * 4096, (2 * at + 2) * 4096),
                EarlyFlags::HOTPLUG,
            )
            .unwrap();
    }
    let all = range(0, (2 * COUNT as u64 + 1) * 4096);
    early.add(all, EarlyFlags::MIRROR).unwrap();
    assert_eq!(early.memory().len(), 2 * COUNT + 1);
    assert_eq!(early.memory_bytes(), all.bytes());
    let error = early.reserve(range(0, 1), "nowhere").unwrap_err();
    let EarlyError::Full {
        set: EarlySet::Reserved,
        full,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((full.capacity, full.needed), (0, 1));
    early
        .set_flags(range(0, u64::MAX), EarlyFlags::HOTPLUG | EarlyFlags::MIRROR)
        .unwrap();
    assert_eq!(early.memory().len(), 1);
}

#[test]
fn a_firmware_map_becomes_memory() {
    let reliable = Attributes {
        more_reliable: true,
        ..Attributes::NONE
    };
    let entries = [
        MapEntry::new(MIB, MIB, MemoryKind::Usable),
        MapEntry::new(2 * MIB, MIB, MemoryKind::Usable).with_attributes(reliable),
        MapEntry::new(3 * MIB, MIB, MemoryKind::Unaccepted),
        MapEntry::new(4 * MIB, MIB, MemoryKind::SoftReserved),
        MapEntry::new(8 * MIB, MIB, MemoryKind::Usable),
    ];
    let mut scratch = [ScratchEntry::default(); 8];
    let mut regions = [Region::default(); 16];
    let map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {});
    let map = map.unwrap();

    let mut short = [EarlyRegion::EMPTY; 2];
    let error = EarlyMemory::from_map(&map, &mut short, &mut [], &mut []).unwrap_err();
    let EarlyError::Full {
        set: EarlySet::Memory,
        full,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((full.capacity, full.needed), (2, 4));

    let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 4]);
    let mut early = EarlyMemory::from_map(&map, &mut memory, &mut reserved, &mut []).unwrap();
    let seen: Vec<String> = early.memory().iter().map(ToString::to_string).collect();
    let expected = [
        "[0x0000000000100000-0x00000000001fffff]",
        "[0x0000000000200000-0x00000000002fffff] mirror",
        "[0x0000000000300000-0x00000000003fffff] unaccepted",
        "[0x0000000000800000-0x00000000008fffff]",
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        early.allocate(&page("mirrored")).unwrap().end().get(),
        3 * MIB
    );
}
