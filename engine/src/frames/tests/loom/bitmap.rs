//! The interleavings of the bits of one huge frame: blocks of several words.

extern crate std;

use super::kit::{both, model, model_of_three, three};
use crate::frames::word::Bitmap;
use crate::frames::word::geometry::HUGE_ORDER;
use loom::cell::UnsafeCell;
use std::boxed::Box;

fn bitmap(bits: u64) -> &'static Bitmap {
    Box::leak(Box::new(Bitmap::new(bits)))
}

#[test]
fn a_block_of_two_words_and_a_page() {
    model(|| {
        let bitmap = bitmap(0);
        let (whole, page) = both(|| bitmap.take_all(), || bitmap.take_at(64, 0).is_ok());
        assert!(whole != page);
        assert_eq!(bitmap.count_free(), if page { 127 } else { 0 });
    });
}

#[test]
fn a_block_of_two_words_that_is_not_taken_says_what_it_undid() {
    model(|| {
        let bitmap = bitmap(0);
        let (whole, pages) = both(
            || bitmap.take_at(0, HUGE_ORDER),
            || (bitmap.take_at(0, 0).is_ok(), bitmap.take_at(64, 0).is_ok()),
        );
        // A page at its front that could not be had was hidden by a block that says so.
        let was_hidden = pages == (false, true);
        let undone = whole.is_err_and(|none| none.undone);
        assert!(!was_hidden || undone);
        let taken = u32::from(pages.0) + u32::from(pages.1);
        assert_eq!(
            bitmap.count_free(),
            if whole.is_ok() { 0 } else { 128 - taken }
        );
    });
}

#[test]
fn a_block_of_two_words_brings_its_content() {
    struct Content(Bitmap, UnsafeCell<u32>);
    // SAFETY: the cell is only touched by the owner of page 64; loom checks that.
    unsafe impl Sync for Content {}
    model(|| {
        let content: &'static _ = Box::leak(Box::new(Content(Bitmap::new(!0), UnsafeCell::new(0))));
        // SAFETY: called while page 64 is held.
        let touch = || content.1.with_mut(|cell| unsafe { *cell += 1 });
        let (_, taken) = both(
            move || {
                touch();
                content.0.give(0, HUGE_ORDER).unwrap();
            },
            move || content.0.take_at(0, HUGE_ORDER).map(|_| touch()).is_ok(),
        );
        assert_eq!(content.0.count_free(), if taken { 0 } else { 128 });
    });
}

#[test]
fn pages_of_one_word_are_taken_once_however_they_are_taken() {
    model_of_three(|| {
        let bitmap = bitmap(!0xff);
        let (some, block, page) = three(
            || bitmap.take_some(0, 4).0,
            || bitmap.take_any(1).map_or(0, |taken| 3 << taken.at),
            || u64::from(bitmap.take_at(2, 0).is_ok()) << 2,
        );
        assert_eq!((some & block, some & page, block & page), (0, 0, 0));
        let taken = some | block | page;
        assert_eq!(bitmap.count_free(), 16 - taken.count_ones());
    });
}

/// At least one of two CPUs that fill the last two words sees that all is taken; likewise for
/// the last two that are emptied.
#[test]
fn the_last_two_words_are_seen_full_and_empty() {
    model(|| {
        let bitmap = bitmap(0);
        let full = |at| move || bitmap.take_at(at, 6).unwrap().filled && bitmap.is_full();
        let (one, other) = both(full(0), full(64));
        assert!(one || other);
    });
    model(|| {
        let bitmap = bitmap(!0);
        let empty = |at| move || bitmap.give(at, 6).unwrap().is_word_empty() && bitmap.is_empty();
        let (one, other) = both(empty(0), empty(64));
        assert!(one || other);
    });
}
