//! Searches for contiguous frames: what they find, and how many probes they make.

extern crate std;

use super::kit::{first, frames, segments};
use crate::addr::{Frame, FrameRange};
use crate::frames::range;
use crate::frames::search::contiguous::{ContentRequest, Probed, RangeRequest, find};
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{BITMAP_WORDS, Block, GIANT_FRAMES, HUGE_FRAMES, HUGES};
use crate::frames::zone::Segments;
use crate::node::ZoneKind;

const GIANT: u64 = GIANT_FRAMES;
const HUGE: u64 = HUGE_FRAMES as u64;

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
        .map(|at| frames(4 * at * GIANT, (4 * at + 1) * GIANT))
        .collect();
    let segments = segments(
        &[(frames(0, giants * GIANT), 0, ZoneKind::Normal)],
        &reserved,
    );
    let (found, probes) = search(&segments, 3 * GIANT, GIANT);
    assert_eq!((found, probes), (Some(frames(GIANT, 4 * GIANT)), 4));
    let (found, probes) = search(&segments, 4 * GIANT, GIANT);
    assert!(found.is_none() && probes <= giants, "{probes}");
    // Aligned beyond its size and beyond a giant frame.
    let (found, _) = search(&segments, GIANT, 2 * GIANT);
    assert_eq!(found, Some(frames(6 * GIANT, 7 * GIANT)));
    let (found, probes) = search(&segments, 2 * GIANT, 4 * GIANT);
    assert!(found.is_none() && probes <= giants, "{probes}");
}

#[test]
#[cfg_attr(miri, ignore = "a giant frame, page by page")]
fn a_checkerboard_is_passed_in_steps_of_the_range() {
    let segments = segments(&[(frames(0, 64 * GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    for at in 0..64 * GIANT / (2 * HUGE) {
        let start = Frame::new(2 * HUGE * at + 300);
        segment
            .take_at(Block { start, order: 0 }, Mobility::Unmovable)
            .unwrap();
    }
    let giants_huges = 64 + 64 * u64::from(HUGES);
    // Of larger huge frames each word of a bitmap counts, of the half that is split.
    let once = if BITMAP_WORDS == 8 {
        3 * giants_huges
    } else {
        giants_huges + 32 * GIANT / 64
    };
    let (found, probes) = search(&segments, 2 * HUGE, 1);
    assert!(found.is_none() && probes <= once, "{probes}");
    let (found, probes) = search(&segments, 2 * HUGE - 1, 1);
    assert!(found == Some(frames(301, 2 * HUGE + 300)), "{found:?}");
    assert!(probes <= once, "{probes}");
    // As many huge frames are whole as are broken up, never two in a row.
    let (found, probes) = search(&segments, 2 * HUGE, HUGE);
    assert!(found.is_none() && probes <= 2 * giants_huges, "{probes}");
    let (found, probes) = search(&segments, GIANT, GIANT);
    assert!(found.is_none() && probes <= 64, "{probes}");
}

#[test]
fn a_small_range_breaks_up_nothing_while_there_is_space() {
    let segments = segments(&[(frames(0, 3 * GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let page = Frame::new(GIANT + HUGE + 188);
    let block = Block {
        start: page,
        order: 0,
    };
    segment.take_at(block, Mobility::Unmovable).unwrap();
    let (found, _) = search(&segments, 7, 1);
    assert_eq!(found, Some(frames(GIANT + HUGE, GIANT + HUGE + 7)));
    let (found, _) = search(&segments, HUGE + 88, 1);
    assert_eq!(found, Some(frames(GIANT + 2 * HUGE, GIANT + 3 * HUGE + 88)));
    let (found, _) = search(&segments, 16, HUGE);
    assert_eq!(found, Some(frames(GIANT, GIANT + 16)));
    assert_eq!(segment.statistics().free_giants, 2);
}

#[test]
fn a_small_range_mixes_only_where_nothing_else_is_left() {
    let segments = segments(&[(frames(0, 3 * HUGE), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let page = |start| Block {
        start: Frame::new(start),
        order: 0,
    };
    let take = |start, mobility| segment.take_at(page(start), mobility).unwrap();
    take(0, Mobility::Movable);
    take(HUGE + 1, Mobility::Unmovable);
    assert_eq!(search(&segments, 7, 1).0, Some(frames(HUGE + 2, HUGE + 9)));
    // Too long for the huge frame it may share: a whole one is broken up.
    assert_eq!(
        search(&segments, HUGE - 3, 1).0,
        Some(frames(HUGE + 9, 2 * HUGE + 6))
    );
    assert_eq!(search(&segments, HUGE - 2, 1).0, Some(frames(1, HUGE - 1)));
}
