//! Which descriptors are written when: [`Mode`], [`Part`], and the writing of a
//! part, alone or by many CPUs.
//!
//! Ranges are walked, never frames: a part of a range is the frames below or from
//! the one on which its *node's last zone* leaves the rest to the workers
//! ([`crate::layout::Deferral`]). A zone may lie in several ranges; where a
//! range ends decides nothing.
#![deny(unsafe_code)]

use super::range::DescriptorRange;
use super::{Descriptor, Made, Memmap};
use crate::addr::{Frame, FrameRange, Order};
use crate::layout::SECTION_FRAMES;
use crate::node::NodeId;
use crate::parallel::{self, Job, JobError, Report, WorkRange, Worker, Workers};

/// When descriptors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// All before boot goes on.
    Eager,
    /// Linux's way: low zones and a section or so of each node before boot
    /// goes on, the rest by deferred workers. What is touched before they
    /// come to it is written at once, a whole section at a time.
    Early,
    /// Nothing before boot goes on.
    #[default]
    Lazy,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Early, Self::Lazy];

    /// The name on a command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Early => "early",
            Self::Lazy => "lazy",
        }
    }

    /// What is written before boot goes on.
    pub const fn before_boot(self) -> Option<Part> {
        match self {
            Self::Eager => Some(Part::Whole),
            Self::Early => Some(Part::Early),
            Self::Lazy => None,
        }
    }

    /// What is left to the deferred workers.
    pub const fn behind_boot(self) -> Option<Part> {
        match self {
            Self::Eager => None,
            Self::Early => Some(Part::Deferred),
            Self::Lazy => Some(Part::Whole),
        }
    }
}

/// Some of all descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those Linux writes before the other CPUs run.
    Early,
    /// Those it leaves to workers.
    Deferred,
    /// All.
    Whole,
}

impl Part {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Deferred => "deferred",
            Self::Whole => "whole",
        }
    }

    /// The frames of this part in a range.
    fn of<T: Descriptor>(self, range: &DescriptorRange<'_, T>) -> FrameRange {
        let (early, deferred) = range.early_and_deferred();
        match self {
            Self::Early => early,
            Self::Deferred => deferred,
            Self::Whole => range.segment.frames,
        }
    }
}

impl<T: Descriptor> Memmap<'_, T> {
    /// The frames of a part, one entry for each descriptor range; some may be empty.
    pub fn ranges(&self, part: Part) -> impl Iterator<Item = FrameRange> + '_ {
        self.ranges.iter().map(move |range| part.of(range))
    }

    /// Writes a part on this CPU: all of it is ready when this returns.
    pub fn describe(&self, part: Part) {
        for frames in self.ranges(part) {
            self.make_range_ready(frames);
        }
    }

    /// Makes all sections ready that hold some of `frames`; frames that are no
    /// memory are skipped.
    pub fn make_range_ready(&self, frames: FrameRange) {
        self.make_ready_in(frames, Made::ByWorker);
    }

    fn make_ready_in(&self, frames: FrameRange, made: Made) {
        for range in self.ranges.meeting(frames) {
            let mut left = range.segment.frames.intersect(frames);
            while !left.is_empty() {
                self.make_ready(range, left.start(), made);
                let next = left.start().get() / SECTION_FRAMES * SECTION_FRAMES + SECTION_FRAMES;
                let next = next.min(left.end().get());
                left = FrameRange::new(next, left.end().get()).unwrap_or_default();
            }
        }
    }

    /// Makes the descriptors of all frames of some blocks of one order ready, for code that
    /// reads them without a look: what a kernel's hook calls for the blocks that an
    /// allocation is about to return. Blocks of one section, one after the other, cost one look;
    /// frames that are no memory are skipped.
    ///
    /// As in [`Self::of`], a section that another CPU is writing is waited for.
    pub fn prepare(&self, blocks: &[Frame], order: Order) {
        let mut ready = FrameRange::EMPTY;
        for &block in blocks {
            if !ready.contains(block) {
                ready = self.prepare_block(block, order);
            }
        }
    }

    /// Makes a block ready. Returns where other blocks of its order may begin that are then known
    /// to be ready.
    fn prepare_block(&self, block: Frame, order: Order) -> FrameRange {
        let frames = FrameRange::block(block, order).unwrap_or_default();
        if let Some(range) = self.ranges.find(block) {
            let part = range.part_of(block);
            if part.covers(frames) {
                if !range.is_ready(block) {
                    self.make_ready(range, block, Made::ByTouch);
                }
                let last = part.end().get() - frames.count();
                return FrameRange::new(part.start().get(), last + 1).unwrap_or_default();
            }
        }
        // Larger than a section, or partly no memory.
        self.make_ready_in(frames, Made::ByTouch);
        FrameRange::EMPTY
    }

    /// How many work ranges [`Self::describe_with`] needs.
    pub fn ranges_needed(&self) -> usize {
        self.ranges.iter().count()
    }

    /// Writes a part on the CPUs of `workers`, which `threads` starts. First touches go
    /// on meanwhile; each section is written once.
    ///
    /// `list` needs [`Self::ranges_needed`] slots.
    ///
    /// # Errors
    /// [`JobError`]: a job that is refused or too few slots; nothing was done then.
    pub fn describe_with<W: Workers + ?Sized>(
        &self,
        part: Part,
        job: &Job,
        list: &mut [WorkRange],
        workers: &mut [Worker],
        threads: &W,
    ) -> Result<Report, JobError> {
        self.describe_nodes(part, |_| true, job, list, workers, threads)
    }

    /// Writes a part of some of the nodes only, as [`Self::describe_with`].
    ///
    /// # Errors
    /// As [`Self::describe_with`].
    pub fn describe_nodes<W: Workers + ?Sized>(
        &self,
        part: Part,
        wanted: impl Fn(NodeId) -> bool,
        job: &Job,
        list: &mut [WorkRange],
        workers: &mut [Worker],
        threads: &W,
    ) -> Result<Report, JobError> {
        let ranges = self.ranges.iter();
        let (provided, needed) = (list.len(), ranges.clone().count());
        let list = list
            .get_mut(..needed)
            .ok_or(JobError::TooFewRanges { provided, needed })?;
        for (slot, range) in list.iter_mut().zip(ranges) {
            let node = range.segment.node;
            let frames = if wanted(node) {
                part.of(range)
            } else {
                FrameRange::EMPTY
            };
            *slot = WorkRange::new(node, frames);
        }
        parallel::run(job, list, workers, threads, &|chunk| {
            self.make_range_ready(chunk);
        })
    }

    /// First frame in or after `from` whose descriptor is not written yet, in
    /// steps of sections, then in memory that was added; for diagnosis.
    pub fn first_untouched(&self, from: Frame) -> Option<Frame> {
        let ranges = self.ranges.iter();
        ranges
            .filter(|range| range.segment.frames.end() > from)
            .find_map(|range| {
                let mut frame = from.max(range.segment.frames.start());
                while range.is_ready(frame) {
                    let next = frame.get() / SECTION_FRAMES * SECTION_FRAMES + SECTION_FRAMES;
                    frame = Frame::new(next);
                    if frame >= range.segment.frames.end() {
                        return None;
                    }
                }
                Some(frame)
            })
    }
}
