//! The interleavings of what stands between magazines and the shared levels: many pages
//! and huge frames at a time, and areas. The bounds on blocks are in [`super::bound`],
//! asking other CPUs in [`super::slot`].
//!
//! As in [`super::protocol`]: a small machine, contents that the checker watches, all counts
//! and bounds recounted after every run. At most 4 preemptions, where no fewer are named.

extern crate std;

use super::kit::{END, block, both, check, model};
use crate::addr::{Frame, FrameRange};
use crate::frames::bulk::Basket;
use crate::frames::directory::Directory;
use crate::frames::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::request::Zones;
use crate::frames::segment::Segment;
use crate::frames::testkit::{directory, frames, want};
use crate::node::{NodeId, ZoneKind};
use crate::sync::AtomicU32;
use loom::cell::UnsafeCell;
use std::boxed::Box;
use std::vec::Vec;

use crate::frames::request::Mobility::Unmovable;

/// One segment, and the content of the first page of each word of a bitmap.
pub(super) struct Ground {
    directory: Directory<'static>,
    content: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are only touched by whoever holds the frame; loom checks that.
unsafe impl Sync for Ground {}

impl Ground {
    pub(super) fn new(reserved: &[FrameRange]) -> &'static Self {
        let ground = Self {
            directory: directory(&[(frames(0, END), 0, ZoneKind::Normal)], reserved),
            content: (0..END / 64).map(|_| UnsafeCell::new(0)).collect(),
        };
        ground.segment();
        Box::leak(Box::new(ground))
    }

    fn segment(&self) -> &Segment<'static> {
        self.directory.places[0].segment()
    }

    /// What an owner does: write to the frames.
    fn touch(&self, range: FrameRange) {
        let first = range.start().get().next_multiple_of(64);
        for page in (first..range.end().get()).step_by(64) {
            // SAFETY: we hold the frame; loom fails the test if somebody else does too.
            self.content[page as usize / 64].with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    fn touch_all(&self, taken: &[Frame], order: u8) {
        for start in taken {
            self.touch(block(start.get(), order).range());
        }
    }

    /// Takes single pages, as a magazine does that is refilled.
    pub(super) fn take_pages(&self, most: usize) -> Vec<Frame> {
        let mut taken = std::vec![Frame::new(0); most];
        let mut basket = Basket::new(&mut taken);
        (self.segment()).take_pages(Unmovable, &AtomicU32::new(0), &mut basket);
        let count = basket.count();
        taken.truncate(count);
        self.touch_all(&taken, 0);
        taken
    }

    fn take_huges(&self, most: usize) -> Vec<Frame> {
        let mut taken = std::vec![Frame::new(0); most];
        let mut basket = Basket::new(&mut taken);
        (self.segment()).take_huges(Unmovable, &AtomicU32::new(0), &mut basket);
        let count = basket.count();
        taken.truncate(count);
        self.touch_all(&taken, HUGE_ORDER);
        taken
    }

    pub(super) fn give_pages(&self, pages: &[u64]) -> usize {
        let pages: Vec<_> = pages.iter().copied().map(Frame::new).collect();
        self.touch_all(&pages, 0);
        self.give(|ground, bad| (ground.directory).give_pages(&pages, ground.segment(), bad))
    }

    fn give_huges(&self, huges: &[u64]) -> usize {
        let huges: Vec<_> = huges.iter().copied().map(Frame::new).collect();
        self.touch_all(&huges, HUGE_ORDER);
        self.give(|ground, bad| (ground.directory).give_huges(&huges, ground.segment(), bad))
    }

    fn give_area(&self, area: FrameRange) -> usize {
        self.touch(area);
        self.give(|ground, bad| (ground.directory).give_area(area, ground.segment(), bad))
    }

    /// How many were refused.
    fn give(&self, give: impl FnOnce(&Self, &mut dyn FnMut(Frame))) -> usize {
        let mut refused = 0;
        give(self, &mut |_| refused += 1);
        refused
    }

    pub(super) fn allocate(&self, order: u8) -> Option<Block> {
        let nodes = core::iter::once(NodeId(0));
        let start =
            (self.directory).allocate(nodes, Zones::up_to(ZoneKind::Normal), want(order))?;
        let block = Block { start, order };
        self.touch(block.range());
        Some(block)
    }

    pub(super) fn claim(&self, block: Block) -> bool {
        let claimed = self.segment().claim(block).is_ok();
        if claimed {
            self.touch(block.range());
        }
        claimed
    }

    pub(super) fn free(&self, block: Block) {
        self.touch(block.range());
        self.segment().free(block).expect("allocated");
    }

    /// Free frames once everybody is done.
    pub(super) fn settled(&self) -> u64 {
        self.segment().validate().unwrap();
        self.segment().statistics().free_frames
    }

    /// The same; somebody who is alone finds a block of this order.
    pub(super) fn settled_with(&self, order: u8) -> u64 {
        let free = self.settled();
        let found = self.allocate(order);
        self.free(found.expect("a block that is free is found"));
        assert_eq!(self.settled(), free);
        free
    }
}

fn is_disjoint(one: &[Frame], other: &[Frame]) -> bool {
    one.iter().all(|frame| !other.contains(frame))
}

/// All frames but these ranges.
pub(super) fn all_but(free: &[(u64, u64)]) -> Vec<FrameRange> {
    let mut reserved = Vec::new();
    let mut from = 0;
    for &(start, end) in free {
        reserved.push(frames(from, start));
        from = end;
    }
    reserved.push(frames(from, END));
    reserved.retain(|range| !range.is_empty());
    reserved
}

// ---- Pages ------------------------------------------------------------------

#[test]
fn two_take_pages_of_the_same_words() {
    model(|| {
        let ground = Ground::new(&all_but(&[(60, 66)]));
        let (mine, other) = both(|| ground.take_pages(4), || ground.take_pages(4));
        assert!(is_disjoint(&mine, &other));
        assert_eq!(mine.len() + other.len(), 6);
        assert_eq!(ground.settled(), 0);
    });
}

#[test]
fn pages_are_taken_beside_a_claim_and_a_block() {
    for claimed in [block(64, 0), block(62, 1)] {
        model(move || {
            let ground = Ground::new(&all_but(&[(62, 66)]));
            let (taken, claimed) = both(
                || ground.take_pages(3).len() as u64,
                move || u64::from(ground.claim(claimed)) * claimed.frames(),
            );
            assert_eq!(ground.settled(), 4 - taken - claimed);
        });
    }
}

#[test]
fn pages_are_taken_beside_a_block_of_several() {
    model(|| {
        let ground = Ground::new(&all_but(&[(62, 67)]));
        let (taken, pair) = both(|| ground.take_pages(3), || ground.allocate(1));
        // Three of five leave two, side by side or not.
        assert_eq!(taken.len(), 3);
        let pair = pair.map_or(0, Block::frames);
        assert_eq!(ground.settled(), 2 - pair);
    });
}

#[test]
fn pages_are_taken_while_the_last_one_comes_back() {
    model(|| {
        let ground = Ground::new(&[frames(128, END)]);
        let held = ground.allocate(6).unwrap();
        let (taken, ()) = both(
            || ground.take_pages(2).len() as u64,
            move || ground.free(held),
        );
        assert_eq!(ground.settled(), 128 - taken);
    });
}

#[test]
fn a_page_may_be_taken_whose_count_is_still_to_come() {
    model(|| {
        let ground = Ground::new(&all_but(&[(64, 66)]));
        assert!(ground.claim(block(64, 0)));
        // The promise of page 65 may find page 64, and must find what was written there.
        let (taken, refused) = both(|| ground.take_pages(1), || ground.give_pages(&[64]));
        assert_eq!((taken.len(), refused), (1, 0));
        assert_eq!(ground.settled(), 1);
    });
}

#[test]
fn two_give_back_pages_of_the_same_word() {
    model(|| {
        let ground = Ground::new(&[frames(128, END)]);
        assert!(ground.claim(block(0, 6)) && ground.claim(block(64, 6)));
        ground.free(block(64, 6));
        let low: Vec<_> = (0..32).collect();
        let high: Vec<_> = (32..64).collect();
        let refused = both(
            move || ground.give_pages(&low),
            move || ground.give_pages(&high),
        );
        assert_eq!(refused, (0, 0));
        // All of it came back as one.
        assert_eq!(ground.settled_with(HUGE_ORDER), 128);
        assert_eq!(ground.segment().statistics().free_huges, 1);
    });
}

#[test]
fn pages_come_back_before_their_huge_frame_is_free_as_a_whole() {
    model(|| {
        let ground = Ground::new(&[frames(128, END)]);
        assert!(ground.claim(block(0, 1)));
        // Who finds it free as a whole writes its bitmap anew.
        let (refused, page) = both(|| ground.give_pages(&[0, 1]), || ground.allocate(0));
        assert!(refused == 0 && page.is_some());
        assert_eq!(ground.settled(), 127);
    });
}

#[test]
fn pages_freed_twice_by_two_are_refused_once() {
    model(|| {
        let ground = Ground::new(&[frames(128, END)]);
        assert!(ground.claim(block(0, 2)));
        let give = || ground.give(|on, bad| on.directory.give_pages(&pages(), on.segment(), bad));
        let pages_refused = both(give, give);
        assert_eq!(pages_refused.0 + pages_refused.1, 3);
        assert_eq!(ground.settled(), 127);
    });
    fn pages() -> [Frame; 3] {
        [1, 2, 3].map(Frame::new)
    }
}

#[test]
fn a_huge_frame_opens_for_pages_of_two() {
    check(3, || {
        let ground = Ground::new(&[frames(128, END)]);
        assert_eq!(ground.take_huges(1), [Frame::new(0)]);
        let refused = both(
            || ground.give_pages(&[0, 1, 2]),
            || ground.give_pages(&[64, 3, 4]),
        );
        assert_eq!(refused, (0, 0));
        assert_eq!(ground.settled(), 6);
    });
}

// ---- Huge frames --------------------------------------------------------------

#[test]
fn two_take_huge_frames_of_a_whole_giant() {
    model(|| {
        let ground = Ground::new(&[]);
        let (mine, other) = both(|| ground.take_huges(2), || ground.take_huges(2));
        assert!(is_disjoint(&mine, &other));
        let taken = (mine.len() + other.len()) as u64;
        assert!(taken >= 2, "who was slower may come out empty");
        assert_eq!(ground.settled(), END - 128 * taken);
    });
}

#[test]
fn huge_frames_are_taken_while_another_splits_the_giant() {
    for order in [0, HUGE_ORDER + 1] {
        model(move || {
            let ground = Ground::new(&[]);
            let (taken, other) = both(|| ground.take_huges(2), move || ground.allocate(order));
            let other = other.expect("at least two huge frames are left").frames();
            assert_eq!(ground.settled(), END - 128 * taken.len() as u64 - other);
        });
    }
}

#[test]
fn huge_frames_given_back_by_two_become_a_giant() {
    model(|| {
        let ground = Ground::new(&[]);
        assert_eq!(ground.take_huges(4).len(), 4);
        let refused = both(
            || ground.give_huges(&[0, 128]),
            || ground.give_huges(&[256, 384]),
        );
        assert_eq!(refused, (0, 0));
        assert_eq!(ground.segment().statistics().free_giants, 1);
        assert_eq!(ground.settled_with(GIANT_ORDER), END);
    });
}

#[test]
fn huge_frames_given_back_reach_who_takes_the_giant() {
    model(|| {
        let ground = Ground::new(&[]);
        assert_eq!(ground.take_huges(4).len(), 4);
        let (giant, refused) = both(
            || ground.allocate(GIANT_ORDER).is_some(),
            || ground.give_huges(&[0, 128, 256, 384]),
        );
        assert_eq!(refused, 0);
        assert_eq!(ground.settled(), if giant { 0 } else { END });
    });
}

#[test]
fn a_huge_frame_freed_twice_by_two_is_refused_once() {
    model(|| {
        let ground = Ground::new(&[frames(256, END)]);
        assert!(ground.claim(block(0, HUGE_ORDER)));
        let give = || {
            let one = [Frame::new(0)];
            ground.give(|on, bad| on.directory.give_huges(&one, on.segment(), bad))
        };
        let (one, other) = both(give, give);
        assert_eq!(one + other, 1);
        assert_eq!(ground.settled(), 256);
    });
}

// ---- Areas ----------------------------------------------------------------------

#[test]
fn what_is_left_of_an_area_comes_back_while_others_free_its_pages() {
    check(2, || {
        let ground = Ground::new(&[frames(128, END)]);
        assert_eq!(ground.take_huges(1).len(), 1);
        // Pages 0..66 were handed out, the others not yet.
        let (refused, ()) = both(
            || ground.give_area(frames(66, 128)),
            || {
                ground.free(block(64, 1));
                ground.free(block(0, 6));
            },
        );
        assert_eq!(refused, 0);
        assert_eq!(ground.settled_with(HUGE_ORDER), 128);
        assert_eq!(ground.segment().statistics().free_huges, 1);
    });
}

#[test]
fn pages_cut_from_an_area_that_others_opened_are_nobody_elses() {
    model(|| {
        let ground = Ground::new(&[frames(128, END)]);
        assert_eq!(ground.take_huges(1).len(), 1);
        let ((), taken) = both(
            || {
                // Cut without asking anybody.
                ground.touch(frames(64, 65));
                ground.free(block(64, 0));
            },
            || {
                ground.free(block(0, 6));
                ground.take_pages(65).len() as u64
            },
        );
        assert_eq!(ground.settled(), 65 - taken);
    });
}
