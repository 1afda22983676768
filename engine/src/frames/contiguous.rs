//! Any number of frames in a row: [`Frames::allocate_contiguous`].
//!
//! A search looks at a candidate from its end backwards. The first thing in
//! use that it meets is the last one in the candidate, so the next candidate
//! is the first aligned one behind it, and what was seen free up to there is
//! not looked at again: no word is read twice, and the longer the range, the
//! more words are never read. What is found is taken like a given range
//! ([`super::range`]); if another CPU was faster, the search goes on.

use super::Frames;
use super::directory::Directory;
use super::geometry::{GIANT_FRAMES, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::look::Glimpse;
use super::range_error::ContiguousError;
use super::request::{Mobility, Request, Zones};
use super::segment::Segment;
use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;
use crate::sync::pause;

/// How often in a row a search that saw no range looks again because other
/// CPUs changed something meanwhile.
const LOOKS: u32 = 16;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// How many frames in a row.
    pub(crate) frames: u64,
    /// The first is a multiple of this power of two.
    pub(crate) align_frames: u64,
    /// What is kept there.
    pub(crate) mobility: Mobility,
}

/// How to look for it.
#[derive(Clone, Copy, Debug)]
struct Manner {
    align_frames: u64,
    /// Order of the largest units that may be broken up for it.
    largest: u8,
    /// Pages of huge frames that are split for this mobility are left alone.
    not_from: Option<Mobility>,
}

/// What a look through memory came by, besides a range.
#[derive(Clone, Copy, Debug, Default)]
struct Notes {
    /// Other CPUs may give back what looked used.
    busy: bool,
    /// A range was seen, but somebody else took some of it.
    lost: bool,
    /// Something free was left alone.
    spared: bool,
    #[cfg(test)]
    looks: u64,
}

impl Wanted {
    /// From the manner that breaks up and mixes least to the one that takes anything.
    fn manners(self) -> [Manner; 4] {
        let manner = |align: u64, largest| Manner {
            align_frames: self.align_frames.max(align),
            largest,
            not_from: Some(self.mobility.other()),
        };
        let any = manner(1, GIANT_ORDER);
        let mixed = Manner {
            not_from: None,
            ..any
        };
        let huge = u64::from(HUGE_FRAMES);
        if self.frames >= GIANT_FRAMES {
            let whole = manner(GIANT_FRAMES, GIANT_ORDER);
            [whole, whole, any, mixed]
        } else if self.frames >= huge {
            let (split, whole) = (manner(huge, HUGE_ORDER), manner(huge, GIANT_ORDER));
            [split, whole, any, mixed]
        } else {
            [manner(1, 0), manner(1, HUGE_ORDER), any, mixed]
        }
    }
}

impl Manner {
    /// Whether something free is left alone.
    fn spares(self, free: &Glimpse) -> bool {
        free.level > self.largest || free.mobility.is_some() && free.mobility == self.not_from
    }
}

impl Segment<'_> {
    /// One number made of all giant words: another number means that something
    /// became free or was used up meanwhile.
    fn fingerprint(&self) -> u64 {
        (0..self.giant_count()).fold(0, |sum: u64, giant| {
            (sum.rotate_left(5) ^ self.giant_bits(giant)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// The first range from `from` on that is seen free.
    fn find_range(
        &self,
        frames: u64,
        manner: Manner,
        from: Frame,
        notes: &mut Notes,
    ) -> Option<FrameRange> {
        let align = manner.align_frames;
        let mut start = from.get().checked_next_multiple_of(align)?;
        // From `start` up to here all was seen free.
        let mut seen_to = start;
        loop {
            let end = start.checked_add(frames)?;
            let candidate = FrameRange::new(start, end)?;
            if !self.frames.covers(candidate) {
                return None;
            }
            let Some(obstacle) = self.last_obstacle(candidate, seen_to, manner, notes) else {
                return Some(candidate);
            };
            seen_to = end;
            start = obstacle.get().checked_next_multiple_of(align)?;
        }
    }

    /// End of the last run in `candidate`, not before `seen_to`, that can't be had.
    fn last_obstacle(
        &self,
        candidate: FrameRange,
        seen_to: u64,
        manner: Manner,
        notes: &mut Notes,
    ) -> Option<Frame> {
        // The next candidate begins behind all of such a unit, wherever in it something is used.
        let enough =
            |unit: FrameRange| unit.count() <= manner.align_frames && candidate.covers(unit);
        let first = candidate.start().get().max(seen_to);
        let mut at = candidate.end().get();
        while at > first {
            let seen = self.look(Frame::new(at - 1), enough);
            notes.busy |= seen.busy;
            #[cfg(test)]
            {
                notes.looks += 1;
            }
            let spared = seen.free && manner.spares(&seen);
            notes.spared |= spared;
            if spared || !seen.free {
                return Some(seen.run.end());
            }
            at = seen.run.start().get();
        }
        None
    }
}

impl<'m> Directory<'m> {
    /// Takes frames in a row from the first of `nodes` that has them, from the
    /// highest of `zones` down.
    ///
    /// Says that there are none when it saw none between two readings of all
    /// giant words that agree and nobody was about to give back what looked
    /// used; or when it saw none so often while the words changed that to wait
    /// for such a moment would be to wait for the other CPUs to stop.
    pub(crate) fn allocate_contiguous(
        &self,
        nodes: impl Iterator<Item = NodeId> + Clone,
        zones: Zones,
        wanted: Wanted,
    ) -> Option<FrameRange> {
        let places = || nodes.clone().flat_map(|node| self.places_on(node, zones));
        let (mut before, mut looks) = (None, 0);
        loop {
            let mut notes = Notes::default();
            let found =
                places().find_map(|place| self.take_from(place.segment(), wanted, &mut notes));
            if found.is_some() {
                return found;
            }
            let words = places().fold(0, |sum: u64, place| {
                sum.rotate_left(1) ^ place.segment().fingerprint()
            });
            let calls = self.range_calls.seen();
            let now = Some((words, calls));
            if notes.lost {
                // Each loss is another call's success.
                looks = 0;
            } else if before != now {
                looks += 1;
                if looks == LOOKS {
                    return None;
                }
            } else if calls.is_quiet() && !notes.busy {
                return None;
            }
            before = now;
            pause();
        }
    }

    fn take_from(
        &self,
        segment: &Segment<'_>,
        wanted: Wanted,
        notes: &mut Notes,
    ) -> Option<FrameRange> {
        let mut last_align = 0;
        for manner in wanted.manners() {
            // Nothing was spared: the next manner would see the same.
            if manner.align_frames == last_align && !notes.spared {
                continue;
            }
            last_align = manner.align_frames;
            notes.spared = false;
            let mut from = segment.frames.start();
            while let Some(range) = segment.find_range(wanted.frames, manner, from, notes) {
                if self.claim_seen(range, wanted.mobility).is_ok() {
                    return Some(range);
                }
                notes.lost = true;
                from = Frame::new(range.start().get() + 1);
            }
        }
        None
    }
}

impl Frames<'_> {
    /// Takes `frames` frames in a row, any number of them, of one node and zone.
    /// The first is a multiple of `align_frames`, a power of two that may be
    /// larger than the range and than a giant frame, and of the request's order.
    /// Nothing is rounded up: what is left of a larger free block stays free.
    /// Node, exactness and zone of the request mean what they mean for
    /// [`Frames::allocate`]. Given back by [`Frames::free_range`], or in parts.
    ///
    /// Small ranges come from huge and giant frames that are broken up already
    /// for the same mobility as long as there is room in one; ranges of a huge or
    /// giant frame and more begin with a whole one if they can.
    ///
    /// # Cost
    /// One search reads each word of a segment at most once, and no level below
    /// a giant or huge frame that is free, or used up, as a whole: for G giant
    /// frames, H huge frames in broken up giant frames and P words of 64 pages
    /// in broken up huge frames, at most G + H + P looks, and about one in
    /// every range length where memory is finely broken up. Where the alignment
    /// is a giant frame or more, one look a giant frame the range fills (and a
    /// huge frame likewise). At most four searches a segment and pass; finding
    /// that there is none takes at least two passes. Then each giant frame is
    /// taken by one step, and each end by at most 17.
    ///
    /// ```
    /// use firstlight::addr::{FrameRange, Order};
    /// use firstlight::frames::{ContiguousError, Frames, Request};
    /// use firstlight::node::NodeId;
    ///
    /// /// 2.5 GiB for a guest, mapped from a multiple of 1 GiB on.
    /// fn guest(frames: &Frames<'_>) -> Result<FrameRange, ContiguousError> {
    ///     let request = Request::new(Order::PAGE).on(NodeId(1));
    ///     frames.allocate_contiguous(5 << 17, Order::GIANT.frames(), request)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ContiguousError::OutOfMemory`] when no such range was seen, also after
    /// other CPUs were asked for what their magazines hold: not in a
    /// look through all allowed memory during which nothing changed, or not in
    /// 16 looks in a row if other CPUs never rest. One that is free all the time
    /// is not missed, see the exceptions in MODEL.md.
    /// [`ContiguousError::NoFrames`], [`ContiguousError::BadAlignment`],
    /// [`ContiguousError::NoSuchNode`].
    pub fn allocate_contiguous(
        &self,
        frames: u64,
        align_frames: u64,
        request: Request,
    ) -> Result<FrameRange, ContiguousError> {
        if frames == 0 {
            return Err(ContiguousError::NoFrames);
        }
        if !align_frames.is_power_of_two() {
            return Err(ContiguousError::BadAlignment { align_frames });
        }
        let nodes = self.directory.heads.len();
        let first = request.node().unwrap_or_default();
        if usize::from(first.0) >= nodes {
            return Err(ContiguousError::NoSuchNode { node: first, nodes });
        }
        let wanted = Wanted {
            frames,
            align_frames: align_frames.max(request.order().frames()),
            mobility: request.mobility(),
        };
        let zones = request.zones();
        let found = || {
            if request.is_exact() {
                let only = core::iter::once(first);
                self.directory.allocate_contiguous(only, zones, wanted)
            } else {
                let near = self.fallback(first);
                self.directory.allocate_contiguous(near, zones, wanted)
            }
        };
        let found = || {
            let range = found()?;
            self.count_range(range, -1);
            Some(range)
        };
        if let Some(range) = found() {
            return Ok(range);
        }
        let mut held_by_cpus = 0;
        if request.may_drain() && !self.cpus.slots.is_empty() {
            held_by_cpus = self.cpus.ask();
            // Also if nobody holds anything: it may have come back since the last look.
            if let Some(range) = found() {
                return Ok(range);
            }
        }
        Err(ContiguousError::OutOfMemory {
            frames,
            align_frames,
            request,
            held_by_cpus,
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    extern crate std;
    use super::super::geometry::Block;
    use super::super::testkit::{directory, frames};
    use super::*;
    use crate::node::ZoneKind;

    const GIB: u64 = GIANT_FRAMES;

    /// One segment; what a search in it finds, and after how many looks.
    fn search(
        directory: &Directory<'_>,
        frames: u64,
        align_frames: u64,
    ) -> (Option<FrameRange>, u64) {
        let (mut notes, segment) = (Notes::default(), directory.places[0].segment());
        let wanted = Wanted {
            frames,
            align_frames,
            mobility: Mobility::Unmovable,
        };
        let found = directory.take_from(segment, wanted, &mut notes);
        segment.validate().unwrap();
        (found, notes.looks)
    }

    #[test]
    #[cfg_attr(miri, ignore = "a machine of terabytes")]
    fn whole_giants_cost_one_look_each() {
        let giants = 8 << 10;
        // Every fourth is in use.
        let reserved: std::vec::Vec<_> = (0..giants / 4)
            .map(|at| frames(4 * at * GIB, (4 * at + 1) * GIB))
            .collect();
        let directory = directory(&[(frames(0, giants * GIB), 0, ZoneKind::Normal)], &reserved);
        let (found, looks) = search(&directory, 3 * GIB, GIB);
        assert_eq!((found, looks), (Some(frames(GIB, 4 * GIB)), 4));
        let (found, looks) = search(&directory, 4 * GIB, GIB);
        assert!(found.is_none() && looks <= giants, "{looks}");
        // Aligned beyond its size and beyond a giant frame.
        let (found, _) = search(&directory, GIB, 2 * GIB);
        assert_eq!(found, Some(frames(6 * GIB, 7 * GIB)));
        let (found, looks) = search(&directory, 2 * GIB, 4 * GIB);
        assert!(found.is_none() && looks <= giants, "{looks}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "a giant frame, page by page")]
    fn a_checkerboard_is_passed_in_steps_of_the_range() {
        let directory = directory(&[(frames(0, 64 * GIB), 0, ZoneKind::Normal)], &[]);
        let segment = directory.places[0].segment();
        for at in 0..64 * GIB / 1024 {
            let start = Frame::new(1024 * at + 300);
            segment.claim(Block { start, order: 0 }).unwrap();
        }
        let giants_huges = 64 + 64 * 512;
        let (found, looks) = search(&directory, 1024, 1);
        assert!(found.is_none() && looks <= 3 * giants_huges, "{looks}");
        let (found, looks) = search(&directory, 1023, 1);
        assert!(found == Some(frames(301, 1324)), "{found:?}");
        assert!(looks <= 3 * giants_huges, "{looks}");
        // As many huge frames are whole as are broken up, never two in a row.
        let (found, looks) = search(&directory, 1024, 512);
        assert!(found.is_none() && looks <= 2 * giants_huges, "{looks}");
        let (found, looks) = search(&directory, GIB, GIB);
        assert!(found.is_none() && looks <= 64, "{looks}");
    }

    #[test]
    fn a_small_range_breaks_up_nothing_while_there_is_room() {
        let directory = directory(&[(frames(0, 3 * GIB), 0, ZoneKind::Normal)], &[]);
        let segment = directory.places[0].segment();
        let page = Frame::new(GIB + 700);
        let block = Block {
            start: page,
            order: 0,
        };
        segment.claim(block).unwrap();
        let (found, _) = search(&directory, 7, 1);
        assert_eq!(found, Some(frames(GIB + 512, GIB + 519)));
        let (found, _) = search(&directory, 600, 1);
        assert_eq!(found, Some(frames(GIB + 1024, GIB + 1624)));
        let (found, _) = search(&directory, 16, 512);
        assert_eq!(found, Some(frames(GIB, GIB + 16)));
        assert_eq!(segment.statistics().free_giants, 2);
    }

    #[test]
    fn a_small_range_mixes_only_where_nothing_else_is_left() {
        let directory = directory(&[(frames(0, 1536), 0, ZoneKind::Normal)], &[]);
        let segment = directory.places[0].segment();
        let page = |start| Block {
            start: Frame::new(start),
            order: 0,
        };
        let claim = |start, mobility| segment.claim_for(page(start), mobility).unwrap();
        claim(0, Mobility::Movable);
        claim(513, Mobility::Unmovable);
        assert_eq!(search(&directory, 7, 1).0, Some(frames(514, 521)));
        // Too long for the huge frame it may share: a whole one is broken up.
        assert_eq!(search(&directory, 509, 1).0, Some(frames(521, 1030)));
        assert_eq!(search(&directory, 510, 1).0, Some(frames(1, 511)));
    }
}
