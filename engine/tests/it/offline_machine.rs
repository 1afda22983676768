//! Memory that goes: DIMMs in and out, what is refused, and threads that use what is there.

use crate::kit;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::{
    BlockError, Content, Cursor, DrainRequest, Frames, Holder, Hooks, HotplugError, Refusal,
    Request,
};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, ZoneKind};
use kit::threads::{Held, SetOnDrop, random};
use kit::{GIANT_BYTES, GIB, HUGE_BYTES, HUGE_FRAMES, MIB, built, layout_with_windows, range};

const DIMM: u64 = 128 * MIB;

/// A machine of one node with `memory`, and a window.
fn machine(memory: PhysRange, window: PhysRange, movable: bool) -> Frames<'static> {
    machine_with(memory, 0, window, movable)
}

/// A [`machine`] with the window of node `owner`.
fn machine_with(
    memory: PhysRange,
    owner: u32,
    window: PhysRange,
    movable: bool,
) -> Frames<'static> {
    let policy = LayoutPolicy {
        movable_node: movable,
        ..LayoutPolicy::DEFAULT
    };
    let layout = layout_with_windows(memory, &[], &[(owner, window)], &policy);
    built(layout)
}

fn dimm(slot: u64) -> PhysRange {
    range(64 * GIB + slot * DIMM, 64 * GIB + (slot + 1) * DIMM)
}

/// Numbers 0 to 255 in an order that has neighbours far from each other.
fn shuffled(seed: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..256).collect();
    let mut state = seed;
    for at in (1..all.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(seed | 1);
        all.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
    }
    all
}

#[test]
#[cfg_attr(miri, ignore = "long")]
fn dimms_come_and_go_in_any_order() {
    let machine = machine(range(4 * GIB, 36 * GIB), range(64 * GIB, 96 * GIB), false);
    let before = machine.statistics();
    for seed in 1..=3 {
        let (come, go) = (shuffled(seed), shuffled(seed + 100));
        for (count, slot) in (1..).zip(come) {
            machine.add(dimm(slot)).unwrap();
            let managed = before.managed_frames + count * (DIMM / PAGE_BYTES);
            assert_eq!(machine.statistics().managed_frames, managed);
        }
        // Neighbours have merged: a giant frame in one block.
        let giants = machine.statistics().free_giants;
        assert!(giants >= before.free_giants + 32 * GIB / GIANT_BYTES);
        for (count, slot) in (1..).zip(go) {
            let frames = DIMM / PAGE_BYTES;
            machine.offline(dimm(slot)).unwrap();
            assert_eq!(
                machine.statistics().managed_frames,
                before.managed_frames + (256 - count) * frames
            );
            let again = machine.offline(dimm(slot));
            assert!(matches!(
                again,
                Err(HotplugError {
                    why: Refusal::Offline,
                    ..
                })
            ));
            machine.remove(dimm(slot)).unwrap();
            let again = machine.remove(dimm(slot));
            assert!(matches!(
                again,
                Err(HotplugError {
                    why: Refusal::NotOffline,
                    ..
                })
            ));
        }
        assert_eq!(machine.statistics(), before);
        machine.validate().unwrap();
    }
}

/// What went as many DIMMs comes back as one range.
#[test]
fn what_went_piece_by_piece_comes_back_as_a_whole() {
    let window = range(64 * GIB, 64 * GIB + 4 * GIANT_BYTES);
    let slots = window.bytes() / DIMM;
    let machine = machine(range(4 * GIB, 5 * GIB), window, true);
    let before = machine.statistics();
    for slot in 0..slots {
        machine.add(dimm(slot)).unwrap();
    }
    for slot in (0..slots).rev() {
        machine.offline(dimm(slot)).unwrap();
        machine.remove(dimm(slot)).unwrap();
    }
    machine.add(window).unwrap();
    assert_eq!(machine.statistics().free_giants, before.free_giants + 4);
    let request = Request::new(Order::GIANT).zone(ZoneKind::Movable);
    let block = machine.allocate(request).unwrap();
    assert!(block.addr().get() >= 64 * GIB);
    machine.free(block, Order::GIANT).unwrap();
    machine.validate().unwrap();
}

#[test]
fn what_is_in_use_stays_and_is_named() {
    let machine = machine(range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB), true);
    machine.add(dimm(0)).unwrap();
    let movable = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    let first = machine.allocate(movable).unwrap();
    let second = machine.allocate(movable).unwrap();
    let before = machine.statistics();
    let refused = machine.offline(dimm(0)).unwrap_err();
    let expected = HotplugError {
        range: dimm(0),
        frame: first.min(second),
        why: Refusal::InUse {
            frames: 2,
            holder: Holder::Allocation,
            held_by_cpus: 0,
            in_work: 0,
        },
    };
    assert_eq!(refused, expected);
    assert!(
        refused.to_string().contains("2 frames are in use"),
        "{refused}"
    );
    assert_eq!(machine.statistics(), before);
    machine.free(first, Order::PAGE).unwrap();
    let text = machine.offline(dimm(0)).unwrap_err().to_string();
    let expected = format!("1 frame is in use, {second}, allocated: move or free it");
    assert!(text.contains(&expected), "{text}");
    machine.free(second, Order::PAGE).unwrap();

    // A worker has some.
    let mut cursor = Cursor::new(NodeId(0));
    let borrowed = loop {
        let block = machine.borrow_free(&mut cursor, Order::HUGE, Content::Unknown, 512);
        let block = block.unwrap();
        if dimm(0).inner_frames().covers(block.range()) {
            break block;
        }
    };
    let refused = machine.offline(dimm(0)).unwrap_err();
    let expected = HotplugError {
        range: dimm(0),
        frame: borrowed.range().start(),
        why: Refusal::InUse {
            frames: HUGE_FRAMES,
            holder: Holder::Allocation,
            held_by_cpus: 0,
            in_work: HUGE_FRAMES,
        },
    };
    assert_eq!(refused, expected);
    let expected = format!("workers have {HUGE_FRAMES} frames and give them back soon");
    assert!(refused.to_string().contains(&expected), "{refused}");
    drop(borrowed);
    machine.offline(dimm(0)).unwrap();
    machine.validate().unwrap();
}

#[test]
fn bad_ranges_do_not_go_and_change_nothing() {
    let machine = machine(range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB), false);
    machine.add(dimm(1)).unwrap();
    let before = machine.statistics();
    let offline = |range| machine.offline(range).unwrap_err();
    let d = dimm(1);
    let (start, end) = (d.start().get(), d.start().get() + d.bytes());
    for bad in [
        range(start, start),
        range(start + PAGE_BYTES, end),
        range(start, end - MIB),
        range(start + 1, end),
    ] {
        assert_eq!(offline(bad), kit::refused(bad, Refusal::Misaligned));
    }
    // Half of it is absent; a hole of the machine; above it.
    for bad in [
        range(start - HUGE_BYTES, end),
        range(start, end + HUGE_BYTES),
        range(GIB, 2 * GIB),
        range(1 << 50, 1 << 51),
    ] {
        assert!(
            matches!(
                offline(bad),
                HotplugError {
                    why: Refusal::NotMemory,
                    ..
                }
            ),
            "{bad}"
        );
    }
    for bad in [d, dimm(0), dimm(7)] {
        let (online, removed) = (
            machine.online(bad).unwrap_err(),
            machine.remove(bad).unwrap_err(),
        );
        assert_eq!(online, removed);
        assert!(
            matches!(
                online,
                HotplugError {
                    why: Refusal::NotOffline,
                    ..
                }
            ),
            "{online}"
        );
    }
    // The allocator's own tables.
    let reserved = machine
        .layout()
        .extents()
        .find(|extent| !extent.kind.may_become_free());
    let frame = reserved.unwrap().frames.start().get() / HUGE_FRAMES * HUGE_FRAMES;
    let tables = FrameRange::new(frame, frame + HUGE_FRAMES).unwrap().addrs();
    assert!(matches!(
        offline(tables),
        HotplugError {
            why: Refusal::InUse {
                holder: Holder::Reserved { .. },
                ..
            },
            ..
        }
    ));
    // Isolated by the kernel.
    let isolation = machine.isolate(d.inner_frames()).unwrap();
    assert!(matches!(
        offline(d),
        HotplugError {
            why: Refusal::Isolated,
            ..
        }
    ));
    drop(isolation);
    assert_eq!(machine.statistics(), before);
    // What is offline is neither added, adopted, allocated, freed nor isolated as free memory.
    machine.offline(d).unwrap();
    let frame = d.inner_frames().start();
    for refused in [
        machine.add(d),
        machine.adopt(range(start, start + PAGE_BYTES)),
    ] {
        assert!(matches!(
            refused,
            Err(HotplugError {
                why: Refusal::Present,
                ..
            })
        ));
    }
    assert!(matches!(
        machine.free(frame, Order::PAGE),
        Err(BlockError::Reserved { .. })
    ));
    assert!(matches!(
        machine.free(frame, Order::HUGE),
        Err(BlockError::Reserved { .. })
    ));
    assert!(
        machine
            .allocate_range(kit::block(frame, Order::PAGE))
            .is_err()
    );
    assert!(machine.free_frames(d.inner_frames()).is_err());
    assert_eq!(machine.is_allocated(frame), None);
    machine.online(d).unwrap();
    assert_eq!(machine.statistics(), before);
    machine.validate().unwrap();
}

/// What is reserved for ever is named by what early memory was told.
#[test]
fn reserved_memory_that_stays_is_named() {
    let (memory, window) = (range(4 * GIB, 6 * GIB), range(64 * GIB, 65 * GIB));
    let kernel = range(5 * GIB + MIB, 5 * GIB + MIB + HUGE_BYTES);
    let layout = layout_with_windows(memory, &[kernel], &[(0, window)], &LayoutPolicy::DEFAULT);
    let machine = built(layout);
    let owner = |block: PhysRange| match machine.offline(block).unwrap_err() {
        HotplugError {
            frame,
            why:
                Refusal::InUse {
                    holder: Holder::Reserved { owner },
                    frames,
                    ..
                },
            ..
        } => (frame, frames, owner),
        other => panic!("{other}"),
    };
    let (frame, frames, name) = owner(range(5 * GIB, 5 * GIB + DIMM));
    assert_eq!((frame.addr(), frames), (kernel.start(), HUGE_FRAMES));
    assert_eq!(name, Some("test"));
    // The allocator's own tables lie at the end.
    let (frame, _, name) = owner(range(6 * GIB - DIMM, 6 * GIB));
    assert_eq!(name, Some("frame allocator tables"), "{frame}");
}

/// A CPU of a node whose memory is gone fills its lists from the nearest that has some.
#[test]
fn a_node_whose_memory_is_gone_is_not_the_nearest() {
    let (memory, window) = (range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB));
    let machine = kit::with_cpus(machine_with(memory, 1, window, false), 1);
    let home = || machine.cpu(0, NodeId(1)).unwrap().home();
    assert_eq!(home(), NodeId(0), "nothing came yet");
    machine.add(dimm(0)).unwrap();
    assert_eq!(home(), NodeId(1));
    machine.offline(dimm(0)).unwrap();
    assert_eq!(home(), NodeId(0));
    machine.online(dimm(0)).unwrap();
    assert_eq!(home(), NodeId(1));
}

/// A CPU that is there already sees that the memory of its node goes, and comes back.
#[test]
fn a_cpu_sees_its_node_s_memory_go_and_come() {
    let (memory, window) = (range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB));
    let machine = kit::with_cpus(machine_with(memory, 1, window, false), 1);
    machine.add(dimm(0)).unwrap();
    let mut cpu = machine.cpu(0, NodeId(1)).unwrap();
    // It caches nothing when its memory goes.
    let mut page = || {
        let page = cpu.allocate(Request::new(Order::PAGE)).unwrap();
        cpu.free(page, Order::PAGE).unwrap();
        let home = cpu.home();
        cpu.drain().unwrap();
        home
    };
    assert_eq!(page(), NodeId(1));
    machine.offline(dimm(0)).unwrap();
    assert_eq!(page(), NodeId(0));
    machine.online(dimm(0)).unwrap();
    assert_eq!(page(), NodeId(1));
}

/// What is offline is not isolated: it may be removed, and come again in another zone.
#[test]
fn what_is_offline_is_not_isolated() {
    let machine = machine(range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB), false);
    let [boot, dimm_0] = [range(4 * GIB + 512 * MIB, 4 * GIB + 640 * MIB), dimm(0)];
    machine.add(dimm_0).unwrap();
    machine.add(dimm(1)).unwrap();
    for gone in [boot, dimm_0] {
        machine.offline(gone).unwrap();
        let frame = gone.inner_frames().start();
        let around =
            FrameRange::new(frame.get() - HUGE_FRAMES, frame.get() + 2 * HUGE_FRAMES).unwrap();
        let around = around.intersect(FrameRange::new(0, gone.inner_frames().end().get()).unwrap());
        for isolated in [gone.inner_frames(), around] {
            let refused = machine.isolate(isolated).unwrap_err();
            assert_eq!(
                refused,
                kit::refused_at(isolated.addrs(), frame, Refusal::NotMemory)
            );
        }
    }
    machine.online(boot).unwrap();
    drop(machine.isolate(boot.inner_frames()).unwrap());
    machine.remove(dimm_0).unwrap();
    assert!(!kit::is_offline(&machine, dimm_0.inner_frames().start()));
    assert!(matches!(
        machine.online(dimm(0)),
        Err(HotplugError {
            why: Refusal::NotOffline,
            ..
        })
    ));
    machine.add(dimm(0)).unwrap();
    machine.validate().unwrap();
    let seen = machine.statistics();
    assert_eq!(seen.free_frames, seen.managed_frames);
}

/// Nothing is undone of what was not begun.
#[test]
fn a_list_that_is_full_at_once_leaves_the_first_frame_alone() {
    let span = FrameRange::new(4 * GIB / PAGE_BYTES, 8 * GIB / PAGE_BYTES).unwrap();
    let bytes = usize::try_from(Frames::bytes_for(span, 3).unwrap()).unwrap();
    let machine = Frames::over(span, Box::leak(Box::new_uninit_slice(bytes))).unwrap();
    machine.add(range(4 * GIB, 8 * GIB)).unwrap();
    let away = |turn: u64| {
        let at = 4 * GIB + (2 * turn + 1) * DIMM;
        machine.offline(range(at, at + DIMM))
    };
    let refused = (0..16).find_map(|turn| away(turn).err()).unwrap();
    assert!(
        matches!(
            refused,
            HotplugError {
                why: Refusal::ListFull { .. },
                ..
            }
        ),
        "{refused}"
    );
    machine.validate().unwrap();
}

/// Firmware announces more windows than tables may be spent on.
#[test]
fn windows_that_cost_too_much_are_left_out() {
    let memory = range(4 * GIB, 4 * GIB + 64 * MIB);
    // The first takes all but a rest; all sizes of that are met.
    let page = PAGE_BYTES;
    let sizes = [1 << 41, HUGE_BYTES, page, HUGE_BYTES, page, 1 << 40, page];
    let window = |(at, bytes): (u64, u64)| {
        let start = 64 * GIB + (at << 42);
        (0, range(start, start + bytes))
    };
    let windows: Vec<_> = (0u64..).zip(sizes).map(window).collect();
    let layout = layout_with_windows(memory, &[], &windows, &LayoutPolicy::DEFAULT);
    let frames = built(layout);
    // At most 1/128 of memory, besides its own tables.
    assert!(frames.metadata().reserved_bytes < (64 * MIB) / 100);
}

/// Memory of the start goes offline and comes back, and is not removed.
#[test]
fn memory_of_the_start_stays() {
    let machine = machine(range(4 * GIB, 6 * GIB), range(64 * GIB, 65 * GIB), false);
    let before = machine.statistics();
    let block = range(5 * GIB, 5 * GIB + 128 * MIB);
    machine.offline(block).unwrap();
    let managed = machine.statistics().managed_frames;
    assert_eq!(managed, before.managed_frames - 128 * MIB / PAGE_BYTES);
    assert!(matches!(
        machine.remove(block),
        Err(HotplugError {
            why: Refusal::FromStart,
            ..
        })
    ));
    machine.online(block).unwrap();
    assert_eq!(machine.statistics().free_frames, before.free_frames);
    machine.validate().unwrap();
}

/// A full list says how much is needed, and nothing changes.
#[test]
fn a_full_list_says_how_much_is_needed() {
    let span = FrameRange::new(0, 16 * GIB / PAGE_BYTES).unwrap();
    let bytes = usize::try_from(Frames::bytes_for(span, 3).unwrap()).unwrap();
    let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(bytes))).unwrap();
    frames.add(range(4 * GIB, 16 * GIB)).unwrap();
    let mut refused = (0..90).filter_map(|slot| {
        let before = frames.statistics();
        let block = range(
            4 * GIB + 2 * slot * DIMM + DIMM,
            4 * GIB + (2 * slot + 2) * DIMM,
        );
        (block.start().get() < 15 * GIB).then_some(())?;
        let refused = frames.offline(block).err()?;
        assert_eq!(frames.statistics(), before);
        Some(refused)
    });
    let refused = refused.next().unwrap();
    let words = match refused {
        HotplugError {
            why: Refusal::ListFull { capacity, .. },
            ..
        } => format!("needs {}", capacity + 1),
        other => panic!("{other}"),
    };
    assert!(refused.to_string().ends_with(&words), "{refused}");
    frames.validate().unwrap();
}

static MACHINE: OnceLock<Frames<'static>> = OnceLock::new();

/// A kernel that would change what is offline while it is called to drain.
struct Impatient(AtomicU64);

impl Hooks for Impatient {
    fn drain(&self, _: &DrainRequest<'_>) {
        if let Some(machine) = MACHINE.get() {
            let busy = machine.offline(dimm(1));
            self.0.fetch_add(
                u64::from(busy == Err(kit::refused(dimm(1), Refusal::Busy))),
                Relaxed,
            );
        }
    }
}

#[test]
fn one_change_at_a_time() {
    let hooks: &'static Impatient = Box::leak(Box::new(Impatient(AtomicU64::new(0))));
    let built = machine(range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB), false);
    let machine = MACHINE.get_or_init(|| kit::with_cpus(built, 1).with_hooks(hooks));
    machine.add(dimm(0)).unwrap();
    machine.add(dimm(1)).unwrap();
    machine.offline(dimm(0)).unwrap();
    assert!(hooks.0.load(Relaxed) > 0);
    machine.online(dimm(0)).unwrap();
    machine.validate().unwrap();
}

/// A CPU that cached pages of a DIMM drains at its next call, and refuses what is gone afterwards
/// though its window reached there.
#[test]
fn a_cpu_lets_go_of_what_goes() {
    let built = machine(range(4 * GIB, 5 * GIB), range(64 * GIB, 65 * GIB), true);
    let machine = kit::with_cpus(built, 1);
    machine.add(range(64 * GIB, 65 * GIB)).unwrap();
    let mut cpu = machine.cpu(0, NodeId(0)).unwrap();
    let movable = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    let one = cpu.allocate(movable.movable()).unwrap();
    cpu.free(one, Order::PAGE).unwrap();
    let huge = one.get() / HUGE_FRAMES * HUGE_FRAMES;
    let block = FrameRange::new(huge, huge + HUGE_FRAMES).unwrap().addrs();
    let refused = machine.offline(block).unwrap_err();
    let HotplugError {
        why: Refusal::InUse { held_by_cpus, .. },
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert!(held_by_cpus > 0);
    cpu.poll();
    machine.offline(block).unwrap();
    for order in [Order::PAGE, Order::HUGE] {
        let freed = cpu.free(Frame::new(huge), order);
        assert!(
            matches!(freed, Err(BlockError::Reserved { .. })),
            "{freed:?}"
        );
    }
    machine.remove(block).unwrap();
    for order in [Order::PAGE, Order::HUGE] {
        let freed = cpu.free(Frame::new(huge), order);
        assert!(
            matches!(freed, Err(BlockError::Reserved { .. })),
            "{freed:?}"
        );
    }
    machine.add(block).unwrap();
    cpu.close().unwrap();
    machine.validate().unwrap();
    let statistics = machine.statistics();
    assert_eq!(statistics.free_frames, statistics.managed_frames);
}

/// Threads allocate, free and drain while DIMMs come and go: no page is held twice, none is
/// handed out of what is gone.
#[test]
#[cfg_attr(miri, ignore = "long")]
fn dimms_come_and_go_beside_threads() {
    const CPUS: usize = 3;
    let built = machine(
        range(4 * GIB, 4 * GIB + 64 * MIB),
        range(64 * GIB, 65 * GIB),
        false,
    );
    let machine = kit::with_cpus(built, CPUS);
    // By DIMM: whether it is gone; by page: whether it is held.
    let gone: Vec<_> = (0..8).map(|_| AtomicBool::new(true)).collect();
    let held = Held::new(range(64 * GIB, 65 * GIB));
    let per_dimm = usize::try_from(DIMM / PAGE_BYTES).unwrap();
    let (done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (machine, held, gone, done) = (&machine, &held, &gone, &done);
            scope.spawn(move || {
                let mut own = machine.cpu(cpu, NodeId(0)).unwrap();
                let check = |_, frame: Frame, page: usize| {
                    assert!(!gone[page / per_dimm].load(Relaxed), "{frame} is gone");
                };
                let request = |_, order| Request::new(order);
                held.churn(&mut own, cpu as u64 + 1, done, request, check);
                own.close().unwrap();
            });
        }
        // Also where a check fails: the threads end.
        let _end = SetOnDrop(&done);
        let mut state = 7_u64;
        for _ in 0..3000 {
            state = random(state);
            let slot = state >> 40 & 7;
            let at = usize::try_from(slot).unwrap();
            if gone[at].load(Relaxed) {
                gone[at].store(false, Relaxed);
                machine.add(dimm(slot)).unwrap();
            } else if machine.offline(dimm(slot)).is_ok() {
                moved.fetch_add(1, Relaxed);
                if state >> 50 & 1 == 0 {
                    machine.online(dimm(slot)).unwrap();
                } else {
                    gone[at].store(true, Relaxed);
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
        if !gone[usize::try_from(slot).unwrap()].load(Relaxed) {
            machine.offline(dimm(slot)).unwrap();
            machine.remove(dimm(slot)).unwrap();
        }
    }
    machine.validate().unwrap();
}
