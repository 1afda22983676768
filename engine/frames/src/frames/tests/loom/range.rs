//! The interleavings of calls of which one takes, gives back or looks for a range: what it
//! undoes, and what other CPUs see meanwhile.
//!
//! The machine is a few pages around the border of two huge frames or of two segments.

extern crate std;

use super::kit::{END, Machine, both, check, model};
use crate::addr::{Frame, FrameRange};
use crate::frames::range;
use crate::frames::request::ZoneChoice;
use crate::frames::search::contiguous::{ContentRequest, RangeRequest};
use crate::frames::tests::kit::frames;
use crate::frames::word::Mobility::Unmovable;
use crate::node::{NodeId, ZoneKind};
use core::iter::once;

/// All of `free` is free, on two nodes if it crosses frame `END`.
fn machine(free: FrameRange) -> &'static Machine {
    let parts = [frames(0, END), frames(END, 2 * END)].map(|node| free.intersect(node));
    let count = parts.iter().filter(|part| !part.is_empty()).count();
    Machine::over(&parts[..count], &[])
}

fn take(machine: &Machine, range: FrameRange) -> bool {
    let taken = range::allocate(&machine.segments, range).is_ok();
    if taken {
        machine.touch(range);
    }
    taken
}

/// Without the look before it, so that it takes and gives back.
fn take_unseen(machine: &Machine, range: FrameRange) -> Result<(), Frame> {
    range::take(&machine.segments, range, Unmovable)?;
    machine.touch(range);
    Ok(())
}

fn free(machine: &Machine, range: FrameRange) {
    machine.touch(range);
    let given = range::give(&machine.segments, range, |_, _| {});
    given.expect("what was allocated can be freed");
}

fn in_a_row(machine: &Machine, frames: u64) -> Option<FrameRange> {
    let want = RangeRequest {
        frames,
        align_frames: 1,
        mobility: Unmovable,
        content: ContentRequest::Any,
    };
    let zones = ZoneChoice::up_to(ZoneKind::Normal);
    let found =
        range::contiguous::allocate_on(&machine.segments, once(NodeId(0)), want, zones, None)?;
    machine.touch(found);
    Some(found)
}

#[test]
fn a_range_and_a_page_never_share_a_frame() {
    model(|| {
        // Two huge frames have one free page each.
        let machine = machine(frames(127, 129));
        let (range, page) = both(|| take(machine, frames(127, 129)), || machine.allocate(0));
        assert!(range != page.is_some());
        assert_eq!(machine.free_frames(), u64::from(!range));
    });
}

#[test]
fn a_range_that_is_not_taken_hides_no_page() {
    model(|| {
        let machine = machine(frames(127, 129));
        assert!(take(machine, frames(128, 129)));
        // It takes the only free page, finds the next one used, and gives it back.
        let (range, page) = both(
            || take_unseen(machine, frames(127, 129)),
            || machine.allocate(0),
        );
        assert!(range.is_err() && page.is_some());
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_range_beside_a_page_that_is_freed_is_all_or_nothing() {
    model(|| {
        let machine = machine(frames(126, 130));
        assert!(take(machine, frames(129, 130)));
        let (range, ()) = both(
            || take_unseen(machine, frames(126, 130)),
            || free(machine, frames(129, 130)),
        );
        assert_ne!(range, Err(Frame::new(126)));
        assert_eq!(machine.free_frames(), if range.is_ok() { 0 } else { 4 });
    });
}

#[test]
fn of_two_ranges_that_overlap_at_most_one_is_taken() {
    check(2, || {
        let machine = machine(frames(126, 130));
        let (low, high) = both(
            || take(machine, frames(126, 129)),
            || take(machine, frames(127, 130)),
        );
        assert!(!(low && high));
        assert_eq!(machine.free_frames(), if low || high { 1 } else { 4 });
    });
}

#[test]
fn a_range_across_nodes_gives_back_both_parts() {
    model(|| {
        let machine = machine(frames(END - 2, END + 1));
        let (range, page) = both(
            || take(machine, frames(END - 2, END + 1)),
            || take(machine, frames(END, END + 1)),
        );
        assert!(range != page);
        assert_eq!(machine.free_frames(), if range { 0 } else { 2 });
    });
}

#[test]
fn a_range_that_is_freed_brings_its_content() {
    model(|| {
        let machine = machine(frames(127, 129));
        assert!(take(machine, frames(127, 129)));
        let (page, ()) = both(
            || machine.allocate_frames(0),
            || free(machine, frames(127, 129)),
        );
        assert_eq!(machine.free_frames(), 2 - page);
    });
}

#[test]
fn a_search_and_a_given_range_of_the_only_place() {
    check(2, || {
        let machine = machine(frames(1, 3));
        let (found, range) = both(|| in_a_row(machine, 2), || take(machine, frames(1, 3)));
        assert!(found.is_some() != range);
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_range_that_is_not_taken_hides_no_frames_in_a_row() {
    check(2, || {
        let machine = machine(frames(126, 130));
        assert!(take(machine, frames(129, 130)));
        let (found, failed) = both(
            || in_a_row(machine, 3),
            || take_unseen(machine, frames(126, 130)),
        );
        assert!(failed.is_err());
        assert_eq!(found, Some(frames(126, 129)));
        assert_eq!(machine.free_frames(), 0);
    });
}

#[test]
fn a_search_beside_pages_that_are_freed_and_taken() {
    check(2, || {
        let machine = machine(frames(126, 130));
        assert!(take(machine, frames(126, 127)));
        let (found, page) = both(
            || in_a_row(machine, 2),
            || {
                free(machine, frames(126, 127));
                machine.allocate(0)
            },
        );
        // Four were free, or three in a row: two are left whatever page was taken.
        assert!(found.is_some() && page.is_some());
        assert_eq!(machine.free_frames(), 1);
    });
}

#[test]
fn a_range_freed_twice_at_once_is_freed_once() {
    model(|| {
        let machine = machine(frames(127, 129));
        assert!(take(machine, frames(127, 129)));
        let give = || range::give(&machine.segments, frames(127, 129), |_, _| {}).is_ok();
        let (one, other) = both(give, give);
        assert!(!(one && other));
        assert_eq!(machine.free_frames(), 2);
    });
}
