//! An event when a zone's free memory crosses a water mark: [`ZoneMarks`].
//!
//! Only zones with marks are counted: one addition a call that reaches the shared levels,
//! so one for a whole refill of a list. Every crossing is reported once, by the call that
//! crossed: additions to one counter have an order.

use crate::frames::hooks::{Crossing, Hooks, WaterMark};
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU64, Ordering};

/// The water marks of a zone, in frames; ascending, as a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaterMarks {
    /// So many frames stay free, for requests [from the reserve](crate::frames::Request::from_reserve);
    /// all others go to the next zone or node, or fail.
    pub min: u64,
    /// Below it reclaim should begin.
    pub low: u64,
    /// From here on reclaim may stop.
    pub high: u64,
    /// So many frames more stay free, by the highest zone that a request could have had, as in
    /// [`ZoneKind::ALL`]: what anything can use leaves something for those that can use this zone only.
    /// Entries of this zone and of lower ones mean nothing.
    pub lowmem_reserve: [u64; ZoneKind::ALL.len()],
}

/// A zone, its marks, and how much of it is free. Provided to
/// [`Frames::with_water_marks`](crate::frames::Frames::with_water_marks).
///
/// Frames that CPUs cache are not free. Isolated ones are, until they are taken.
#[derive(Debug)]
#[repr(align(64))]
pub struct ZoneMarks {
    node: NodeId,
    zone: ZoneKind,
    marks: WaterMarks,
    free_frames: AtomicU64,
}

impl ZoneMarks {
    /// The zone's node and kind.
    pub(crate) fn zone(&self) -> (NodeId, ZoneKind) {
        (self.node, self.zone)
    }

    /// Sets how many frames are free.
    pub(crate) fn set_free_frames(&self, frames: u64) {
        self.free_frames.store(frames, Ordering::Relaxed);
    }

    /// The marks of a zone.
    pub fn new(node: NodeId, zone: ZoneKind, marks: WaterMarks) -> Self {
        Self {
            node,
            zone,
            marks,
            free_frames: AtomicU64::new(0),
        }
    }

    /// Frames that are free, those that CPUs cache left out: exact while no call is in flight, as
    /// long as nothing is freed twice.
    pub fn free_frames(&self) -> u64 {
        not_below_none(self.free_frames.load(Ordering::Relaxed))
    }

    /// Whether `frames` frames can be taken so that as many stay free as should.
    pub(super) fn leaves_enough(&self, frames: u64, highest: ZoneKind) -> bool {
        self.free_frames() >= frames.saturating_add(self.reserve(highest))
    }

    /// How many frames are free beyond those that should stay free.
    pub(super) fn above_reserve(&self, highest: ZoneKind) -> u64 {
        self.free_frames().saturating_sub(self.reserve(highest))
    }

    /// What a request that could have had zone `highest` leaves free.
    fn reserve(&self, highest: ZoneKind) -> u64 {
        let more = if self.zone < highest {
            self.marks.lowmem_reserve[highest as usize]
        } else {
            0
        };
        self.marks.min.saturating_add(more)
    }

    /// Adds `more` frames, or takes some off, and reports which marks that crossed.
    pub(super) fn change(&self, more: i64, hooks: Option<&dyn Hooks>) {
        let old = self
            .free_frames
            .fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        let new = not_below_none(old.wrapping_add_signed(more));
        let old = not_below_none(old);
        let Some(hooks) = hooks else {
            return;
        };
        let WaterMarks { min, low, high, .. } = self.marks;
        for (mark, at) in [
            (WaterMark::Min, min),
            (WaterMark::Low, low),
            (WaterMark::High, high),
        ] {
            if (old < at) != (new < at) {
                hooks.crossed(Crossing {
                    node: self.node,
                    zone: self.zone,
                    mark,
                    below: new < at,
                    free_frames: new,
                });
            }
        }
    }
}

/// A call that takes a frame just freed may count it before the call that freed it: for that
/// moment the count is negative.
fn not_below_none(frames: u64) -> u64 {
    if frames.cast_signed() < 0 { 0 } else { frames }
}

#[cfg(all(test, not(firstlight_loom)))]
#[expect(
    clippy::unwrap_used,
    reason = "a test may stop on what it did not expect"
)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Mutex;
    use std::vec::Vec;

    struct Log(Mutex<Vec<Crossing>>);

    impl Hooks for Log {
        fn crossed(&self, crossing: Crossing) {
            self.0.lock().unwrap().push(crossing);
        }
    }

    /// A freed page can be taken by another CPU, and counted by that one first.
    #[test]
    fn a_page_counted_as_taken_before_it_is_counted_as_free_crosses_no_mark() {
        let all = WaterMarks {
            min: 1,
            low: 2,
            high: 3,
            lowmem_reserve: [0; 4],
        };
        let zone = ZoneMarks::new(NodeId(0), ZoneKind::Normal, all);
        let log = Log(Mutex::default());
        zone.change(-1, Some(&log));
        assert_eq!(zone.free_frames(), 0);
        zone.change(1, Some(&log));
        assert_eq!(zone.free_frames(), 0);
        assert_eq!(*log.0.lock().unwrap(), []);
        // A negative count is never reported.
        zone.change(-1, Some(&log));
        zone.change(2, Some(&log));
        let crossings = log.0.into_inner().unwrap();
        let reported: Vec<_> = crossings
            .iter()
            .map(|one| (one.mark, one.below, one.free_frames))
            .collect();
        assert_eq!(reported, [(WaterMark::Min, false, 1)]);
    }
}
