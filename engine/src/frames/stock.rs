//! What a CPU keeps in memory that it is lent, and how it goes back: [`Magazines`],
//! [`Stock`], [`Given`].

use super::Frames;
use super::error::BlockError;
use super::geometry::{HUGE_FRAMES, HUGE_ORDER};
use super::magazine::{Area, Magazine};
use super::segment::Segment;
use crate::addr::{Frame, FrameRange, Order};

/// Pages in a magazine, at most.
const PAGES: usize = 512;
/// Blocks of a larger order in a magazine, at most.
const BLOCKS: usize = 16;
/// Frames in a magazine of blocks below a huge frame, at most; or two blocks.
const BLOCK_FRAMES: usize = 256;
/// A magazine holds at most one in so many frames of the zone it is filled from, divided by all
/// slots;
const SHARE: u64 = 128;
/// or two blocks, so that pairs stay here, where these are at most one in so many.
const SHARE_OF_TWO: u64 = 32;

/// Room for what one CPU keeps for itself, lent to [`Frames::cpu`]: 10,880 bytes.
///
/// That is too much for a kernel's stack, so it lies where it stays: in a `static`, in
/// per-CPU data, in memory that the allocator gave. An empty one is all zero: a `static`
/// costs nothing in the kernel's image, and zeroed memory of its size and alignment is one.
///
/// What is in it belongs to the [`Cpu`](super::Cpu) it is lent to, which empties it when it
/// goes. The next one begins with none, even if the one before went without giving back
/// (`core::mem::forget`): its frames stay allocated then.
///
/// ```
/// use std::sync::Mutex;
///
/// use firstlight::addr::Order;
/// use firstlight::frames::{Frames, Magazines, Request};
///
/// static OF_THE_FIRST_CPU: Mutex<Magazines> = Mutex::new(Magazines::new());
///
/// fn some_pages(frames: &Frames<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let mut magazines = OF_THE_FIRST_CPU.lock()?;
///     let mut cpu = frames.cpu(0, Default::default(), &mut magazines)?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.close()?;
///     Ok(())
/// }
/// ```
// CPUs that lie side by side share no cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Magazines {
    pub(super) stocks: [Stock; 2],
}

impl Magazines {
    /// Empty ones.
    pub const fn new() -> Self {
        Self {
            stocks: [const { Stock::new() }; 2],
        }
    }
}

impl Default for Magazines {
    fn default() -> Self {
        Self::new()
    }
}

/// What a CPU keeps of one mobility.
#[derive(Debug)]
pub(super) struct Stock {
    pub(super) pages: Magazine<PAGES>,
    /// Of orders 1 to [`HUGE_ORDER`].
    pub(super) blocks: [Magazine<BLOCKS>; HUGE_ORDER as usize],
    pub(super) area: Area,
}

impl Stock {
    const fn new() -> Self {
        Self {
            pages: Magazine::new(),
            blocks: [const { Magazine::new() }; HUGE_ORDER as usize],
            area: Area::EMPTY,
        }
    }

    /// Empties it, whatever was in it; each magazine may hold one in so many of `frames`,
    /// or two blocks.
    /// Says whether these are enough that a huge frame may be kept to cut pages from.
    pub(super) fn reset(&mut self, frames: u64) -> bool {
        let share = frames / SHARE;
        let most = |order: usize| {
            let two = if (2 << order) * SHARE_OF_TWO <= frames {
                2
            } else {
                0
            };
            usize::try_from(share >> order).map_or(usize::MAX, |most| most.max(two))
        };
        self.pages.reset(most(0));
        for (order, blocks) in (1..).zip(&mut self.blocks) {
            let few = if order == HUGE_ORDER.into() {
                BLOCKS
            } else {
                (BLOCK_FRAMES >> order).max(2)
            };
            blocks.reset(most(order).min(few));
        }
        self.area = Area::EMPTY;
        share > 2 * u64::from(HUGE_FRAMES)
    }

    /// The magazine of an order from 1 to [`HUGE_ORDER`].
    #[inline]
    pub(super) fn blocks_of(&mut self, order: Order) -> Option<&mut Magazine<BLOCKS>> {
        let index = usize::from(order.get()).checked_sub(1)?;
        self.blocks.get_mut(index)
    }

    /// The magazine of huge frames.
    pub(super) fn huges(&mut self) -> &mut Magazine<BLOCKS> {
        let [.., huges] = &mut self.blocks;
        huges
    }

    /// Puts a block of an order up to [`HUGE_ORDER`] into its magazine; `false` if that is full.
    #[inline]
    pub(super) fn push(&mut self, block: Frame, order: Order) -> bool {
        match self.blocks_of(order) {
            Some(blocks) => blocks.push(block),
            None => self.pages.push(block),
        }
    }

    /// A full magazine gives back its older half and takes one block more. Says how many
    /// frames more it holds.
    pub(super) fn spill(&mut self, block: Frame, order: Order, given: &mut Given<'_, '_>) -> i32 {
        fn into<const N: usize>(
            magazine: &mut Magazine<N>,
            block: Frame,
            order: Order,
            given: &mut Given<'_, '_>,
        ) -> i32 {
            let before = magazine.len();
            magazine.take_oldest(|old| given.give(order, old));
            if !magazine.push(block) {
                given.give(order, &[block]);
            }
            (magazine.len() - before) * frames_of(order)
        }
        match self.blocks_of(order) {
            Some(blocks) => into(blocks, block, order, given),
            None => into(&mut self.pages, block, order, given),
        }
    }

    /// Gives back all there is.
    pub(super) fn give_all(&mut self, given: &mut Given<'_, '_>) {
        while self.pages.len() > 0 {
            self.pages.take_oldest(|old| given.give(Order::PAGE, old));
        }
        for (order, blocks) in (1..).filter_map(Order::new).zip(&mut self.blocks) {
            while blocks.len() > 0 {
                blocks.take_oldest(|old| given.give(order, old));
            }
        }
        given.give_area(self.area.take());
    }
}

/// Frames of a block that a magazine may hold.
#[inline]
pub(super) const fn frames_of(order: Order) -> i32 {
    1 << order.get()
}

/// What magazines give back: how many frames became free, and the first that was free
/// before.
#[derive(Debug)]
pub(super) struct Given<'a, 'm> {
    frames: &'a Frames<'m>,
    near: &'a Segment<'m>,
    freed_twice: &'a mut Option<BlockError>,
    pub(super) count: i64,
}

impl<'a, 'm> Given<'a, 'm> {
    pub(super) fn new(
        frames: &'a Frames<'m>,
        near: &'a Segment<'m>,
        freed_twice: &'a mut Option<BlockError>,
    ) -> Self {
        Self {
            frames,
            near,
            freed_twice,
            count: 0,
        }
    }

    fn give(&mut self, order: Order, blocks: &[Frame]) {
        let count = i64::try_from(blocks.len()).unwrap_or_default();
        self.count += count * i64::from(frames_of(order));
        let (directory, near) = (&self.frames.directory, self.near);
        directory.give(order, blocks, near, &mut |frame| self.refuse(frame, order));
    }

    fn give_area(&mut self, area: FrameRange) {
        self.count += area.count().cast_signed();
        let (directory, near) = (&self.frames.directory, self.near);
        directory.give_area(area, near, &mut |frame| self.refuse(frame, Order::PAGE));
    }

    fn refuse(&mut self, frame: Frame, order: Order) {
        self.count -= i64::from(frames_of(order));
        (self.freed_twice).get_or_insert(BlockError::FreedTwice { frame, order });
    }
}
