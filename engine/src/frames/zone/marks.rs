//! An event when a zone's free memory crosses a water mark: [`ZoneMarks`].
//!
//! Only zones with marks are counted: one addition a call that reaches the shared levels,
//! so one for a whole refill of a list. Every crossing is reported once, by the call that
//! crossed: additions to one counter have an order.

use core::fmt;

use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU64, Ordering};

/// The water marks of a zone, in frames; ascending, as a rule. They only report: the allocator
/// allocates the frames below them as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaterMarks {
    /// Below it only requests that cannot wait should be served.
    pub min: u64,
    /// Below it reclaim should begin.
    pub low: u64,
    /// From here on reclaim may stop.
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

/// Is called at crossings.
pub trait WatchMarks: Sync {
    /// Called by the call that crossed the mark, on its CPU, with what it allocated or freed
    /// done, but perhaps before it returns. It must neither allocate nor free, nor panic: it
    /// wakes a thread that frees.
    fn crossed(&self, crossing: Crossing);
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

    /// Adds `more` frames, or takes some off, and reports which marks that crossed.
    pub(super) fn change(&self, more: i64, watcher: &dyn WatchMarks) {
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

/// A call that takes a frame just freed may count it before the call that freed it: for that
/// moment the count is negative.
fn not_below_none(frames: u64) -> u64 {
    if frames.cast_signed() < 0 { 0 } else { frames }
}

/// The zones that have marks, and what is called at crossings.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'m> {
    pub(crate) zones: &'m [ZoneMarks],
    pub(crate) watcher: &'m dyn WatchMarks,
}

impl fmt::Debug for Marks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.zones).finish()
    }
}

struct NoWatcher;

impl WatchMarks for NoWatcher {
    fn crossed(&self, _: Crossing) {}
}

impl Marks<'_> {
    pub(crate) const NONE: Self = Self {
        zones: &[],
        watcher: &NoWatcher,
    };

    pub(crate) const fn is_empty(&self) -> bool {
        self.zones.is_empty()
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

    /// A freed page can be taken by another CPU, and counted by that one first.
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
        // A negative count is never reported.
        zone.change(-1, &log);
        zone.change(2, &log);
        let crossings = log.0.into_inner().unwrap();
        let reported: Vec<_> = crossings
            .iter()
            .map(|one| (one.mark, one.below, one.free_frames))
            .collect();
        assert_eq!(reported, [(WaterMark::Min, false, 1)]);
    }
}
