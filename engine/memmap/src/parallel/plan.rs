//! How many threads and how large a chunk: [`Job`], [`Chunking`], [`Plan`].
//! Pure functions of sizes.

use super::JobError;
use crate::addr::{Frame, FrameRange};
use crate::layout::SECTION_FRAMES;

/// How ranges are cut, and which CPUs take which piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Chunking {
    /// As Linux's padata does: threads = size / minimum chunk, at most the CPUs
    /// of the node; chunks for four rounds of them.
    Padata,
    /// One queue of minimum chunks over all nodes; own node first, then any.
    #[default]
    Stealing,
}

impl Chunking {
    /// The name on a command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Padata => "padata",
            Self::Stealing => "stealing",
        }
    }
}

/// Chunks a thread gets on average under [`Chunking::Padata`].
const ROUNDS: u64 = 4;

/// What all ranges of a job have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Fewest frames worth a thread; a multiple of `align_frames`.
    pub min_chunk_frames: u64,
    /// Chunks end on multiples of this; a multiple of the section.
    pub align_frames: u64,
    /// Most threads on a node; `None`: every worker.
    pub threads_per_node: Option<u32>,
    /// How ranges are cut.
    pub chunking: Chunking,
}

impl Job {
    /// Whole sections, every worker.
    pub const fn sections(chunking: Chunking) -> Self {
        Self {
            min_chunk_frames: SECTION_FRAMES,
            align_frames: SECTION_FRAMES,
            threads_per_node: None,
            chunking,
        }
    }

    /// With at most `threads` on a node.
    #[must_use]
    pub const fn threads_per_node(mut self, threads: u32) -> Self {
        self.threads_per_node = Some(threads);
        self
    }

    /// Refuses no threads and chunks that cut sections.
    pub(super) const fn check(&self) -> Result<(), JobError> {
        if let Some(0) = self.threads_per_node {
            return Err(JobError::NoThreads);
        }
        if self.align_frames == 0 || !self.align_frames.is_multiple_of(SECTION_FRAMES) {
            return Err(JobError::NotSections {
                frames: self.align_frames,
            });
        }
        if self.min_chunk_frames == 0 || !self.min_chunk_frames.is_multiple_of(self.align_frames) {
            return Err(JobError::NotAligned {
                frames: self.min_chunk_frames,
                align_frames: self.align_frames,
            });
        }
        Ok(())
    }

    /// How `frames` are cut on a node that has `workers` threads for them; a
    /// node without any gets one of another node.
    ///
    /// ```
    /// use firstlight_frames::addr::FrameRange;
    /// use firstlight_frames::layout::SECTION_FRAMES;
    /// use firstlight_memmap::parallel::{Chunking, Job};
    ///
    /// let node = FrameRange::new(0, 3072 * SECTION_FRAMES).unwrap(); // 384 GiB
    /// let plan = Job::sections(Chunking::Padata).plan(node, 52);
    /// assert_eq!((plan.threads, plan.chunk_frames, plan.chunks), (52, 15 * SECTION_FRAMES, 205));
    /// ```
    pub const fn plan(&self, frames: FrameRange, workers: u32) -> Plan {
        let cap = match self.threads_per_node {
            Some(most) if most < workers => most,
            _ => workers,
        };
        let cap = if cap == 0 { 1 } else { cap };
        let size = frames.count();
        match self.chunking {
            Chunking::Stealing => Plan::cut(frames, self.min_chunk_frames, cap),
            Chunking::Padata => {
                let worth = size / self.min_chunk_frames;
                // At most `cap`, which has 32 bits.
                #[expect(clippy::cast_possible_truncation, reason = "below a u32")]
                let threads = if worth < cap as u64 {
                    worth as u32
                } else {
                    cap
                };
                if threads <= 1 {
                    return Plan::whole(frames);
                }
                let chunk = size / (threads as u64 * ROUNDS);
                let chunk = if chunk < self.min_chunk_frames {
                    self.min_chunk_frames
                } else {
                    chunk
                };
                match chunk.checked_next_multiple_of(self.align_frames) {
                    Some(chunk) => Plan::cut(frames, chunk, threads),
                    None => Plan::whole(frames),
                }
            }
        }
    }
}

/// How one range is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Most threads that work on it at once.
    pub threads: u32,
    /// Frames of a chunk but the first and the last, which may be shorter.
    pub chunk_frames: u64,
    /// How many chunks; 0 for an empty range.
    pub chunks: u64,
}

impl Plan {
    /// One piece for one thread.
    const fn whole(frames: FrameRange) -> Self {
        Self {
            threads: 1,
            // Larger than any frame number, so that no border falls inside.
            chunk_frames: u64::MAX,
            chunks: !frames.is_empty() as u64,
        }
    }

    /// Pieces that end on multiples of `chunk_frames`.
    const fn cut(frames: FrameRange, chunk_frames: u64, threads: u32) -> Self {
        let first = frames.start().get() / chunk_frames;
        let end = frames.end().get().div_ceil(chunk_frames);
        Self {
            threads,
            chunk_frames,
            chunks: if frames.is_empty() { 0 } else { end - first },
        }
    }

    /// Chunk number `index` of `frames`; empty from [`Self::chunks`] on.
    pub fn chunk(&self, frames: FrameRange, index: u64) -> FrameRange {
        let first = frames.start().get() / self.chunk_frames;
        let start = first
            .saturating_add(index)
            .saturating_mul(self.chunk_frames);
        let end = start.saturating_add(self.chunk_frames);
        FrameRange::new(start, end)
            .unwrap_or_default()
            .intersect(frames)
    }

    /// The chunk that `frame`, one of `frames`, lies in.
    pub fn index_of(&self, frames: FrameRange, frame: Frame) -> u64 {
        frame.get() / self.chunk_frames - frames.start().get() / self.chunk_frames
    }
}
