//! The loops that allocators of page frames are measured with, the same for every
//! contestant, `no_std` and without a heap: `firstlight bench alloc` and the image's
//! `bench=alloc` run the same code.
//!
//! An [`Allocator`] is shared by all CPUs; each of them works through a [`Cpu`]
//! of its own. Loops are generic over it, without calls through pointers.
//!
//! | module | contents |
//! |---|---|
//! | [`work`] | the loops: pairs, bulk, mixed orders, nearly full memory |
//! | [`ring`] | from the CPU that allocates to the one that frees |
//! | [`lists`] | the floor, a list for each CPU; the yardstick, one list behind a spin lock |
//! | [`lock`] | the yardstick's lock |
//! | [`locked`] | that lock around an allocator that has none |
//! | [`pace`] | a number of operations, or as many as there is time for |
//! | [`ours`] | [`Frames`](firstlight::frames::Frames) as a contestant |
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod lists;
pub mod lock;
pub mod locked;
pub mod ours;
pub mod pace;
pub mod ring;
pub mod work;

use firstlight::addr::{Frame, Order};
pub use firstlight::frames::Mobility;

/// An allocator that several CPUs use at the same time.
pub trait Allocator: Sync {
    /// One CPU's handle.
    type Cpu<'a>: Cpu
    where
        Self: 'a;

    /// The handle of CPU `index`, for one holder at a time; `None` if there is none.
    fn cpu(&self, index: usize) -> Option<Self::Cpu<'_>>;
}

/// One CPU's handle of an allocator.
pub trait Cpu {
    /// The first frame of a block of `order`.
    fn allocate(&mut self, order: Order) -> Option<Frame>;

    /// As [`Self::allocate`], with a hint whether the block's content can be moved
    /// later. Allocators without such a hint ignore it.
    fn allocate_for(&mut self, order: Order, _mobility: Mobility) -> Option<Frame> {
        self.allocate(order)
    }

    /// Frees a block that this CPU, or another one, allocated; whether it was accepted.
    fn free(&mut self, frame: Frame, order: Order) -> bool;

    /// Empties the cache of this CPU.
    fn drain(&mut self) {}
}
