//! Firstlight as a contestant, as a kernel would call it.

use crate::{Allocator, Cpu};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Request};

impl<'m> Allocator for Frames<'m> {
    type Cpu<'a>
        = &'a Frames<'m>
    where
        Self: 'a;

    fn cpu(&self, _index: usize) -> Option<&Self> {
        Some(self)
    }
}

impl Cpu for &Frames<'_> {
    #[inline]
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        Frames::allocate(self, Request::new(order)).ok()
    }

    #[inline]
    fn free(&mut self, frame: Frame, order: Order) -> bool {
        Frames::free(self, frame, order).is_ok()
    }
}
