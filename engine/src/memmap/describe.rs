//! Which descriptors are written when: [`Mode`], [`Part`], and the writing of a
//! part, alone or by many CPUs.
//!
//! Ranges are walked, never frames: a part of a bank is the frames before or
//! from where its *node's last zone* leaves the rest to the workers
//! ([`crate::layout::Deferral`]). A zone may lie in several ranges; where a
//! range ends decides nothing.
#![deny(unsafe_code)]

use super::{Descriptor, Made, Memmap};
use crate::addr::{Frame, FrameRange};
use crate::layout::SECTION_FRAMES;
use crate::node::NodeId;
use crate::parallel::{self, Crew, Job, JobError, Report, Seat, Share};

/// When descriptors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// All before boot goes on.
    Eager,
    /// Linux's way: low zones and a section or so of each node before boot
    /// goes on, the rest by deferred workers. Who needs more before they are
    /// through gets it by touching it, a whole section at a time.
    Early,
    /// Ours: nothing before boot goes on.
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
}

impl<T: Descriptor> Memmap<'_, T> {
    /// The frames of a part, a range for each bank; some may be empty.
    pub fn ranges(&self, part: Part) -> impl Iterator<Item = FrameRange> + '_ {
        self.banks.iter().map(move |bank| {
            let (early, deferred) = bank.early_and_deferred();
            match part {
                Part::Early => early,
                Part::Deferred => deferred,
                Part::Whole => bank.extent.frames,
            }
        })
    }

    /// Writes a part on this CPU: all of it is ready when this returns.
    pub fn describe(&self, part: Part) {
        for frames in self.ranges(part) {
            self.make_range_ready(frames);
        }
    }

    /// Makes all sections ready that hold some of `frames`; frames that are no
    /// memory are passed over.
    pub fn make_range_ready(&self, frames: FrameRange) {
        let after = self
            .banks
            .partition_point(|bank| bank.extent.frames.end() <= frames.start());
        let banks = self.banks.get(after..).unwrap_or_default();
        for bank in banks {
            let mut left = bank.extent.frames.intersect(frames);
            if left.is_empty() {
                break;
            }
            while !left.is_empty() {
                self.make_ready(bank, left.start(), Made::ByWorker);
                let next = left.start().get() / SECTION_FRAMES * SECTION_FRAMES + SECTION_FRAMES;
                let next = next.min(left.end().get());
                left = FrameRange::new(next, left.end().get()).unwrap_or_default();
            }
        }
    }

    /// How many shares [`Self::describe_with`] needs.
    pub fn shares_needed(&self) -> usize {
        self.banks.len()
    }

    /// Writes a part on the CPUs of `crew`. First touches go on meanwhile: a
    /// section is written by whoever comes first.
    ///
    /// `shares` is room for a list, [`Self::shares_needed`] slots; `seats` are
    /// the CPUs that may work.
    ///
    /// # Errors
    /// [`JobError`]: a job that makes no sense or too few shares; nothing was
    /// done then.
    pub fn describe_with<C: Crew + ?Sized>(
        &self,
        part: Part,
        job: &Job,
        shares: &mut [Share],
        seats: &mut [Seat],
        crew: &C,
    ) -> Result<Report, JobError> {
        self.describe_nodes(part, |_| true, job, shares, seats, crew)
    }

    /// The same for some of the nodes only.
    ///
    /// # Errors
    /// As [`Self::describe_with`].
    pub fn describe_nodes<C: Crew + ?Sized>(
        &self,
        part: Part,
        wanted: impl Fn(NodeId) -> bool,
        job: &Job,
        shares: &mut [Share],
        seats: &mut [Seat],
        crew: &C,
    ) -> Result<Report, JobError> {
        let lent = shares.len();
        let shares = shares
            .get_mut(..self.banks.len())
            .ok_or(JobError::TooFewShares {
                lent,
                needed: self.banks.len(),
            })?;
        let ranges = self.banks.iter().zip(self.ranges(part));
        for (share, (bank, frames)) in shares.iter_mut().zip(ranges) {
            let node = bank.extent.node;
            let frames = if wanted(node) {
                frames
            } else {
                FrameRange::EMPTY
            };
            *share = Share::new(node, frames);
        }
        parallel::run(job, shares, seats, crew, &|chunk| {
            self.make_range_ready(chunk);
        })
    }

    /// First frame in or after `from` whose descriptor is not written yet, in
    /// steps of sections; for diagnosis.
    pub fn first_untouched(&self, from: Frame) -> Option<Frame> {
        let banks = self.banks.iter();
        banks
            .filter(|bank| bank.extent.frames.end() > from)
            .find_map(|bank| {
                let mut frame = from.max(bank.extent.frames.start());
                while bank.is_ready(frame) {
                    let next = frame.get() / SECTION_FRAMES * SECTION_FRAMES + SECTION_FRAMES;
                    frame = Frame::new(next);
                    if frame >= bank.extent.frames.end() {
                        return None;
                    }
                }
                Some(frame)
            })
    }
}
