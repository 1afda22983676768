//! What is free as text: [`Statistics`] in one line, as kernels print it at boot, and [`BuddyInfo`], the
//! rows of Linux's `/proc/buddyinfo`. Nothing is allocated; numbers are in KiB, so that none is rounded.

use core::fmt;

use super::find::Frames;
use super::segment::statistics::Statistics;
use crate::addr::PAGE_BYTES;
use crate::node::{NodeId, ZoneKind};

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
            "{} KiB: {} KiB free ({} times 2 MiB, {} GiB of these whole; {} partly free), {} KiB in caches, {} KiB in use",
            kib(self.managed_frames),
            kib(self.free_frames),
            self.free_huges,
            self.free_giants,
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

/// The free blocks of all zones, a row each, as Linux prints `/proc/buddyinfo`: see
/// [`Frames::buddyinfo`].
#[derive(Clone, Copy, Debug)]
pub struct BuddyInfo<'f, 'm> {
    frames: &'f Frames<'m>,
}

impl<'m> Frames<'m> {
    /// What is free by order, to be printed: a row for each zone with memory, counted when it is printed.
    /// Programs that read Linux's rows read these; they have 19 columns, for orders 0 to 18. Each row
    /// is [`Frames::free_blocks`] of its zone, and costs as much.
    ///
    /// ```
    /// # use firstlight_frames::frames::Frames;
    /// /// Node 0, zone   Normal      2      0      1 ...
    /// fn print_free_blocks(frames: &Frames<'_>) {
    ///     print!("{}", frames.buddyinfo());
    /// }
    /// ```
    pub fn buddyinfo(&self) -> BuddyInfo<'_, 'm> {
        BuddyInfo { frames: self }
    }
}

impl fmt::Display for BuddyInfo<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = &self.frames.nodes.segments;
        // Nodes are numbered by 16 bits.
        for node in (0..=u16::MAX).map(NodeId).take(segments.nodes()) {
            for zone in ZoneKind::ALL {
                if segments.of_zone(node, zone).next().is_none() {
                    continue;
                }
                write!(f, "Node {}, zone {zone:>8} ", node.0)?;
                for count in self.frames.free_blocks(node, zone) {
                    write!(f, "{count:>6} ")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
