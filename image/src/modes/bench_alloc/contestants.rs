//! The allocators of `bench=alloc`: the engine ([`Ours`]), the [`Yardstick`], one list
//! behind a spin lock, and the [`Floor`], a list for each CPU.
//!
//! Lists have as many blocks of an order as the machine has. Their blocks are numbers
//! without memory.

use firstlight::addr::Frame;
use firstlight::frames::Frames;
use firstlight_workloads::Allocator;
use firstlight_workloads::lists::{Lifo, SpinLifo, Stack, own};
use firstlight_workloads::ours::Ours;

use crate::arch::relax;
use crate::lists::list_of;

/// An allocator.
pub(super) trait Contestant {
    /// Its name in events.
    const NAME: &'static str;

    /// The form that the loops use.
    type Allocator<'a>: Allocator
    where
        Self: 'a;

    /// Ready for `blocks` blocks of one order on the first `cpus` CPUs; `None` if there
    /// is no memory for that.
    fn afresh(&mut self, blocks: usize, cpus: usize) -> Option<Self::Allocator<'_>>;
}

impl<'c, 'f, 'm> Contestant for Ours<'c, 'f, 'm> {
    const NAME: &'static str = "firstlight";

    type Allocator<'a>
        = Self
    where
        Self: 'a;

    /// It manages the machine's own memory.
    fn afresh(&mut self, _blocks: usize, _cpus: usize) -> Option<Self> {
        Some(*self)
    }
}

/// One list for all, in memory of the caller.
pub(super) struct Yardstick<'n>(pub(super) &'n mut [Frame]);

impl Contestant for Yardstick<'_> {
    const NAME: &'static str = "spin-lifo";

    type Allocator<'a>
        = SpinLifo<'a>
    where
        Self: 'a;

    fn afresh(&mut self, blocks: usize, _cpus: usize) -> Option<SpinLifo<'_>> {
        let numbers = numbered(self.0, blocks);
        let len = numbers.len();
        // Each thread has its own CPU: there is none to yield to.
        Some(SpinLifo::new(Stack::new(numbers, len), relax))
    }
}

/// A list for each CPU, in memory of the caller, with heads in memory of the engine.
pub(super) struct Floor<'n, 'f> {
    pub(super) numbers: &'n mut [Frame],
    pub(super) frames: &'n Frames<'f>,
}

impl Contestant for Floor<'_, '_> {
    const NAME: &'static str = "lifo";

    type Allocator<'a>
        = Lifo<'a, 'a>
    where
        Self: 'a;

    fn afresh(&mut self, blocks: usize, cpus: usize) -> Option<Lifo<'_, '_>> {
        let each = part(blocks, cpus);
        let parts = numbered(self.numbers, blocks).chunks_exact_mut(each);
        let lists = parts.map(|part| own(Stack::new(part, each)));
        Some(Lifo::new(list_of(self.frames, cpus, lists)?))
    }
}

/// The first `blocks` of `list`, numbered from 0 on, whatever their content was.
fn numbered(list: &mut [Frame], blocks: usize) -> &mut [Frame] {
    let blocks = blocks.min(list.len());
    let list = list.get_mut(..blocks).unwrap_or_default();
    for (slot, number) in list.iter_mut().zip(0..) {
        *slot = Frame::new(number);
    }
    list
}

/// The length of the part of a list of `len` that each of `threads` gets.
pub(super) fn part(len: usize, threads: usize) -> usize {
    (len / threads).max(1)
}
