//! Every call ends, whatever other CPUs do: many more threads than processors, that never rest.
//!
//! Nothing here is timed: a call that never ends makes the test hang.

use crate::kit;

use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Request};
use kit::{GIB, Machine, range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const THREADS: u64 = 32;

fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A machine with nothing free but every eighth block of order 3.
fn used_up() -> Frames<'static> {
    let frames = Machine::new(&[(0, range(4 * GIB, 4 * GIB + GIB / 4))]).frames();
    let blocks: Vec<Frame> =
        core::iter::from_fn(|| frames.allocate(Request::new(order(3))).ok()).collect();
    for block in blocks.iter().step_by(8) {
        frames.free(*block, order(3)).unwrap();
    }
    frames
}

/// Allocates and frees blocks of order 3 until `stop` is set; how many.
fn churn(frames: &Frames<'_>, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let held: Vec<_> = (0..4)
            .map_while(|_| frames.allocate(Request::new(order(3))).ok())
            .collect();
        for block in held {
            frames.free(block, order(3)).unwrap();
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls that find nothing, each beside threads that allocate and free all the time.
#[test]
fn a_request_ends_beside_threads_that_never_rest() {
    let frames = used_up();
    let free = frames.statistics();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| churn(&frames, &stop, &done));
        }
        while done.load(Ordering::Relaxed) < THREADS {
            thread::yield_now();
        }
        for _ in 0..20 {
            let (huge, giant) = (Order::HUGE.get(), Order::GIANT.get());
            for number in [4, 8, huge, huge + 1, giant] {
                let request = Request::new(order(number));
                assert!(frames.allocate(request).is_err(), "order {number}");
            }
            let request = Request::new(Order::PAGE);
            assert!(frames.allocate_frames(100, 1, request).is_err());
            assert!(
                frames
                    .allocate_frames(1, Order::GIANT.frames(), request)
                    .is_err()
            );
            let all = frames.layout().segments().next().unwrap().frames;
            assert!(frames.allocate_range(all).is_err());
            let isolation = frames.isolate(all).unwrap();
            assert!(isolation.take().is_err());
        }
        stop.store(true, Ordering::Relaxed);
    });
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Requests for pages, each of which finds one or none, beside threads that take the last ones.
#[test]
fn pages_are_found_or_refused_beside_threads_that_take_the_last() {
    let frames = Machine::new(&[(0, range(4 * GIB, 4 * GIB + (4 << 20)))]).frames();
    let free = frames.statistics();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..300 {
                    let request = Request::new(Order::PAGE);
                    let held: Vec<_> = (0..200)
                        .map_while(|_| frames.allocate(request).ok())
                        .collect();
                    taken.fetch_add(held.len() as u64, Ordering::Relaxed);
                    for page in held {
                        frames.free(page, Order::PAGE).unwrap();
                    }
                }
            });
        }
    });
    assert!(taken.load(Ordering::Relaxed) > 0);
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}

/// Pages of the other mobility help out also while calls that may undo are in flight.
#[test]
fn pages_of_the_other_mobility_are_found_beside_calls_in_flight() {
    let frames = Machine::new(&[(0, range(4 * GIB, 4 * GIB + GIB / 16))]).frames();
    let movable = |number| Request::new(order(number)).movable();
    let blocks: Vec<Frame> = core::iter::from_fn(|| frames.allocate(movable(8)).ok()).collect();
    while frames.allocate(Request::new(Order::PAGE).movable()).is_ok() {}
    for block in blocks.iter().step_by(2).take(8) {
        frames.free(*block, order(8)).unwrap();
    }
    let free = frames.statistics();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(block) = frames.allocate(movable(7)) {
                        frames.free(block, order(7)).unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 100 {
            thread::yield_now();
        }
        for _ in 0..2000 {
            let page = frames.allocate(Request::new(Order::PAGE)).unwrap();
            frames.free(page, Order::PAGE).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    frames.validate().unwrap();
    assert_eq!(frames.statistics(), free);
}
