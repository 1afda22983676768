//! A spin lock around an allocator that has none: [`Locked`].

use crate::lock::Lock;
use crate::{Allocator, Cpu, Mobility};
use firstlight::addr::{Frame, Order};
use spin::mutex::SpinMutexGuard;

/// One allocator for all CPUs, one at a time; the lock is the yardstick's.
#[derive(Debug)]
pub struct Locked<C>(Lock<C>);

impl<C> Locked<C> {
    /// A [`Lock`] around `inner`.
    pub fn new(inner: C, give_way: fn()) -> Self {
        Self(Lock::new(inner, give_way))
    }

    /// The allocator itself, once its lock is free.
    #[inline]
    pub fn lock(&self) -> SpinMutexGuard<'_, C> {
        self.0.lock()
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
