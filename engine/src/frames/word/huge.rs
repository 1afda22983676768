//! The word of a huge frame: [`Huge`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::LARGEST_RUN;
use crate::frames::geometry::HUGE_FRAMES;
use crate::frames::request::Mobility;

/// What a huge frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeState {
    /// Free as one block; its bitmap has no meaning.
    Free,
    /// One CPU is writing the bitmap.
    Splitting,
    /// The bitmap and the count hold.
    Split,
    /// Allocated as one block (or a part of a larger one); its bitmap has no meaning.
    Allocated,
}

/// State of a huge frame.
///
/// `free` counts pages that are free and not promised. `run` is never less than the
/// order of the largest block of them, but for the moment in which a call that is
/// counted in the giant frame's `busy` lowers it. It does not follow `free`: nobody knows
/// yet which pages a promise will take. `mobility` is what the frame was taken or split
/// for. While it is `isolated` nothing of it can be taken, and the giant
/// frame's counts leave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Huge {
    pub(crate) state: HugeState,
    pub(crate) mobility: Mobility,
    pub(crate) free: u32,
    pub(crate) run: u8,
    pub(crate) isolated: bool,
}

impl Huge {
    pub(crate) const FREE: Self = Self::block(HugeState::Free, Mobility::Unmovable);
    pub(crate) const SPLITTING: Self = Self::block(HugeState::Splitting, Mobility::Unmovable);

    const fn block(state: HugeState, mobility: Mobility) -> Self {
        Self {
            state,
            mobility,
            free: 0,
            run: 0,
            isolated: false,
        }
    }

    /// The same, isolated or not.
    pub(crate) const fn with_isolated(self, isolated: bool) -> Self {
        Self { isolated, ..self }
    }

    /// Allocated as one block.
    pub(crate) const fn allocated(mobility: Mobility) -> Self {
        Self::block(HugeState::Allocated, mobility)
    }

    /// Open, with `free` pages that may form a block of any order.
    pub(crate) const fn split(mobility: Mobility, free: u32) -> Self {
        let open = Self {
            free,
            run: LARGEST_RUN,
            ..Self::block(HugeState::Split, mobility)
        };
        Self {
            run: open.bound(),
            ..open
        }
    }

    /// Whether some, but not all, of the pages are free and can be taken.
    pub(crate) const fn is_partial(self) -> bool {
        matches!(self.state, HugeState::Split) && self.free > 0 && !self.isolated
    }

    /// Whether every page is allocated one by one.
    pub(crate) const fn is_full(self) -> bool {
        matches!(self.state, HugeState::Split) && self.free == 0
    }

    /// Whether a block of `order`, below a huge frame, may be found.
    pub(crate) const fn may_have_run(self, order: u8) -> bool {
        self.is_partial() && self.bound() >= order
    }

    /// No less than the order of the largest block of free pages: `run`, or what follows
    /// from their number.
    pub(crate) const fn bound(self) -> u8 {
        let most = match self.free.checked_ilog2() {
            Some(order) => order as u8,
            None => 0,
        };
        if self.run < most { self.run } else { most }
    }

    /// With this bound at least on the blocks of pages.
    pub(crate) const fn with_run_from(self, run: u8) -> Self {
        let run = if self.run < run { run } else { self.run };
        Self { run, ..self }
    }

    /// The bits kept in memory; never zero.
    pub(crate) const fn pack(self) -> u32 {
        let state = match self.state {
            HugeState::Free => 1,
            HugeState::Splitting => 2,
            HugeState::Split => 3,
            HugeState::Allocated => 4,
        };
        state
            | (self.mobility as u32) << 3
            | (self.run as u32) << Self::RUN_BIT
            | self.free << Self::FREE_BIT
            | (self.isolated as u32) << Self::ISOLATED_BIT
    }

    const RUN_BIT: u32 = 4;
    const FREE_BIT: u32 = 8;
    const ISOLATED_BIT: u32 = 18;

    /// Whether the bits are those of a huge frame that is allocated as one, not isolated.
    #[inline]
    pub(crate) const fn is_allocated_in(bits: u32) -> bool {
        bits & (7 | 1 << Self::ISOLATED_BIT) == 4
    }

    /// Whether the bits are those of a huge frame that is split for `mobility` and has pages
    /// that can be taken.
    #[inline]
    pub(crate) const fn is_partial_in(bits: u32, mobility: Mobility) -> bool {
        const KIND: u32 = 7 | 1 << 3 | 1 << Huge::ISOLATED_BIT;
        bits & KIND == 3 | (mobility as u32) << 3 && bits & 0x3ff << Huge::FREE_BIT != 0
    }

    /// Whether the bits are those of a split huge frame, not isolated.
    #[inline]
    pub(crate) const fn is_split_in(bits: u32) -> bool {
        bits & (7 | 1 << Self::ISOLATED_BIT) == 3
    }

    /// What the huge frame with these bits was taken or split for.
    #[inline]
    pub(crate) const fn mobility_in(bits: u32) -> Mobility {
        if bits & 8 == 0 {
            Mobility::Unmovable
        } else {
            Mobility::Movable
        }
    }

    pub(crate) const fn unpack(bits: u32) -> Self {
        let state = match bits & 7 {
            1 => HugeState::Free,
            2 => HugeState::Splitting,
            3 => HugeState::Split,
            _ => HugeState::Allocated,
        };
        Self {
            state,
            mobility: Self::mobility_in(bits),
            run: (bits >> Self::RUN_BIT) as u8 & 0xf,
            free: bits >> Self::FREE_BIT & 0x3ff,
            isolated: bits >> Self::ISOLATED_BIT & 1 != 0,
        }
    }

    /// With `count` more pages free, which form or are next to a block of order
    /// `run` at most: free as a whole once all are. Where none was free the bound starts anew,
    /// for the caller to raise to what was promised before.
    pub(crate) const fn freed(self, count: u32, run: u8) -> Self {
        let free = self.free + count;
        if free == HUGE_FRAMES {
            return Self::FREE.with_isolated(self.isolated);
        }
        if self.free == 0 {
            Self { free, run, ..self }
        } else {
            Self { free, ..self }.with_run_from(run)
        }
    }

    /// The bits with `count` more pages free, if nothing else changes by it: the huge frame is
    /// split, not isolated, has free pages, and keeps some that are not.
    #[inline]
    pub(crate) const fn counted_in(bits: u32, count: u32, run: u8) -> Option<u32> {
        let free = bits >> Self::FREE_BIT & 0x3ff;
        if !Self::is_split_in(bits) || free == 0 || free + count >= HUGE_FRAMES {
            return None;
        }
        let counted = bits + (count << Self::FREE_BIT);
        let run = (run as u32) << Self::RUN_BIT;
        let seen = bits & 0xf << Self::RUN_BIT;
        Some(if seen < run {
            counted - seen + run
        } else {
            counted
        })
    }

    /// With `count` pages promised; `None` where there are not so many.
    pub(crate) const fn promised(self, count: u32) -> Option<Self> {
        match (self.state, self.free.checked_sub(count)) {
            (HugeState::Split, Some(free)) if !self.isolated => Some(Self { free, ..self }),
            _ => None,
        }
    }
}
