//! The word of a giant frame: [`Giant`], and by how much it changes: [`Change`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::LARGEST_RUN;
use crate::frames::geometry::HUGES;
use crate::frames::request::Mobility;

/// What `partial` has room for: all huge frames, and a thousand calls on the way, each of
/// which may have emptied 32 and not said so yet.
const MOST_PARTIAL: u32 = 0x7fff;
/// What `busy` has room for: more than there are CPUs.
const MOST_BUSY: u32 = 0x1fff;

const STATE: u64 = 7;
const FREE_BIT: u32 = 3;
const PARTIAL_BIT: [u32; 2] = [13, 28];
const RUN_BIT: [u32; 2] = [43, 47];
const BUSY_BIT: u32 = 51;

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
    pub(super) const MERGED: Self = Self {
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
            | (self.free as u64) << FREE_BIT
            | (unmovable as u64) << PARTIAL_BIT[0]
            | (movable as u64) << PARTIAL_BIT[1]
            | (self.run[0] as u64) << RUN_BIT[0]
            | (self.run[1] as u64) << RUN_BIT[1]
            | (self.busy as u64) << BUSY_BIT
    }

    /// Whether the bits are those of a giant frame that has nothing for anybody, and of
    /// which no call in flight may give something back.
    #[inline]
    pub(crate) const fn is_used_up_in(bits: u64) -> bool {
        bits == Self::split(0, [0; 2]).pack() || bits & STATE == 4
    }

    /// Whether the bits are those of a split giant frame.
    #[inline]
    pub(crate) const fn is_split_in(bits: u64) -> bool {
        bits & STATE == 3
    }

    /// The bound of a mobility in the bits of a split giant frame.
    #[inline]
    pub(crate) const fn run_in(bits: u64, mobility: Mobility) -> u8 {
        (bits >> RUN_BIT[mobility as usize]) as u8 & 0xf
    }

    #[inline]
    pub(crate) const fn unpack(bits: u64) -> Self {
        let state = match bits & STATE {
            1 => GiantState::Whole,
            2 => GiantState::Splitting,
            3 => GiantState::Split,
            _ => GiantState::Allocated,
        };
        Self {
            state,
            free: (bits >> FREE_BIT) as u32 & 0x3ff,
            partial: [
                (bits >> PARTIAL_BIT[0]) as u32 & MOST_PARTIAL,
                (bits >> PARTIAL_BIT[1]) as u32 & MOST_PARTIAL,
            ],
            run: [
                Self::run_in(bits, Mobility::Unmovable),
                Self::run_in(bits, Mobility::Movable),
            ],
            busy: (bits >> BUSY_BIT) as u32,
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
                if free <= HUGES
                    && unmovable <= MOST_PARTIAL
                    && movable <= MOST_PARTIAL
                    && busy <= MOST_BUSY =>
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
