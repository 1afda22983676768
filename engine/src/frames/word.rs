//! The two words the allocator decides by: [`Giant`], 64 bits a giant frame,
//! and [`Huge`], 32 bits a huge frame. Plain values; the atomics that hold
//! them live in [`super::segment`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions and counts inside one giant frame, or indices into tables that exist"
)]

use super::geometry::{HUGE_FRAMES, HUGES};

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
/// to anyone: whoever lowers it owns as many, wherever they lie. `partial` is
/// never less than the number of huge frames with some pages free. `busy`
/// counts calls that hold promises they may have to give back, so that nobody
/// takes what they hold for used up.
///
/// In a giant frame that is one block, `free` says whether the level below was
/// ever written: then it still says that all is free, and need not be again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Giant {
    pub(crate) state: GiantState,
    pub(crate) free: u32,
    pub(crate) partial: u32,
    pub(crate) busy: u32,
}

/// By how much the counts of a split giant frame change in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) free: i32,
    pub(crate) partial: i32,
    pub(crate) busy: i32,
}

impl Change {
    pub(crate) const fn by(free: i32, partial: i32, busy: i32) -> Self {
        Self {
            free,
            partial,
            busy,
        }
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
            partial: 0,
            busy: 0,
        }
    }

    pub(crate) const fn split(free: u32, partial: u32) -> Self {
        Self {
            state: GiantState::Split,
            free,
            partial,
            busy: 0,
        }
    }

    /// The same block, taken or given back as a whole.
    pub(crate) const fn turned(self, state: GiantState) -> Self {
        Self { state, ..self }
    }

    /// Whether the huge frames below a block are known to be written, all as free.
    pub(crate) const fn is_written_below(self) -> bool {
        self.free == HUGES
    }

    /// The bits kept in memory. Zero is none of them: it marks memory nobody wrote.
    pub(crate) const fn pack(self) -> u64 {
        let state = match self.state {
            GiantState::Whole => 1,
            GiantState::Splitting => 2,
            GiantState::Split => 3,
            GiantState::Allocated => 4,
        };
        state | (self.free as u64) << 8 | (self.partial as u64) << 24 | (self.busy as u64) << 40
    }

    pub(crate) const fn unpack(bits: u64) -> Self {
        let state = match bits & 0xff {
            1 => GiantState::Whole,
            2 => GiantState::Splitting,
            3 => GiantState::Split,
            _ => GiantState::Allocated,
        };
        Self {
            state,
            free: (bits >> 8) as u32 & 0xffff,
            partial: (bits >> 24) as u32 & 0xffff,
            busy: (bits >> 40) as u32 & 0xffff,
        }
    }

    /// Whole again once nothing below is allocated or promised.
    ///
    /// `partial` and `busy` must be 0 too: a CPU that still has to lower one
    /// would otherwise lower the count of a word that no longer has it.
    const fn merged(self) -> Self {
        if self.free == HUGES && self.partial == 0 && self.busy == 0 {
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
        let partial = self.partial.checked_add_signed(by.partial);
        let busy = self.busy.checked_add_signed(by.busy);
        match (free, partial, busy) {
            (Some(free), Some(partial), Some(busy)) if free <= HUGES => Some(
                Self {
                    state: GiantState::Split,
                    free,
                    partial,
                    busy,
                }
                .merged(),
            ),
            _ => None,
        }
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

/// State of a huge frame; `free` counts pages that are free and not promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Huge {
    pub(crate) state: HugeState,
    pub(crate) free: u32,
}

impl Huge {
    pub(crate) const FREE: Self = Self {
        state: HugeState::Free,
        free: 0,
    };
    pub(crate) const SPLITTING: Self = Self {
        state: HugeState::Splitting,
        free: 0,
    };
    pub(crate) const ALLOCATED: Self = Self {
        state: HugeState::Allocated,
        free: 0,
    };
    /// Every page allocated one by one.
    pub(crate) const FULL: Self = Self::split(0);

    pub(crate) const fn split(free: u32) -> Self {
        Self {
            state: HugeState::Split,
            free,
        }
    }

    /// Whether some, but not all, of the pages are free.
    pub(crate) const fn is_partial(self) -> bool {
        matches!(self.state, HugeState::Split) && self.free > 0
    }

    /// The bits kept in memory; never zero.
    pub(crate) const fn pack(self) -> u32 {
        let state = match self.state {
            HugeState::Free => 1,
            HugeState::Splitting => 2,
            HugeState::Split => 3,
            HugeState::Allocated => 4,
        };
        state | self.free << 8
    }

    pub(crate) const fn unpack(bits: u32) -> Self {
        let state = match bits & 0xff {
            1 => HugeState::Free,
            2 => HugeState::Splitting,
            3 => HugeState::Split,
            _ => HugeState::Allocated,
        };
        Self {
            state,
            free: bits >> 8 & 0xffff,
        }
    }

    /// With `count` more pages free: free as a whole once all are.
    pub(crate) const fn freed(self, count: u32) -> Self {
        let free = self.free + count;
        if free == HUGE_FRAMES {
            Self::FREE
        } else {
            Self::split(free)
        }
    }

    /// With `count` pages promised; `None` where there are not so many.
    pub(crate) const fn promised(self, count: u32) -> Option<Self> {
        match (self.state, self.free.checked_sub(count)) {
            (HugeState::Split, Some(free)) => Some(Self::split(free)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_packing() {
        for giant in [
            Giant::WHOLE,
            Giant::SPLITTING,
            Giant::ALLOCATED,
            Giant::split(HUGES, 3),
        ] {
            assert_eq!(Giant::unpack(giant.pack()), giant);
            assert_ne!(giant.pack(), 0);
        }
        for huge in [
            Huge::FREE,
            Huge::SPLITTING,
            Huge::ALLOCATED,
            Huge::split(HUGE_FRAMES - 1),
        ] {
            assert_eq!(Huge::unpack(huge.pack()), huge);
            assert_ne!(huge.pack(), 0);
        }
    }

    #[test]
    fn a_giant_merges_only_when_nothing_is_left_below() {
        let by = Change::by;
        assert_eq!(
            Giant::split(HUGES - 1, 0).changed(by(1, 0, 0)),
            Some(Giant::MERGED)
        );
        assert_eq!(
            Giant::split(HUGES - 1, 1).changed(by(1, 0, 0)),
            Some(Giant::split(HUGES, 1))
        );
        assert_eq!(
            Giant::split(HUGES, 1).changed(by(0, -1, 0)),
            Some(Giant::MERGED)
        );
        let busy = Giant::split(HUGES, 1).changed(by(-2, -1, 1)).unwrap();
        assert_eq!(Giant::unpack(busy.pack()), busy);
        assert_eq!(busy.changed(by(2, 0, 0)).unwrap().state, GiantState::Split);
        assert_eq!(busy.changed(by(2, 0, -1)), Some(Giant::MERGED));
        assert_eq!(Giant::split(0, 0).changed(by(-1, 0, 0)), None);
        assert_eq!(Giant::WHOLE.changed(by(-1, 0, 0)), None);
    }
}
