//! Levels split and merge, tables are written where they must be, and threads share them.

extern crate std;

use super::kit::{first, frames, free, recount, segments, want};
use crate::addr::{Frame, FrameRange};
use crate::frames::request::ZoneChoice;
use crate::frames::word::Bitmap;
use crate::frames::word::geometry::{
    Block, GIANT_FRAMES as GIANT, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, HUGES,
};
use crate::frames::zone::Segments;
use crate::node::{NodeId, ZoneKind};
use core::iter::once;
use std::vec::Vec;

const HUGE: u64 = HUGE_FRAMES as u64;

#[test]
fn a_giant_frame_split_to_pages_merges_again() {
    let segments = segments(&[(frames(0, GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let whole = segment.statistics();
    assert_eq!((whole.free_giants, whole.free_huges), (1, u64::from(HUGES)));
    let pages: Vec<_> = (0..if cfg!(miri) { 3 } else { 1200 })
        .map(|_| segment.take_any(0).unwrap())
        .collect();
    assert_eq!(segment.statistics().free_giants, 0);
    for start in pages {
        segment.give(Block { start, order: 0 }).unwrap();
        segment.validate().unwrap();
    }
    assert_eq!(segment.statistics(), whole);
}

#[test]
fn parts_of_a_large_block_free_one_by_one() {
    let segments = segments(&[(frames(0, GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    assert_eq!(segment.take_any(GIANT_ORDER), Ok(Frame::new(0)));
    let free = |frame, order| {
        segment.give(Block {
            start: Frame::new(frame),
            order,
        })
    };
    free(HUGE + 1, 0).unwrap();
    free(2 * HUGE, HUGE_ORDER).unwrap();
    free(GIANT / 2, GIANT_ORDER - 1).unwrap();
    assert!(free(GIANT / 2, GIANT_ORDER - 1).is_err(), "freed twice");
    assert!(free(HUGE, HUGE_ORDER).is_err(), "one page of it is free");
    assert!(free(0, GIANT_ORDER).is_err(), "half of it is free");
    segment.validate().unwrap();
    assert_eq!(segment.statistics().free_frames, 1 + HUGE + GIANT / 2);
    assert!(segment.is_allocated(Frame::new(HUGE)) && !segment.is_allocated(Frame::new(HUGE + 1)));
}

#[test]
fn pages_allocated_one_by_one_free_as_a_block() {
    let segments = segments(&[(frames(0, 2 * HUGE), 0, ZoneKind::Dma)], &[]);
    let segment = first(&segments);
    for _ in 0..2 * HUGE {
        assert!(segment.take_any(0).is_ok());
    }
    assert!(segment.take_any(0).is_err());
    segment
        .give(Block {
            start: Frame::new(HUGE),
            order: HUGE_ORDER,
        })
        .unwrap();
    segment.validate().unwrap();
    assert_eq!(segment.take_any(HUGE_ORDER), Ok(Frame::new(HUGE)));
    assert!(segment.take_any(HUGE_ORDER).is_err());
}

#[test]
fn start_writes_only_where_something_begins_or_ends() {
    let written = |reserved: &[FrameRange]| {
        let segments = segments(&[(frames(0, 64 * GIANT), 0, ZoneKind::Normal)], reserved);
        let segment = segments.iter().next().unwrap();
        assert_eq!(segment.written_bytes(), 0, "no call yet");
        let reserved: u64 = reserved.iter().map(|range| range.count()).sum();
        assert_eq!(segment.statistics().free_frames, 64 * GIANT - reserved);
        assert_eq!(
            segment.online().unwrap().statistics().free_frames,
            64 * GIANT - reserved
        );
        segment.written_bytes()
    };
    assert_eq!(written(&[]), 64 * 8);
    // A reserved range that begins and ends inside one huge frame: one table, one bitmap.
    assert_eq!(
        written(&[frames(5 * GIANT + 7, 5 * GIANT + 9)]),
        64 * 8 + u64::from(HUGES) * 4 + size_of::<Bitmap>() as u64
    );
    // Whole giant frames reserved cost nothing more.
    assert_eq!(written(&[frames(GIANT, 3 * GIANT)]), 64 * 8);
}

#[test]
fn threads_never_hold_the_same_frame() {
    let end = if cfg!(miri) { 2600 } else { 2 * GIANT + 77 };
    let segments = segments(
        &[(frames(3, end), 0, ZoneKind::Normal)],
        &[frames(700, 900), frames(end - 9, end - 8)],
    );
    let end = usize::try_from(end).unwrap();
    let owners: Vec<_> = (0..end)
        .map(|_| core::sync::atomic::AtomicU32::new(0))
        .collect();
    let rounds = if cfg!(miri) { 30 } else { 3000 };
    std::thread::scope(|scope| {
        for thread in 1..=4u32 {
            let (segments, owners) = (&segments, &owners);
            scope.spawn(move || churn(segments, owners, thread, rounds));
        }
    });
    let managed = segments
        .iter()
        .map(|segment| segment.statistics().free_frames)
        .sum::<u64>();
    assert_eq!(recount(&segments), managed);
}

/// Allocates and frees at random; every frame held is marked with the thread.
fn churn(
    segments: &Segments<'_>,
    owners: &[core::sync::atomic::AtomicU32],
    thread: u32,
    rounds: u32,
) {
    use core::sync::atomic::Ordering::Relaxed;
    let mark = |block: Block, from, to| {
        let range = block.range();
        // Every page of blocks up to two huge frames, every 64th of larger ones.
        let step = if block.order <= HUGE_ORDER + 1 { 1 } else { 64 };
        for frame in (range.start().get()..range.end().get()).step_by(step) {
            let old = owners[usize::try_from(frame).unwrap()].swap(to, Relaxed);
            assert_eq!(old, from, "{block:?} has two owners");
        }
    };
    let mut seed = u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut held = Vec::new();
    for _ in 0..rounds {
        const HUGES: [u8; 5] = [
            HUGE_ORDER - 1,
            HUGE_ORDER,
            HUGE_ORDER,
            HUGE_ORDER + 1,
            HUGE_ORDER + 3,
        ];
        let order = [
            &[0, 0, 0, 1, 3, 6, 7],
            &HUGES[..],
            &[GIANT_ORDER - 1, GIANT_ORDER],
        ]
        .concat();
        let order = order[usize::try_from(random(order.len() as u64)).unwrap()];
        if random(2) == 0 {
            if let Some(start) = segments.allocate(
                once(NodeId(0)),
                ZoneChoice::up_to(ZoneKind::Normal),
                want(order),
                None,
            ) {
                let block = Block { start, order };
                mark(block, 0, thread);
                held.push(block);
            }
        } else if !held.is_empty() {
            let at = usize::try_from(random(held.len() as u64)).unwrap();
            let block: Block = held.swap_remove(at);
            mark(block, thread, 0);
            assert!(free(segments, block));
        }
    }
    for block in held {
        mark(block, thread, 0);
        assert!(free(segments, block));
    }
}
