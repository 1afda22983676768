//! Huge frames that are out of use as a whole: offline, or absent again.
//!
//! Their words say allocated and pinned. Every free of a pinned huge frame reads the list of
//! pinned frames, and the list has them. The list changes before the words do, so a free that
//! saw the list before it changed fails at the word.

use super::{GiantIndex, HugeIndex, Segment};
use crate::addr::{Frame, FrameRange};
use crate::frames::word::geometry::{Block, HUGE_FRAMES, largest_order};
use crate::frames::word::{GiantState, Huge, Mobility};
use crate::sync::{Ordering, fence, pause};

impl Segment<'_> {
    /// What [`Segment::take_isolated`] leaves of a huge frame of which nothing was in use.
    const TAKEN: Huge = Huge::allocated(Mobility::Unmovable).with_isolated(true);

    /// Ends the isolation of a huge frame that was taken as a whole, which is in the list of pinned
    /// frames: offline. `false` if another call freed some of it, which was not its own.
    pub(crate) fn set_offline(&self, huge: HugeIndex) -> bool {
        self.swap_huge(huge, Self::TAKEN, Huge::out_of_use(true))
    }

    /// Makes a huge frame available again that was taken to go offline, whether it went or not.
    pub(crate) fn end_offline(&self, huge: HugeIndex) {
        // Whether the mark is this call's: another may have isolated the huge frame since it went.
        let is_mine = loop {
            let seen = self.huge(huge);
            if !seen.is_offline() {
                break true;
            }
            if self.swap_huge(huge, seen, Self::TAKEN) {
                break !seen.is_isolated();
            }
        };
        // In one step, but for what another call freed meanwhile, which was not its own. Nothing
        // isolated is taken, so the rest is this call's: it goes in the largest blocks there are.
        let mut at = self.huge_start(huge);
        let end = at + u64::from(HUGE_FRAMES);
        while let Some(mut order) = largest_order(at, end - at) {
            let start = Frame::new(at);
            while self.give(Block { start, order }).is_err() && order > 0 {
                order -= 1;
            }
            at += 1 << order;
        }
        if is_mine {
            self.end_isolation(huge);
        }
    }

    /// Whether the huge frame is offline.
    pub(crate) fn is_offline(&self, huge: HugeIndex) -> bool {
        // A giant frame that is about to become one block may stay split.
        self.giant(self.giant_of_huge(huge)).has_words() && self.huge(huge).is_offline()
    }

    /// The first huge frame that touches `range`, inside the segment, and is offline, or is not.
    pub(crate) fn first_offline(&self, range: FrameRange, offline: bool) -> Option<Frame> {
        if range.is_empty() {
            return None;
        }
        let huges = self.huges_touched(range);
        let mut at = huges.start;
        while at < huges.end {
            let giant = self.giant_of_huge(at);
            let below = self.huges_in(giant).end.min(huges.end);
            if self.giant(giant).has_words() {
                if let Some(found) =
                    (at..below).find(|&huge| self.huge(huge).is_offline() == offline)
                {
                    return Some(Frame::new(self.huge_start(found)));
                }
            } else if !offline {
                return Some(Frame::new(self.huge_start(at)));
            }
            at = below;
        }
        None
    }

    /// Makes an absent huge frame offline; whether it was absent.
    pub(crate) fn set_offline_absent(&self, huge: HugeIndex) -> bool {
        let giant = self.giant_of_huge(huge);
        loop {
            let word = self.giant(giant);
            if word.state() == GiantState::Split {
                // It may be isolated.
                let seen = self.opened_huge(huge);
                let offline = Huge::out_of_use(true).with_isolated(seen.is_isolated());
                let is_absent = seen.with_isolated(false) == Huge::out_of_use(false);
                // Not absent: another call adds it at this moment.
                if !is_absent || self.swap_huge(huge, seen, offline) {
                    return is_absent;
                }
            } else if word.state() == GiantState::Allocated {
                self.open_giant(giant, word);
            } else {
                pause();
            }
        }
    }

    /// Ends that a huge frame is offline: it is absent, as the list of pinned frames says.
    pub(crate) fn set_absent(&self, huge: HugeIndex) {
        loop {
            // It may be isolated meanwhile.
            let seen = self.huge(huge);
            let absent = Huge::out_of_use(false).with_isolated(seen.is_isolated());
            if !seen.is_offline() || self.swap_huge(huge, seen, absent) {
                return;
            }
        }
    }

    /// Makes a giant frame one block again if all of it is out of use: what comes there next is
    /// freed in one step.
    pub(crate) fn close_absent(&self, giant: GiantIndex) {
        let word = self.giant(giant);
        // Counts are not 0 while a call is about to be refused that frees what it does not have.
        let is_quiet = word.free() == 0 && !word.has_partial();
        if word.state() != GiantState::Split || !is_quiet || !self.has_all_of_giant(giant) {
            return;
        }
        let opening = word.opening();
        if !self.swap_giant(giant, word, opening) {
            return;
        }
        // Below one block all words say free.
        let (out, free) = (Huge::out_of_use(false), Huge::FREE);
        // Pairs with the fence of what comes: either that sees the giant frame being opened, or this
        // sees that it is listed no more.
        fence(Ordering::SeqCst);
        let all = self.giant_frames(giant);
        let is_absent = self.pinned.frames_in(all) == all.count();
        let mut huges = self.huges_in(giant);
        let failed = huges.find(|&huge| !is_absent || !self.swap_huge(huge, out, free));
        let now = match failed {
            None => word.closed(),
            Some(failed) => {
                // Some of it is in use.
                for huge in self.huges_in(giant).take_while(|&huge| huge < failed) {
                    let _ = self.swap_huge(huge, free, out);
                }
                opening.opened_with(0)
            }
        };
        // Not a store: other calls raise the counts in the same word.
        let change = now.bits().wrapping_sub(opening.bits());
        self.giants.at(giant).fetch_add(change, Ordering::SeqCst);
    }
}
