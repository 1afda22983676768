//! An event when a zone's free memory crosses a water mark: [`ZoneMarks`].
//!
//! Only zones with marks are counted: one addition a call that reaches the shared levels,
//! so one for a whole refill of a magazine. Every crossing is reported once, by the call that
//! crossed: additions to one counter have an order.

use core::fmt;

use super::Frames;
use super::place::Place;
use crate::addr::FrameRange;
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU64, Ordering};

/// The water marks of a zone, in frames; ascending, as a rule. They only tell: the allocator
/// hands out what is below them as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaterMarks {
    /// Below it only what cannot wait should be served.
    pub min: u64,
    /// Below it somebody should start to free memory.
    pub low: u64,
    /// From here on that may stop.
    pub high: u64,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaterMark {
    /// [`WaterMarks::min`].
    Min,
    /// [`WaterMarks::low`].
    Low,
    /// [`WaterMarks::high`].
    High,
}

impl fmt::Display for WaterMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Min => "min",
            Self::Low => "low",
            Self::High => "high",
        })
    }
}

/// A water mark was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The zone's node.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneKind,
    /// Which mark.
    pub mark: WaterMark,
    /// Fewer frames than the mark are free now; else as many or more.
    pub below: bool,
    /// Frames free right after.
    pub free_frames: u64,
}

/// Who wants to know of crossings.
pub trait WatchMarks: Sync {
    /// Called by the call that crossed the mark, on its CPU, when its work is done. It must
    /// not allocate or free: it wakes up somebody who does.
    fn crossed(&self, crossing: Crossing);
}

/// A zone, its marks, and how much of it is free. Lent to [`Frames::with_water_marks`].
///
/// What lies in magazines is not free. What is isolated is, until it is taken.
#[derive(Debug)]
#[repr(align(64))]
pub struct ZoneMarks {
    node: NodeId,
    zone: ZoneKind,
    marks: WaterMarks,
    free_frames: AtomicU64,
}

impl ZoneMarks {
    /// The marks of a zone.
    pub fn new(node: NodeId, zone: ZoneKind, marks: WaterMarks) -> Self {
        Self {
            node,
            zone,
            marks,
            free_frames: AtomicU64::new(0),
        }
    }

    /// Frames that are free, magazines left out: exact while no call is in flight, as long
    /// as nobody frees what is not his.
    pub fn free_frames(&self) -> u64 {
        not_below_none(self.free_frames.load(Ordering::Relaxed))
    }

    /// Adds `more` frames, or takes some off, and tells which marks that crossed.
    fn change(&self, more: i64, watcher: &dyn WatchMarks) {
        let old = self
            .free_frames
            .fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        let new = not_below_none(old.wrapping_add_signed(more));
        let old = not_below_none(old);
        let WaterMarks { min, low, high } = self.marks;
        for (mark, at) in [
            (WaterMark::Min, min),
            (WaterMark::Low, low),
            (WaterMark::High, high),
        ] {
            if (old < at) != (new < at) {
                watcher.crossed(Crossing {
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

/// Who takes what another call has just freed may count it first: for that moment there are
/// fewer than none.
fn not_below_none(frames: u64) -> u64 {
    if frames.cast_signed() < 0 { 0 } else { frames }
}

/// The zones that have marks, and who watches them.
#[derive(Clone, Copy)]
pub(super) struct Marks<'m> {
    zones: &'m [ZoneMarks],
    watcher: &'m dyn WatchMarks,
}

impl fmt::Debug for Marks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.zones).finish()
    }
}

struct Nobody;

impl WatchMarks for Nobody {
    fn crossed(&self, _: Crossing) {}
}

impl Marks<'_> {
    pub(super) const NONE: Self = Self {
        zones: &[],
        watcher: &Nobody,
    };

    pub(super) const fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }
}

impl<'m> Frames<'m> {
    /// Counts the free frames of the zones of `zones`, and tells `watcher` when they cross
    /// a mark. Of two entries for one zone the first counts.
    ///
    /// Starts the segments of these zones. Not once CPUs have magazines.
    #[must_use]
    pub fn with_water_marks(self, zones: &'m [ZoneMarks], watcher: &'m dyn WatchMarks) -> Self {
        for marks in zones {
            let free = self.zone_statistics(marks.node, marks.zone).free_frames;
            marks.free_frames.store(free, Ordering::Relaxed);
        }
        Self {
            marks: Marks { zones, watcher },
            ..self
        }
    }

    /// Frames of `place` became free, or fewer are.
    #[inline]
    pub(super) fn count(&self, place: &Place<'m>, more: i64) {
        if !self.marks.is_empty() {
            self.count_zone(place.node, place.zone, more);
        }
    }

    /// All of `range` became free (1), or is no longer (-1).
    pub(super) fn count_range(&self, range: FrameRange, sign: i64) {
        if self.marks.is_empty() {
            return;
        }
        for place in self.directory.places {
            let inside = place.frames().intersect(range);
            if !inside.is_empty() {
                self.count(place, sign * inside.count().cast_signed());
            }
        }
    }

    /// The same, by zone.
    pub(super) fn count_zone(&self, node: NodeId, zone: ZoneKind, more: i64) {
        let mut zones = self.marks.zones.iter();
        if let Some(marks) = zones.find(|marks| marks.node == node && marks.zone == zone) {
            marks.change(more, self.marks.watcher);
        }
    }
}

#[cfg(all(test, not(loom)))]
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

    impl WatchMarks for Log {
        fn crossed(&self, crossing: Crossing) {
            self.0.lock().unwrap().push(crossing);
        }
    }

    /// What is freed can be taken by another CPU, and counted by that one first.
    #[test]
    fn a_page_counted_as_taken_before_it_is_counted_as_free_crosses_no_mark() {
        let all = WaterMarks {
            min: 1,
            low: 2,
            high: 3,
        };
        let zone = ZoneMarks::new(NodeId(0), ZoneKind::Normal, all);
        let log = Log(Mutex::default());
        zone.change(-1, &log);
        assert_eq!(zone.free_frames(), 0);
        zone.change(1, &log);
        assert_eq!(zone.free_frames(), 0);
        assert_eq!(*log.0.lock().unwrap(), []);
        // Nobody is told of fewer than none.
        zone.change(-1, &log);
        zone.change(2, &log);
        let crossings = log.0.into_inner().unwrap();
        let told: Vec<_> = crossings
            .iter()
            .map(|told| (told.mark, told.below, told.free_frames))
            .collect();
        assert_eq!(told, [(WaterMark::Min, false, 1)]);
    }
}
