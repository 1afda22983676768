//! What other CPUs may know of a CPU's magazines, and ask: [`CpuSlot`].
//!
//! The magazines themselves are plain memory of their owner. All that is shared is
//! how much they hold and a wish to have it back, which the owner sees at its next call.

use core::fmt;

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// One CPU's entry in the list that [`Frames::with_cpus`](super::Frames::with_cpus) takes.
///
/// A cache line of its own, written by its CPU with plain stores but when all is given back.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CpuSlot {
    /// Frames in the magazines, or that a call is about to put there.
    held: AtomicU32,
    /// Whether somebody wants them back.
    wish: AtomicU32,
    taken: AtomicBool,
}

/// Nobody wants the frames back.
const NONE: u32 = 0;
/// Somebody asked for them since their owner last began to give back all it has.
const ASKED: u32 = 1;
/// The owner gives back all it has, and nobody has asked again.
const ANSWERING: u32 = 2;

impl CpuSlot {
    /// A slot nobody has.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            held: AtomicU32::new(0),
            wish: AtomicU32::new(NONE),
            taken: AtomicBool::new(false),
        }
    }

    /// Makes the slot the caller's; `false` if somebody has it.
    pub(super) fn take(&self) -> bool {
        // Acquire: what its last owner left comes before.
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Gives it back, empty.
    pub(super) fn leave(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Whether somebody wants the frames back.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.wish.load(Ordering::Relaxed) != NONE
    }

    /// Frames held now, or in a moment: whoever finds that they are taken sees by whom. Only
    /// the owner calls it.
    #[inline]
    pub(super) fn set_held(&self, frames: u32) {
        // Release: who sees that nothing is held finds what was given back before the last
        // of it was handed out.
        self.held.store(frames, Ordering::Release);
    }

    /// Begins to give back all that is held.
    pub(super) fn begin_answer(&self) {
        // Acquire: what those who asked did before comes before what this call finds next.
        self.wish.swap(ANSWERING, Ordering::AcqRel);
    }

    /// All that was held is given back. Who asked meanwhile is answered by the next call.
    pub(super) fn answer(&self) {
        // Release, both: who sees either finds what was given back. It is `held` alone that
        // tells who asks just after the answer.
        self.held.store(0, Ordering::Release);
        let _ = (self.wish).compare_exchange(ANSWERING, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Asks for what is held, if anything is.
    pub(super) fn ask(&self) -> bool {
        // Whoever took what the caller found to be in use said before that it would hold it.
        fence(Ordering::Acquire);
        // Acquire: pairs with `answer`. Who sees nothing held finds what was given back.
        let holds = self.held.load(Ordering::Acquire) > 0;
        if holds {
            self.ask_anyway();
        }
        holds
    }

    /// Asks for what is held and for what a call in flight may put there. After the owner's
    /// next call it holds nothing that it saw before.
    pub(super) fn ask_anyway(&self) {
        // Not a store: the answer sees what all who asked did before.
        self.wish.swap(ASKED, Ordering::AcqRel);
    }

    /// Whether somebody has the slot who was asked and has not answered.
    pub(super) fn has_to_answer(&self) -> bool {
        self.taken.load(Ordering::Relaxed) && self.is_asked()
    }

    /// Frames held by a CPU that was asked for them and has not answered.
    pub(super) fn owed(&self) -> u32 {
        // Acquire: pairs with `answer`.
        if self.wish.load(Ordering::Acquire) != NONE {
            self.held.load(Ordering::Acquire)
        } else {
            0
        }
    }
}

/// The CPUs that were asked for what their magazines hold.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    slots: &'a [CpuSlot],
}

impl<'a> Asked<'a> {
    /// Asks all who hold something.
    pub(super) fn all(slots: &'a [CpuSlot]) -> Option<Self> {
        let asked = slots.iter().filter(|slot| slot.ask()).count();
        (asked > 0).then_some(Self { slots })
    }

    /// Frames in magazines of CPUs that have not answered yet.
    pub fn owed_frames(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.owed())).sum()
    }

    /// The indices of the CPUs that have not answered yet, also of those that hold nothing: one
    /// in the middle of a call may do so in a moment.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let all = self.slots.iter().enumerate();
        all.filter(|(_, slot)| slot.has_to_answer())
            .map(|(cpu, _)| cpu)
    }
}

/// The CPUs that may have magazines, and how to reach them.
#[derive(Clone, Copy)]
pub(super) struct Cpus<'m> {
    pub(super) slots: &'m [CpuSlot],
    pub(super) asker: &'m dyn AskCpus,
}

impl Cpus<'_> {
    pub(super) const NONE: Self = Self {
        slots: &[],
        asker: &NobodyAsked,
    };

    /// Asks all CPUs that hold something to give it back. How many frames they owe after
    /// that: none if nobody held any, or all answered.
    #[cold]
    pub(super) fn ask(&self) -> u64 {
        Asked::all(self.slots).map_or(0, |asked| {
            self.asker.ask(&asked);
            asked.owed_frames()
        })
    }

    /// Asks all CPUs, whether they hold something or not: one in the middle of a call may be
    /// about to keep what it saw before the caller changed it.
    pub(super) fn ask_everybody(&self) {
        self.slots.iter().for_each(CpuSlot::ask_anyway);
        if !self.slots.is_empty() {
            let slots = self.slots;
            self.asker.ask(&Asked { slots });
        }
    }
}

impl fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots).finish()
    }
}

/// How other CPUs learn that their magazines are wanted back.
///
/// A CPU sees the wish at its next call by itself. A kernel interrupts those that
/// [`Asked::cpus`] names, lets them call [`Cpu::poll`](super::Cpu::poll) (at once, or when
/// the call they are in the middle of returns), and comes back when they have.
pub trait AskCpus: Sync {
    /// Reaches the CPUs that were asked. Returns when all have answered, or when it makes
    /// no sense to wait any longer: the request fails then and says how much they hold.
    ///
    /// Called by an allocation that found nothing, or on a range in use, and by an isolation,
    /// on the CPU that needs the memory. A wait must have an end: CPUs can ask each other at the same time, with
    /// interrupts off; and a call that does not go through the caller's [`Cpu`](super::Cpu)
    /// asks for what that holds, too.
    fn ask(&self, asked: &Asked<'_>);
}

/// Does nothing: who asks finds what idle CPUs hold only once they call again.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyAsked;

impl AskCpus for NobodyAsked {
    fn ask(&self, _: &Asked<'_>) {}
}
