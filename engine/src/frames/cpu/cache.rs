//! The memory of a CPU's cache: [`CpuCache`], lists of blocks by mobility and order.
//!
//! How long each list is, the CPU's slot says.

use crate::addr::{Frame, Order};
use crate::frames::word::Mobility;
use crate::frames::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use crate::sync::{AtomicU32, Ordering};

use super::slot::{CpuSlot, LISTS};

/// Pages in a list, at most.
const PAGES: usize = if cfg!(loom) {
    8
} else if cfg!(feature = "small-caches") {
    64
} else {
    512
};
/// Blocks of a larger order in a list, at most.
const BLOCKS: usize = if cfg!(loom) {
    2
} else if cfg!(feature = "small-caches") {
    4
} else {
    16
};
/// Frames in a list of blocks below a huge frame, at most; or two blocks.
const BLOCK_FRAMES: usize = 256;
/// A list holds at most 1/128 of the CPU's frames: those of its zone divided by the number of
/// slots.
const SHARE: u64 = 128;
/// At least two blocks, if they are at most 1/32 of the CPU's frames.
const SHARE_OF_TWO: u64 = 32;

/// Space for what one CPU caches, provided to [`Frames::cpu`](crate::frames::Frames::cpu):
/// 10,624 bytes; less without the feature `movable`, or with `small-caches`.
///
/// That is too much for a kernel's stack, so it lies where it stays: in a `static`, in
/// per-CPU data, in memory allocated from `Frames`. An empty one is all zero: a `static`
/// costs nothing in the kernel's image, and zeroed memory of its size and alignment is one.
///
/// What is in it belongs to the [`Cpu`](super::Cpu) it is provided to, which empties it when
/// it goes. The next one begins with none, even if the last `Cpu` was forgotten
/// (`core::mem::forget`): its frames stay allocated then.
///
/// ```
/// use std::sync::Mutex;
///
/// use firstlight::addr::Order;
/// use firstlight::frames::{CpuCache, Frames, Request};
///
/// static OF_THE_FIRST_CPU: Mutex<CpuCache> = Mutex::new(CpuCache::new());
///
/// fn some_pages(frames: &Frames<'_>) -> Result<(), Box<dyn std::error::Error>> {
///     let mut cache = OF_THE_FIRST_CPU.lock()?;
///     let mut cpu = frames.cpu(0, Default::default(), &mut cache)?;
///     let page = cpu.allocate(Request::new(Order::PAGE))?;
///     cpu.free(page, Order::PAGE)?;
///     cpu.close()?;
///     Ok(())
/// }
/// ```
// CPUs that lie side by side share no cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct CpuCache {
    pub(super) unmovable: Lists,
    #[cfg(feature = "movable")]
    pub(super) movable: Lists,
}

impl CpuCache {
    /// An empty one.
    pub const fn new() -> Self {
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

    /// Fills an empty list with up to half of what it may hold; other CPUs see that before it
    /// is taken. How many blocks there are.
    pub(super) fn refill(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: Order,
        fill: impl FnOnce(&mut [Frame]) -> usize,
    ) -> u32 {
        let lists = self.of(mobility);
        let half = lists.limit(order.get().into()) / 2;
        let moving = slot.begin_move((half as u64) << order.get());
        let taken = lists.refill(slot, mobility, order.get().into(), fill);
        slot.end_move(moving);
        taken
    }
}

impl Default for CpuCache {
    fn default() -> Self {
        Self::new()
    }
}

/// What a CPU caches of one mobility: blocks by order, and a huge frame it cuts pages from.
#[derive(Debug)]
pub(super) struct Lists {
    pages: [Frame; PAGES],
    /// Of orders 1 to [`HUGE_ORDER`].
    blocks: [[Frame; BLOCKS]; HUGE_ORDER as usize],
    /// How many blocks a list may hold, by order; even. With 0 it takes nothing.
    limits: [u32; LISTS],
    /// Those of pages and of huge frames, or 0 where the CPU's window lies in memory of which
    /// the lists take nothing.
    window_limits: [u32; 2],
    /// First frame after the bump block.
    bump_end: u64,
}

/// The last one in is the first one out.
#[inline]
fn pop<const N: usize>(entries: &[Frame; N], len: &AtomicU32) -> Option<Frame> {
    const { assert!(N.is_power_of_two()) };
    let left = len.load(Ordering::Relaxed).checked_sub(1)?;
    // The mask tells the compiler that it is in range.
    let frame = entries[left as usize & (N - 1)];
    len.store(left, Ordering::Release);
    Some(frame)
}

/// Puts a frame on top; `false` if there is no space.
#[inline]
fn push<const N: usize>(
    entries: &mut [Frame; N],
    len: &AtomicU32,
    limit: u32,
    frame: Frame,
) -> bool {
    let at = len.load(Ordering::Relaxed);
    if at >= limit {
        return false;
    }
    entries[at as usize & (N - 1)] = frame;
    len.store(at + 1, Ordering::Release);
    true
}

impl Lists {
    const fn new() -> Self {
        Self {
            pages: [Frame::new(0); PAGES],
            blocks: [const { [Frame::new(0); BLOCKS] }; HUGE_ORDER as usize],
            limits: [0; LISTS],
            window_limits: [0; 2],
            bump_end: 0,
        }
    }

    /// Sets the limits; each list may hold 1/128 of `frames`, or two blocks. Whether
    /// these are enough that a huge frame may be kept to cut pages from.
    pub(super) fn reset(&mut self, frames: u64) -> bool {
        let share = frames / SHARE;
        for (order, limit) in self.limits.iter_mut().enumerate() {
            let two = if (2 << order) * SHARE_OF_TWO <= frames {
                2
            } else {
                0
            };
            let most = match order {
                0 => PAGES,
                order if order == usize::from(HUGE_ORDER) => BLOCKS,
                order => (BLOCK_FRAMES >> order).clamp(2, BLOCKS),
            };
            let share = usize::try_from(share >> order).unwrap_or(usize::MAX);
            *limit = u32::try_from(share.max(two).min(most)).unwrap_or(0) & !1;
        }
        self.bump_end = 0;
        share > 2 * u64::from(HUGE_FRAMES)
    }

    /// Whether the lists take what lies in the CPU's window.
    pub(super) fn take_window(&mut self, takes: bool) {
        let [pages, .., huges] = self.limits;
        self.window_limits = if takes { [pages, huges] } else { [0; 2] };
    }

    // ---- The fast path: blocks in the CPU's window ----------------------------

    #[inline]
    pub(super) fn pop_page(&self, slot: &CpuSlot, mobility: Mobility) -> Option<Frame> {
        pop(&self.pages, slot.len(mobility, 0))
    }

    #[inline]
    pub(super) fn pop_huge(&self, slot: &CpuSlot, mobility: Mobility) -> Option<Frame> {
        let [.., huges] = &self.blocks;
        pop(huges, slot.len(mobility, HUGE_ORDER.into()))
    }

    #[inline]
    pub(super) fn push_page(&mut self, slot: &CpuSlot, mobility: Mobility, page: Frame) -> bool {
        let [limit, _] = self.window_limits;
        push(&mut self.pages, slot.len(mobility, 0), limit, page)
    }

    #[inline]
    pub(super) fn push_huge(&mut self, slot: &CpuSlot, mobility: Mobility, huge: Frame) -> bool {
        let ([.., huges], [_, limit]) = (&mut self.blocks, self.window_limits);
        push(huges, slot.len(mobility, HUGE_ORDER.into()), limit, huge)
    }

    // ---- Any order -----------------------------------------------------------

    /// How many blocks of an order up to [`HUGE_ORDER`] may be cached.
    pub(super) fn limit(&self, order: usize) -> usize {
        self.limits.get(order).copied().unwrap_or(0) as usize
    }

    /// All entries of a list, as many as it may ever hold.
    pub(super) fn entries(&mut self, order: usize) -> &mut [Frame] {
        match order.checked_sub(1) {
            None => &mut self.pages,
            Some(index) => self.blocks.get_mut(index).map_or(&mut [], |list| list),
        }
    }

    /// Takes the block on top.
    pub(super) fn pop(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
    ) -> Option<Frame> {
        let len = slot.len(mobility, order);
        let left = len.load(Ordering::Relaxed).checked_sub(1)?;
        let top = *self.entries(order).get(left as usize)?;
        len.store(left, Ordering::Release);
        Some(top)
    }

    /// Takes the block on top if it is this one; whether it was.
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
        let is_top = self.entries(order).get(left as usize) == Some(&block);
        if is_top {
            len.store(left, Ordering::Release);
        }
        is_top
    }

    /// Puts a block on top; `false` if there is no space.
    pub(super) fn push(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        block: Frame,
    ) -> bool {
        let len = slot.len(mobility, order);
        let at = len.load(Ordering::Relaxed);
        if at as usize >= self.limit(order) {
            return false;
        }
        self.entries(order)[at as usize] = block;
        len.store(at + 1, Ordering::Release);
        true
    }

    /// Fills an empty list with up to half of what it may hold. How many blocks there are.
    fn refill(
        &mut self,
        slot: &CpuSlot,
        mobility: Mobility,
        order: usize,
        fill: impl FnOnce(&mut [Frame]) -> usize,
    ) -> u32 {
        let half = self.limit(order) / 2;
        let space = &mut self.entries(order)[..half];
        let count = fill(space).min(half);
        // What was taken first comes out first.
        let (older, newer) = space[..count].split_at_mut(count / 2);
        for (one, other) in older.iter_mut().zip(newer.iter_mut().rev()) {
            (*one, *other) = (*other, *one);
        }
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
        give(&entries[..count]);
        entries.copy_within(count..len, 0);
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

    /// First page and number of pages left of the bump block.
    pub(super) fn bump_left(&self, slot: &CpuSlot, mobility: Mobility) -> (u64, u64) {
        let left = slot.bump(mobility).load(Ordering::Relaxed).into();
        (self.bump_end - left, left)
    }
}
