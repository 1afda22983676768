//! Firstlight as a contestant, as a kernel would call it: through per-CPU caches.

use crate::lock::Line;
use crate::{Allocator, Cpu, Mobility};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{self, Request};
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// The engine's [CPUs](frames::Cpu), which live as long as the allocator, as in a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'a, 'f, 'm>(&'a [Line<SpinMutex<frames::Cpu<'f, 'm>>>]);

impl<'a, 'f, 'm> Ours<'a, 'f, 'm> {
    /// CPU `i` gets the one at `i`.
    #[must_use]
    pub fn new(cpus: &'a [Line<SpinMutex<frames::Cpu<'f, 'm>>>]) -> Self {
        Self(cpus)
    }
}

impl<'f, 'm> Allocator for Ours<'_, 'f, 'm> {
    type Cpu<'a>
        = OurCpu<'a, 'f, 'm>
    where
        Self: 'a;

    fn cpu(&self, index: usize) -> Option<OurCpu<'_, 'f, 'm>> {
        Some(OurCpu(self.0.get(index)?.0.try_lock()?))
    }
}

/// A CPU locked for the whole of its work; its cache is empty afterwards.
#[derive(Debug)]
pub struct OurCpu<'a, 'f, 'm>(SpinMutexGuard<'a, frames::Cpu<'f, 'm>>);

impl Cpu for OurCpu<'_, '_, '_> {
    #[inline]
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        self.0.allocate(Request::new(order)).ok()
    }

    #[inline]
    fn allocate_for(&mut self, order: Order, mobility: Mobility) -> Option<Frame> {
        let request = Request::new(order);
        let request = match mobility {
            Mobility::Unmovable => request,
            Mobility::Movable => request.movable(),
        };
        self.0.allocate(request).ok()
    }

    #[inline]
    fn free(&mut self, frame: Frame, order: Order) -> bool {
        self.0.free(frame, order).is_ok()
    }

    fn drain(&mut self) {
        // An error is a double free; no loop does that, and tests check it.
        let _ = self.0.drain();
    }
}

impl Drop for OurCpu<'_, '_, '_> {
    fn drop(&mut self) {
        self.drain();
    }
}
