//! What each frame holds, beside what the allocator believes of it.
//!
//! Of each frame: whether it holds zeros; and what it was last said to hold, as far as that was said of its whole huge
//! frame, from which follow the sums of hits and misses. Owners write to what they have, workers and the kernel's hook
//! zero, and a device may or may not bring back zeros.

extern crate std;

use core::mem::take;
use std::boxed::Box;
use std::sync::{Mutex, MutexGuard};
use std::vec::Vec;

use super::machine::Machine;
use super::plain::{HUGE, huge, numbers};
use super::steps::Via;
use super::steps::blocks::Said;
use crate::addr::{Frame, FrameRange};
use crate::frames::tests::kit::frames;
use crate::frames::{AllocError, Content, Cursor, Hooks, Request, Statistics, ZeroedFrames};
use crate::node::NodeId;

pub(super) struct Truth {
    span: FrameRange,
    /// Whether a frame holds zeros.
    zero: Vec<bool>,
    /// What it was said to hold when it became free.
    said: Vec<Content>,
    pub(super) said_zero: u64,
    /// The hook zeroed it for the request in progress.
    zeroed: Vec<FrameRange>,
    /// Whether the kernel zeroes.
    pub(super) zeroes: bool,
}

impl Truth {
    fn index(&self, range: FrameRange) -> core::ops::Range<usize> {
        let at = |frame: Frame| usize::try_from(frame.get() - self.span.start().get()).unwrap();
        at(range.start())..at(range.end())
    }

    pub(super) fn set(&mut self, range: FrameRange, zero: bool) {
        let index = self.index(range);
        self.zero[index].fill(zero);
    }

    pub(super) fn is_zero(&self, range: FrameRange) -> bool {
        self.zero[self.index(range)].iter().all(|&zero| zero)
    }

    fn fill(&mut self, range: FrameRange, content: Content) {
        let index = self.index(range);
        let is_zero = |said: &&mut Content| **said == Content::Zero;
        let zeros = self.said[index.clone()].iter_mut().filter(is_zero);
        self.said_zero -= zeros.count() as u64;
        self.said_zero += u64::from(content == Content::Zero) * range.count();
        self.said[index].fill(content);
    }

    /// It is said to hold this: kept of whole huge frames, and lost of those of which it is a part.
    pub(super) fn say(&mut self, range: FrameRange, content: Content) {
        self.fill(range, content);
        for edge in [range.start().get(), range.end().get() - 1] {
            let huge = huge(edge / HUGE);
            if !range.covers(huge) {
                self.fill(huge.intersect(self.span), Content::Unknown);
            }
        }
    }
}

struct Kernel(Mutex<Truth>);

impl Hooks for Kernel {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        let mut truth = self.0.lock().unwrap();
        if truth.zeroes {
            truth.zeroed.push(range);
            truth.set(range, true);
        }
        truth.zeroes
    }
}

/// The model of a machine's content.
pub(super) struct Contents {
    kernel: &'static Kernel,
    /// Of workers that make each content.
    pub(super) cursors: [Cursor; 3],
    /// Huge frames that zero pages were cut from, and what each held: what the CPU cuts from is among them.
    cut: Vec<(FrameRange, Content)>,
    /// What requests for zeros got, and what was made, as far as the model follows.
    pub(super) sums: ZeroedFrames,
    follows: bool,
    /// Whether reported memory comes back as zeros, and whether the device promises that.
    pub(super) device_zeroes: bool,
    pub(super) promised: bool,
}

impl Contents {
    /// Of frames that all hold this, as is said of them.
    pub(super) fn new(span: FrameRange, content: Content, device_zeroes: bool) -> Self {
        let count = usize::try_from(span.count()).unwrap();
        let is_zero = content == Content::Zero;
        let truth = Truth {
            span,
            zero: std::vec![is_zero; count],
            said: std::vec![content; count],
            said_zero: u64::from(is_zero) * span.count(),
            zeroed: Vec::new(),
            zeroes: true,
        };
        Self {
            kernel: Box::leak(Box::new(Kernel(Mutex::new(truth)))),
            cursors: [(); 3].map(|()| Cursor::new(NodeId(0))),
            cut: Vec::new(),
            sums: ZeroedFrames::default(),
            follows: true,
            device_zeroes,
            promised: false,
        }
    }

    pub(super) fn hooks(&self) -> &'static dyn Hooks {
        self.kernel
    }

    pub(super) fn truth(&self) -> MutexGuard<'static, Truth> {
        self.kernel.0.lock().unwrap()
    }

    /// Frames that a request for zeros need not zero.
    pub(super) fn known(&self, seen: &Statistics) -> u64 {
        seen.zero.frames + u64::from(self.promised) * seen.reported.frames
    }

    /// The CPU has a zero page: what it cut before from the same huge frame is as good.
    fn cut_zero(&mut self, page: FrameRange) {
        let mut truth = self.truth();
        let (at, huge) = (truth.index(page).start, huge(page.start().get() / HUGE));
        let said = truth.said[at];
        if said != Content::Unknown {
            self.cut.retain(|of| of.0 != huge);
            self.cut.push((huge, said));
        } else if let Some(&(_, held)) = self.cut.iter().find(|of| of.0 == huge)
            && truth.zeroed.is_empty()
        {
            truth.fill(page, held);
        }
    }

    /// The owner of new memory looks, and writes. That much was known to be zero before, and is now.
    pub(super) fn receive(
        &mut self,
        range: FrameRange,
        request: Option<(Via, Request)>,
        [before, now]: [u64; 2],
    ) {
        let is_zeroed = |&(_, request): &(Via, Request)| request.is_zeroed();
        let zeroed = request.filter(is_zeroed).map(|(via, _)| via);
        if zeroed.is_some_and(|via| via != Via::Shared) && range.count() == 1 {
            self.cut_zero(range);
        }
        let mut truth = self.truth();
        let (mut sums, by_hook) = (ZeroedFrames::default(), take(&mut truth.zeroed));
        // What was zeroed for it, whatever it was said to hold.
        for part in by_hook {
            assert!(range.covers(part), "{part} was zeroed for nothing");
            truth.say(part, Content::Unknown);
            sums.missed += part.count();
        }
        for said in &truth.said[truth.index(range)] {
            sums.hit += u64::from(*said == Content::Zero);
            sums.reported += u64::from(*said == Content::Reported);
        }
        truth.say(range, Content::Unknown);
        if zeroed.is_some() {
            assert!(truth.is_zero(range), "{range} is not zero");
            self.sums += sums;
        } else {
            assert_eq!(sums.missed, 0, "{range} was zeroed for nothing");
        }
        // Else it may fill lists.
        if zeroed == Some(Via::Shared) {
            // What was known was not zeroed again.
            let more = before - now - (range.count() - sums.missed);
            let is_row = !range.count().is_multiple_of(HUGE);
            assert!(more < 2 * HUGE && (more == 0 || is_row), "{range}");
        }
        for frame in numbers(range).step_by(2) {
            truth.set(frames(frame, frame + 1), false);
        }
    }

    /// A request failed: nothing is known better or worse.
    pub(super) fn refused(
        &mut self,
        error: AllocError,
        request: Request,
        count: u64,
        [before, now]: [&Statistics; 2],
    ) {
        // What of a row the host had brought back, before another part was not zero, is zero. Where that is the model
        // does not know.
        let brought_back = before.reported.frames - now.reported.frames;
        assert_eq!(now.zero.frames, before.zero.frames + brought_back);
        if brought_back > 0 {
            assert!(self.promised && count > 1);
            self.follows = false;
        }
        let truth = self.truth();
        assert!(truth.zeroed.is_empty(), "zeroed for nothing");
        if let AllocError::NotZeroed { request: of } = error {
            assert_eq!((of, truth.zeroes), (request, false));
            let known = self.known(now);
            assert!(count > 1 || known == 0, "one of {known} was not found");
        }
    }

    /// Whether the owner of `range`, which may zero it before it is freed, says that it is zero.
    pub(super) fn is_said(&mut self, range: FrameRange, said: Said) -> bool {
        let mut truth = self.truth();
        if said == Said::Zero {
            truth.set(range, true);
        }
        let is_said = said != Said::Nothing && truth.is_zero(range);
        if is_said {
            truth.say(range, Content::Zero);
            self.sums.made += range.count();
        }
        is_said
    }

    /// A worker makes this of `range`, which it borrowed as `was`; what it says when it gives it back, if all of it is
    /// still free then.
    pub(super) fn become_so(
        &mut self,
        range: FrameRange,
        was: Content,
        becomes: Content,
        is_kept: bool,
    ) -> Content {
        let mut truth = self.truth();
        let is_true = was != Content::Zero || truth.is_zero(range);
        assert!(is_true, "{range} is borrowed as zero");
        let as_zero = becomes == Content::Reported && self.device_zeroes;
        truth.set(range, !is_kept && (as_zero || becomes == Content::Zero));
        let said = if is_kept { Content::Unknown } else { becomes };
        truth.say(range, said);
        if said == Content::Zero && was != Content::Zero {
            self.sums.made += range.count();
        }
        said
    }

    pub(super) fn check(&self, on: &Machine) {
        if self.follows {
            let zones = on.frames.zones();
            let mut sums = ZeroedFrames::default();
            zones.for_each(|zone| sums += zone.zeroed_frames());
            assert_eq!(sums, self.sums);
            // The others were lost when they merged, or a CPU caches them.
            assert!(on.frames.statistics().zero.frames <= self.truth().said_zero);
        }
    }
}
