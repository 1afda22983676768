//! The list of frames that can't be freed, changed beside readers and other changes.

extern crate std;

use super::kit::{both, model, three};
use crate::addr::{Frame, FrameRange};
use crate::frames::segment::pinned::{Entry, Pinned, Unpin};
use crate::frames::segment::table::Table;
use crate::frames::tests::kit::frames;
use std::boxed::Box;
use std::vec::Vec;

fn pinned(range: FrameRange) -> &'static Pinned<'static> {
    let entries: Vec<_> = (0..Pinned::entries_for(3))
        .map(|_| Entry::default())
        .collect();
    let pinned = Pinned::new(Table::from_slice(entries.leak()));
    assert!(pinned.pin(range));
    Box::leak(Box::new(pinned))
}

/// A reader sees the list before or after a change, never in the middle of one.
#[test]
fn a_list_read_beside_a_change_is_the_old_or_the_new_one() {
    model(|| {
        let list = pinned(frames(0, 30));
        let (unpinned, seen) = both(
            move || list.unpin(frames(10, 20), || Ok(())),
            move || (list.frames_in(frames(0, 30)), list.around(Frame::new(15))),
        );
        assert_eq!(unpinned, Ok(()));
        let (count, around) = seen;
        assert!([30, 20].contains(&count), "{count}");
        assert!([FrameRange::EMPTY, frames(10, 20)].contains(&around));
        // What was seen unpinned stays so.
        assert!(count == 30 || !around.is_empty());
    });
}

/// A range comes once, and a neighbour is not lost.
#[test]
fn of_two_that_unpin_a_range_one_does() {
    model(|| {
        let list = pinned(frames(0, 30));
        let unpin = move || list.unpin(frames(10, 20), || Ok(()));
        let (one, other) = both(unpin, unpin);
        let refused = Err(Unpin::NotPinned(Frame::new(10)));
        assert!([(Ok(()), refused), (refused, Ok(()))].contains(&(one, other)));
        assert_eq!(list.frames_in(frames(0, 30)), 20);
    });
}

#[test]
fn neighbours_unpinned_at_the_same_moment_are_both_gone() {
    super::kit::model_of_three(|| {
        let list = pinned(frames(0, 30));
        let (one, other, first) = three(
            move || list.unpin(frames(0, 10), || Ok(())),
            move || list.unpin(frames(10, 20), || Ok(())),
            move || list.first_in(frames(0, 30)),
        );
        assert_eq!((one, other), (Ok(()), Ok(())));
        assert!([0, 10, 20].contains(&first.unwrap().get()));
        assert_eq!(list.first_in(frames(0, 30)), Some(Frame::new(20)));
    });
}
