//! What allocators of page frames are measured with: the same loops for every
//! contestant, `no_std` and without a heap, so that `firstlight bench alloc` and
//! the image's `bench=alloc` do exactly the same.
//!
//! An [`Allocator`] is shared by all CPUs; each of them works through a [`Cpu`]
//! of its own. Loops are generic over it: nothing is called through a pointer.
//!
//! | module | what it is |
//! |---|---|
//! | [`work`] | the loops: pairs, bulk, mixed orders, nearly full memory |
//! | [`ring`] | from the CPU that allocates to the one that frees |
//! | [`lists`] | the floor, a list for each CPU; the yardstick, one list behind a spin lock |
//! | [`lock`] | the yardstick's lock |
//! | [`locked`] | that lock around an allocator that has none |
//! | [`pace`] | doing a number of operations, or as many as there is time for |
//! | [`random`] | numbers that look random and are the same in every run |
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
pub mod random;
pub mod ring;
pub mod work;

use firstlight::addr::{Frame, Order};
pub use firstlight::frames::Mobility;

/// An allocator that several CPUs share.
pub trait Allocator: Sync {
    /// One CPU's way in.
    type Cpu<'a>: Cpu
    where
        Self: 'a;

    /// The way in of CPU `index`, for one holder at a time; `None` if there is none.
    fn cpu(&self, index: usize) -> Option<Self::Cpu<'_>>;
}

/// One CPU's way into an allocator.
pub trait Cpu {
    /// The first frame of a block of `order`.
    fn allocate(&mut self, order: Order) -> Option<Frame>;

    /// As [`Self::allocate`], by one who knows whether the block's content could be
    /// moved elsewhere later. An allocator that does not care makes no difference.
    fn allocate_for(&mut self, order: Order, _mobility: Mobility) -> Option<Frame> {
        self.allocate(order)
    }

    /// Gives back what this CPU, or another one, was given; whether that was taken.
    fn free(&mut self, frame: Frame, order: Order) -> bool;

    /// Lets go of what this CPU keeps for itself.
    fn drain(&mut self) {}
}
