//! Jobs that are refused: [`JobError`].

use core::fmt;

use crate::layout::SECTION_FRAMES;

/// A job makes no sense as asked; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobError {
    /// No seats, or at most zero threads on a node.
    NoThreads,
    /// Chunks would end inside a section.
    NotSections {
        /// The alignment asked for.
        frames: u64,
    },
    /// The least chunk is no multiple of the alignment.
    NotAligned {
        /// The least chunk asked for.
        frames: u64,
        /// The alignment asked for.
        align_frames: u64,
    },
    /// The list of shares lent has too few slots.
    TooFewShares {
        /// Slots lent.
        lent: usize,
        /// Slots needed.
        needed: usize,
    },
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => write!(f, "a job for 0 threads; expected at least 1"),
            Self::NotSections { frames } => write!(
                f,
                "chunks aligned to {frames} frames; expected a multiple of a section's {SECTION_FRAMES}"
            ),
            Self::NotAligned {
                frames,
                align_frames,
            } => write!(
                f,
                "a least chunk of {frames} frames; expected a multiple of the alignment, {align_frames}"
            ),
            Self::TooFewShares { lent, needed } => write!(
                f,
                "{lent} shares were lent for the ranges of the job: {needed} are needed"
            ),
        }
    }
}

impl core::error::Error for JobError {}
