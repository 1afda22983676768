//! Memory that comes to windows in the zone that the kernel says: two nodes in one window, what is refused,
//! and threads beside memory that changes its zone.

use crate::kit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use firstlight::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{
    BlockError, Content, Cursor, Frames, HotplugError, NewMemory, OnlinePolicy, Refusal, Request,
};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, NodeZone, ZoneKind};
use kit::threads::{Held, SetOnDrop, random};
use kit::{GIB, HUGE_BYTES, MIB, built, layout_with_windows, machine_with_windows, range};

const DIMM: u64 = 128 * MIB;
const ZONES: [ZoneKind; 2] = [ZoneKind::Normal, ZoneKind::Movable];

fn of(node: u16, zone: ZoneKind) -> NodeZone {
    let node = NodeId(node);
    NodeZone { node, zone }
}

/// Node zone number `number` of two nodes.
fn numbered(number: u64) -> NodeZone {
    of(
        u16::from(number & 2 != 0),
        ZONES[usize::from(number & 1 != 0)],
    )
}

fn dimm(slot: u64) -> PhysRange {
    range(64 * GIB + slot * DIMM, 64 * GIB + (slot + 1) * DIMM)
}

/// QEMU announces one window, of the last node, for all DIMMs; its neighbours are of other zones.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn dimms_of_all_zones_come_and_go_in_any_order() {
    let machine = machine_with_windows(range(4 * GIB, 36 * GIB), &[(1, range(64 * GIB, 96 * GIB))]);
    let before = machine.statistics();
    for turn in 0..3 {
        // 101 and 256 have no common divisor.
        for at in 0..256 {
            let slot = at * 101 % 256;
            let zone = numbered(slot + turn);
            machine.add(NewMemory::new(dimm(slot)).of(zone)).unwrap();
            assert_eq!(
                machine.zone_of(dimm(slot).inner_frames().start()),
                Some(zone)
            );
            let again = machine.add(NewMemory::new(dimm(slot)).of(numbered(slot + turn + 1)));
            assert!(matches!(
                again,
                Err(HotplugError {
                    why: Refusal::Present,
                    ..
                })
            ));
        }
        let managed = before.managed_frames + 256 * DIMM / PAGE_BYTES;
        assert_eq!(machine.statistics().managed_frames, managed);
        for at in 0..256 {
            let slot = at * 59 % 256;
            machine.offline(dimm(slot)).unwrap();
            machine.remove(dimm(slot)).unwrap();
        }
        assert_eq!(machine.statistics(), before);
        machine.validate().unwrap();
    }
}

#[test]
fn what_memory_cannot_be_is_refused_with_what_it_can() {
    let windows = [(1, range(64 * GIB, 65 * GIB))];
    let one = machine_with_windows(range(4 * GIB, 5 * GIB), &windows);
    let before = one.statistics();
    let frame = dimm(0).inner_frames().start();
    assert_eq!(kit::zones_at(&one, frame), [0, 1, 2, 3].map(numbered));
    let refused = one.add(NewMemory::new(dimm(0)).of(of(2, ZoneKind::Normal)));
    let (node, nodes) = (NodeId(2), 2);
    assert_eq!(
        refused,
        Err(kit::refused(dimm(0), Refusal::NoSuchNode { node, nodes }))
    );
    let wanted = of(1, ZoneKind::Dma);
    let refused = one.add(NewMemory::new(dimm(0)).of(wanted)).unwrap_err();
    let (range_of, usual) = (dimm(0), of(1, ZoneKind::Normal));
    assert_eq!(
        refused,
        HotplugError {
            range: range_of,
            frame,
            why: Refusal::NotHere { wanted, usual }
        }
    );
    assert!(
        refused
            .to_string()
            .contains("of node 1, zone Normal by itself"),
        "{refused}"
    );
    let outside = one.add(NewMemory::new(range(2 * GIB, 3 * GIB)).of(usual));
    assert!(matches!(
        outside,
        Err(HotplugError {
            why: Refusal::OutsideSpan,
            ..
        })
    ));
    // Memory of the start keeps its zone.
    let block = range(4 * GIB + DIMM, 4 * GIB + 2 * DIMM);
    one.offline(block).unwrap();
    let moved = one.online_to(block, ZoneKind::Movable);
    assert!(
        matches!(
            moved,
            Err(HotplugError {
                why: Refusal::NotHere { .. },
                ..
            })
        ),
        "{moved:?}"
    );
    one.online_to(block, ZoneKind::Normal).unwrap();
    assert_eq!(one.statistics(), before);

    // Firmware that announces windows of both nodes says whose each is.
    let windows = [
        (0, range(64 * GIB, 65 * GIB)),
        (1, range(128 * GIB, 129 * GIB)),
    ];
    let two = machine_with_windows(range(4 * GIB, 5 * GIB), &windows);
    assert_eq!(kit::zones_at(&two, frame), [0, 1].map(numbered));
    let refused = two.add(NewMemory::new(dimm(0)).of(numbered(2)));
    assert!(matches!(
        refused,
        Err(HotplugError {
            why: Refusal::NotHere { .. },
            ..
        })
    ));

    // Without a layout a frame has one zone.
    let span = FrameRange::new(0, 8 * GIB / PAGE_BYTES).unwrap();
    let bytes = usize::try_from(Frames::bytes_for(span, 3).unwrap()).unwrap();
    let over = Frames::over(span, Box::leak(Box::new_uninit_slice(bytes))).unwrap();
    let high = range(4 * GIB, 5 * GIB);
    let refused = over.add(NewMemory::new(high).of(of(0, ZoneKind::Movable)));
    assert!(matches!(
        refused,
        Err(HotplugError {
            why: Refusal::NotHere { .. },
            ..
        })
    ));
    over.add(NewMemory::new(high).of(of(0, ZoneKind::Normal)))
        .unwrap();
    assert_eq!(over.statistics().free_frames, GIB / PAGE_BYTES);
}

/// As Linux's `memhp_default_state=`.
#[test]
fn memory_is_used_as_the_policy_says() {
    let window = range(64 * GIB, 65 * GIB);
    for movable_node in [false, true] {
        let policy = LayoutPolicy {
            movable_node,
            ..LayoutPolicy::DEFAULT
        };
        let layout = layout_with_windows(range(4 * GIB, 5 * GIB), &[], &[(1, window)], &policy);
        let machine = built(layout);
        let usual = if movable_node {
            ZoneKind::Movable
        } else {
            ZoneKind::Normal
        };
        let expected = [
            (OnlinePolicy::Offline, usual),
            (OnlinePolicy::Online, usual),
            (OnlinePolicy::OnlineKernel, ZoneKind::Normal),
            (OnlinePolicy::OnlineMovable, ZoneKind::Movable),
        ];
        for (slot, (policy, zone)) in (0..).zip(expected) {
            let before = machine.statistics();
            let node = NodeId(u16::from(slot % 2 == 0));
            let of_dimm = machine.zone_by_policy(dimm(slot), node, policy).unwrap();
            assert_eq!(of_dimm, NodeZone { node, zone });
            let memory = NewMemory::new(dimm(slot)).of(of_dimm);
            machine.add(memory.policy(policy)).unwrap();
            let frame = dimm(slot).inner_frames().start();
            let waits = policy == OnlinePolicy::Offline;
            assert_eq!(kit::is_offline(&machine, frame), waits);
            let more = machine.statistics().free_frames - before.free_frames;
            assert_eq!(more, if waits { 0 } else { DIMM / PAGE_BYTES });
            if waits {
                assert_eq!(machine.statistics(), before);
                let again = machine.add(dimm(slot));
                assert!(matches!(
                    again,
                    Err(HotplugError {
                        why: Refusal::Present,
                        ..
                    })
                ));
                machine.online_to(dimm(slot), ZoneKind::Movable).unwrap();
                assert_eq!(machine.zone_of(frame), Some(of(1, ZoneKind::Movable)));
            }
        }
        machine.validate().unwrap();
    }
}

/// A window's segments have the same frames: a worker's search goes through each of its node.
#[test]
fn a_worker_finds_memory_of_all_zones_of_a_window() {
    let machine = machine_with_windows(
        range(4 * GIB, 4 * GIB + 64 * MIB),
        &[(1, range(64 * GIB, 65 * GIB))],
    );
    for slot in 0..4 {
        machine
            .add(NewMemory::new(dimm(slot)).of(numbered(3 - slot)))
            .unwrap();
    }
    for node in [NodeId(0), NodeId(1)] {
        let mut cursor = Cursor::new(node);
        let mut kept = Vec::new();
        while cursor.rounds() == 0 {
            let found = machine.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 4096);
            kept.extend(found);
        }
        assert!(kept.iter().all(|block| block.node() == node));
        let of_window = kept
            .iter()
            .filter(|block| block.range().start().addr().get() >= 64 * GIB);
        let mut zones: Vec<_> = of_window.map(|block| block.zone()).collect();
        zones.sort_unstable();
        let half = usize::try_from(DIMM / HUGE_BYTES).unwrap();
        let expected = [
            [ZoneKind::Normal].repeat(half),
            [ZoneKind::Movable].repeat(half),
        ]
        .concat();
        assert_eq!(zones, expected);
    }
    machine.validate().unwrap();
}

/// It is aligned as a block, but it is a range: a block is of one node and zone.
#[test]
fn a_range_of_two_zones_is_freed_as_a_range_alone() {
    let machine = machine_with_windows(
        range(4 * GIB, 4 * GIB + 64 * MIB),
        &[(1, range(64 * GIB, 65 * GIB))],
    );
    for slot in 0..2 {
        machine
            .add(NewMemory::new(dimm(slot)).of(numbered(2 + slot)))
            .unwrap();
    }
    let before = machine.statistics();
    let both = PhysRange::new(dimm(0).start().get(), dimm(1).end().get()).unwrap();
    let both = both.inner_frames();
    let order = Order::of_block(both.count()).unwrap();
    machine.allocate_range(both).unwrap();
    let held = machine.statistics();
    assert_eq!(held.free_frames, before.free_frames - both.count());
    let frame = both.start();
    let refused = Err(BlockError::Reserved { frame, order });
    assert_eq!(machine.free(frame, order), refused);
    assert_eq!(machine.statistics(), held);
    machine.free_frames(both).unwrap();
    assert_eq!(machine.statistics(), before);
    machine.validate().unwrap();
}

/// The list of a window's segment is as long as the machine's; where it is full, all is as before.
#[test]
fn a_full_list_of_a_window_changes_nothing() {
    let machine = machine_with_windows(
        range(4 * GIB, 5 * GIB),
        &[(0, range(64 * GIB, 64 * GIB + 2048 * HUGE_BYTES))],
    );
    let huge = |at: u64| range(64 * GIB + at * HUGE_BYTES, 64 * GIB + (at + 1) * HUGE_BYTES);
    let normal = of(0, ZoneKind::Normal);
    let mut refused = None;
    for at in 0..1000 {
        // The machine's list has no holes.
        let zone = if at % 2 == 0 {
            of(0, ZoneKind::Movable)
        } else {
            normal
        };
        let before = machine.statistics();
        if let Err(error) = machine.add(NewMemory::new(huge(at)).of(zone)) {
            assert_eq!(machine.statistics(), before);
            refused = Some((at, error));
            break;
        }
    }
    let (at, error) = refused.unwrap();
    assert!(
        matches!(
            error,
            HotplugError {
                why: Refusal::ListFull { .. },
                ..
            }
        ),
        "{error}"
    );
    assert!(at > 2 * 256, "space for 256 holes");
    // With one hole less there is space.
    machine.offline(huge(1)).unwrap();
    machine.online_to(huge(1), ZoneKind::Movable).unwrap();
    machine.validate().unwrap();
}

/// Threads allocate, free and drain while DIMMs come, go, and change their zones: a request gets memory
/// of a zone that it may have, on its node, and no page twice.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn dimms_change_their_zone_beside_threads() {
    const CPUS: usize = 3;
    let memory = range(4 * GIB, 4 * GIB + 64 * MIB);
    let built = machine_with_windows(memory, &[(1, range(64 * GIB, 65 * GIB))]);
    let machine = kit::with_cpus(built, CPUS);
    // By DIMM: 0 if it is gone, else its zone's number and 1.
    let zones: Vec<_> = (0..8).map(|_| AtomicU64::new(0)).collect();
    let held = Held::new(range(64 * GIB, 65 * GIB));
    let per_dimm = usize::try_from(DIMM / PAGE_BYTES).unwrap();
    let (done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (machine, held, zones, done) = (&machine, &held, &zones, &done);
            scope.spawn(move || {
                let node = NodeId(u16::try_from(cpu % 2).unwrap());
                let mut own = machine.cpu(cpu, node).unwrap();
                let request = |dice: u64, order| {
                    let mut request = Request::new(order);
                    if dice & 1 << 10 != 0 {
                        request = request.zone(ZoneKind::Movable).movable();
                    }
                    if dice & 1 << 11 != 0 {
                        let node = NodeId(u16::from(dice & 1 << 12 != 0));
                        request = request.only_on(node);
                    }
                    request
                };
                let check = |request: Request, _, page: usize| {
                    let zone = zones[page / per_dimm].load(Relaxed);
                    let zone = numbered(zone.checked_sub(1).expect("its DIMM is gone"));
                    assert!(zone.zone <= request.highest_zone(), "{request:?}: {zone}");
                    if request.is_only_node() {
                        assert_eq!(Some(zone.node), request.node());
                    }
                };
                held.churn(&mut own, cpu as u64 + 1, done, request, check);
                own.close().unwrap();
            });
        }
        // Also where a check fails: the threads end.
        let _end = SetOnDrop(&done);
        let mut state = 7_u64;
        for _ in 0..4000 {
            state = random(state);
            let (slot, number) = (state >> 40 & 7, state >> 45 & 3);
            let at = usize::try_from(slot).unwrap();
            let was = zones[at].load(Relaxed);
            if was == 0 {
                zones[at].store(number + 1, Relaxed);
                machine
                    .add(NewMemory::new(dimm(slot)).of(numbered(number)))
                    .unwrap();
            } else if machine.offline(dimm(slot)).is_ok() {
                moved.fetch_add(1, Relaxed);
                if state >> 50 & 1 == 0 {
                    // The other zone of its node.
                    let number = (was - 1) ^ 1;
                    zones[at].store(number + 1, Relaxed);
                    machine
                        .online_to(dimm(slot), numbered(number).zone)
                        .unwrap();
                } else {
                    zones[at].store(0, Relaxed);
                    machine.remove(dimm(slot)).unwrap();
                }
            }
        }
    });
    assert!(moved.load(Relaxed) > 10, "DIMMs went");
    machine.validate().unwrap();
    let statistics = machine.statistics();
    assert_eq!(statistics.free_frames, statistics.managed_frames);
    // And all that is left can go.
    for slot in 0..8 {
        if zones[usize::try_from(slot).unwrap()].load(Relaxed) != 0 {
            machine.offline(dimm(slot)).unwrap();
            machine.remove(dimm(slot)).unwrap();
        }
    }
    let gone = machine.offline(dimm(0));
    assert!(matches!(
        gone,
        Err(HotplugError {
            why: Refusal::NotMemory,
            ..
        })
    ));
    machine.validate().unwrap();
}
