//! Requests beside the first split of a giant frame.

use crate::kit;

use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Request};
use kit::{GIANT_BYTES, GIANT_FRAMES, HUGE_BYTES, HUGE_FRAMES, Machine, above_huge, range};
use std::sync::atomic::{AtomicUsize, Ordering};

const MACHINES: usize = 1000;
const CPUS: usize = 2;

/// CPUs request at once a hundredth of what is there.
fn failures(ask: impl Fn(usize, &Frames<'static>) -> bool + Sync) -> usize {
    let machine = Machine::new(&[(0, range(4 * GIANT_BYTES, 5 * GIANT_BYTES + HUGE_BYTES))]);
    let all: Vec<Frames<'static>> = (0..MACHINES)
        .map(|_| {
            let frames = machine.frames();
            // Nothing but the giant frame is left.
            for page in 5 * GIANT_FRAMES..5 * GIANT_FRAMES + HUGE_FRAMES {
                let _ = frames.allocate_range(kit::block(Frame::new(page), Order::PAGE));
            }
            let free = frames.statistics();
            assert_eq!((free.free_giants, free.free_frames), (1, GIANT_FRAMES));
            frames
        })
        .collect();
    let (arrived, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (all, ask, arrived, failed) = (&all, &ask, &arrived, &failed);
            scope.spawn(move || {
                for (round, frames) in all.iter().enumerate() {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    while arrived.load(Ordering::SeqCst) < (round + 1) * CPUS {
                        core::hint::spin_loop();
                    }
                    if !ask(cpu, frames) {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    failed.into_inner()
}

#[test]
fn a_huge_frame_is_found_beside_the_first_split() {
    assert_eq!(
        failures(|_, frames| frames.allocate(Request::new(Order::HUGE)).is_ok()),
        0
    );
}

#[test]
fn a_block_of_huge_frames_is_found_beside_the_first_split() {
    assert_eq!(
        failures(|_, frames| frames.allocate(Request::new(above_huge(3))).is_ok()),
        0
    );
}

#[test]
fn a_page_is_found_beside_the_first_split() {
    assert_eq!(
        failures(|_, frames| frames.allocate(Request::new(Order::PAGE)).is_ok()),
        0
    );
}

#[test]
fn frames_in_a_row_are_found_beside_the_first_split() {
    let page = Request::new(Order::PAGE);
    let ask = |cpu, frames: &Frames<'static>| match cpu {
        0 => frames.allocate(page).is_ok(),
        _ => frames.allocate_frames(1000, 1, page).is_ok(),
    };
    assert_eq!(failures(ask), 0);
}
