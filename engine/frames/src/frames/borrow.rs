//! Free memory that a worker borrows to change what is known of it: [`Frames::borrow_free`].
//!
//! *Hidden, not gone.* What is borrowed can't be allocated for a while, and counts as in work: the
//! water marks see it as free, and a request that finds nothing searches again, as beside any call
//! that may give something back, before its error says how much is in work. To the tables it is
//! allocated as any block is: another call that frees it is wrong, and the worker is told when it gives it back.

use core::fmt;

use super::error::BlockError;
use super::find::Frames;
use super::segment::calls::Call;
use super::segment::give::Refused;
use super::segment::take::Miss;
use super::segment::{GiantIndex, Segment};
use super::word::geometry::{Block, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::word::{Content, Giant, GiantState, Huge, Mobility};
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, Order};
use crate::node::{NodeId, ZoneKind};

/// Where a worker's search through the free memory of a node goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    node: NodeId,
    /// The segment it is in, and the frame there.
    segment: usize,
    next: Frame,
    rounds: u64,
    words: u64,
}

impl Cursor {
    /// From the node's first frame on.
    pub const fn new(node: NodeId) -> Self {
        Self {
            node,
            segment: 0,
            next: Frame::new(0),
            rounds: 0,
            words: 0,
        }
    }

    /// The node.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// How often it came to the end of the node's memory. The search that did found nothing; the
    /// next one begins at the first frame again.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Words of the allocator's tables that its searches looked at up to now.
    pub const fn words(&self) -> u64 {
        self.words
    }

    /// Frames of free huge frames, from the cursor on, by `words` giant frames' words at most.
    pub fn count_free(&mut self, frames: &Frames<'_>, words: usize) -> u64 {
        let (node, mut left, mut sum) = (self.node, words, 0);
        for (index, from) in frames.nodes.segments.of_node_from(node, self.segment) {
            let Some(segment) = from.online() else {
                continue;
            };
            self.enter(index);
            while self.next < segment.frames.end() {
                let giant = segment.giant_of(self.next.max(segment.frames.start()));
                let Some(less) = left.checked_sub(1) else {
                    return sum;
                };
                left = less;
                self.words += 1;
                let (word, giant) = (segment.giant(giant), segment.giant_frames(giant));
                sum += match word.state() {
                    GiantState::Free => giant.count(),
                    GiantState::Split => u64::from(word.free()) * u64::from(HUGE_FRAMES),
                    GiantState::Opening | GiantState::Allocated => 0,
                };
                self.next = giant.end().min(segment.frames.end());
            }
        }
        self.restart();
        sum
    }

    fn restart(&mut self) {
        (self.segment, self.next) = (0, Frame::new(0));
        self.rounds += 1;
    }

    /// Goes on in this segment, from its first frame on unless it is there already.
    fn enter(&mut self, segment: usize) {
        if self.segment != segment {
            self.segment = segment;
            self.next = Frame::new(0);
        }
    }
}

/// A free block that a worker has. Dropped, it is free again, and nothing is known of its content;
/// that another call freed it meanwhile only [`Borrowed::back`] says.
#[must_use = "dropping it drops what is known of it"]
pub struct Borrowed<'f, 'm> {
    frames: &'f Frames<'m>,
    from: &'f ZoneSegment<'m>,
    segment: &'f Segment<'m>,
    block: Block,
    /// What it held.
    content: Content,
    /// As long as it counts as in work, not as allocated.
    call: Option<Call<'f>>,
}

impl Borrowed<'_, '_> {
    /// The frames.
    pub fn range(&self) -> FrameRange {
        self.block.range()
    }

    /// Their node.
    pub fn node(&self) -> NodeId {
        self.from.node()
    }

    /// Their zone.
    pub fn zone(&self) -> ZoneKind {
        self.from.zone()
    }

    /// They are free again, and hold this now.
    ///
    /// # Errors
    /// [`BlockError::FreedTwice`]: a call freed some of them that did not have them. What is
    /// allocated of them still stays so for ever, or is its next owner's. If all that was freed has
    /// an owner again there is no error: the tables do not tell whose it is, and it is free beneath its owner.
    pub fn back(mut self, content: Content) -> Result<(), BlockError> {
        self.give_back(content)
    }

    /// They count as allocated from now on, for water marks and errors too: for what takes longer
    /// than a step. They come back as before.
    pub fn hold(&mut self) {
        if self.call.take().is_some() {
            let frames = self.block.frames().cast_signed();
            self.segment.calls.count_work(-frames);
            self.frames.nodes.count(self.from, -frames);
        }
    }

    /// They are allocated for good, and the caller's to free, as any others: for memory that can't
    /// be given back now, because a device may still write to it.
    pub fn leak(mut self) -> FrameRange {
        self.hold();
        let range = self.range();
        self.block.order = EMPTY;
        range
    }

    fn give_back(&mut self, content: Content) -> Result<(), BlockError> {
        if self.block.order == EMPTY {
            return Ok(());
        }
        let block = self.block;
        self.block.order = EMPTY;
        let result = self.segment.give_with(block, content);
        let given = match result {
            Ok(()) => block.frames(),
            Err(Refused { given_frames, .. }) => given_frames,
        };
        if content == Content::Zero && self.content != content {
            self.from.add_made(given);
        }
        let (given, frames) = (given.cast_signed(), block.frames().cast_signed());
        if let Some(mut call) = self.call.take() {
            self.segment.calls.count_work(-frames);
            // Counted as free all along.
            self.frames.nodes.count(self.from, given - frames);
            call.undo();
        } else {
            self.frames.nodes.count(self.from, given);
        }
        result.map_err(|_| BlockError::FreedTwice {
            frame: block.start,
            order: Order::new(block.order).unwrap_or_default(),
        })
    }
}

/// No order: given back already.
const EMPTY: u8 = 0xff;

impl Drop for Borrowed<'_, '_> {
    fn drop(&mut self) {
        // An error: another call freed what it did not have.
        let _ = self.give_back(Content::Unknown);
    }
}

impl fmt::Debug for Borrowed<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "borrowed {}", self.range())
    }
}

impl<'m> Frames<'m> {
    /// Borrows a free block of `order` that holds `content`, from the cursor on, for a worker that
    /// zeroes it or reports it to the host. An order below a huge frame counts as one: of pages
    /// nothing is known.
    ///
    /// Any CPU, and any number of workers with a cursor each. Until it is back the block can be
    /// neither allocated nor claimed by its address, so a worker has few at a time, and not for long.
    ///
    /// # Cost
    /// It looks at `words` words at most, or at those of one block ([`Cursor::words`]), and moves the
    /// cursor behind them. The block that it takes costs what its allocation does.
    ///
    /// ```
    /// # use firstlight_frames::addr::{FrameRange, Order};
    /// # use firstlight_frames::frames::{Content, Cursor, Frames};
    /// /// Zeroes a huge frame; whether there was one among the next 512 words.
    /// fn step(frames: &Frames<'_>, cursor: &mut Cursor, zero: impl Fn(FrameRange)) -> bool {
    ///     let Some(block) = frames.borrow_free(cursor, Order::HUGE, Content::Unknown, 512) else {
    ///         return false;
    ///     };
    ///     zero(block.range());
    ///     block.back(Content::Zero).is_ok()
    /// }
    /// ```
    pub fn borrow_free(
        &self,
        cursor: &mut Cursor,
        order: Order,
        content: Content,
        words: usize,
    ) -> Option<Borrowed<'_, 'm>> {
        let mut search = Search {
            order: order.get().max(HUGE_ORDER),
            content,
            // Fewer would find no such block, and not move the cursor.
            left: words.max(words_of_one(order.get())),
            looked: 0,
        };
        let found = self.search_free(cursor, &mut search);
        cursor.words += search.looked as u64;
        if found.is_none() && search.left > 0 {
            cursor.restart();
        }
        found
    }

    /// What [`Frames::borrow_free`] finds; `None` with words left at the end of the node's memory.
    fn search_free(&self, cursor: &mut Cursor, search: &mut Search) -> Option<Borrowed<'_, 'm>> {
        let node = cursor.node;
        for (index, from) in self.nodes.segments.of_node_from(node, cursor.segment) {
            cursor.enter(index);
            let frames = from.frames();
            if frames.end() <= cursor.next {
                continue;
            }
            let Some(segment) = from.online() else {
                continue;
            };
            // Counted as in flight while it has it, and while it opens something to look for it.
            let call = segment.calls.begin();
            cursor.next = cursor.next.max(frames.start());
            if let Some(start) = search.segment(segment, &mut cursor.next) {
                let block = Block {
                    start,
                    order: search.order,
                };
                segment.calls.count_work(block.frames().cast_signed());
                return Some(Borrowed {
                    frames: self,
                    from,
                    segment,
                    block,
                    content: search.content,
                    call: Some(call),
                });
            }
            if search.left == 0 {
                return None;
            }
        }
        None
    }
}

/// Words that a search for a block of `order` looks at until it has one, or moves on.
const fn words_of_one(order: u8) -> usize {
    let below = match order {
        GIANT_ORDER => 0,
        HUGE_ORDER.. => 1 << (order - HUGE_ORDER),
        _ => 1,
    };
    1 + below
}

/// What a worker looks for.
struct Search {
    order: u8,
    content: Content,
    /// Words that it may look at.
    left: usize,
    /// Those that it looked at.
    looked: usize,
}

impl Search {
    /// Whether it may look at so many words more; else it may look at none.
    fn may_look(&mut self, words: usize) -> bool {
        let left = self.left.checked_sub(words);
        if left.is_some() {
            self.looked += words;
        }
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes the first block from `next` on, which moves behind what was looked at.
    fn segment(&mut self, segment: &Segment<'_>, next: &mut Frame) -> Option<Frame> {
        for giant in segment.giant_of(*next)..segment.giant_count() {
            let frames = segment.giant_frames(giant);
            *next = (*next).max(frames.start());
            if !self.may_look(1) {
                return None;
            }
            let found = self.giant(segment, giant, next);
            if found.is_some() || self.left == 0 {
                return found;
            }
            // The rest of the giant frame may be the next segment's.
            *next = frames.end().min(segment.frames.end());
        }
        None
    }

    fn giant(
        &mut self,
        segment: &Segment<'_>,
        giant: GiantIndex,
        next: &mut Frame,
    ) -> Option<Frame> {
        let word = segment.giant(giant);
        match word.state() {
            GiantState::Free if self.order == GIANT_ORDER => self.whole(segment, giant, word, next),
            GiantState::Free if word.may_hold(self.content) => {
                let below = || self.huges(segment, giant, next).ok_or(Miss::Nothing);
                segment.take_below(giant, word, below).ok()
            }
            GiantState::Split if word.may_hold(self.content) => self.huges(segment, giant, next),
            _ => None,
        }
    }

    /// A giant frame all of which holds it.
    fn whole(
        &self,
        segment: &Segment<'_>,
        giant: GiantIndex,
        word: Giant,
        next: &mut Frame,
    ) -> Option<Frame> {
        let purpose = Mobility::Unmovable.into();
        if word.content() != Some(self.content) || !segment.take_giant(giant, word, purpose) {
            return None;
        }
        let frames = segment.giant_frames(giant);
        *next = frames.end();
        Some(frames.start())
    }

    /// Huge frames of a split giant frame.
    fn huges(
        &mut self,
        segment: &Segment<'_>,
        giant: GiantIndex,
        next: &mut Frame,
    ) -> Option<Frame> {
        let order = self.order;
        let inside = segment.giant_frames(giant).intersect(segment.frames);
        let mut at = next.get().next_multiple_of(1 << order);
        while at + (1 << order) <= inside.end().get() {
            let start = Frame::new(at);
            let block = Block { start, order };
            *next = start;
            if !self.may_look(block.huges() as usize) {
                return None;
            }
            at += block.frames();
            let content = self.content;
            let fits = |word: Huge| word.is_free() && word.content() == content;
            let mut huges = segment.huges_of(block);
            if block.range().start() >= inside.start()
                && huges.all(|huge| fits(segment.huge(huge)))
                && take(segment, block, content)
            {
                *next = Frame::new(at);
                return Some(start);
            }
            *next = Frame::new(at);
        }
        None
    }
}

/// Takes one huge frame or more, seen free.
fn take(segment: &Segment<'_>, block: Block, content: Content) -> bool {
    let purpose = Mobility::Unmovable.into();
    if block.order > HUGE_ORDER {
        return segment.take_huges(block, purpose).is_ok();
    }
    let huge = segment.huge_of(block.start);
    let word = segment.huge(huge);
    word.is_free()
        && word.content() == content
        && segment.take_free_huge(huge, word, purpose).is_ok()
}
