//! A spin lock around an allocator that has none: [`Locked`].

use crate::lists::Line;
use crate::{Allocator, Cpu, Mobility};
use firstlight::addr::{Frame, Order};
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// One allocator for all CPUs, one at a time; the lock is the yardstick's.
#[derive(Debug)]
pub struct Locked<C>(Line<SpinMutex<C>>);

impl<C> Locked<C> {
    /// A lock around `inner`.
    pub fn new(inner: C) -> Self {
        Self(Line(SpinMutex::new(inner)))
    }

    /// The allocator itself, which waits until its lock is free.
    pub fn lock(&self) -> SpinMutexGuard<'_, C> {
        self.0.0.lock()
    }
}

impl<C: Cpu + Send> Allocator for Locked<C> {
    type Cpu<'a>
        = &'a Self
    where
        Self: 'a;

    fn cpu(&self, _index: usize) -> Option<&Self> {
        Some(self)
    }
}

impl<C: Cpu> Cpu for &Locked<C> {
    #[inline]
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        self.lock().allocate(order)
    }

    #[inline]
    fn allocate_for(&mut self, order: Order, mobility: Mobility) -> Option<Frame> {
        self.lock().allocate_for(order, mobility)
    }

    #[inline]
    fn free(&mut self, frame: Frame, order: Order) -> bool {
        self.lock().free(frame, order)
    }
}
