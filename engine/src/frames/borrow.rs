//! Free memory that a worker borrows to change what is known of it: [`Frames::borrow_free`].
//!
//! *Hidden, not gone.* What is borrowed can't be allocated for a while, and counts as in work: the
//! water marks see it as free, and a request that finds nothing searches again, as beside any call
//! that may give something back, before its error says how much is in work.

use core::fmt;

use super::find::Frames;
use super::segment::calls::Call;
use super::segment::take::{Miss, Part};
use super::segment::{GiantIndex, HugeIndex, Segment, page_of};
use super::word::geometry::{BITMAP_WORDS, Block, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER};
use super::word::{Content, Giant, GiantState, Huge, Mobility};
use super::zone::segment::ZoneSegment;
use crate::addr::{Frame, FrameRange, Order};
use crate::node::{NodeId, ZoneKind};

/// Where a worker's search through the free memory of a node goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    node: NodeId,
    becomes: Content,
    /// The segment it is in, and the frame there.
    segment: usize,
    next: Frame,
    rounds: u64,
    words: u64,
}

impl Cursor {
    /// From the node's first frame on, for a worker that makes `becomes` of what it finds: it finds
    /// no pages that could not be known as that ([`Frames::borrow_free`]).
    pub const fn new(node: NodeId, becomes: Content) -> Self {
        Self {
            node,
            becomes,
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

/// A free block that a worker has. Dropped, it is free again, and nothing is known of its content.
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
    pub fn back(mut self, content: Content) {
        self.give_back(content);
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
        self.segment.set_borrowed(self.block, None);
        let range = self.range();
        self.block.order = EMPTY;
        range
    }

    fn give_back(&mut self, content: Content) {
        if self.block.order == EMPTY {
            return;
        }
        self.segment.set_borrowed(self.block, None);
        // An error: another call freed what it did not have.
        let given = self.segment.give_with(self.block, content);
        if given.is_ok() && content == Content::Zero && self.content != content {
            self.from.add_made(self.block.frames());
        }
        let frames = self.block.frames().cast_signed();
        if let Some(mut call) = self.call.take() {
            self.segment.calls.count_work(-frames);
            call.undo();
        } else {
            self.frames.nodes.count(self.from, frames);
        }
        self.block.order = EMPTY;
    }
}

/// No order: given back already.
const EMPTY: u8 = 0xff;

impl Drop for Borrowed<'_, '_> {
    fn drop(&mut self) {
        self.give_back(Content::Unknown);
    }
}

impl fmt::Debug for Borrowed<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "borrowed {}", self.range())
    }
}

impl<'m> Frames<'m> {
    /// Borrows a free block of `order` that holds `content`, from the cursor on, for a worker that
    /// zeroes it or reports it to the host. Larger blocks than pages come from any free memory,
    /// which comes together again when they are back.
    ///
    /// Pages are borrowed from huge frames that are broken up already. What is known of the pages
    /// of one huge frame is one content: a huge frame that has pages of another than the cursor's
    /// worker makes is passed over, since nothing could be known of them afterwards.
    ///
    /// Any CPU, and any number of workers with a cursor each. Until it is back the block can be
    /// neither allocated nor claimed by its address, so a worker has few at a time, and not for long.
    ///
    /// # Cost
    /// It looks at `words` words at most, or at those of one block ([`Cursor::words`]), and moves the
    /// cursor behind them. The block that it takes costs what its allocation does.
    ///
    /// ```
    /// # use firstlight::addr::{FrameRange, Order};
    /// # use firstlight::frames::{Content, Cursor, Frames};
    /// /// Zeroes a huge frame; whether there was one among the next 512 words.
    /// fn step(frames: &Frames<'_>, cursor: &mut Cursor, zero: impl Fn(FrameRange)) -> bool {
    ///     let Some(block) = frames.borrow_free(cursor, Order::HUGE, Content::Unknown, 512) else {
    ///         return false;
    ///     };
    ///     zero(block.range());
    ///     block.back(Content::Zero);
    ///     true
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
            order: order.get(),
            content,
            becomes: cursor.becomes,
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

    /// Frames of free huge frames, from the cursor on, by `words` giant frames' words at most.
    pub(crate) fn count_free(&self, cursor: &mut Cursor, words: usize) -> u64 {
        let (node, mut left, mut sum) = (cursor.node, words, 0);
        for (index, from) in self.nodes.segments.of_node_from(node, cursor.segment) {
            let Some(segment) = from.online() else {
                continue;
            };
            cursor.enter(index);
            while cursor.next < segment.frames.end() {
                let giant = segment.giant_of(cursor.next.max(segment.frames.start()));
                let Some(less) = left.checked_sub(1) else {
                    return sum;
                };
                left = less;
                cursor.words += 1;
                let (word, frames) = (segment.giant(giant), segment.giant_frames(giant));
                sum += match word.state {
                    GiantState::Free => frames.count(),
                    GiantState::Split => u64::from(word.free) * u64::from(HUGE_FRAMES),
                    GiantState::Opening | GiantState::Allocated => 0,
                };
                cursor.next = frames.end().min(segment.frames.end());
            }
        }
        cursor.restart();
        sum
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
                segment.set_borrowed(block, Some(cursor.becomes));
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

/// Words of a huge frame whose pages are looked at: its own, its bitmap and its marks.
const PAGE_WORDS: usize = 1 + 2 * BITMAP_WORDS;

/// Words that a search for a block of `order` looks at until it has one, or moves on.
const fn words_of_one(order: u8) -> usize {
    let below = match order {
        GIANT_ORDER => 0,
        HUGE_ORDER.. => 1 << (order - HUGE_ORDER),
        _ => PAGE_WORDS,
    };
    1 + below
}

/// What a worker looks for.
struct Search {
    order: u8,
    content: Content,
    /// What it will be known to hold.
    becomes: Content,
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
        match word.state {
            GiantState::Free if self.order == GIANT_ORDER => self.whole(segment, giant, word, next),
            GiantState::Free if self.order >= HUGE_ORDER && word.may_hold(self.content) => {
                let below = || self.huges(segment, giant, next).ok_or(Miss::Nothing);
                segment.take_below(giant, word, below).ok()
            }
            GiantState::Split if self.order >= HUGE_ORDER && word.may_hold(self.content) => {
                self.huges(segment, giant, next)
            }
            GiantState::Split if self.order < HUGE_ORDER && word.partial != [0; 2] => {
                self.pages(segment, giant, next)
            }
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
            let fits = |bits| Huge::is_free_in(bits) && Huge::content_in(bits) == content;
            let mut huges = segment.huges_of(block);
            if block.range().start() >= inside.start()
                && huges.all(|huge| fits(segment.huge_bits(huge)))
                && take(segment, block, content)
            {
                *next = Frame::new(at);
                return Some(start);
            }
            *next = Frame::new(at);
        }
        None
    }

    /// Pages of split huge frames.
    fn pages(
        &mut self,
        segment: &Segment<'_>,
        giant: GiantIndex,
        next: &mut Frame,
    ) -> Option<Frame> {
        for huge in segment.huges_in(giant) {
            let frames = segment.huge_frames(huge);
            if frames.end() <= *next {
                continue;
            }
            *next = (*next).max(frames.start());
            if !self.may_look(PAGE_WORDS) {
                return None;
            }
            let word = segment.huge(huge);
            // What is known of other pages there.
            let other = word.content.is_known() && word.content != self.becomes;
            let may_become = !(other && self.becomes.is_known());
            let mut from = page_of(*next);
            while word.is_counted()
                && may_become
                && let Some(at) = find_pages(segment, huge, word, from, self.order, self.content)
            {
                let start = frames.start().get() + u64::from(at);
                from = at + (1 << self.order);
                *next = Frame::new(start + (1 << self.order));
                let part = Part::At(at, self.order);
                if segment.take_one(huge, word.mobility.into(), part).is_ok() {
                    return Some(Frame::new(start));
                }
            }
            *next = frames.end();
        }
        None
    }
}

/// Of a huge frame found split as `word`: the first aligned block of free pages from page `from` on
/// that hold `content`, all of them.
fn find_pages(
    segment: &Segment<'_>,
    huge: HugeIndex,
    word: Huge,
    from: u32,
    order: u8,
    content: Content,
) -> Option<u32> {
    let bitmap = segment.bitmap(huge);
    let marks = word.content.is_known().then(|| segment.marks(huge));
    let is_marked = content.is_known();
    if is_marked && word.content != content {
        return None;
    }
    let fits = |at: &u32| {
        let is_free = !bitmap.any_set(*at, order);
        is_free && marks.is_none_or(|marks| marks.is_all(*at, order, is_marked))
    };
    let first = from.next_multiple_of(1 << order);
    (first..HUGE_FRAMES).step_by(1 << order).find(fits)
}

/// Takes one huge frame or more, seen free.
fn take(segment: &Segment<'_>, block: Block, content: Content) -> bool {
    let purpose = Mobility::Unmovable.into();
    if block.order > HUGE_ORDER {
        return segment.take_huges(block, purpose).is_ok();
    }
    let huge = segment.huge_of(block.start);
    let bits = segment.huge_bits(huge);
    Huge::is_free_in(bits)
        && Huge::content_in(bits) == content
        && segment.take_free_huge(huge, bits, purpose).is_ok()
}
