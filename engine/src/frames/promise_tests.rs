//! Promises beside pages that come back, one step at a time: what four CPUs would have to
//! do at once.

extern crate std;

use super::allocate::Search;
use super::geometry::{Block, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::request::{Mobility, Zones};
use super::testkit::{directory, frames, want};
use super::word::{Change, Huge};
use crate::addr::Frame;
use crate::node::{NodeId, ZoneKind};

/// The bound is of the bits that are clear, not of the count: it must hold a pair that was
/// promised in full to calls that then took other pages.
#[test]
fn neighbours_that_were_promised_and_not_taken_are_found_as_a_pair() {
    let page = |page| Block {
        start: Frame::new(page),
        order: 0,
    };
    // Pages 66 and 67 are free, pages 8 and 12 are held.
    let end = u64::from(HUGE_FRAMES);
    let reserved = [(0, 8), (9, 12), (13, 66), (68, end)].map(|(from, to)| frames(from, to));
    let directory = directory(&[(frames(0, end), 0, ZoneKind::Normal)], &reserved);
    let segment = directory.places[0].segment();
    let (giant, huge) = (0, 0);
    segment.claim(page(8)).unwrap();
    segment.claim(page(12)).unwrap();

    // Two calls are promised a page each: nothing else is left.
    let promises = [(); 2].map(|()| segment.promise_pages(huge, 1).unwrap());
    assert_eq!(segment.huge(huge).free, 0);
    // A third one gives back the two pages that are held, and the two calls find those.
    segment.free(page(8)).unwrap();
    segment.free(page(12)).unwrap();
    for (promise, found) in promises.into_iter().zip([8, 12]) {
        assert_eq!(segment.row(huge).claim_any(0), Ok(found));
        segment.keep_promise(giant, promise);
    }

    segment.validate().unwrap();
    let nodes = core::iter::once(NodeId(0));
    let pair = directory.allocate(nodes, Zones::up_to(ZoneKind::Normal), want(1));
    assert_eq!(pair, Some(Frame::new(66)));
}

/// What calls in flight hide for a moment of huge and giant frames is not taken for used up,
/// whatever the order asked for.
#[test]
fn what_a_call_tries_is_not_used_up_for_any_order() {
    let whole = 1 << GIANT_ORDER;
    let huge_frames = u64::from(HUGE_FRAMES);
    let directory = directory(&[(frames(0, whole), 0, ZoneKind::Normal)], &[]);
    let segment = directory.places[0].segment();
    let pair = HUGE_ORDER + 1;
    // All is free, but somebody is on his way out: the giant frame merges when he is.
    let start = Frame::new(0);
    segment.claim(Block { start, order: 0 }).unwrap();
    segment.change_giant(0, Change::busy(1)).unwrap();
    segment.free(Block { start, order: 0 }).unwrap();
    assert_eq!(segment.take(GIANT_ORDER), Search::Busy);
    segment.settle_giant(0, Change::busy(-1));
    assert_eq!(segment.take(GIANT_ORDER), Search::Found(start));

    // Huge frames 0 to 2, 5 and 7 are left.
    let order = HUGE_ORDER;
    for huge in [0, 1, 2, 5, 7] {
        let start = Frame::new(huge * huge_frames);
        segment.free(Block { start, order }).unwrap();
    }
    // A call tries four in a row and has got two of them.
    let four = Change::free(-3).and_busy(1);
    segment.change_giant(0, four).unwrap();
    assert!(segment.swap_huge(0, Huge::FREE, Huge::SPLITTING));
    assert!(segment.swap_huge(1, Huge::FREE, Huge::SPLITTING));
    assert_eq!(segment.take(pair), Search::Busy);
    segment.publish_huges(0..2, Huge::FREE);
    segment.settle_giant(0, Change::free(3).and_busy(-1));
    assert_eq!(segment.take(pair), Search::Found(start));
    assert_eq!(segment.take(pair), Search::Nothing);
}

/// A refill may have emptied 32 huge frames before it says so of one: with every huge frame
/// of a giant frame in the hands of refills, and filled again meanwhile, the count still holds.
#[test]
#[cfg_attr(miri, ignore = "takes minutes there")]
fn many_refills_may_empty_what_is_filled_again_at_the_same_time() {
    let whole = 1u64 << GIANT_ORDER;
    let huge_frames = u64::from(HUGE_FRAMES);
    let directory = directory(&[(frames(0, whole), 0, ZoneKind::Normal)], &[]);
    let segment = directory.places[0].segment();
    let start = Frame::new(0);
    let all = Block {
        start,
        order: GIANT_ORDER,
    };
    segment.claim(all).unwrap();
    let page = |huge: u64, page| Block {
        start: Frame::new(huge * huge_frames + page),
        order: 0,
    };
    let count = whole / huge_frames;
    let mut promised = std::vec::Vec::new();
    for round in 0..4 {
        for huge in 0..count {
            segment.free(page(huge, round)).unwrap();
            let index = usize::try_from(huge).unwrap();
            let promise = segment.promise_up_to(index, Mobility::Unmovable, 1);
            promised.push((index, promise.unwrap()));
        }
    }
    for (huge, promise) in promised {
        segment.row(huge).claim_any(0).unwrap();
        segment.keep_promise(0, promise);
    }
    segment.validate().unwrap();
    assert_eq!(segment.statistics().free_frames, 0);
}
