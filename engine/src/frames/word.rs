//! The two words the allocator decides by: [`Giant`], 64 bits a giant frame,
//! and [`Huge`], 32 bits a huge frame. Plain values; the atomics that hold
//! them live in [`super::segment`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::geometry::{HUGE_FRAMES, HUGE_ORDER, HUGES};
use super::request::Mobility;

/// Order of the largest block inside a huge frame that is split.
pub(crate) const LARGEST_RUN: u8 = HUGE_ORDER - 1;

/// What `partial` has room for: all huge frames, and some hundred calls on the way.
const MOST_PARTIAL: u32 = 0x3ff;

/// What a giant frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiantState {
    /// Free as one block; the level below has no meaning.
    Whole,
    /// One CPU is writing the level below; the counts have no meaning.
    Splitting,
    /// The level below and the counts hold.
    Split,
    /// Allocated as one block; the level below has no meaning.
    Allocated,
}

/// State of a giant frame and what is free below it.
///
/// `free` counts the huge frames that are free as a whole and not yet promised
/// to anyone: whoever lowers it owns as many, wherever they lie. `partial` is,
/// for each mobility, never less than the number of huge frames with some pages
/// free (more, by calls that took the last of one and have not said so yet), and `run`
/// never less than the order of the largest block of free pages in
/// one of them, but for the moment in which a call counted in `busy` lowers it.
/// `busy` counts calls that hold promises they may have to give back, or are
/// finding out the truth of `run`, so that nobody takes what they hide for used up.
///
/// In a giant frame that is one block, `free` says whether the level below was
/// ever written: then it still says that all is free, and need not be again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Giant {
    pub(crate) state: GiantState,
    pub(crate) free: u32,
    pub(crate) partial: [u32; 2],
    pub(crate) busy: u32,
    pub(crate) run: [u8; 2],
}

/// By how much the counts of a split giant frame change in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    free: i32,
    partial: [i32; 2],
    busy: i32,
    /// `run` is this at least.
    run: [u8; 2],
}

impl Change {
    /// More or fewer free huge frames.
    pub(crate) const fn free(count: i32) -> Self {
        Self {
            free: count,
            partial: [0; 2],
            busy: 0,
            run: [0; 2],
        }
    }

    /// A free huge frame is going to be split for pages of this mobility.
    pub(crate) const fn split(mobility: Mobility) -> Self {
        let mut split = Self::free(-1).and_partial(mobility, 1);
        split.run[mobility as usize] = LARGEST_RUN;
        split
    }

    /// One more call, or one less, that may give something back.
    pub(crate) const fn busy(count: i32) -> Self {
        Self::free(0).and_busy(count)
    }

    /// More or fewer huge frames of this mobility with some pages free.
    pub(crate) const fn partial(mobility: Mobility, count: i32) -> Self {
        Self::free(0).and_partial(mobility, count)
    }

    pub(crate) const fn and_partial(mut self, mobility: Mobility, count: i32) -> Self {
        self.partial[mobility as usize] += count;
        self
    }

    pub(crate) const fn and_busy(mut self, count: i32) -> Self {
        self.busy += count;
        self
    }
}

impl Giant {
    /// Free as one block, nothing below written.
    pub(crate) const WHOLE: Self = Self::block(GiantState::Whole);
    /// Free as one block, the level below says so too.
    const MERGED: Self = Self {
        free: HUGES,
        ..Self::WHOLE
    };
    pub(crate) const SPLITTING: Self = Self::block(GiantState::Splitting);
    /// Allocated as one block, nothing below written.
    pub(crate) const ALLOCATED: Self = Self::block(GiantState::Allocated);

    const fn block(state: GiantState) -> Self {
        Self {
            state,
            free: 0,
            partial: [0; 2],
            busy: 0,
            run: [0; 2],
        }
    }

    /// Open, with `partial` huge frames of each mobility that may hold a block of any order.
    pub(crate) const fn split(free: u32, partial: [u32; 2]) -> Self {
        Self {
            free,
            partial,
            run: [LARGEST_RUN; 2],
            ..Self::block(GiantState::Split)
        }
        .without_empty_runs()
    }

    /// Where no pages are free they form no block.
    const fn without_empty_runs(mut self) -> Self {
        if self.partial[0] == 0 {
            self.run[0] = 0;
        }
        if self.partial[1] == 0 {
            self.run[1] = 0;
        }
        self
    }

    /// The same block, taken or given back as a whole.
    pub(crate) const fn turned(self, state: GiantState) -> Self {
        Self { state, ..self }
    }

    /// Whether the huge frames below a block are known to be written, all as free.
    pub(crate) const fn is_written_below(self) -> bool {
        self.free == HUGES
    }

    /// Whether a block of `order`, below a huge frame, may be found in a huge frame
    /// that is split for this mobility.
    pub(crate) const fn may_have_run(self, order: u8, mobility: Mobility) -> bool {
        self.partial[mobility as usize] > 0 && self.run[mobility as usize] >= order
    }

    /// The bits kept in memory. Zero is none of them: it marks memory nobody wrote.
    pub(crate) const fn pack(self) -> u64 {
        let state = match self.state {
            GiantState::Whole => 1,
            GiantState::Splitting => 2,
            GiantState::Split => 3,
            GiantState::Allocated => 4,
        };
        let [unmovable, movable] = self.partial;
        state
            | (self.free as u64) << 8
            | (unmovable as u64) << 18
            | (movable as u64) << 28
            | (self.run[0] as u64) << 38
            | (self.run[1] as u64) << 42
            | (self.busy as u64) << 46
    }

    /// Whether the bits are those of a giant frame that has nothing for anybody, and of
    /// which no call in flight may give something back.
    #[inline]
    pub(crate) const fn is_used_up_in(bits: u64) -> bool {
        bits == Self::split(0, [0; 2]).pack() || bits & 0xff == 4
    }

    /// Whether the bits are those of a split giant frame.
    #[inline]
    pub(crate) const fn is_split_in(bits: u64) -> bool {
        bits & 0xff == 3
    }

    #[inline]
    pub(crate) const fn unpack(bits: u64) -> Self {
        let state = match bits & 0xff {
            1 => GiantState::Whole,
            2 => GiantState::Splitting,
            3 => GiantState::Split,
            _ => GiantState::Allocated,
        };
        Self {
            state,
            free: (bits >> 8) as u32 & 0x3ff,
            partial: [(bits >> 18) as u32 & 0x3ff, (bits >> 28) as u32 & 0x3ff],
            run: [(bits >> 38) as u8 & 0xf, (bits >> 42) as u8 & 0xf],
            busy: (bits >> 46) as u32,
        }
    }

    /// Whole again once nothing below is allocated or promised.
    ///
    /// `partial` and `busy` must be 0 too: a CPU that still has to lower one
    /// would otherwise lower the count of a word that no longer has it.
    const fn merged(self) -> Self {
        if self.free == HUGES && self.partial[0] + self.partial[1] == 0 && self.busy == 0 {
            Self::MERGED
        } else {
            self
        }
    }

    /// With the counts changed; `None` if one would leave its range or the
    /// giant frame is not split.
    pub(crate) const fn changed(self, by: Change) -> Option<Self> {
        if !matches!(self.state, GiantState::Split) {
            return None;
        }
        let free = self.free.checked_add_signed(by.free);
        let unmovable = self.partial[0].checked_add_signed(by.partial[0]);
        let movable = self.partial[1].checked_add_signed(by.partial[1]);
        let busy = self.busy.checked_add_signed(by.busy);
        match (free, unmovable, movable, busy) {
            (Some(free), Some(unmovable), Some(movable), Some(busy))
                if free <= HUGES && unmovable <= MOST_PARTIAL && movable <= MOST_PARTIAL =>
            {
                let changed = Self {
                    free,
                    partial: [unmovable, movable],
                    busy,
                    ..self
                };
                Some(changed.with_run_from(by.run).without_empty_runs().merged())
            }
            _ => None,
        }
    }

    /// With at least these bounds on the blocks of pages.
    pub(crate) const fn with_run_from(mut self, run: [u8; 2]) -> Self {
        if self.run[0] < run[0] {
            self.run[0] = run[0];
        }
        if self.run[1] < run[1] {
            self.run[1] = run[1];
        }
        self
    }
}

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
            | (self.run as u32) << 4
            | self.free << 8
            | (self.isolated as u32) << Self::ISOLATED_BIT
    }

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
        bits & KIND == 3 | (mobility as u32) << 3 && bits & 0x3ff << 8 != 0
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
            run: (bits >> 4) as u8 & 0xf,
            free: bits >> 8 & 0x3ff,
            isolated: bits >> Self::ISOLATED_BIT & 1 != 0,
        }
    }

    /// With `count` more pages free, which form or are next to a block of order
    /// `run` at most: free as a whole once all are.
    pub(crate) const fn freed(self, count: u32, run: u8) -> Self {
        let free = self.free + count;
        if free == HUGE_FRAMES {
            return Self::FREE.with_isolated(self.isolated);
        }
        Self { free, ..self }.with_run_from(run)
    }

    /// With `count` pages promised; `None` where there are not so many.
    pub(crate) const fn promised(self, count: u32) -> Option<Self> {
        match (self.state, self.free.checked_sub(count)) {
            (HugeState::Split, Some(free)) if !self.isolated => Some(Self { free, ..self }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mobility::{Movable, Unmovable};

    #[test]
    fn words_survive_packing() {
        for giant in [
            Giant::WHOLE,
            Giant::SPLITTING,
            Giant::ALLOCATED,
            Giant::split(HUGES, [3, HUGES]),
        ] {
            assert_eq!(Giant::unpack(giant.pack()), giant);
            assert_ne!(giant.pack(), 0);
        }
        for huge in [
            Huge::FREE,
            Huge::SPLITTING,
            Huge::allocated(Unmovable),
            Huge::allocated(Movable),
            Huge::split(Movable, HUGE_FRAMES - 1),
            Huge::split(Unmovable, 5).with_isolated(true),
            Huge::split(Unmovable, 5),
            Huge::split(Unmovable, 0),
        ] {
            assert_eq!(Huge::unpack(huge.pack()), huge);
            for mobility in Mobility::ALL {
                let partial = huge.is_partial() && huge.mobility == mobility;
                assert_eq!(Huge::is_partial_in(huge.pack(), mobility), partial);
            }
            assert_ne!(huge.pack(), 0);
        }
    }

    #[test]
    fn a_giant_merges_only_when_nothing_is_left_below() {
        let free = Change::free;
        assert_eq!(
            Giant::split(HUGES - 1, [0; 2]).changed(free(1)),
            Some(Giant::MERGED)
        );
        assert_eq!(
            Giant::split(HUGES - 1, [0, 1]).changed(free(1)),
            Some(Giant::split(HUGES, [0, 1]))
        );
        assert_eq!(
            Giant::split(HUGES, [0, 1]).changed(Change::partial(Movable, -1)),
            Some(Giant::MERGED)
        );
        let taken = free(-2).and_partial(Unmovable, -1).and_busy(1);
        let busy = Giant::split(HUGES, [1, 0]).changed(taken).unwrap();
        assert_eq!(Giant::unpack(busy.pack()), busy);
        assert_eq!(busy.changed(free(2)).unwrap().state, GiantState::Split);
        assert_eq!(busy.changed(free(2).and_busy(-1)), Some(Giant::MERGED));
        assert_eq!(Giant::split(0, [0; 2]).changed(free(-1)), None);
        assert_eq!(Giant::WHOLE.changed(free(-1)), None);
    }

    #[test]
    fn the_bound_on_blocks_follows_what_is_free() {
        let full = Huge::split(Unmovable, 0);
        let checkerboard = full.freed(1, 0).freed(1, 0);
        assert!(checkerboard.may_have_run(0) && !checkerboard.may_have_run(1));
        assert!(checkerboard.freed(1, 1).may_have_run(1));
        // A bound that was there stays, as far as there are pages.
        let large = full.freed(64, 6).freed(1, 0);
        assert_eq!(large.bound(), 6);
        let few = large.promised(50).unwrap();
        assert_eq!(few.bound(), 3);
        // What was promised may have been other pages than those of the block.
        assert_eq!(few.freed(49, 0).bound(), 6);
        assert_eq!(Huge::split(Unmovable, 9).run, 3);
    }
}
