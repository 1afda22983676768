//! What requests for zeros got of a segment: [`ZeroedFrames`].

#[cfg(feature = "content")]
use core::ops::AddAssign;

use crate::sync::{AtomicU64, Ordering};

/// What requests for zeros got, and what was made for them; sums since the start.
#[cfg(feature = "content")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroedFrames {
    /// Frames that were known to be zero.
    pub hit: u64,
    /// Frames that were zeroed on the spot.
    pub missed: u64,
    /// Frames that were given back as zero: by a worker, or freed so.
    pub made: u64,
}

#[cfg(feature = "content")]
impl AddAssign for ZeroedFrames {
    fn add_assign(&mut self, other: Self) {
        self.hit += other.hit;
        self.missed += other.missed;
        self.made += other.made;
    }
}

/// The sums of a segment.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hit: AtomicU64,
    missed: AtomicU64,
    made: AtomicU64,
}

impl Counts {
    /// Frames were given back as zero.
    pub(crate) fn add_made(&self, frames: u64) {
        self.made.fetch_add(frames, Ordering::Relaxed);
    }

    /// A request got so many frames that were known to be zero, and so many that were not.
    pub(crate) fn add_served(&self, hit: u64, missed: u64) {
        for (count, frames) in [(&self.hit, hit), (&self.missed, missed)] {
            if frames > 0 {
                count.fetch_add(frames, Ordering::Relaxed);
            }
        }
    }

    #[cfg(feature = "content")]
    pub(crate) fn get(&self) -> ZeroedFrames {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ZeroedFrames {
            hit: read(&self.hit),
            missed: read(&self.missed),
            made: read(&self.made),
        }
    }
}
