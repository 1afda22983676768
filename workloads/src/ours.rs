//! Firstlight as a contestant, as a kernel would call it: each CPU by its own
//! magazines.

use crate::{Allocator, Cpu, Mobility};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{self, Frames, Request};
use firstlight::node::NodeId;

/// [`Frames`], and which node each CPU is on.
#[derive(Clone, Copy, Debug)]
pub struct Ours<'f, 'm, N> {
    frames: &'f Frames<'m>,
    node_of: N,
}

impl<'f, 'm, N: Fn(usize) -> NodeId + Sync> Ours<'f, 'm, N> {
    /// The engine with [slots](Frames::with_cpus) for all CPUs; `node_of` knows their nodes.
    pub fn new(frames: &'f Frames<'m>, node_of: N) -> Self {
        Self { frames, node_of }
    }
}

impl<'m, N: Fn(usize) -> NodeId + Sync> Allocator for Ours<'_, 'm, N> {
    type Cpu<'a>
        = frames::Cpu<'a, 'm>
    where
        Self: 'a;

    fn cpu(&self, index: usize) -> Option<frames::Cpu<'_, 'm>> {
        self.frames.cpu(index, (self.node_of)(index)).ok()
    }
}

impl Cpu for frames::Cpu<'_, '_> {
    #[inline]
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        frames::Cpu::allocate(self, Request::new(order)).ok()
    }

    #[inline]
    fn allocate_for(&mut self, order: Order, mobility: Mobility) -> Option<Frame> {
        let request = Request::new(order);
        let request = match mobility {
            Mobility::Unmovable => request,
            Mobility::Movable => request.movable(),
        };
        frames::Cpu::allocate(self, request).ok()
    }

    #[inline]
    fn free(&mut self, frame: Frame, order: Order) -> bool {
        frames::Cpu::free(self, frame, order).is_ok()
    }

    fn drain(&mut self) {
        // A frame freed twice is told by this; no loop does that, and tests watch.
        let _ = frames::Cpu::drain(self);
    }
}
