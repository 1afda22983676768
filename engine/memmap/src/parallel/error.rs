//! Jobs that are refused: [`JobError`].

use core::fmt;

use crate::layout::SECTION_FRAMES;

/// Why a job was refused; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobError {
    /// No workers, or zero threads on a node.
    NoThreads,
    /// Chunks would end inside a section.
    NotSections {
        /// The alignment requested.
        frames: u64,
    },
    /// The minimum chunk is no multiple of the alignment.
    NotAligned {
        /// The minimum chunk requested.
        frames: u64,
        /// The alignment requested.
        align_frames: u64,
    },
    /// The list of work ranges has too few slots.
    TooFewRanges {
        /// Slots provided.
        provided: usize,
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
                "a minimum chunk of {frames} frames; expected a multiple of the alignment, {align_frames}"
            ),
            Self::TooFewRanges { provided, needed } => write!(
                f,
                "a list of {provided} work ranges is too short: {needed} are needed"
            ),
        }
    }
}

impl core::error::Error for JobError {}
