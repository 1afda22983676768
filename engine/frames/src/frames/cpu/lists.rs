//! A CPU's lists of blocks by mobility and order: [`CpuLists`].
//!
//! How long each list is, the CPU's slot says.

use crate::addr::{Frame, Order};
use crate::frames::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use crate::frames::word::{Content, Mobility};
use crate::sync::{AtomicU32, Ordering};

use super::slot::{CpuSlot, LISTS};

/// Blocks in a list, at most, by order.
#[cfg(firstlight_loom)]
const LENGTHS: [u16; LISTS] = [8, 2, 2, 2, 2, 2, 2, 2];
#[cfg(not(firstlight_loom))]
const LENGTHS: [u16; LISTS] = {
    // Of the orders between a few pages and a huge frame, two each.
    let mut lengths = [2; LISTS];
    let (few, huges): ([u16; 7], u16) = if cfg!(feature = "small-caches") {
        ([64, 4, 4, 4, 4, 4, 4], 4)
    } else {
        ([512, 64, 64, 32, 16, 8, 4], 64)
    };
    let mut order = 0;
    while order < few.len() {
        lengths[order] = few[order];
        order += 1;
    }
    lengths[HUGE] = huges;
    lengths
};
/// Where each list begins among all entries, and their number.
const STARTS: [u16; LISTS + 1] = {
    let mut starts = [0; LISTS + 1];
    let mut order = 0;
    while order < LISTS {
        starts[order + 1] = starts[order] + LENGTHS[order];
        order += 1;
    }
    starts
};
const ENTRIES: usize = STARTS[LISTS] as usize;
const _: () = {
    // What a CPU caches and what it moves are frames in 32 bits: of two mobilities all lists, a bump block and a zero
    // block, twice.
    let (mut frames, mut order) = (2 << HUGE_ORDER, 0);
    while order < LISTS {
        frames += (LENGTHS[order] as u64) << order;
        order += 1;
    }
    assert!(4 * frames <= u32::MAX as u64);
};
/// Where an entry of a list lies.
#[inline(always)]
fn place(order: usize, at: u32) -> usize {
    let start = STARTS.get(order).map_or(ENTRIES, |&start| start.into());
    start + at as usize
}

const HUGE: usize = HUGE_ORDER as usize;
/// The place of an entry of a list whose order is known: the mask tells the compiler that it is in range.
#[inline(always)]
const fn known_place<const ORDER: usize>(at: u32) -> usize {
    const { assert!(LENGTHS[ORDER].is_power_of_two()) };
    STARTS[ORDER] as usize + (at as usize & (LENGTHS[ORDER] as usize - 1))
}

/// A refill cuts a block into so many, at most: a larger one would more often not be there.
const CUTS: usize = 8;
/// A list holds at most 1/128 of the CPU's frames: those of its zone divided by the number of
/// CPUs.
const SHARE: u64 = 128;
/// At least two blocks, if they are at most 1/32 of the CPU's frames.
const SHARE_OF_TWO: u64 = 32;
/// Two huge frames, if they are at most 1/12: with 64 MiB a CPU, less what boot took.
const SHARE_OF_TWO_HUGES: u64 = 12;

/// What a CPU caches, by mobility.
#[derive(Debug)]
pub(super) struct CpuLists {
    pub(super) unmovable: Lists,
    #[cfg(feature = "movable")]
    pub(super) movable: Lists,
}

impl CpuLists {
    /// Empty ones.
    pub(super) const fn new() -> Self {
        Self {
            unmovable: Lists::new(),
            #[cfg(feature = "movable")]
            movable: Lists::new(),
        }
    }

    pub(super) fn of(&mut self, mobility: Mobility) -> &mut Lists {
        match mobility {
            Mobility::Unmovable => &mut self.unmovable,
            #[cfg(feature = "movable")]
            Mobility::Movable => &mut self.movable,
        }
    }

    /// Fills an empty list, with up to half of what it may hold; other CPUs see that before it
    /// is taken. How many blocks there are.
    pub(super) fn refill(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: Order,
        fill: impl FnOnce(&mut [Frame]) -> usize,
    ) -> u32 {
        let lists = self.of(mobility);
        let most = lists.refill_limit(order.get().into());
        let moving = slot.begin_move((most as u64) << order.get());
        let taken = lists.refill(slot, mobility, order.get().into(), fill);
        slot.end_move(moving);
        taken
    }
}

impl Default for CpuLists {
    fn default() -> Self {
        Self::new()
    }
}

/// What a CPU caches of one mobility: blocks by order, a huge frame it cuts pages from, and one it
/// cuts zero pages from.
#[derive(Debug)]
pub(super) struct Lists {
    /// All lists, by order; the last one in is the first one out.
    entries: [Frame; ENTRIES],
    /// How many blocks a list may hold, by order; even. With 0 it takes nothing.
    limits: [u32; LISTS],
    /// How much each list holds of the CPU's window: 0 where that lies in memory of which the lists take nothing.
    window_limits: [u32; LISTS],
    /// First frame after the bump block.
    bump_end: u64,
    /// First frame after the zero block, and 1 more if that is memory that the host brings back.
    zero_end: u64,
}

impl Lists {
    const fn new() -> Self {
        Self {
            entries: [Frame::new(0); ENTRIES],
            limits: [0; LISTS],
            window_limits: [0; LISTS],
            bump_end: 0,
            zero_end: 0,
        }
    }

    /// Sets the limits; each list may hold 1/128 of `frames`, or two blocks. Whether
    /// these are enough that a huge frame may be kept to cut pages from.
    pub(super) fn reset(&mut self, frames: u64) -> bool {
        let share = frames / SHARE;
        for (order, limit) in self.limits.iter_mut().enumerate() {
            let part = if order == HUGE {
                SHARE_OF_TWO_HUGES
            } else {
                SHARE_OF_TWO
            };
            let two = if (2 << order) * part <= frames { 2 } else { 0 };
            let share = usize::try_from(share >> order).unwrap_or(usize::MAX);
            *limit = u32::try_from(share.max(two).min(LENGTHS[order].into())).unwrap_or(0) & !1;
        }
        self.bump_end = 0;
        share > 2 * u64::from(HUGE_FRAMES)
    }

    /// Whether the lists take what lies in the CPU's window.
    pub(super) fn take_window(&mut self, takes: bool) {
        self.window_limits = if takes { self.limits } else { [0; LISTS] };
    }

    // ---- The fast path ---------------------------------------------------------

    /// Takes the page on top.
    #[inline(always)]
    pub(super) fn pop_page(&self, slot: &CpuSlot, mobility: Mobility) -> Option<Frame> {
        self.pop_at(slot.len(mobility, 0), known_place::<0>)
    }

    /// Takes the huge frame on top.
    #[inline(always)]
    pub(super) fn pop_huge(&self, slot: &CpuSlot, mobility: Mobility) -> Option<Frame> {
        self.pop_at(slot.len(mobility, HUGE), known_place::<HUGE>)
    }

    /// Takes the block on top.
    #[inline(always)]
    pub(super) fn pop(&self, slot: &CpuSlot, mobility: Mobility, order: usize) -> Option<Frame> {
        self.pop_at(slot.len(mobility, order), |at| place(order, at))
    }

    #[inline(always)]
    fn pop_at(&self, len: &AtomicU32, place: impl FnOnce(u32) -> usize) -> Option<Frame> {
        let left = len.load(Ordering::Relaxed).checked_sub(1)?;
        let top = *self.entries.get(place(left))?;
        len.store(left, Ordering::Release);
        Some(top)
    }

    /// Puts a page of the CPU's window on top; `false` if there is no space, or the lists take
    /// nothing of the window.
    #[inline(always)]
    pub(super) fn push_page(&mut self, slot: &CpuSlot, mobility: Mobility, page: Frame) -> bool {
        let [limit, ..] = self.window_limits;
        self.push_at(slot.len(mobility, 0), limit, known_place::<0>, page)
    }

    /// Puts a huge frame of the window in its list, if that has space.
    #[inline(always)]
    pub(super) fn push_huge(&mut self, slot: &CpuSlot, mobility: Mobility, huge: Frame) -> bool {
        let [.., limit] = self.window_limits;
        self.push_at(slot.len(mobility, HUGE), limit, known_place::<HUGE>, huge)
    }

    /// Puts a block of the window, of any order, in its list, if that has space.
    #[inline(always)]
    pub(super) fn push_of_window(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        block: Frame,
    ) -> bool {
        let limit = self.window_limits.get(order).copied().unwrap_or(0);
        let len = slot.len(mobility, order);
        self.push_at(len, limit, |at| place(order, at), block)
    }

    /// Puts a block on top; `false` if there is no space.
    #[inline]
    pub(super) fn push(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        block: Frame,
    ) -> bool {
        let limit = self.limits.get(order).copied().unwrap_or(0);
        let len = slot.len(mobility, order);
        self.push_at(len, limit, |at| place(order, at), block)
    }

    #[inline(always)]
    fn push_at(
        &mut self,
        len: &AtomicU32,
        limit: u32,
        place: impl FnOnce(u32) -> usize,
        block: Frame,
    ) -> bool {
        let at = len.load(Ordering::Relaxed);
        if at >= limit {
            return false;
        }
        let Some(entry) = self.entries.get_mut(place(at)) else {
            return false;
        };
        *entry = block;
        len.store(at + 1, Ordering::Release);
        true
    }

    /// Takes the block on top if it is this one; whether it was.
    #[inline(always)]
    pub(super) fn pop_if(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        block: Frame,
    ) -> bool {
        let len = slot.len(mobility, order);
        let Some(left) = len.load(Ordering::Relaxed).checked_sub(1) else {
            return false;
        };
        let is_top = self.entries.get(place(order, left)) == Some(&block);
        if is_top {
            len.store(left, Ordering::Release);
        }
        is_top
    }

    // ---- Many at a time ----------------------------------------------------------

    /// How many blocks of an order up to [`HUGE_ORDER`] may be cached.
    pub(super) fn limit(&self, order: usize) -> usize {
        self.limits.get(order).copied().unwrap_or(0) as usize
    }

    /// How many blocks a refill puts into an empty list, at most.
    pub(super) fn refill_limit(&self, order: usize) -> usize {
        match (order, self.limit(order) / 2) {
            (0 | HUGE, half) => half,
            (_, half) => half.min(CUTS),
        }
    }

    /// All entries of a list, as many as it may ever hold.
    pub(super) fn entries(&mut self, order: usize) -> &mut [Frame] {
        let end = STARTS.get(order + 1).map_or(0, |&end| end.into());
        self.entries
            .get_mut(place(order, 0)..end)
            .unwrap_or(&mut [])
    }

    /// Fills an empty list with as many blocks as a refill puts there. How many there are.
    fn refill(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        fill: impl FnOnce(&mut [Frame]) -> usize,
    ) -> u32 {
        let most = self.refill_limit(order);
        let space = self.entries(order).get_mut(..most).unwrap_or_default();
        let count = fill(space).min(most);
        // What was taken first comes out first.
        space.get_mut(..count).unwrap_or_default().reverse();
        let len = u32::try_from(count).unwrap_or(0);
        slot.len(mobility, order).store(len, Ordering::Release);
        len
    }

    /// The older half of what a list may hold, or all it has, goes to `give`; how many.
    pub(super) fn flush(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        give: impl FnOnce(&[Frame]),
    ) -> usize {
        let len = slot.len(mobility, order).load(Ordering::Relaxed) as usize;
        let count = len.min(self.limit(order) / 2);
        let entries = self.entries(order);
        give(entries.get(..count).unwrap_or_default());
        if let Some(all) = entries.get_mut(..len) {
            all.copy_within(count.min(all.len()).., 0);
        }
        let left = u32::try_from(len - count).unwrap_or(0);
        // Release, after the blocks are freed: pairs with `listed_frames`.
        slot.len(mobility, order).store(left, Ordering::Release);
        count
    }

    // ---- The bump block --------------------------------------------------------

    /// Pages are cut from `huge` from now on.
    pub(super) fn set_bump(&mut self, slot: &CpuSlot, mobility: Mobility, huge: Frame) {
        self.bump_end = huge.get() + u64::from(HUGE_FRAMES);
        slot.bump(mobility).store(HUGE_FRAMES, Ordering::Release);
    }

    /// The next page of the bump block.
    #[inline]
    pub(super) fn pop_bump(&mut self, slot: &CpuSlot, mobility: Mobility) -> Option<Frame> {
        let left = slot.bump(mobility).load(Ordering::Relaxed);
        let rest = left.checked_sub(1)?;
        slot.bump(mobility).store(rest, Ordering::Release);
        Some(Frame::new(self.bump_end - u64::from(left)))
    }

    // ---- The zero block ---------------------------------------------------------

    /// Whether there is memory enough to cut zero pages from a huge frame: 64 MiB, as for a list of the order below.
    pub(super) fn keeps_huge(&self) -> bool {
        self.limits[HUGE - 1] > 0
    }

    /// Zero pages are cut from `huge` from now on, which holds zeros, or comes back so.
    pub(super) fn set_zero(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        huge: Frame,
        content: Content,
    ) {
        let is_reported = content == Content::Reported;
        self.zero_end = huge.get() + u64::from(HUGE_FRAMES) + u64::from(is_reported);
        slot.set_zero(mobility, HUGE_FRAMES);
    }

    /// The next page of the zero block, and what it holds.
    pub(super) fn pop_zero(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
    ) -> Option<(Frame, Content)> {
        let (start, left) = self.zero_left(slot, mobility);
        slot.set_zero(mobility, u32::try_from(left.checked_sub(1)?).unwrap_or(0));
        let content = if self.zero_end & 1 == 0 {
            Content::Zero
        } else {
            Content::Reported
        };
        Some((Frame::new(start), content))
    }

    /// First page and number of pages left of the zero block.
    pub(super) fn zero_left(&self, slot: &CpuSlot, mobility: Mobility) -> (u64, u64) {
        let left = slot.zero(mobility).into();
        ((self.zero_end & !1) - left, left)
    }

    /// First page and number of pages left of the bump block.
    pub(super) fn bump_left(&self, slot: &CpuSlot, mobility: Mobility) -> (u64, u64) {
        let left = slot.bump(mobility).load(Ordering::Relaxed).into();
        (self.bump_end - left, left)
    }
}
