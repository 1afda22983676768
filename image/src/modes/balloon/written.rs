//! Memory that is written: [`write_and_free`] makes the host provide it, [`check`] uses it
//! again afterwards.

use firstlight::addr::{Frame, PAGE_BYTES};
use firstlight::frames::{Frames, Request};
use firstlight::node::ZoneKind;
use firstlight_wire::marker;
use log::error;

use super::BLOCK;
use crate::arch::marker;

/// Blocks that are used again.
const CHECKED: usize = 64;

/// Allocates `bytes`, writes to every page, frees them again; the bytes.
pub(super) fn write_and_free(frames: &Frames<'_>, bytes: u64, failures: &mut u64) -> u64 {
    let mut last = None;
    let mut written = 0;
    while written < bytes {
        let Ok(block) = frames.allocate(Request::new(BLOCK).zone(ZoneKind::Movable)) else {
            break;
        };
        for page in 0..BLOCK.frames() {
            let first = (block.addr().get() + page * PAGE_BYTES) as *mut u64;
            // SAFETY: mapped memory that this CPU just allocated.
            unsafe { first.write_volatile(tag(block, page)) }
        }
        let second = (block.addr().get() + 8) as *mut u64;
        // The blocks are a list in themselves: the second word names the one before.
        // SAFETY: as above.
        unsafe { second.write_volatile(last.map_or(u64::MAX, Frame::get)) }
        last = Some(block);
        written += BLOCK.bytes();
    }
    marker(marker::BALLOON_WRITTEN);
    while let Some(block) = last {
        let second = (block.addr().get() + 8) as *const u64;
        // SAFETY: as above, the same word.
        let before = unsafe { second.read_volatile() };
        if frames.free(block, BLOCK).is_err() {
            *failures += 1;
            error!("balloon: {block} could not be freed");
        }
        last = (before != u64::MAX).then(|| Frame::new(before));
    }
    marker(marker::BALLOON_FREED);
    written
}

/// Writes some of the memory that may have been reported, and reads it again; the failures.
pub(super) fn check(frames: &Frames<'_>) -> u64 {
    let mut blocks = [None; CHECKED];
    let mut failures = 0;
    let words = |block: Frame| {
        (0..BLOCK.frames()).map(move |page| {
            let place = (block.addr().get() + page * PAGE_BYTES) as *mut u64;
            (place, tag(block, page))
        })
    };
    for slot in &mut blocks {
        *slot = frames.allocate(Request::new(BLOCK)).ok();
        for (place, tag) in slot.iter().copied().flat_map(words) {
            // SAFETY: mapped memory that this CPU just allocated.
            unsafe { place.write_volatile(!tag) }
        }
    }
    for block in blocks.into_iter().flatten() {
        // SAFETY: as above.
        let wrong = words(block).filter(|(place, tag)| unsafe { place.read_volatile() } != !tag);
        if wrong.count() > 0 || frames.free(block, BLOCK).is_err() {
            failures += 1;
            error!("balloon: {block} did not keep what was written, or could not be freed");
        }
    }
    failures
}

/// What is written to a page of a block.
fn tag(block: Frame, page: u64) -> u64 {
    (block.get() + page).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
