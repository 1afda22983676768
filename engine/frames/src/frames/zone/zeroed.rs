//! What requests for zeros got of a segment: [`ZeroedFrames`].

use core::ops::AddAssign;

use crate::sync::{AtomicU64, Ordering};

/// What requests for zeros got, and what was made for them; sums since the start.
///
/// `hit`, `reported` and `missed` add up to what such requests were given; one that fails counts
/// in none of them. So what was known to be zero at a moment, and `made` since, is known still, is
/// in `hit`, or was zeroed in vain.
#[cfg_attr(
    not(feature = "content"),
    expect(unreachable_pub, reason = "exported with the feature")
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroedFrames {
    /// Frames that were known to be zero.
    pub hit: u64,
    /// Frames that the host brought back zero, as its device promises.
    pub reported: u64,
    /// Frames that were zeroed on the spot.
    pub missed: u64,
    /// Frames that were zeroed while free: given back by a worker, freed or added so, or zeroed for a
    /// request that failed. Those that are not of a huge frame that is zero as a whole are known no more.
    pub made: u64,
}

impl AddAssign for ZeroedFrames {
    fn add_assign(&mut self, other: Self) {
        self.hit += other.hit;
        self.reported += other.reported;
        self.missed += other.missed;
        self.made += other.made;
    }
}

#[cfg(feature = "content")]
impl ZeroedFrames {
    /// What such requests were given.
    pub fn served(&self) -> u64 {
        self.hit + self.reported + self.missed
    }
}

/// The sums of a segment.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hit: AtomicU64,
    reported: AtomicU64,
    missed: AtomicU64,
    made: AtomicU64,
}

impl Counts {
    /// Frames were zeroed while free.
    pub(crate) fn add_made(&self, made: u64) {
        self.add(ZeroedFrames {
            made,
            ..ZeroedFrames::default()
        });
    }

    /// Adds to the sums.
    pub(crate) fn add(&self, more: ZeroedFrames) {
        for (count, frames) in [
            (&self.hit, more.hit),
            (&self.reported, more.reported),
            (&self.missed, more.missed),
            (&self.made, more.made),
        ] {
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
            reported: read(&self.reported),
            missed: read(&self.missed),
            made: read(&self.made),
        }
    }
}
