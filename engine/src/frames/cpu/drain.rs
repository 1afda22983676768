//! How other CPUs' caches are drained: [`DrainCpus`], implemented by the kernel.

use core::fmt;

use super::slot::CpuSlot;

/// CPUs that were requested to drain their caches.
#[derive(Clone, Copy, Debug)]
pub struct DrainRequest<'a> {
    slots: &'a [CpuSlot],
}

impl DrainRequest<'_> {
    /// Frames cached by CPUs whose drain is pending.
    pub fn pending_frames(&self) -> u64 {
        let pending = |slot: &CpuSlot| u64::from(slot.pending_frames());
        self.slots.iter().map(pending).sum()
    }

    /// The indices of the CPUs whose drain is pending, also of those that cache nothing: one in
    /// the middle of a call may do so in a moment.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let all = self.slots.iter().enumerate();
        let pending = all.filter(|(_, slot)| slot.is_pending());
        pending.map(|(cpu, _)| cpu)
    }
}

/// How a kernel reaches other CPUs, so that they drain their caches.
///
/// A CPU sees a request at its next call by itself. A kernel interrupts those that
/// [`DrainRequest::cpus`] names, lets them call [`Cpu::poll`](super::Cpu::poll) (at once, or
/// when the call they are in the middle of returns), and comes back when they have.
pub trait DrainCpus: Sync {
    /// Reaches the CPUs of the request. Returns when all drains are complete, or when it
    /// makes no sense to wait any longer: the allocation fails then and says how much they cache.
    ///
    /// Called by an allocation that found nothing, or on a range in use, and by an isolation,
    /// on the CPU that needs the memory. A wait must have an end: CPUs can request drains of
    /// each other at the same time, with interrupts off; and a call that does not go through
    /// the caller's [`Cpu`](super::Cpu) requests a drain of that, too.
    fn drain(&self, request: &DrainRequest<'_>);
}

/// Reaches no CPU: what idle CPUs cache is found once they call again.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDrain;

impl DrainCpus for NoDrain {
    fn drain(&self, _: &DrainRequest<'_>) {}
}

/// The CPUs that may have caches, and how to reach them.
#[derive(Clone, Copy)]
pub(crate) struct Cpus<'m> {
    pub(crate) slots: &'m [CpuSlot],
    pub(crate) drain: &'m dyn DrainCpus,
}

impl Cpus<'_> {
    pub(crate) const NONE: Self = Self {
        slots: &[],
        drain: &NoDrain,
    };

    /// Drains all CPUs that cache something. How many frames are pending after that.
    #[cold]
    pub(crate) fn drain_any(&self) -> u64 {
        let requested = self.slots.iter().filter(|slot| slot.request_drain_of_any());
        if requested.count() == 0 {
            return 0;
        }
        self.reach()
    }

    /// Drains all CPUs, whether they cache something or not: one in the middle of a call may be
    /// about to cache what it saw before the caller changed it.
    #[cold]
    pub(crate) fn drain_all(&self) {
        self.drain_at_next_call();
        if !self.slots.is_empty() {
            self.reach();
        }
    }

    /// Requests a drain that no CPU is reached for.
    pub(crate) fn drain_at_next_call(&self) {
        self.slots.iter().for_each(CpuSlot::request_drain);
    }

    fn reach(&self) -> u64 {
        let request = DrainRequest { slots: self.slots };
        self.drain.drain(&request);
        request.pending_frames()
    }
}

impl fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots).finish()
    }
}
