//! Memory of a window that changes its zone, beside requests, frees by address and other calls that add it.

use super::offline::{HUGE, block};
use super::*;
use crate::frames::{HotplugError, NewMemory, OnlinePolicy, Refusal};
use crate::node::NodeZone;

const fn of(zone: ZoneKind) -> NodeZone {
    NodeZone {
        node: NodeId(0),
        zone,
    }
}

const NORMAL: NodeZone = of(ZoneKind::Normal);
const MOVABLE: NodeZone = of(ZoneKind::Movable);

/// `range` in a list of so many ranges at most.
fn list_for(ranges: usize, range: FrameRange) -> &'static Pinned<'static> {
    let entries = (0..Pinned::entries_for(ranges)).map(|_| Entry::default());
    let entries: Vec<_> = entries.collect();
    let list = Pinned::new(Table::from_slice(entries.leak()));
    assert!(range.is_empty() || list.pin(range));
    Box::leak(Box::new(list))
}

fn list(range: FrameRange) -> &'static Pinned<'static> {
    list_for(3, range)
}

/// A machine that is one window of two huge frames, for both zones.
fn window() -> &'static Machine {
    let all = frames(0, 2 * HUGE);
    let segment = |of: NodeZone| {
        let segment = blank_segment_with(all, list(all));
        ZoneSegment::new(segment, of.node, of.zone, None).of_window()
    };
    let zones = std::vec![Zones::default()].leak();
    let all_segments = std::vec![segment(NORMAL), segment(MOVABLE)].leak();
    let segments = Segments::new(all_segments, zones);
    Machine::of(segments, list(all), &NoDrain)
}

impl Machine {
    fn add_to(&self, range: PhysRange, of: NodeZone) -> Result<(), HotplugError> {
        self.shared.add(NewMemory::new(range).of(of))
    }

    /// A page of this zone, past all caches.
    fn page_of(&self, zone: ZoneKind) -> Option<Frame> {
        let segments = &self.shared.nodes.segments;
        let mut online = segments.of_zone(NodeId(0), zone);
        online.find_map(|one| one.online()?.take_any(0).ok())
    }
}

/// The range is claimed once, whatever the zones; then it is all there.
#[test]
fn of_two_additions_to_two_zones_one_is_refused() {
    check(2, || {
        let machine = window();
        let (one, other) = both(
            || machine.add_to(block(), NORMAL),
            || machine.add_to(bytes(HUGE - 1, HUGE + 1), MOVABLE),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?}, {other:?}");
        let refused = one.and(other);
        assert!(matches!(
            refused,
            Err(HotplugError {
                why: Refusal::Present | Refusal::OtherZone,
                ..
            })
        ));
        assert_eq!(machine.free_frames(), if one.is_ok() { HUGE } else { 2 });
    });
}

/// A request for kernel memory gets nothing of what comes online for movable memory only.
#[test]
fn memory_changes_its_zone_beside_a_request() {
    check(2, || {
        let machine = window();
        machine.add_to(block(), NORMAL).unwrap();
        machine.add_to(bytes(HUGE, HUGE + 1), MOVABLE).unwrap();
        machine.shared.offline(block()).unwrap();
        let (moved, found) = both(
            || machine.shared.online_to(block(), ZoneKind::Movable),
            || machine.page_of(ZoneKind::Normal),
        );
        assert_eq!((moved, found), (Ok(()), None));
        assert_eq!(machine.shared.zone_of(Frame::new(0)), Some(MOVABLE));
        assert_eq!(machine.free_frames(), HUGE + 1);
    });
}

/// What a request for kernel memory got before it goes stays kernel memory, and keeps it from going.
#[test]
fn memory_goes_to_another_zone_beside_a_request() {
    long(2, || {
        let machine = window();
        machine.add_to(block(), NORMAL).unwrap();
        let (moved, found) = both(
            || {
                machine.shared.offline(block())?;
                machine.shared.online_to(block(), ZoneKind::Movable)
            },
            || machine.page_of(ZoneKind::Normal),
        );
        let zone = machine.shared.zone_of(Frame::new(0));
        if let Some(page) = found {
            assert!(moved.is_err());
            machine.shared.free(page, Order::PAGE).unwrap();
        }
        assert_eq!(zone, Some(if moved.is_ok() { MOVABLE } else { NORMAL }));
        assert_eq!(machine.free_frames(), HUGE);
    });
}

/// The segment of a page that is held is found, whatever becomes of the memory beside it.
#[test]
fn a_page_is_freed_beside_memory_that_comes_to_another_zone() {
    check(2, || {
        let machine = window();
        machine.add_to(bytes(0, 2), NORMAL).unwrap();
        machine.add_to(bytes(HUGE, HUGE + 1), MOVABLE).unwrap();
        let page = machine.page_of(ZoneKind::Normal).unwrap();
        let (added, freed) = both(
            || machine.add_to(bytes(HUGE + 1, HUGE + 2), MOVABLE),
            move || machine.shared.free(page, Order::PAGE),
        );
        assert_eq!((added, freed), (Ok(()), Ok(())));
        assert_eq!(machine.free_frames(), 4);
    });
}

/// What waits offline, and what is added at the same moment.
#[test]
fn memory_that_waits_offline_is_not_added_as_well() {
    check(2, || {
        let machine = window();
        machine.add_to(bytes(HUGE, HUGE + 1), MOVABLE).unwrap();
        let (waits, added) = both(
            || {
                machine.shared.add(
                    NewMemory::new(block())
                        .of(NORMAL)
                        .policy(OnlinePolicy::Offline),
                )
            },
            || machine.add_to(bytes(0, 1), MOVABLE),
        );
        assert!(waits.is_err() || added.is_err(), "{waits:?}, {added:?}");
        let free = 1 + u64::from(added.is_ok());
        assert_eq!(machine.free_frames(), free);
        let is_offline = machine.shared.is_offline(Frame::new(0));
        assert_eq!(is_offline, waits.is_ok() && added.is_err());
    });
}

/// Memory goes from one zone to the other beside an isolation of it: that has all of it, in the zone that it
/// is of then, or nothing.
#[test]
fn what_changes_its_zone_is_isolated_in_one() {
    check(1, || {
        let machine = window();
        machine.add_to(block(), MOVABLE).unwrap();
        let (taken, moved) = both(
            || {
                let isolation = machine.shared.isolate(block().inner_frames());
                isolation.is_ok_and(|isolation| isolation.take().is_ok())
            },
            || {
                machine.shared.offline(block()).is_ok() && {
                    let moved = machine.shared.online_to(block(), ZoneKind::Normal);
                    assert_eq!(moved, Ok(()));
                    true
                }
            },
        );
        let of = if moved { NORMAL } else { MOVABLE };
        assert_eq!(machine.shared.zone_of(Frame::new(0)), Some(of));
        assert_eq!(machine.free_frames(), if taken { 0 } else { HUGE });
        machine.shared.validate().unwrap();
    });
}

/// Memory of the start has no list that says what is absent: what is offline is counted before its word says so.
#[test]
fn memory_of_the_start_goes_or_is_isolated() {
    check(2, || {
        let list = list(FrameRange::EMPTY);
        let segment = blank_segment_with(frames(0, 2 * HUGE), list);
        let segment = ZoneSegment::new(segment, NodeId(0), ZoneKind::Normal, Some(&[]));
        let zones = std::vec![Zones::default()].leak();
        let segments = Segments::new(std::vec![segment].leak(), zones);
        let machine = Machine::of(segments, list, &NoDrain);
        assert!(first(&machine.shared.nodes.segments).validate().is_ok());
        let (gone, isolation) = both(
            || machine.shared.offline(block()),
            || machine.shared.isolate(block().inner_frames()),
        );
        assert!(!(gone.is_ok() && isolation.is_ok()), "isolated and offline");
    });
}

/// An offline over two windows, the second of which has no space in its list: what another call isolated in
/// the first meanwhile stays so.
#[test]
fn an_offline_that_fails_leaves_an_isolation_alone() {
    check(1, || {
        let (low, high) = (frames(0, HUGE), frames(HUGE, 4 * HUGE));
        let window = |all, ranges| {
            let segment = blank_segment_with(all, list_for(ranges, all));
            ZoneSegment::new(segment, NodeId(0), ZoneKind::Normal, None).of_window()
        };
        let zones = std::vec![Zones::default()].leak();
        let segments = Segments::new(std::vec![window(low, 3), window(high, 1)].leak(), zones);
        let machine = Machine::of(segments, list_for(4, frames(0, 4 * HUGE)), &NoDrain);
        machine.add_to(bytes(0, HUGE), NORMAL).unwrap();
        machine.add_to(bytes(HUGE, 3 * HUGE), NORMAL).unwrap();
        let isolate = || machine.shared.isolate(block().inner_frames());
        let (gone, isolation) = both(|| machine.shared.offline(bytes(0, 2 * HUGE)), isolate);
        assert!(gone.is_err());
        if isolation.is_ok() {
            assert!(isolate().is_err(), "{gone:?} ended an isolation");
        }
        drop(isolation);
        machine.shared.validate().unwrap();
        assert_eq!(machine.free_frames(), 3 * HUGE);
    });
}
