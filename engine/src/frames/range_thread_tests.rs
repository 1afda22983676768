//! Ranges with real threads: every frame held is marked with its owner, while
//! others take and give back ranges, blocks and rows of frames around it.

extern crate std;

use super::contiguous::Wanted;
use super::directory::Directory;
use super::geometry::Block;
use super::place::Place;
use super::request::{Mobility, Zones};
use super::testkit::{directory, frames, want};
use crate::addr::FrameRange;
use crate::node::{NodeId, ZoneKind};
use core::sync::atomic::{AtomicU32, Ordering};
use std::vec::Vec;

/// Marks every frame of a range with a thread; each must have been `from`.
fn mark(owners: &[AtomicU32], range: FrameRange, from: u32, to: u32) {
    for frame in range.start().get()..range.end().get() {
        let owner = &owners[usize::try_from(frame).unwrap()];
        let old = owner.swap(to, Ordering::Relaxed);
        assert_eq!(old, from, "{range} has two owners");
    }
}

/// Takes and gives back at random, in every way there is.
fn churn(directory: &Directory<'_>, owners: &[AtomicU32], thread: u32, rounds: u32) {
    let mut seed = u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let all = directory.places[0].frames().start()..directory.places[1].frames().end();
    let mut held = Vec::new();
    for _ in 0..rounds {
        let len = 1 + [3, 70, 600, 3000][usize::try_from(random(4)).unwrap()];
        let frames_wanted = 1 + random(len);
        let found = match random(8) {
            0 | 1 => {
                let order = [0, 0, 2, 7, 9, 10][usize::try_from(random(6)).unwrap()];
                let nodes = [NodeId(0), NodeId(1)].into_iter();
                let start = directory.allocate(nodes, Zones::up_to(ZoneKind::Normal), want(order));
                start.map(|start| Block { start, order }.range())
            }
            2 => {
                let start = all.start.get() + random(all.end.get() - all.start.get());
                let range = frames(start, start + frames_wanted);
                directory.claim_range(range).is_ok().then_some(range)
            }
            3 => {
                let nodes = [NodeId(1), NodeId(0)].into_iter();
                let wanted = Wanted {
                    frames: frames_wanted,
                    align_frames: 1 << random(10),
                    mobility: if random(2) == 0 {
                        Mobility::Movable
                    } else {
                        Mobility::Unmovable
                    },
                };
                directory.allocate_contiguous(nodes, Zones::up_to(ZoneKind::Normal), wanted)
            }
            _ if held.is_empty() => None,
            _ => {
                let at = usize::try_from(random(held.len() as u64)).unwrap();
                let range: FrameRange = held.swap_remove(at);
                mark(owners, range, thread, 0);
                directory.free_range(range).unwrap();
                None
            }
        };
        if let Some(range) = found {
            mark(owners, range, 0, thread);
            held.push(range);
        }
    }
    for range in held {
        mark(owners, range, thread, 0);
        directory.free_range(range).unwrap();
    }
}

#[test]
fn threads_never_hold_the_same_frame_of_a_range() {
    // The border lies inside a huge frame; so small that they meet all the time.
    let (border, end) = if cfg!(miri) {
        (1300, 2600)
    } else {
        (10_300, 20_600)
    };
    let extents = [
        (frames(3, border), 0, ZoneKind::Normal),
        (frames(border, end), 1, ZoneKind::Normal),
    ];
    let directory = directory(&extents, &[frames(700, 900)]);
    let managed: u64 = directory.places.iter().map(Place::managed_frames).sum();
    let owners: Vec<_> = (0..end).map(|_| AtomicU32::new(0)).collect();
    let rounds = if cfg!(miri) { 20 } else { 5000 };
    std::thread::scope(|scope| {
        for thread in 1..=4u32 {
            let (directory, owners) = (&directory, &owners);
            scope.spawn(move || churn(directory, owners, thread, rounds));
        }
    });
    let mut free = 0;
    for place in directory.places {
        place.segment().validate().unwrap();
        free += place.segment().statistics().free_frames;
    }
    assert_eq!(free, managed);
    assert!(directory.range_calls.seen().is_quiet());
}
