//! What is free as text: [`Statistics`] in one line, as kernels print it at boot. Nothing is allocated;
//! numbers are in KiB, so that none is rounded.

use core::fmt;

use super::segment::statistics::Statistics;
use crate::addr::{Order, PAGE_BYTES};

/// One line without its end, for a kernel's log. Zeros, memory with the host and in work only where there
/// is some.
///
/// ```
/// use firstlight_frames::frames::{ContentStatistics, Statistics};
///
/// let mut now = Statistics {
///     managed_frames: 4 << 18,
///     free_frames: (3 << 18) + 512 + 7,
///     free_giants: 3,
///     free_huges: 3 * 512 + 1,
///     partial_huges: 1,
///     cached_frames: 64,
///     ..Statistics::default()
/// };
/// assert_eq!(
///     now.to_string(),
///     "4194304 KiB: 3147804 KiB free (1537 times 2 MiB, 3 GiB of these whole; 1 partly free), 256 KiB in caches, 1046244 KiB in use"
/// );
/// now.zero = ContentStatistics { frames: 512, huges: 1, giants: 0 };
/// assert!(now.to_string().ends_with("1046244 KiB in use, of the free 2048 KiB zero"));
/// ```
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |frames: u64| frames.saturating_mul(PAGE_BYTES >> 10);
        // Counts of one moment each: beside other CPUs their sum may be larger than what there is.
        let elsewhere = [self.free_frames, self.cached_frames, self.in_work_frames];
        let in_use = elsewhere.iter().fold(self.managed_frames, |left, &frames| {
            left.saturating_sub(frames)
        });
        write!(
            f,
            "{} KiB: {} KiB free ({} times {} MiB, {} GiB of these whole; {} partly free), {} KiB in caches, {} KiB in use",
            kib(self.managed_frames),
            kib(self.free_frames),
            self.free_huges,
            Order::HUGE.bytes() >> 20,
            self.free_giants * (Order::GIANT.bytes() >> 30),
            self.partial_huges,
            kib(self.cached_frames),
            kib(in_use),
        )?;
        if self.in_work_frames > 0 {
            write!(f, ", {} KiB in work", kib(self.in_work_frames))?;
        }
        if self.zero.frames > 0 {
            write!(f, ", of the free {} KiB zero", kib(self.zero.frames))?;
        }
        if self.reported.frames > 0 {
            write!(
                f,
                ", of the free {} KiB with the host",
                kib(self.reported.frames)
            )?;
        }
        Ok(())
    }
}
