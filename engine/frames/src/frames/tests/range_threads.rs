//! Ranges with real threads: every frame held is marked with its owner, while other threads
//! allocate and free ranges, blocks and contiguous frames around it.

extern crate std;

use super::kit::{allocate_frames, frames, recount, segments, want};
use crate::addr::FrameRange;
use crate::frames::range;
use crate::frames::request::ZoneChoice;
use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{Block, HUGE_FRAMES, HUGE_ORDER};
use crate::frames::zone::Segments;
use crate::frames::zone::segment::ZoneSegment;
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

/// Allocates and frees at random, in every way there is.
fn churn(segments: &Segments<'_>, owners: &[AtomicU32], thread: u32, rounds: u32) {
    let mut seed = u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let ends: Vec<_> = segments.iter().map(ZoneSegment::frames).collect();
    let all = ends[0].start()..ends[1].end();
    let mut held = Vec::new();
    for _ in 0..rounds {
        let len = 1 + [3, 70, 600, 3000][usize::try_from(random(4)).unwrap()];
        let frames_wanted = 1 + random(len);
        let found = match random(8) {
            0 | 1 => {
                let order =
                    [0, 0, 2, 7, HUGE_ORDER, HUGE_ORDER + 1][usize::try_from(random(6)).unwrap()];
                let nodes = [NodeId(0), NodeId(1)].into_iter();
                let start = segments.allocate(
                    nodes,
                    ZoneChoice::up_to(ZoneKind::Normal),
                    want(order),
                    None,
                );
                start.map(|start| Block { start, order }.range())
            }
            2 => {
                let start = all.start.get() + random(all.end.get() - all.start.get());
                let range = frames(start, start + frames_wanted);
                range::allocate(segments, range).is_ok().then_some(range)
            }
            3 => {
                let nodes = [NodeId(1), NodeId(0)].into_iter();
                let wanted = RangeRequest {
                    frames: frames_wanted,
                    align_frames: 1 << random(10),
                    content: ContentRequest::Any,
                    mobility: if random(2) == 0 {
                        Mobility::Movable
                    } else {
                        Mobility::Unmovable
                    },
                };
                allocate_frames(segments, nodes, ZoneChoice::up_to(ZoneKind::Normal), wanted)
            }
            _ if held.is_empty() => None,
            _ => {
                let at = usize::try_from(random(held.len() as u64)).unwrap();
                let range: FrameRange = held.swap_remove(at);
                mark(owners, range, thread, 0);
                range::give(segments, range, |_, _| {}).unwrap();
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
        range::give(segments, range, |_, _| {}).unwrap();
    }
}

#[test]
fn threads_never_hold_the_same_frame_of_a_range() {
    // The border lies inside a huge frame; so small that they meet all the time.
    let (border, end) = if cfg!(miri) {
        (1300, 2600)
    } else {
        let border = 20 * u64::from(HUGE_FRAMES) + 60;
        (border, 2 * border)
    };
    let extents = [
        (frames(3, border), 0, ZoneKind::Normal),
        (frames(border, end), 1, ZoneKind::Normal),
    ];
    let segments = segments(&extents, &[frames(700, 900)]);
    let managed: u64 = segments
        .iter()
        .map(|segment| segment.statistics().free_frames)
        .sum();
    let owners: Vec<_> = (0..end).map(|_| AtomicU32::new(0)).collect();
    let rounds = if cfg!(miri) { 8 } else { 5000 };
    std::thread::scope(|scope| {
        for thread in 1..=4u32 {
            let (segments, owners) = (&segments, &owners);
            scope.spawn(move || churn(segments, owners, thread, rounds));
        }
    });
    assert_eq!(recount(&segments), managed);
    assert!(segments.range_calls.snapshot().is_quiet());
}
