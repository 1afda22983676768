//! What a CPU is lent for its magazines, and what comes after it.
#![expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]

mod kit;

use firstlight::addr::Order;
use firstlight::frames::{BlockError, Cpu, CpuError, Frames, Magazines, Request};
use firstlight::node::NodeId;
use kit::{GIB, Lent, MIB, Machine, huge, magazines, page, range};

fn small() -> Machine {
    Machine::new(&[(0, range(MIB, 64 * MIB + 0x3000))])
}

fn large() -> Machine {
    Machine::new(&[(0, range(MIB, 3 * GIB)), (0, range(4 * GIB, 7 * GIB))])
}

/// More pages than a magazine holds; little under Miri.
const MANY: usize = if cfg!(miri) { 40 } else { 700 };

/// Pages and huge frames that `cpu` holds by now, in magazines and in an area.
fn fill(cpu: &mut Cpu<'_, '_>) -> u64 {
    for request in [page(), page().movable(), huge(), huge().movable()] {
        let taken = [0; MANY].map(|_| cpu.allocate(request).unwrap());
        let few = if request.order() == Order::PAGE {
            MANY
        } else {
            7
        };
        for (count, frame) in taken.into_iter().enumerate() {
            if count < few {
                cpu.free(frame, request.order()).unwrap();
            }
        }
    }
    cpu.held_frames()
}

#[test]
fn magazines_that_were_left_full_are_empty_for_the_next() {
    let (frames, lent) = (large().frames_with_cpus(2), Lent::new());
    let cpu_of = |slot| {
        // SAFETY: one is forgotten before the next is made.
        let magazines = unsafe { lent.again() };
        frames.cpu(slot, NodeId(0), magazines).unwrap()
    };
    let mut cpu = cpu_of(0);
    let lost = fill(&mut cpu);
    assert!(lost > MANY as u64);
    std::mem::forget(cpu);
    // The slot stays taken, and what lay there is lost, not handed out again.
    let other = frames.cpu(0, NodeId(0), magazines());
    assert_eq!(other.unwrap_err(), CpuError::Taken);
    let free = frames.statistics();
    let mut cpu = cpu_of(1);
    assert_eq!(cpu.held_frames(), 0);
    assert_eq!(cpu.drain(), Ok(()));
    assert_eq!(frames.statistics(), free);
    for request in [page(), page().movable(), huge(), huge().movable()] {
        let taken = [0; MANY].map(|_| {
            let frame = cpu.allocate(request).unwrap();
            (frame, cpu.free(frame, request.order()))
        });
        assert!(taken.iter().all(|(_, freed)| *freed == Ok(())));
    }
    assert_eq!(cpu.close(), Ok(()));
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

#[test]
fn magazines_go_from_one_machine_to_another() {
    let lent = Lent::new();
    for machine in [large(), small(), large()] {
        let frames = machine.frames_with_cpus(1);
        let free = frames.statistics();
        // SAFETY: the one before was closed.
        let magazines = unsafe { lent.again() };
        let mut cpu = frames.cpu(0, NodeId(0), magazines).unwrap();
        let pages: Vec<_> = (0..4 * MANY)
            .map(|_| cpu.allocate(page()).unwrap())
            .collect();
        for page in pages {
            cpu.free(page, Order::PAGE).unwrap();
            // A 128th in each magazine, whatever they held on the machine before.
            assert!(cpu.held_frames() <= free.free_frames / 4);
        }
        assert!(cpu.held_frames() > 0);
        cpu.close().unwrap();
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

#[test]
fn closing_names_what_was_freed_twice() {
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0), magazines()).unwrap();
    let (frame, order) = (cpu.allocate(page()).unwrap(), Order::PAGE);
    cpu.free(frame, order).unwrap();
    cpu.free(frame, order).unwrap();
    assert_eq!(cpu.close(), Err(BlockError::FreedTwice { frame, order }));
    let cpu = frames.cpu(0, NodeId(0), magazines()).unwrap();
    assert_eq!(cpu.close(), Ok(()));
    frames.validate().unwrap();
}

/// A page of a huge frame, and the huge frame: the page is free, the rest stays allocated.
#[test]
fn a_page_freed_beside_its_huge_frame_counts_as_one_of_both() {
    let frames = large().frames_with_cpus(1);
    let free = frames.statistics();
    let mut cpu = frames.cpu(0, NodeId(0), magazines()).unwrap();
    let (frame, order) = (frames.allocate(huge()).unwrap(), Order::HUGE);
    cpu.free(frame, Order::PAGE).unwrap();
    cpu.free(frame, order).unwrap();
    assert_eq!(cpu.drain(), Err(BlockError::FreedTwice { frame, order }));
    frames.validate().unwrap();
    assert_eq!(frames.is_allocated(frame), Some(false));
    for page in 1..512 {
        let page = firstlight::addr::Frame::new(frame.get() + page);
        assert_eq!(frames.is_allocated(page), Some(true));
        frames.free(page, Order::PAGE).unwrap();
    }
    // Who is dropped tells nobody, but counts alike.
    let page = cpu.allocate(page()).unwrap();
    cpu.free(page, Order::PAGE).unwrap();
    cpu.free(page, Order::PAGE).unwrap();
    drop(cpu);
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Frees more blocks of an order and mobility than its magazine holds; `check` looks each time.
fn overfill(frames: &Frames<'_>, cpu: &mut Cpu<'_, '_>, request: Request, check: impl Fn(u64)) {
    // Past the magazines, and only a part, so that no other one grows.
    let part = frames.statistics().free_frames / 4 / request.order().frames();
    let taken = (0..part.min(600)).map_while(|_| frames.allocate(request).ok());
    for frame in taken.collect::<Vec<_>>() {
        cpu.free(frame, request.order()).unwrap();
        check(cpu.held_frames());
    }
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the hundred megabytes")]
fn magazines_hold_no_more_than_their_share_of_any_machine() {
    for (mib, cpus) in [
        (8, 1),
        (64, 1),
        (64, 3),
        (512, 2),
        (1024, 1),
        (4096, 1),
        (16 << 10, 1),
    ] {
        let machine = Machine::new(&[(0, range(4 * GIB, 4 * GIB + mib * MIB))]);
        let share = mib * MIB / 4096 / cpus as u64;
        let frames = machine.frames_with_cpus(cpus);
        let free = frames.statistics();
        let mut cpu = frames.cpu(0, NodeId(0), magazines()).unwrap();
        let orders = || (0..=9).rev().filter_map(Order::new);
        let requests =
            || orders().flat_map(|order| [Request::new(order), Request::new(order).movable()]);
        for request in requests() {
            let two = 2 * request.order().frames();
            let most = (share / 128).max(if two <= share / 32 { two } else { 0 });
            overfill(&frames, &mut cpu, request, |held| {
                assert!(held <= most, "{held} of {share}, {request:?}");
            });
            cpu.drain().unwrap();
        }
        // All of them full, refilled too.
        let check = |held| assert!(held <= 22_000 && held <= share / 4, "{held} of {share}");
        for request in requests() {
            if let Ok(frame) = cpu.allocate(request) {
                check(cpu.held_frames());
                cpu.free(frame, request.order()).unwrap();
            }
            overfill(&frames, &mut cpu, request, check);
        }
        assert!(cpu.held_frames() > (share / 128).min(16_000));
        cpu.close().unwrap();
        frames.validate().unwrap();
        assert_eq!(frames.statistics(), free);
    }
}

#[test]
fn a_cpu_is_small_and_what_it_is_lent_is_as_large_as_said() {
    assert_eq!(size_of::<Cpu<'_, '_>>(), 96);
    assert_eq!(size_of::<Magazines>(), 10_880);
    assert_eq!(align_of::<Magazines>(), 64);
}

#[test]
fn zeroed_memory_is_empty_magazines() {
    let mut zeroed = Box::<Magazines>::new_uninit();
    // SAFETY: room for one; its documentation allows zeroes.
    let magazines = unsafe {
        zeroed.as_mut_ptr().write_bytes(0, 1);
        zeroed.assume_init_mut()
    };
    assert_eq!(format!("{magazines:?}"), format!("{:?}", Magazines::new()));
    let frames = large().frames_with_cpus(1);
    let mut cpu = frames.cpu(0, NodeId(0), magazines).unwrap();
    assert!(fill(&mut cpu) > 0);
    assert_eq!(cpu.close(), Ok(()));
}

/// Where the linker begins and ends with what is zero and not in the file.
#[cfg(all(target_os = "linux", not(miri)))]
mod zero {
    // SAFETY: symbols that every linker for this system defines; only their addresses are used.
    unsafe extern "C" {
        pub(super) safe static __bss_start: u8;
        pub(super) safe static _end: u8;
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn static_magazines_take_no_room_in_the_file() {
    static MAGAZINES: std::sync::Mutex<Magazines> = std::sync::Mutex::new(Magazines::new());
    let at = &raw const MAGAZINES as usize;
    let (begin, end) = (&raw const zero::__bss_start, &raw const zero::_end);
    assert!(begin as usize <= at && at < end as usize);
}
