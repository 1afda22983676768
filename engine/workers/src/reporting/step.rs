//! One bounded step of reporting: [`Reporter::step`].

use super::knobs::Settings;
use super::{Host, HostError, Knob, Knobs, MOST_RANGES};
use crate::addr::{FrameRange, Order, PAGE_BYTES};
use crate::background::Next;
use crate::background::knobs::KnobError;
use crate::frames::{Borrowed, Content, Cursor, Frames};
use crate::node::NodeId;

/// What was reported up to now; sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that the host took.
    pub reported_bytes: u64,
    /// Reports that it answered.
    pub reports: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Reports that failed.
    pub failures: u64,
    /// Frames of a failed report that the device has not let go of: unavailable until it does.
    pub unreleased_frames: u64,
    /// Frames of blocks of which another call freed some while they were in a report.
    pub freed_twice_frames: u64,
    /// Words of the allocator's tables that it looked at.
    pub words: u64,
}

/// Reports free memory of unknown content to a host, pass by pass.
///
/// Memory known to be zero is not reported: it is a stock that somebody keeps, or the host has
/// never had to provide it.
///
/// Dropped while a device that failed may still drop frames of its last report, it leaves those
/// allocated ([`Reporter::unreleased`] lists them): a kernel frees them once the device was reset.
pub struct Reporter<'f, 'm, H: Host> {
    frames: &'f Frames<'m>,
    host: &'f H,
    settings: Settings,
    statistics: Statistics,
    /// Why the last report failed.
    failure: Option<HostError>,
    /// What a device may still drop.
    unreleased: Blocks<'f, 'm>,
    pass: Pass,
    begin_ns: u64,
}

/// The blocks of a report. What is left here when it is dropped, because the host's code panicked or
/// the device is dead, a device may still drop: those frames stay allocated.
struct Blocks<'f, 'm>([Option<Borrowed<'f, 'm>>; MOST_RANGES]);

impl<'f, 'm> Blocks<'f, 'm> {
    const NONE: Self = Self([const { None }; MOST_RANGES]);

    fn iter(&self) -> impl Iterator<Item = &Borrowed<'f, 'm>> {
        self.0.iter().flatten()
    }

    /// They are free again, and hold this; frames of those that another call freed meanwhile.
    fn back(&mut self, content: Content) -> u64 {
        let blocks = self.0.iter_mut().filter_map(Option::take);
        let give = |block: Borrowed<'_, '_>| {
            let frames = block.range().count();
            block.back(content).map_or(frames, |()| 0)
        };
        blocks.map(give).sum()
    }

    fn frames(&self) -> u64 {
        self.iter().map(|block| block.range().count()).sum()
    }
}

impl Drop for Blocks<'_, '_> {
    fn drop(&mut self) {
        for block in self.0.iter_mut().filter_map(Option::take) {
            block.leak();
        }
    }
}

impl<H: Host> Drop for Reporter<'_, '_, H> {
    fn drop(&mut self) {
        self.release();
    }
}

/// How far a pass is.
#[derive(Debug)]
struct Pass {
    cursor: Cursor,
    /// Nodes that are done.
    nodes: usize,
    /// What is free, as far as it was counted, of huge frames, what is reported already included.
    free_frames: u64,
    /// Bytes that it may still report, once all was counted.
    left_bytes: Option<u64>,
    /// Words that it looked at.
    words: u64,
    is_over: bool,
}

impl<H: Host> core::fmt::Debug for Reporter<'_, '_, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reporter")
            .field("knobs", &self.settings.get())
            .field("statistics", &self.statistics)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl<'f, 'm, H: Host> Reporter<'f, 'm, H> {
    /// Of `frames` to `host`; switched off until [`Knob::Enabled`] is set.
    pub fn new(frames: &'f Frames<'m>, host: &'f H) -> Self {
        Self {
            frames,
            host,
            settings: Settings::new(),
            statistics: Statistics::default(),
            failure: None,
            unreleased: Blocks::NONE,
            pass: Pass::over(),
            begin_ns: 0,
        }
    }

    /// Changes a knob: the next step has it. Switching on forgets a failure.
    ///
    /// # Errors
    /// [`KnobError`]: the knob does not accept the value, and keeps its own.
    pub fn set(&mut self, knob: Knob, value: u64) -> Result<(), KnobError> {
        self.settings.set(knob, value)?;
        let knobs = self.settings.get();
        if knob == Knob::Enabled && knobs.enabled {
            self.failure = None;
        }
        if knob == Knob::ReadsZero {
            self.frames.set_reported_is_zero(knobs.reads_zero);
        }
        Ok(())
    }

    /// The knobs now.
    pub fn knobs(&self) -> Knobs {
        self.settings.get()
    }

    /// What it did up to now.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Why it switched itself off.
    pub fn failure(&self) -> Option<HostError> {
        self.failure
    }

    /// Frames of the last report that a device which failed may still drop, one range for each of
    /// its blocks: allocated until a step, or the end of this reporter, finds the device reset.
    pub fn unreleased(&self) -> impl Iterator<Item = FrameRange> {
        self.unreleased.iter().map(Borrowed::range)
    }

    /// Looks for free memory, and reports what it finds, one report. Between passes it does nothing.
    /// `now_ns` is any clock that does not go back.
    ///
    /// What is in the report is hidden from allocation until the host has answered. A report that
    /// fails switches reporting off: the blocks are free again, of unknown content.
    ///
    /// # Cost
    /// It looks at [`Knob::StepWords`] words of the allocator's tables at most, and at those of one
    /// block more ([`Frames::borrow_free`]); [`Statistics::words`] has the sum. A pass begins with a
    /// count of what is free, a word for each GiB, in as many steps as that takes.
    pub fn step(&mut self, now_ns: u64) -> Next {
        let knobs = self.settings.get();
        let delay_ns = knobs.delay_ms.saturating_mul(1_000_000);
        let later = Next::At(now_ns.saturating_add(delay_ns));
        self.release();
        if !knobs.enabled || self.statistics.unreleased_frames > 0 {
            self.pass = Pass::over();
            return later;
        }
        if self.pass.is_over {
            if now_ns < self.begin_ns {
                return Next::At(self.begin_ns);
            }
            self.pass = Pass::new();
        }
        let begin = self.pass.words;
        let end = begin.saturating_add(knobs.step_words);
        let is_counted = self.pass.count(self.frames, &knobs, end);
        let blocks = if is_counted {
            self.collect(&knobs, end)
        } else {
            Blocks::NONE
        };
        self.statistics.words += self.pass.words - begin;
        if !self.report(blocks) {
            return later;
        }
        if self.pass.is_over {
            self.statistics.passes += 1;
            self.begin_ns = now_ns.saturating_add(delay_ns);
            return later;
        }
        Next::Now
    }

    /// Borrows the blocks of one report.
    fn collect(&mut self, knobs: &Knobs, end: u64) -> Blocks<'f, 'm> {
        let most = knobs.batch_blocks.min(self.host.capacity());
        let mut blocks = Blocks::NONE;
        for block in blocks.0.iter_mut().take(most.max(1)) {
            *block = self.pass.next(self.frames, knobs.order, end);
            if block.is_none() {
                break;
            }
        }
        blocks
    }

    /// Whether the host took them, if there are any.
    #[expect(unsafe_code, reason = "the content of what is reported is lost")]
    fn report(&mut self, mut blocks: Blocks<'f, 'm>) -> bool {
        let mut ranges = [FrameRange::EMPTY; MOST_RANGES];
        let count = joined(&blocks, &mut ranges);
        let ranges = &ranges[..count];
        if ranges.is_empty() {
            return true;
        }
        let frames = blocks.frames();
        // SAFETY: they were free, and are borrowed until the host has answered.
        match unsafe { self.host.report(ranges) } {
            Ok(()) => {
                self.statistics.freed_twice_frames += blocks.back(Content::Reported);
                self.statistics.reports += 1;
                self.statistics.reported_bytes += frames * PAGE_BYTES;
                true
            }
            Err(failure) => {
                if let HostError::Unreleased { .. } = failure {
                    let blocks_of_it = blocks.0.iter_mut().flatten();
                    blocks_of_it.for_each(Borrowed::hold);
                    self.statistics.unreleased_frames = frames;
                    self.unreleased = blocks;
                } else {
                    self.statistics.freed_twice_frames += blocks.back(Content::Unknown);
                }
                self.fail(failure);
                false
            }
        }
    }

    fn fail(&mut self, failure: HostError) {
        self.failure = Some(failure);
        self.statistics.failures += 1;
        self.pass = Pass::over();
        // In range.
        let _ = self.settings.set(Knob::Enabled, 0);
    }

    /// Blocks of a failed report are free again once the device let go of them.
    fn release(&mut self) {
        if self.statistics.unreleased_frames > 0 && self.host.is_released() {
            self.statistics.freed_twice_frames += self.unreleased.back(Content::Unknown);
            self.statistics.unreleased_frames = 0;
        }
    }
}

impl Pass {
    const fn over() -> Self {
        Self {
            is_over: true,
            ..Self::new()
        }
    }

    const fn new() -> Self {
        Self {
            cursor: Cursor::new(NodeId(0)),
            nodes: 0,
            free_frames: 0,
            left_bytes: None,
            words: 0,
            is_over: false,
        }
    }

    /// On to the next node; whether there is one.
    fn next_node(&mut self, frames: &Frames<'_>) -> bool {
        self.nodes += 1;
        let node = frames.fallback(NodeId(0)).nth(self.nodes);
        if let Some(node) = node {
            self.cursor = Cursor::new(node);
        }
        node.is_some()
    }

    /// Counts what is free, unless it looked at `end` words since its beginning; whether all was
    /// counted.
    fn count(&mut self, frames: &Frames<'_>, knobs: &Knobs, end: u64) -> bool {
        while self.left_bytes.is_none() {
            let left = end.saturating_sub(self.words);
            if left == 0 {
                return false;
            }
            let (rounds, before) = (self.cursor.rounds(), self.cursor.words());
            let words = usize::try_from(left).unwrap_or(usize::MAX);
            self.free_frames += self.cursor.count_free(frames, words);
            self.words += self.cursor.words() - before;
            if self.cursor.rounds() != rounds && !self.next_node(frames) {
                self.left_bytes = Some(knobs.budget_bytes(self.free_frames * PAGE_BYTES));
                self.cursor = Cursor::new(NodeId(0));
                self.nodes = 0;
            }
        }
        true
    }

    /// The next block, node by node, unless it looked at `end` words since its beginning.
    fn next<'f, 'm>(
        &mut self,
        frames: &'f Frames<'m>,
        order: Order,
        end: u64,
    ) -> Option<Borrowed<'f, 'm>> {
        while let Some(left_bytes) = self.left_bytes
            && !self.is_over
            && left_bytes >= order.bytes()
        {
            let left = end.saturating_sub(self.words);
            if left == 0 {
                return None;
            }
            let (rounds, before) = (self.cursor.rounds(), self.cursor.words());
            let words = usize::try_from(left).unwrap_or(usize::MAX);
            let found = frames.borrow_free(&mut self.cursor, order, Content::Unknown, words);
            self.words += self.cursor.words() - before;
            if found.is_some() {
                self.left_bytes = Some(left_bytes - order.bytes());
                return found;
            }
            if self.cursor.rounds() == rounds {
                return None;
            }
            if !self.next_node(frames) {
                break;
            }
        }
        self.is_over = true;
        None
    }
}

/// The ranges of blocks, neighbours in one; how many ranges.
fn joined(blocks: &Blocks<'_, '_>, ranges: &mut [FrameRange; MOST_RANGES]) -> usize {
    let mut count = 0usize;
    for range in blocks.iter().map(Borrowed::range) {
        let last = count.checked_sub(1).and_then(|last| ranges.get_mut(last));
        let joined = last.filter(|last| last.end() == range.start());
        if let Some(last) = joined {
            *last = FrameRange::new(last.start().get(), range.end().get()).unwrap_or(range);
        } else if let Some(next) = ranges.get_mut(count) {
            *next = range;
            count += 1;
        }
    }
    count
}
