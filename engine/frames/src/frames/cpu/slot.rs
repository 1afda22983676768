//! What other CPUs may know of a CPU's cache, and request of it: [`CpuSlot`].
//!
//! The cached frames themselves are plain memory of their owner. Other CPUs read the lengths of
//! its lists, the frames its current call is about to cache or move, and the giant frame it
//! takes huge frames from, all written with plain stores. They may request a drain, which it
//! sees at its next call.

use crate::frames::word::geometry::{HUGE_FRAMES, HUGE_ORDER};
use crate::frames::word::mobility::MOBILITIES;
use crate::frames::word::{IS_KEPT, Mobility};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Lists of one mobility: one an order, up to a huge frame.
pub(super) const LISTS: usize = HUGE_ORDER as usize + 1;

/// How often lists are looked at again because frames moved between them. After a request for a
/// drain no more than one call moves some.
const LOOKS: u32 = 4;

/// No drain is requested.
const NONE: u32 = 0;
/// Requested since the owner last began to drain.
const REQUESTED: u32 = 1;
/// The owner is draining, and nothing was requested since it began.
const DRAINING: u32 = 2;

/// What other CPUs see of a CPU: cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CpuSlot {
    /// Blocks in each list, by mobility and order. Only the owner writes; Release, so that a CPU
    /// that sees a list empty finds what the owner gave back before. 32 bits, not 16: a pair is as
    /// fast as a processor hands a store to the next load.
    lens: [[AtomicU32; LISTS]; MOBILITIES],
    /// Pages left of each bump block, likewise.
    bump: [AtomicU32; MOBILITIES],
    /// And of each zero block: 16 bits a mobility.
    zero: AtomicU32,
    drain: AtomicU32,
    /// Low half: frames that a call of the owner is about to cache, or to move between lists.
    /// High half: how many moves have ended. Moves may lie inside each other: the end of an
    /// outer one stores what was before it, and one move more.
    moving: AtomicU64,
    /// The giant frames that huge frames are taken from, the last 16 bits a mobility of 1 above their numbers; 0 is none.
    homes: AtomicU32,
    taken: AtomicBool,
    /// What [`CpuEvents`] has, in that order. Only the owner writes.
    events: [AtomicU32; 4],
}

/// Counts of what a CPU did besides taking blocks from its lists and putting some there; they wrap
/// at 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuEvents {
    /// An empty list was filled from the shared levels, or a bump block taken.
    pub refills: u32,
    /// A full list gave back half.
    pub flushes: u32,
    /// All lists were given back: for another CPU, before a request failed, by the kernel.
    pub drains: u32,
    /// A request went to the shared levels itself.
    pub misses: u32,
}

/// Index of a count in a slot.
#[derive(Clone, Copy)]
pub(super) enum CpuEvent {
    Refill,
    Flush,
    Drain,
    Miss,
}

const _: () = {
    // Two cache lines, and a third for the lists of more orders.
    assert!(
        cfg!(firstlight_loom)
            || size_of::<CpuSlot>() == if LISTS * MOBILITIES > 20 { 192 } else { 128 }
    );
    // What is left of a zero block.
    assert!(HUGE_FRAMES <= 0xffff);
};

impl CpuSlot {
    /// A slot that no CPU has.
    #[cfg(not(firstlight_loom))]
    pub(super) const fn new() -> Self {
        Self {
            lens: [const { [const { AtomicU32::new(0) }; LISTS] }; MOBILITIES],
            bump: [const { AtomicU32::new(0) }; MOBILITIES],
            zero: AtomicU32::new(0),
            drain: AtomicU32::new(NONE),
            moving: AtomicU64::new(0),
            homes: AtomicU32::new(0),
            taken: AtomicBool::new(false),
            events: [const { AtomicU32::new(0) }; 4],
        }
    }

    // ---- The owner -------------------------------------------------------

    /// Makes the slot the caller's; `false` if another CPU has it.
    pub(super) fn take(&self) -> bool {
        // Acquire: what its last owner left comes before.
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Gives it back, empty.
    pub(super) fn release(&self) {
        // A call that panicked may have left a move behind.
        let ended = self.moving.load(Ordering::Relaxed) & ENDED;
        self.moving
            .store(ended.wrapping_add(ENDED_ONE), Ordering::Release);
        self.homes.store(0, Ordering::Relaxed);
        self.events
            .iter()
            .for_each(|count| count.store(0, Ordering::Relaxed));
        self.taken.store(false, Ordering::Release);
    }

    /// Counts what the owner does.
    pub(super) fn count(&self, event: CpuEvent) {
        let count = &self.events[event as usize];
        let one_more = count.load(Ordering::Relaxed).wrapping_add(1);
        count.store(one_more, Ordering::Relaxed);
    }

    /// Blocks in a list.
    #[inline]
    pub(super) fn len(&self, mobility: Mobility, order: usize) -> &AtomicU32 {
        &self.lens[mobility as usize][order]
    }

    /// Pages left of a bump block.
    #[inline]
    pub(super) fn bump(&self, mobility: Mobility) -> &AtomicU32 {
        &self.bump[mobility as usize]
    }

    /// Pages left of a zero block.
    pub(super) fn zero(&self, mobility: Mobility) -> u32 {
        if !IS_KEPT {
            return 0;
        }
        self.zero.load(Ordering::Acquire) >> (16 * mobility as u32) & 0xffff
    }

    /// Sets how many are left.
    pub(super) fn set_zero(&self, mobility: Mobility, left: u32) {
        let at = 16 * mobility as u32;
        let others = self.zero.load(Ordering::Relaxed) & !(0xffff << at);
        self.zero.store(others | left << at, Ordering::Release);
    }

    /// A call of the owner is going to cache `frames` frames more, or to move some from one
    /// list to another.
    #[inline]
    pub(super) fn begin_move(&self, frames: u64) -> Moving {
        let before = self.moving.load(Ordering::Relaxed);
        // Release: a CPU that finds one of the frames taken sees by which.
        self.moving
            .store(before.wrapping_add(frames), Ordering::Release);
        fence(Ordering::Release);
        Moving { before }
    }

    /// The lists say what was cached. Of moves inside each other the last one ends first.
    #[inline]
    pub(super) fn end_move(&self, Moving { before }: Moving) {
        self.moving
            .store(before.wrapping_add(ENDED_ONE), Ordering::Release);
    }

    /// Whether a drain is requested.
    #[inline]
    pub(super) fn is_drain_requested(&self) -> bool {
        self.drain.load(Ordering::Relaxed) != NONE
    }

    /// The owner begins to drain all lists.
    pub(super) fn begin_drain(&self) {
        // Acquire: pairs with `request_drain`.
        self.drain.swap(DRAINING, Ordering::AcqRel);
    }

    /// All lists are drained. A request made meanwhile is pending until the next call.
    pub(super) fn end_drain(&self) {
        let (done, none) = (DRAINING, NONE);
        // Release: pairs with `pending_frames`.
        let _ = (self.drain).compare_exchange(done, none, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Sets the giant frame that huge frames of a mobility are taken from.
    pub(super) fn set_home(&self, mobility: Mobility, giant: u64) {
        let at = 16 * mobility as u32;
        let others = self.homes.load(Ordering::Relaxed) & !(0xffff << at);
        let homes = others | Self::home_of(giant) << at;
        self.homes.store(homes, Ordering::Relaxed);
    }

    /// A giant frame's number among `homes`.
    fn home_of(giant: u64) -> u32 {
        u32::try_from((giant + 1) & 0xffff).unwrap_or(0)
    }

    // ---- Other CPUs ------------------------------------------------------

    /// What the owner did.
    pub(crate) fn events(&self) -> CpuEvents {
        let [refills, flushes, drains, misses] = self
            .events
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed));
        CpuEvents {
            refills,
            flushes,
            drains,
            misses,
        }
    }

    /// Whether huge frames of a mobility are taken from this giant frame, as far as 16 bits of its number say.
    pub(super) fn is_home(&self, mobility: Mobility, giant: u64) -> bool {
        let homes = self.homes.load(Ordering::Relaxed);
        homes >> (16 * mobility as u32) & 0xffff == Self::home_of(giant)
    }

    /// Frames that are cached, or that a call is about to cache.
    pub(crate) fn cached_frames(&self) -> u32 {
        let mut before = self.moving.load(Ordering::Acquire);
        let mut listed = self.listed_frames();
        // What moved meanwhile may have been in neither list that was looked at.
        for _ in 0..LOOKS {
            let after = self.moving.load(Ordering::Acquire);
            if before == after {
                break;
            }
            before = after;
            listed = self.listed_frames();
        }
        listed + (before & !ENDED) as u32
    }

    fn listed_frames(&self) -> u32 {
        let sum = |lens: &[AtomicU32; LISTS]| -> u32 {
            let lens = (0..).zip(lens);
            lens.map(|(order, len)| len.load(Ordering::Acquire) << order)
                .sum()
        };
        let bump = |bump: &AtomicU32| bump.load(Ordering::Acquire);
        let zero = Mobility::ALL.map(|mobility| self.zero(mobility));
        self.lens.iter().map(sum).sum::<u32>()
            + self.bump.iter().map(bump).sum::<u32>()
            + zero.iter().sum::<u32>()
    }

    /// Whether the CPU has frames, or is moving some just now.
    fn may_have_frames(&self) -> bool {
        // Acquire: pairs with the fence in `begin_move`.
        fence(Ordering::Acquire);
        let before = self.moving.load(Ordering::Acquire);
        let listed = self.listed_frames();
        let after = self.moving.load(Ordering::Acquire);
        listed > 0 || before != after || after & !ENDED != 0
    }

    /// Requests a drain if there is anything to drain; whether there is.
    pub(crate) fn request_drain_of_any(&self) -> bool {
        let may_have = self.may_have_frames();
        if may_have {
            self.request_drain();
        }
        may_have
    }

    /// Requests a drain of what is cached and of what a call in flight may cache: after the
    /// owner's next call nothing that it saw before is cached.
    pub(crate) fn request_drain(&self) {
        // Not a store: draining sees what comes before all requests.
        self.drain.swap(REQUESTED, Ordering::AcqRel);
    }

    /// Whether the slot is taken by a CPU whose drain is pending.
    pub(super) fn is_pending(&self) -> bool {
        self.taken.load(Ordering::Relaxed) && self.is_drain_requested()
    }

    /// Frames cached by a CPU whose drain is pending.
    pub(super) fn pending_frames(&self) -> u32 {
        // Acquire: pairs with `end_drain`.
        if self.drain.load(Ordering::Acquire) == NONE {
            0
        } else {
            self.cached_frames()
        }
    }
}

/// A call of the owner that is caching frames, or moving some.
#[must_use]
pub(super) struct Moving {
    /// What `moving` was.
    before: u64,
}

/// The high half of `moving`, and one in it.
const ENDED: u64 = !0 << 32;
const ENDED_ONE: u64 = 1 << 32;
