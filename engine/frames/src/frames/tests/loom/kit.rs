//! The small machine of the models, and how they are run.
//!
//! `geometry` shrinks it: a giant frame has 4 huge frames, a huge frame 128 pages. Each
//! frame's content is a cell the checker watches, so a missing Acquire or Release shows as
//! a race on it. After every run the counts are recounted, and a lone call must not see
//! anything change.

extern crate std;

use crate::addr::{Frame, FrameRange};
use crate::frames::request::ZoneChoice;
use crate::frames::search::BlockRequest;
use crate::frames::search::batch::{self, Batch};
use crate::frames::segment::Segment;
use crate::frames::segment::window::Window;
use crate::frames::tests::kit::{first, frames, segments, want};
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_ORDER};
use crate::frames::word::{Content, Known, Mobility};
use crate::frames::zone::Segments;
use crate::frames::zone::give::Local;
use crate::frames::zone::segment::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// First frame after the first giant frame.
pub(crate) const END: u64 = 1 << GIANT_ORDER;
/// Frames of a huge frame.
pub(crate) const HUGE: u64 = 1 << HUGE_ORDER;

/// Segments, and the content of the first page of each word of a bitmap.
pub(crate) struct Machine {
    pub(crate) segments: Segments<'static>,
    content: Vec<(u64, UnsafeCell<u32>)>,
}

// SAFETY: the cells are only touched by the owner of the frame; loom checks that.
unsafe impl Sync for Machine {}

impl Machine {
    /// One giant frame, all of it free but `reserved`.
    pub(crate) fn new(reserved: &[FrameRange]) -> &'static Self {
        Self::over(&[frames(0, END)], reserved)
    }

    /// As many huge frames as these ranges lie in; only they are free. The fewer there are, the
    /// fewer words are read.
    pub(crate) fn with_free(free: &[(u64, u64)]) -> &'static Self {
        let end = free
            .last()
            .map_or(END, |range| range.1.next_multiple_of(HUGE));
        Self::over(&[frames(0, end)], &all_but(free))
    }

    /// A segment for each range, each on a node of its own, all started.
    pub(crate) fn over(extents: &[FrameRange], reserved: &[FrameRange]) -> &'static Self {
        let nodes = extents.iter().zip(0..);
        let extents: Vec<_> = nodes
            .map(|(&frames, node)| (frames, node, ZoneKind::Normal))
            .collect();
        let words = extents.iter().flat_map(|(frames, ..)| {
            let first = frames.start().get().next_multiple_of(64);
            (first..frames.end().get()).step_by(64)
        });
        let machine = Self {
            content: words.map(|page| (page, UnsafeCell::new(0))).collect(),
            segments: segments(&extents, reserved),
        };
        machine
            .segments
            .iter()
            .for_each(|segment| assert!(segment.online().is_some()));
        Box::leak(Box::new(machine))
    }

    /// The only segment, or the first one.
    pub(crate) fn segment(&self) -> &Segment<'static> {
        first(&self.segments)
    }

    /// What an owner does: write to the frames.
    pub(crate) fn touch(&self, range: FrameRange) {
        for (_, cell) in self
            .content
            .iter()
            .filter(|(page, _)| range.contains(Frame::new(*page)))
        {
            // SAFETY: the caller holds the frame; loom fails the test if another CPU does too.
            cell.with_mut(|cell| unsafe { *cell += 1 });
        }
    }

    /// Writes zeros to the frames of an owner.
    pub(crate) fn zero(&self, range: FrameRange) {
        self.each(range, |cell| {
            // SAFETY: as for `touch`.
            cell.with_mut(|cell| unsafe { *cell = 0 });
        });
    }

    /// An owner looks whether its frames hold zeros.
    pub(crate) fn assert_zero(&self, range: FrameRange) {
        self.each(range, |cell| {
            // SAFETY: as for `touch`.
            let seen = cell.with(|cell| unsafe { *cell });
            assert_eq!(seen, 0, "{range} is believed to be zero");
        });
    }

    fn each(&self, range: FrameRange, see: impl Fn(&UnsafeCell<u32>)) {
        let inside = |page: u64| range.contains(Frame::new(page));
        let cells = self.content.iter().filter(|(page, _)| inside(*page));
        cells.for_each(|(_, cell)| see(cell));
    }

    fn touch_all(&self, taken: &[Frame], order: u8) {
        taken
            .iter()
            .for_each(|start| self.touch(block(start.get(), order).range()));
    }

    // ---- Take --------------------------------------------------------------

    /// Takes an unmovable block by as many passes as any request makes.
    pub(crate) fn allocate(&self, order: u8) -> Option<Block> {
        let nodes = core::iter::once(NodeId(0));
        let zones = ZoneChoice::up_to(ZoneKind::Normal);
        let start = self.segments.allocate(nodes, zones, want(order), None)?;
        let found = Block { start, order };
        self.touch(found.range());
        Some(found)
    }

    /// Takes the first `frames` of a block, likewise.
    pub(crate) fn allocate_row(&self, order: u8, frames: u32) -> Option<FrameRange> {
        let nodes = core::iter::once(NodeId(0));
        let zones = ZoneChoice::up_to(ZoneKind::Normal);
        let want = BlockRequest {
            spare: (1 << order) - frames,
            ..want(order)
        };
        let start = self.segments.allocate(nodes, zones, want, None)?;
        let row = FrameRange::of(start, frames.into());
        self.touch(row);
        Some(row)
    }

    /// How many frames an allocation got.
    pub(crate) fn allocate_frames(&self, order: u8) -> u64 {
        self.allocate(order).map_or(0, Block::frames)
    }

    /// Takes a given block.
    pub(crate) fn take_at(&self, block: Block) -> bool {
        let taken = self.segment().take_at(block, Mobility::Unmovable).is_ok();
        if taken {
            self.touch(block.range());
        }
        taken
    }

    /// Takes single pages as a refill does.
    pub(crate) fn take_pages(&self, most: usize) -> Vec<Frame> {
        self.take_batch(0, most, |segment, batch| {
            batch::take_pages(segment, Mobility::Unmovable, &mut 0, batch);
        })
    }

    /// Takes huge frames as a refill does.
    pub(crate) fn take_huges(&self, most: usize) -> Vec<Frame> {
        self.take_batch(HUGE_ORDER, most, |segment, batch| {
            batch::take_huges(segment, Mobility::Unmovable, &mut 0, |_| false, batch);
        })
    }

    fn take_batch(
        &self,
        order: u8,
        most: usize,
        take: impl FnOnce(&Segment<'_>, &mut Batch<'_>),
    ) -> Vec<Frame> {
        let mut taken = std::vec![Frame::new(0); most];
        let mut batch = Batch::new(&mut taken);
        take(self.segment(), &mut batch);
        let count = batch.count();
        taken.truncate(count);
        self.touch_all(&taken, order);
        taken
    }

    /// Takes a block for a request for zeros, zeroes what is not known to be, and finds it zero.
    pub(crate) fn allocate_zeroed(&self, order: u8) -> Option<Block> {
        let known = Known::new(false);
        let nodes = core::iter::once(NodeId(0));
        let zones = ZoneChoice::up_to(ZoneKind::Normal);
        let want = BlockRequest {
            known: Some(&known),
            ..want(order)
        };
        let start = self.segments.allocate(nodes, zones, want, None)?;
        let found = Block { start, order };
        let rest = known.parts(found).filter(|part| part.1 != Content::Zero);
        rest.for_each(|part| self.zero(part.0));
        self.assert_zero(found.range());
        self.touch(found.range());
        Some(found)
    }

    // ---- Give --------------------------------------------------------------

    /// Frees a block that its owner zeroed.
    pub(crate) fn free_zero(&self, block: Block) {
        self.zero(block.range());
        self.segment()
            .give_with(block, Content::Zero)
            .expect("what was allocated can be freed");
    }

    pub(crate) fn free(&self, block: Block) {
        self.free_row(block.range());
    }

    /// Frees frames of one huge frame, or a block.
    pub(crate) fn free_row(&self, row: FrameRange) {
        self.touch(row);
        self.segment()
            .give_part(row)
            .expect("what was allocated can be freed");
    }

    /// Gives back blocks as a flush does; how many were refused.
    pub(crate) fn flush(&self, starts: &[u64], order: u8) -> usize {
        let starts: Vec<_> = starts.iter().copied().map(Frame::new).collect();
        self.touch_all(&starts, order);
        self.flush_untouched(&starts, order)
    }

    /// Frees these blocks as a CPU flushes a list, without writing to them first.
    pub(crate) fn flush_untouched(&self, starts: &[Frame], order: u8) -> usize {
        let segment = self.segment();
        let mut refused = 0;
        let mut bad = |_| refused += 1;
        let window = &Window::around(segment, segment.frames.start());
        let local = &Local { segment, window };
        if order == 0 {
            self.segments.give_pages(starts, local, &mut bad);
        } else {
            self.segments.give_huges(starts, local, &mut bad);
        }
        refused
    }

    /// Gives back pages in a row of one huge frame, as a drain does with a bump block.
    pub(crate) fn flush_run(&self, pages: FrameRange) -> usize {
        self.touch(pages);
        let all: Vec<_> = (pages.start().get()..pages.end().get())
            .map(Frame::new)
            .collect();
        self.flush_untouched(&all, 0)
    }

    // ---- Afterwards ----------------------------------------------------------

    /// Free frames, once all calls returned.
    pub(crate) fn free_frames(&self) -> u64 {
        assert!(self.segments.range_calls.snapshot().is_quiet());
        let online = || self.segments.iter().filter_map(ZoneSegment::online);
        let recount = || -> u64 {
            let free = online().map(|segment| {
                segment.validate().unwrap();
                segment.statistics().free_frames
            });
            free.sum()
        };
        let free = recount();
        // Nothing else is going on: no search may see a change.
        for order in [GIANT_ORDER, HUGE_ORDER + 1, HUGE_ORDER, 0] {
            match self.segment().take_any(order) {
                Ok(start) => self.segment().give(Block { start, order }).unwrap(),
                Err(pass) => assert!(!pass.changed, "order {order}: something changes for ever"),
            }
        }
        assert_eq!(recount(), free);
        free
    }

    /// Free frames, and those of them that are believed to be zero, which are; nothing is taken.
    pub(crate) fn free_and_zero_frames(&self) -> (u64, u64) {
        let segment = self.segment();
        segment.validate().unwrap();
        let free = segment.statistics().free_frames;
        let all = (segment.frames.start().get()..segment.frames.end().get()).map(Frame::new);
        let mut zero = 0;
        for frame in all.filter(|&frame| segment.content_of(frame) == Content::Zero) {
            assert!(!segment.is_allocated(frame), "{frame} is allocated");
            self.assert_zero(frames(frame.get(), frame.get() + 1));
            zero += 1;
        }
        assert_eq!(segment.statistics().zero.frames, zero);
        (free, zero)
    }

    /// How many frames are free; a lone request finds a block of this order.
    pub(crate) fn free_frames_with(&self, order: u8) -> u64 {
        let free = self.free_frames();
        let found = self.allocate(order);
        self.free(found.expect("a block that is free is found"));
        assert_eq!(self.free_frames(), free);
        free
    }

    pub(crate) fn free_giants(&self) -> u64 {
        self.segment().statistics().free_giants
    }

    pub(crate) fn free_huges(&self) -> u64 {
        self.segment().statistics().free_huges
    }
}

pub(crate) fn block(start: u64, order: u8) -> Block {
    Block {
        start: Frame::new(start),
        order,
    }
}

/// All frames of the first giant frame but these ranges.
pub(crate) fn all_but(free: &[(u64, u64)]) -> Vec<FrameRange> {
    let mut reserved = Vec::new();
    let mut from = 0;
    for &(start, end) in free {
        reserved.push(frames(from, start));
        from = end;
    }
    reserved.push(frames(from, END));
    reserved.retain(|range| !range.is_empty());
    reserved
}

// ---- Running -----------------------------------------------------------------

/// Every interleaving of two CPUs in which a CPU that could go on is interrupted at most so
/// often: `FIRSTLIGHT_LOOM_PREEMPTIONS`, else 3.
pub(crate) fn model(test: impl Fn() + Sync + Send + 'static) {
    check(3, test);
}

/// Runs a model of three CPUs: at most 1 preemption, where a model does not set another number.
pub(crate) fn model_of_three(test: impl Fn() + Sync + Send + 'static) {
    check(1, test);
}

/// Runs a model with at most so many preemptions, where the variable says nothing.
pub(crate) fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let wanted = std::env::var("FIRSTLIGHT_LOOM_PREEMPTIONS").ok();
    let wanted = wanted.and_then(|bound| bound.parse().ok());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(wanted.unwrap_or(preemptions));
    builder.max_branches = 100_000;
    builder.check(test);
}

/// Whether models that take long are whole.
fn is_whole() -> bool {
    std::env::var_os("FIRSTLIGHT_LOOM_WHOLE").is_some()
}

/// As [`check`] where `FIRSTLIGHT_LOOM_WHOLE` is set, as each night (`make loom-whole`); else with one preemption fewer,
/// but one at least. For models that take longest.
pub(crate) fn long(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let fewer = preemptions.saturating_sub(1).max(1);
    check(if is_whole() { preemptions } else { fewer }, test);
}

/// A model of three CPUs that takes a minute: where `FIRSTLIGHT_LOOM_WHOLE` is set, else not at all.
pub(crate) fn whole_of_three(test: impl Fn() + Sync + Send + 'static) {
    if is_whole() {
        model_of_three(test);
    }
}

/// Runs two CPUs, neither of them before the other.
pub(crate) fn both<A: 'static, B: 'static>(
    one: impl FnOnce() -> A + 'static,
    other: impl FnOnce() -> B + 'static,
) -> (A, B) {
    let (one, other) = (thread::spawn(one), thread::spawn(other));
    (one.join().unwrap(), other.join().unwrap())
}

/// Runs three CPUs, none of them before the others.
pub(crate) fn three<A: 'static, B: 'static, C: 'static>(
    one: impl FnOnce() -> A + 'static,
    two: impl FnOnce() -> B + 'static,
    three: impl FnOnce() -> C + 'static,
) -> (A, B, C) {
    let (one, two, three) = (thread::spawn(one), thread::spawn(two), thread::spawn(three));
    (
        one.join().unwrap(),
        two.join().unwrap(),
        three.join().unwrap(),
    )
}
