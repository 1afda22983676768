//! Reporting free memory: [`all`].

use firstlight::addr::{Frame, PAGE_BYTES};
use firstlight::frames::Request;
use firstlight_image::balloon::{Balloon, FreeRange, MOST_RANGES};
use firstlight_image::virtio::{Transport, VirtioError};
use spin::Mutex;

use super::BLOCK;
use crate::arch::ticks;
use crate::lists::list;
use crate::machine::Machine;

/// What came of it.
#[derive(Default)]
pub(super) struct Reported {
    pub(super) bytes: u64,
    pub(super) reports: u64,
    pub(super) passes: u64,
    pub(super) ticks: u64,
    /// Why it ended early.
    pub(super) failure: Option<VirtioError>,
    pub(super) list_frames: u64,
}

/// Reports all free blocks.
pub(super) fn all<T: Transport + Send>(
    machine: &Machine,
    balloon: &Mutex<Balloon<'_, T>>,
) -> Reported {
    let frames = &machine.frames;
    let mut reported = Reported::default();
    let before = frames.statistics();
    let len = usize::try_from(before.free_huges).unwrap_or(0);
    let Some(blocks) = list(frames, len, |_| Frame::new(0)) else {
        return reported;
    };
    reported.list_frames = before.free_frames - frames.statistics().free_frames;
    let mut count = 0;
    for slot in blocks.iter_mut() {
        let Ok(block) = frames.allocate(Request::new(BLOCK)) else {
            break;
        };
        *slot = block;
        count += 1;
    }
    let begin = ticks();
    let blocks = blocks.get(..count).unwrap_or_default();
    for chunk in blocks.chunks(MOST_RANGES) {
        let mut ranges = [FreeRange {
            address: 0,
            bytes: 0,
        }; MOST_RANGES];
        for (range, block) in ranges.iter_mut().zip(chunk) {
            range.address = block.addr().get();
            range.bytes = u32::try_from(BLOCK.frames() * PAGE_BYTES).unwrap_or(0);
        }
        let ranges = ranges.get(..chunk.len()).unwrap_or_default();
        if let Err(failure) = balloon.lock().report(ranges) {
            reported.failure = Some(failure);
            break;
        }
        reported.reports += 1;
        reported.bytes += chunk.len() as u64 * BLOCK.bytes();
    }
    reported.passes = 1;
    reported.ticks = ticks() - begin;
    for block in blocks {
        let _ = frames.free(*block, BLOCK);
    }
    reported
}
