//! The interleavings of what stands between magazines and the shared levels: many pages
//! and huge frames at a time, areas, the bounds on blocks, and asking other CPUs.
//!
//! As in `loom_tests`: a small machine, contents that the checker watches, all counts
//! and bounds recounted after every run. At most 4 preemptions, where no fewer are named.

extern crate std;

use super::bulk::Basket;
use super::directory::Directory;
use super::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use super::loom_tests::{END, block, both, check, model};
use super::segment::Segment;
use super::slot::{Asked, CpuSlot};
use super::testkit::{directory, frames, want};
use crate::addr::{Frame, FrameRange};
use crate::node::{NodeId, ZoneKind};
use crate::sync::AtomicU32;
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

use super::request::Mobility::Unmovable;

/// One segment, and the content of the first page of each word of a bitmap.
struct Ground {
    directory: Directory<'static>,
    content: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are only touched by whoever holds the frame; loom checks that.
unsafe impl Sync for Ground {}

impl Ground {
    fn new(reserved: &[FrameRange]) -> &'static Self {
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
    fn take_pages(&self, most: usize) -> Vec<Frame> {
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

    fn give_pages(&self, pages: &[u64]) -> usize {
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

    fn allocate(&self, order: u8) -> Option<Block> {
        let nodes = core::iter::once(NodeId(0));
        let start = (self.directory).allocate(nodes, ZoneKind::Normal, want(order))?;
        let block = Block { start, order };
        self.touch(block.range());
        Some(block)
    }

    fn claim(&self, block: Block) -> bool {
        let claimed = self.segment().claim(block).is_ok();
        if claimed {
            self.touch(block.range());
        }
        claimed
    }

    fn free(&self, block: Block) {
        self.touch(block.range());
        self.segment().free(block).expect("allocated");
    }

    /// Free frames once everybody is done.
    fn settled(&self) -> u64 {
        self.segment().validate().unwrap();
        self.segment().statistics().free_frames
    }

    /// The same; somebody who is alone finds a block of this order.
    fn settled_with(&self, order: u8) -> u64 {
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
fn all_but(free: &[(u64, u64)]) -> Vec<FrameRange> {
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

// ---- Bounds on the blocks of pages ----------------------------------------------

#[test]
fn neighbours_freed_at_once_are_found_as_a_pair() {
    model(|| {
        let ground = Ground::new(&all_but(&[(2, 4)]));
        assert!(ground.claim(block(2, 0)) && ground.claim(block(3, 0)));
        both(|| ground.free(block(2, 0)), || ground.free(block(3, 0)));
        assert_eq!(ground.settled_with(1), 2);
    });
}

#[test]
fn neighbours_given_back_at_once_are_found_as_a_pair() {
    model(|| {
        let ground = Ground::new(&all_but(&[(2, 4), (9, 10)]));
        assert!(ground.claim(block(2, 1)) && ground.claim(block(9, 0)));
        both(|| ground.give_pages(&[2, 9]), || ground.give_pages(&[3]));
        assert_eq!(ground.settled_with(1), 3);
    });
}

#[test]
fn a_promise_that_takes_another_page_leaves_the_bound() {
    model(|| {
        // Four pages in one block are free, and then a page before them.
        let ground = Ground::new(&all_but(&[(0, 1), (4, 8)]));
        assert!(ground.claim(block(0, 0)));
        let (taken, ()) = both(|| ground.take_pages(1), || ground.free(block(0, 0)));
        if taken == [Frame::new(0)] {
            assert_eq!(ground.settled_with(2), 4);
        } else {
            assert_eq!(ground.settled(), 4);
        }
    });
}

#[test]
fn a_block_that_comes_back_while_the_bound_is_lowered_is_found() {
    model(|| {
        // Two pages are free, not side by side; then two that are.
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7), (8, 10)]));
        assert!(ground.claim(block(8, 1)));
        let (pair, ()) = both(|| ground.allocate(1), || ground.free(block(8, 1)));
        if pair.is_some() {
            assert_eq!(ground.settled(), 2);
        } else {
            assert_eq!(ground.settled_with(1), 4);
        }
    });
}

#[test]
fn a_block_of_another_huge_frame_that_comes_back_is_found() {
    model(|| {
        // A page of it is free all the time, so that nothing but the bounds says that more is.
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7), (256, 258), (260, 261)]));
        assert!(ground.claim(block(256, 1)));
        let (pair, ()) = both(
            || ground.allocate(1),
            || assert_eq!(ground.give_pages(&[256, 257]), 0),
        );
        let () = pair.map_or((), |pair| ground.free(pair));
        assert_eq!(ground.settled_with(1), 5);
    });
}

#[test]
fn two_that_lower_the_bounds_at_once_leave_them_true() {
    check(3, || {
        // Four side by side and some more; and eight, all there is of their huge frame.
        let ground = Ground::new(&all_but(&[
            (4, 8),
            (9, 10),
            (11, 12),
            (13, 14),
            (15, 16),
            (128, 136),
        ]));
        let (eight, large) = both(|| ground.allocate(3), || ground.allocate(5));
        assert!(eight.is_some() && large.is_none());
        assert_eq!(ground.settled_with(2), 8);
    });
}

#[test]
fn pages_taken_and_given_back_while_the_bound_is_lowered() {
    check(2, || {
        let ground = Ground::new(&all_but(&[(4, 5), (6, 7), (9, 10), (11, 12)]));
        assert!(ground.claim(block(9, 0)) && ground.claim(block(11, 0)));
        ground.free(block(9, 0));
        let (pair, ()) = both(
            || ground.allocate(1),
            || {
                let taken = ground.take_pages(3);
                ground.free(block(11, 0));
                for frame in taken {
                    ground.free(block(frame.get(), 0));
                }
            },
        );
        assert!(pair.is_none(), "no two are side by side");
        assert_eq!(ground.settled(), 4);
    });
}

#[test]
fn all_huge_frames_partly_free_and_one_emptied_and_freed_into() {
    model(|| {
        let free = [(0, 2), (130, 131), (258, 259), (386, 387)];
        let ground = Ground::new(&all_but(&free));
        assert!(ground.claim(block(0, 0)));
        // For a moment it counts twice among the partly free ones.
        both(
            || assert_eq!(ground.take_pages(1).len(), 1),
            || ground.free(block(0, 0)),
        );
        assert_eq!(ground.settled(), 4);
    });
}

// ---- Asking other CPUs ------------------------------------------------------------

/// Somebody holds a page in a magazine and gives it back, asked or not, while another
/// one needs it.
fn who_is_owed_nothing_finds_all(polls: bool) {
    model(move || {
        let ground = Ground::new(&all_but(&[(64, 65)]));
        assert_eq!(ground.take_pages(1).len(), 1);
        let slot: &'static CpuSlot = Box::leak(Box::new(CpuSlot::default()));
        assert!(slot.take());
        slot.set_held(1);
        let owner = move || {
            while polls && !slot.is_asked() {
                thread::yield_now();
            }
            assert_eq!(ground.give_pages(&[64]), 0);
            slot.answer(0);
        };
        let needs_it = move || {
            let found = ground.allocate(0);
            found.or_else(|| {
                if let Some(asked) = Asked::all(core::slice::from_ref(slot)) {
                    while asked.owed_frames() > 0 {
                        thread::yield_now();
                    }
                }
                ground.allocate(0)
            })
        };
        let ((), found) = both(owner, needs_it);
        assert!(found.is_some());
        assert_eq!(ground.settled(), 0);
    });
}

#[test]
fn who_asked_and_is_owed_nothing_finds_what_was_held() {
    who_is_owed_nothing_finds_all(true);
}

#[test]
fn who_sees_nothing_held_finds_what_came_back_unasked() {
    who_is_owed_nothing_finds_all(false);
}
