//! The interleavings of the bits of one huge frame: blocks of several words.

extern crate std;

use super::kit::{both, model, model_of_three, three};
use crate::frames::word::Bitmap;
use crate::frames::word::geometry::{HUGE_ORDER, Pages};
use loom::cell::UnsafeCell;
use std::boxed::Box;

fn bitmap(bits: u64) -> &'static Bitmap {
    Box::leak(Box::new(Bitmap::new(bits)))
}

/// A block of 2^`order` pages.
fn pages(at: u32, order: u8) -> Pages {
    let count = 1 << order;
    Pages { at, count }
}

#[test]
fn a_block_of_two_words_and_a_page() {
    model(|| {
        let bitmap = bitmap(0);
        let (whole, page) = both(
            || bitmap.take_all(),
            || bitmap.take_at(pages(64, 0)).is_ok(),
        );
        assert!(whole != page);
        assert_eq!(bitmap.count_free(), if page { 127 } else { 0 });
    });
}

#[test]
fn a_block_of_two_words_that_is_not_taken_says_what_it_undid() {
    model(|| {
        let bitmap = bitmap(0);
        let (whole, pages) = both(
            || bitmap.take_at(pages(0, HUGE_ORDER)),
            || {
                (
                    bitmap.take_at(pages(0, 0)).is_ok(),
                    bitmap.take_at(pages(64, 0)).is_ok(),
                )
            },
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
fn a_row_that_ends_inside_a_word_and_pages_beside_its_end() {
    for page in [69, 70] {
        model(move || {
            let bitmap = bitmap(0);
            let row = Pages { at: 0, count: 70 };
            let (row, taken) = both(
                move || bitmap.take_at(row).is_ok(),
                move || bitmap.take_at(pages(page, 0)).is_ok(),
            );
            // Its last page has one owner, the one behind it is nobody's.
            assert!(if page < 70 {
                row != taken
            } else {
                row && taken
            });
            let count = 70 * u32::from(row) + u32::from(taken);
            assert_eq!(bitmap.count_free(), 128 - count);
        });
    }
}

#[test]
fn of_two_rows_that_make_up_all_one_sees_the_end_of_it() {
    model(|| {
        let bitmap = bitmap(!0);
        let rows = [(0, 70), (70, 58)].map(|(at, count)| Pages { at, count });
        let empty = |row| move || bitmap.give(row).unwrap().is_word_empty() && bitmap.is_empty();
        let (one, other) = both(empty(rows[0]), empty(rows[1]));
        assert!(one || other);
        let full = |row| move || bitmap.take_at(row).unwrap().filled && bitmap.is_full();
        let (one, other) = both(full(rows[0]), full(rows[1]));
        assert!(one || other);
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
                content.0.give(pages(0, HUGE_ORDER)).unwrap();
            },
            move || {
                content
                    .0
                    .take_at(pages(0, HUGE_ORDER))
                    .map(|_| touch())
                    .is_ok()
            },
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
            || bitmap.take_any(1, 2).map_or(0, |taken| 3 << taken.at),
            || u64::from(bitmap.take_at(pages(2, 0)).is_ok()) << 2,
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
        let full = |at| move || bitmap.take_at(pages(at, 6)).unwrap().filled && bitmap.is_full();
        let (one, other) = both(full(0), full(64));
        assert!(one || other);
    });
    model(|| {
        let bitmap = bitmap(!0);
        let empty =
            |at| move || bitmap.give(pages(at, 6)).unwrap().is_word_empty() && bitmap.is_empty();
        let (one, other) = both(empty(0), empty(64));
        assert!(one || other);
    });
}
