//! Searches for contiguous frames: what they find, and how many probes they make.

extern crate std;

use super::kit::{first, frames, segments};
use crate::addr::{Frame, FrameRange};
use crate::frames::range;
use crate::frames::search::contiguous::{ContentRequest, Probed, RangeRequest, find};
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{Block, GIANT_FRAMES};
use crate::frames::zone::Segments;
use crate::node::ZoneKind;

const GIB: u64 = GIANT_FRAMES;

/// One segment; what a search in it finds, and after how many probes.
fn search(
    segments: &Segments<'static>,
    frames: u64,
    align_frames: u64,
) -> (Option<FrameRange>, u64) {
    let (mut probed, segment) = (Probed::default(), first(segments));
    let want = RangeRequest {
        frames,
        align_frames,
        mobility: Mobility::Unmovable,
        content: ContentRequest::Any,
    };
    let found = find(segment, want, &mut probed, |found| {
        range::take(segments, found, Mobility::Unmovable).is_ok()
    });
    segment.validate().unwrap();
    (found, probed.probes)
}

#[test]
#[cfg_attr(miri, ignore = "a machine of terabytes")]
fn whole_giants_cost_one_probe_each() {
    let giants = 8 << 10;
    // Every fourth is in use.
    let reserved: std::vec::Vec<_> = (0..giants / 4)
        .map(|at| frames(4 * at * GIB, (4 * at + 1) * GIB))
        .collect();
    let segments = segments(&[(frames(0, giants * GIB), 0, ZoneKind::Normal)], &reserved);
    let (found, probes) = search(&segments, 3 * GIB, GIB);
    assert_eq!((found, probes), (Some(frames(GIB, 4 * GIB)), 4));
    let (found, probes) = search(&segments, 4 * GIB, GIB);
    assert!(found.is_none() && probes <= giants, "{probes}");
    // Aligned beyond its size and beyond a giant frame.
    let (found, _) = search(&segments, GIB, 2 * GIB);
    assert_eq!(found, Some(frames(6 * GIB, 7 * GIB)));
    let (found, probes) = search(&segments, 2 * GIB, 4 * GIB);
    assert!(found.is_none() && probes <= giants, "{probes}");
}

#[test]
#[cfg_attr(miri, ignore = "a giant frame, page by page")]
fn a_checkerboard_is_passed_in_steps_of_the_range() {
    let segments = segments(&[(frames(0, 64 * GIB), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    for at in 0..64 * GIB / 1024 {
        let start = Frame::new(1024 * at + 300);
        segment
            .take_at(Block { start, order: 0 }, Mobility::Unmovable)
            .unwrap();
    }
    let giants_huges = 64 + 64 * 512;
    let (found, probes) = search(&segments, 1024, 1);
    assert!(found.is_none() && probes <= 3 * giants_huges, "{probes}");
    let (found, probes) = search(&segments, 1023, 1);
    assert!(found == Some(frames(301, 1324)), "{found:?}");
    assert!(probes <= 3 * giants_huges, "{probes}");
    // As many huge frames are whole as are broken up, never two in a row.
    let (found, probes) = search(&segments, 1024, 512);
    assert!(found.is_none() && probes <= 2 * giants_huges, "{probes}");
    let (found, probes) = search(&segments, GIB, GIB);
    assert!(found.is_none() && probes <= 64, "{probes}");
}

#[test]
fn a_small_range_breaks_up_nothing_while_there_is_space() {
    let segments = segments(&[(frames(0, 3 * GIB), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let page = Frame::new(GIB + 700);
    let block = Block {
        start: page,
        order: 0,
    };
    segment.take_at(block, Mobility::Unmovable).unwrap();
    let (found, _) = search(&segments, 7, 1);
    assert_eq!(found, Some(frames(GIB + 512, GIB + 519)));
    let (found, _) = search(&segments, 600, 1);
    assert_eq!(found, Some(frames(GIB + 1024, GIB + 1624)));
    let (found, _) = search(&segments, 16, 512);
    assert_eq!(found, Some(frames(GIB, GIB + 16)));
    assert_eq!(segment.statistics().free_giants, 2);
}

#[test]
fn a_small_range_mixes_only_where_nothing_else_is_left() {
    let segments = segments(&[(frames(0, 1536), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let page = |start| Block {
        start: Frame::new(start),
        order: 0,
    };
    let take = |start, mobility| segment.take_at(page(start), mobility).unwrap();
    take(0, Mobility::Movable);
    take(513, Mobility::Unmovable);
    assert_eq!(search(&segments, 7, 1).0, Some(frames(514, 521)));
    // Too long for the huge frame it may share: a whole one is broken up.
    assert_eq!(search(&segments, 509, 1).0, Some(frames(521, 1030)));
    assert_eq!(search(&segments, 510, 1).0, Some(frames(1, 511)));
}
