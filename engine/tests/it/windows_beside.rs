//! Memory of a window that comes and goes beside isolations and additions in the same giant frame, and
//! huge frames that two zones would share.

use crate::kit;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use firstlight::addr::{FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{Frames, HotplugError, NewMemory, OnlinePolicy, Refusal, Request};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, NodeZone, ZoneKind};
use kit::threads::SetOnDrop;
use kit::{
    GIB, HUGE_BYTES, HUGE_FRAMES, MIB, built, layout_with_windows, machine_with_windows, range,
};

const NORMAL: NodeZone = NodeZone {
    node: NodeId(0),
    zone: ZoneKind::Normal,
};
const MOVABLE: NodeZone = NodeZone {
    zone: ZoneKind::Movable,
    ..NORMAL
};
/// Turns of one thread beside another.
const TURNS: u32 = 2000;

/// A machine with windows of node 0.
fn machine(windows: &[PhysRange]) -> Frames<'static> {
    let windows: Vec<_> = windows.iter().map(|window| (0, *window)).collect();
    machine_with_windows(range(4 * GIB, 5 * GIB), &windows)
}

/// From `from` to `to` half huge frames (MiB with pages of 4 KiB) behind the beginning of the window.
fn at(from: u64, to: u64) -> PhysRange {
    behind(from, to, HUGE_BYTES / 2)
}

/// [`at`] in parts of a huge frame, of which it has 2048: KiB with pages of 4 KiB.
fn part(from: u64, to: u64) -> PhysRange {
    behind(from, to, HUGE_BYTES / 2048)
}

fn behind(from: u64, to: u64, unit: u64) -> PhysRange {
    range(64 * GIB + from * unit, 64 * GIB + to * unit)
}

/// `work` beside `other`, both again and again.
fn beside(other: impl Fn() + Sync, mut work: impl FnMut()) {
    let (end, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let repeated = scope.spawn(|| {
            while !end.load(Relaxed) {
                other();
                turns.fetch_add(1, Relaxed);
            }
        });
        let _end = SetOnDrop(&end);
        while turns.load(Relaxed) < TURNS && !repeated.is_finished() {
            work();
        }
    });
}

/// Whether a giant frame becomes one block again is tried while parts of it are isolated.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn an_isolation_takes_what_it_says_beside_memory_that_goes() {
    let machine = machine(&[at(0, 1024)]);
    let (mine, other) = (at(0, 2), at(512, 514));
    machine.add(NewMemory::new(mine).of(NORMAL)).unwrap();
    let come_and_go = || {
        machine
            .add(
                NewMemory::new(other)
                    .of(NORMAL)
                    .policy(OnlinePolicy::Offline),
            )
            .unwrap();
        machine.remove(other).unwrap();
    };
    beside(come_and_go, || {
        let isolation = machine.isolate(mine.inner_frames()).unwrap();
        let taken = isolation.take().unwrap();
        machine.free_frames(taken).unwrap();
        drop(machine.isolate(mine.inner_frames()).unwrap());
    });
    machine.offline(mine).unwrap();
    machine.remove(mine).unwrap();
    machine.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "long")]
fn what_is_offline_stays_so_beside_memory_that_goes() {
    let machine = machine(&[at(0, 1024)]);
    let (low, high) = (at(0, 512), at(512, 1024));
    machine
        .add(
            NewMemory::new(at(0, 1024))
                .of(NORMAL)
                .policy(OnlinePolicy::Offline),
        )
        .unwrap();
    let come_and_go = || {
        machine.remove(low).unwrap();
        machine
            .add(NewMemory::new(low).of(NORMAL).policy(OnlinePolicy::Offline))
            .unwrap();
    };
    beside(come_and_go, || {
        let added = machine.add(high);
        assert!(
            matches!(
                added,
                Err(HotplugError {
                    why: Refusal::Present,
                    ..
                })
            ),
            "{added:?}"
        );
        assert_eq!(machine.zone_of(high.inner_frames().start()), Some(NORMAL));
    });
    machine.online(at(0, 1024)).unwrap();
    machine.validate().unwrap();
}

/// What is absent may come to any zone: an isolation has it in none.
#[test]
fn only_what_is_memory_of_a_window_is_isolated() {
    let machine = machine(&[at(0, 1024)]);
    let (low, all) = (at(0, 128), at(0, 256).inner_frames());
    let absent = |frame| kit::refused_at(at(0, 256), frame, Refusal::NotMemory);
    // The window has no memory at all, or some elsewhere.
    let refused = |all: FrameRange| machine.isolate(all).unwrap_err();
    assert_eq!(refused(all), absent(all.start()));
    machine.add(NewMemory::new(low).of(NORMAL)).unwrap();
    let frame = low.inner_frames().end();
    assert_eq!(refused(all), absent(frame));
    assert!(refused(all).to_string().contains("expected memory"));
    machine
        .add(NewMemory::new(at(128, 256)).of(MOVABLE))
        .unwrap();
    let isolation = machine.isolate(all).unwrap();
    let movable = Request::new(Order::GIANT)
        .movable()
        .only_zone(ZoneKind::Movable);
    assert!(machine.allocate(movable).is_err());
    assert_eq!(
        machine.isolate(at(128, 256).inner_frames()).unwrap_err(),
        kit::refused_at(at(128, 256), frame, Refusal::Isolated)
    );
    assert_eq!(isolation.take().unwrap(), all);
    machine.free_frames(all).unwrap();
    machine.offline(low).unwrap();
    assert_eq!(refused(all), absent(all.start()));
    machine.validate().unwrap();
}

/// A range that begins or ends inside a huge frame that is absent, or at the end of a window that cuts one: what
/// comes there later is another isolation's.
#[test]
fn a_part_of_an_absent_huge_frame_is_not_isolated() {
    let frames = |from: u64, to: u64| {
        let first = at(0, 1).inner_frames().start().get();
        FrameRange::new(first + from, first + to).unwrap()
    };
    let cut = HUGE_FRAMES + HUGE_FRAMES / 2;
    for (window, memory, range, first) in [
        (at(0, 1024), at(2, 4), frames(100, 2 * HUGE_FRAMES), 100),
        (
            at(0, 1024),
            at(0, 2),
            frames(0, HUGE_FRAMES + 88),
            HUGE_FRAMES,
        ),
        (at(0, 3), at(0, 2), frames(0, cut), HUGE_FRAMES),
        (at(0, 1024), at(2, 4), frames(100, 200), 100),
    ] {
        let machine = machine(&[window]);
        machine.add(NewMemory::new(memory).of(NORMAL)).unwrap();
        let frame = frames(first, first + 1).start();
        let refused = machine.isolate(range).unwrap_err();
        assert_eq!(
            refused,
            kit::refused_at(range.addrs(), frame, Refusal::NotMemory),
            "{range}"
        );
        drop(machine.isolate(memory.inner_frames()).unwrap());
        machine.validate().unwrap();
    }
    let machine = machine(&[at(0, 3)]);
    machine.add(NewMemory::new(at(0, 3)).of(MOVABLE)).unwrap();
    let all = machine.isolate(frames(0, cut)).unwrap();
    assert_eq!(all.take().unwrap(), frames(0, cut));
    machine.validate().unwrap();
}

/// Whatever is asked for, it is answered.
#[test]
fn isolations_of_ranges_that_are_no_memory_are_refused() {
    let machine = machine(&[at(0, 1024)]);
    let max = FrameRange::ALL.end().get();
    for (from, to) in [(max - 5, max), (1000, 1000), (0, 0), (max, max)] {
        let range = FrameRange::new(from, to).unwrap_or_default();
        let refused = machine.isolate(range).unwrap_err();
        assert_eq!(refused, kit::refused(range.addrs(), Refusal::NotMemory));
    }
    let absent = machine.isolate(FrameRange::ALL).unwrap_err();
    assert!(
        matches!(
            absent,
            HotplugError {
                why: Refusal::NotMemory,
                ..
            }
        ),
        "{absent}"
    );
}

/// So `Isolation` and `Occupancy` find it in one segment.
#[test]
fn a_huge_frame_is_of_one_zone() {
    let machine = machine(&[at(0, 1024)]);
    let add = |new, of| machine.add(NewMemory::new(new).of(of));
    add(part(256, 512), NORMAL).unwrap();
    let multiples = format!("multiples of {} MiB", HUGE_BYTES / MIB);
    let last_page = PAGE_BYTES / (HUGE_BYTES / 2048);
    for new in [part(512, 1024), part(0, 256), part(2048 - last_page, 4096)] {
        let refused = add(new, MOVABLE).unwrap_err();
        let frame = part(256, 512).inner_frames().start();
        let expected = HotplugError {
            range: new,
            frame,
            why: Refusal::OtherZone,
        };
        assert_eq!(refused, expected);
        assert!(refused.to_string().ends_with(&multiples));
    }
    add(part(512, 768), NORMAL).unwrap();
    add(part(2048, 4096), MOVABLE).unwrap();
    let huge = FrameRange::new(
        at(0, 2).inner_frames().start().get(),
        at(0, 2).inner_frames().end().get(),
    );
    let huge = huge.unwrap();
    assert_eq!(machine.occupancy(huge).free_frames, HUGE_FRAMES / 4);
    drop(machine.isolate(huge).unwrap());
    machine.validate().unwrap();
}

/// What is no memory of a huge frame is of no other zone, whichever of its pages came and to which zone: an isolation
/// has it as one, and beside others of another zone.
#[test]
fn a_huge_frame_with_some_memory_is_isolated_as_a_whole() {
    for (of, around) in [(NORMAL, MOVABLE), (MOVABLE, NORMAL)] {
        for some in [part(2048, 3072), part(3072, 4096), part(2560, 3584)] {
            let machine = machine(&[at(0, 1024)]);
            let add = |new, of| machine.add(NewMemory::new(new).of(of)).unwrap();
            add(some, of);
            add(at(0, 2), around);
            add(at(4, 6), around);
            let all = [at(2, 4), at(0, 4), at(2, 6), at(0, 6)];
            let half = HUGE_FRAMES / 2;
            for (range, free) in all.into_iter().zip([1, 3, 3, 5]) {
                let range = range.inner_frames();
                assert_eq!(
                    machine.occupancy(range).free_frames,
                    free * half,
                    "{some} {range}"
                );
                let isolation = machine.isolate(range);
                drop(isolation.unwrap_or_else(|why| panic!("{some} of {of:?}, {range}: {why}")));
            }
            machine.validate().unwrap();
        }
    }
}

/// Beside memory of another zone, too.
#[test]
fn an_absent_part_of_another_zones_huge_frame_is_not_isolated() {
    for (memory, beside, range) in [
        (part(2048, 3072), at(4, 6), part(3072, 6144)),
        (part(3072, 4096), at(0, 2), part(0, 3072)),
    ] {
        for (of, other) in [(NORMAL, MOVABLE), (MOVABLE, NORMAL)] {
            let machine = machine(&[at(0, 1024)]);
            machine.add(NewMemory::new(memory).of(of)).unwrap();
            machine.add(NewMemory::new(beside).of(other)).unwrap();
            let isolation = machine.isolate(range.inner_frames());
            assert!(isolation.is_err(), "{range} {of:?}");
        }
    }
}

/// It could neither come online nor be removed.
#[test]
fn memory_that_is_cut_at_the_end_of_a_window_does_not_wait_offline() {
    let machine = machine(&[at(0, 129), at(129, 2048)]);
    let across = at(0, 256);
    let refused = machine.add(
        NewMemory::new(across)
            .of(MOVABLE)
            .policy(OnlinePolicy::Offline),
    );
    let expected = kit::refused(across, Refusal::Misaligned);
    assert_eq!(refused, Err(expected));
    machine
        .add(
            NewMemory::new(at(0, 128))
                .of(MOVABLE)
                .policy(OnlinePolicy::Offline),
        )
        .unwrap();
    machine.remove(at(0, 128)).unwrap();
    machine.validate().unwrap();
}

/// Firmware's own node for a window comes first; without tables for that the window has none.
#[test]
fn a_window_without_tables_of_its_own_node_takes_no_memory() {
    let with_free = |bytes: u64| {
        let memory = range(4 * GIB, 8 * GIB);
        let reserved = [range(4 * GIB + bytes, 8 * GIB)];
        let policy = LayoutPolicy::DEFAULT;
        let layout = layout_with_windows(memory, &reserved, &[(1, at(0, 2048))], &policy);
        built(layout)
    };
    let all = with_free(GIB).metadata().reserved_bytes;
    // The tables of the window's own node are the last.
    for less in [0, PAGE_BYTES] {
        let machine = with_free(all - less);
        let dimm = at(0, 128);
        let added = machine.add(dimm);
        let zone = machine.zone_of(dimm.inner_frames().start());
        if less == 0 {
            assert_eq!((added, zone.unwrap().node), (Ok(()), NodeId(1)));
        } else {
            assert!(
                matches!(
                    added,
                    Err(HotplugError {
                        why: Refusal::NoTables { .. },
                        ..
                    })
                ),
                "{added:?}"
            );
        }
    }
}

/// Frames that have no address are no memory.
#[test]
fn an_isolation_of_all_frames_does_not_go_offline() {
    let machine = machine(&[]);
    let before = machine.statistics();
    let isolation = machine.isolate(FrameRange::ALL).unwrap();
    let refused = isolation.offline().unwrap_err();
    assert!(
        matches!(
            refused,
            HotplugError {
                why: Refusal::NotMemory,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(machine.statistics(), before);
    machine.validate().unwrap();
}

/// The list of a window's segment is full before that of the machine.
#[test]
fn the_list_that_is_full_is_named() {
    let machine = machine(&[at(0, 4096)]);
    let alternate = |turn: u64| {
        let of = if turn.is_multiple_of(2) {
            MOVABLE
        } else {
            NORMAL
        };
        machine.add(NewMemory::new(at(2 * turn, 2 * turn + 2)).of(of))
    };
    let refused = (0..2048).find_map(|turn| alternate(turn).err()).unwrap();
    let HotplugError {
        why: Refusal::ListFull { capacity, .. },
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!(capacity, 272);
    machine.validate().unwrap();
}
