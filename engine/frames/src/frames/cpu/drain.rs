//! How other CPUs' caches are drained: [`DrainRequest`].
//!
//! A CPU sees a request at its next call by itself. A kernel that cannot wait for that
//! interrupts those that [`DrainRequest::cpus`] names, and lets them call
//! [`Cpu::poll`](super::Cpu::poll): at once, or when the call they are in the middle of returns.

use super::cache::CpuCache;

/// CPUs that were requested to drain their caches.
#[derive(Clone, Copy, Debug)]
pub struct DrainRequest<'a> {
    cpus: &'a [CpuCache],
}

impl<'a> DrainRequest<'a> {
    pub(crate) const fn new(cpus: &'a [CpuCache]) -> Self {
        Self { cpus }
    }

    /// Frames cached by CPUs whose drain is pending.
    pub fn pending_frames(&self) -> u64 {
        let pending = |cache: &CpuCache| u64::from(cache.slot.pending_frames());
        self.cpus.iter().map(pending).sum()
    }

    /// The indices of the CPUs whose drain is pending, also of those that cache nothing: one in
    /// the middle of a call may do so in a moment.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let all = self.cpus.iter().enumerate();
        let pending = all.filter(|(_, cache)| cache.slot.is_pending());
        pending.map(|(cpu, _)| cpu)
    }
}
