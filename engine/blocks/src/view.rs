//! All blocks of a machine: [`Blocks`].

use super::block::{Block, NodeLinks, ValidZones};
use super::memory::BlockMemory;
use super::size::{BlockId, BlockSize};
use super::state::BlockState;
use crate::addr::Frame;

/// Memory seen as blocks of one size. Costs nothing: it is memory and a size.
///
/// ```
/// use firstlight_blocks::{Blocks, BlockMemory, BlockSize, BlockId};
/// /// As Linux's tools would print it.
/// fn list(memory: &impl BlockMemory, size: BlockSize) {
///     for run in Blocks::new(memory, size).runs() {
///         println!("{:?}-{:?} {} {}", run.first, run.last, run.state(), run.zones());
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Blocks<M> {
    memory: M,
    size: BlockSize,
}

impl<M: BlockMemory> Blocks<M> {
    /// `memory` as blocks of `size`.
    pub const fn new(memory: M, size: BlockSize) -> Self {
        Self { memory, size }
    }

    /// The size of a block.
    pub const fn size(&self) -> BlockSize {
        self.size
    }

    /// Block `id`, if it has memory. Takes as long whichever it is and however many there are.
    pub fn get(&self, id: BlockId) -> Option<Block<'_, M>> {
        Block::new(&self.memory, id, self.size.frames_of(id)?)
    }

    /// The block `frame` lies in, if that has memory.
    pub fn of(&self, frame: Frame) -> Option<Block<'_, M>> {
        self.get(self.size.block_of(frame))
    }

    /// All blocks with memory, ascending.
    pub fn iter(&self) -> BlockIter<'_, M> {
        BlockIter {
            blocks: self,
            next: Frame::new(0),
        }
    }

    /// Runs of blocks that differ in their numbers only, ascending. Takes as long as there are runs and
    /// ranges of memory.
    pub fn runs(&self) -> BlockRuns<'_, M> {
        BlockRuns {
            blocks: self.iter(),
            ahead: None,
        }
    }

    /// How many blocks have memory. Takes as long as there are ranges of memory.
    pub fn count(&self) -> u64 {
        let (mut count, mut next) = (0, BlockId(0));
        let mut from = self.memory.piece_after(Frame::new(0));
        while let Some(piece) = from {
            let first = self.size.block_of(piece.frames.start()).max(next);
            let last = self.size.block_of(Frame::new(piece.frames.end().get() - 1));
            count += (last.0 + 1).saturating_sub(first.0);
            next = BlockId(last.0 + 1).max(next);
            from = self.memory.piece_after(piece.frames.end());
        }
        count
    }
}

impl<'a, M: BlockMemory> IntoIterator for &'a Blocks<M> {
    type Item = Block<'a, M>;
    type IntoIter = BlockIter<'a, M>;

    fn into_iter(self) -> BlockIter<'a, M> {
        self.iter()
    }
}

/// Blocks with memory, ascending; made by [`Blocks::iter`].
#[derive(Debug)]
pub struct BlockIter<'a, M> {
    blocks: &'a Blocks<M>,
    /// Blocks that end at or before this frame are done.
    next: Frame,
}

impl<'a, M: BlockMemory> Iterator for BlockIter<'a, M> {
    type Item = Block<'a, M>;

    fn next(&mut self) -> Option<Block<'a, M>> {
        let piece = self.blocks.memory.piece_after(self.next)?;
        let block = self.blocks.of(piece.frames.start().max(self.next))?;
        self.next = block.frames().end();
        Some(block)
    }
}

/// Blocks in a row that differ in their numbers only.
#[derive(Debug)]
pub struct BlockRun<'a, M> {
    /// The first.
    pub first: BlockId,
    /// The last; the first, if it is one.
    pub last: BlockId,
    block: Block<'a, M>,
}

impl<'a, M: BlockMemory> BlockRun<'a, M> {
    /// How many they are.
    pub const fn count(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }

    /// Whether they are in use.
    pub const fn state(&self) -> BlockState {
        self.block.state()
    }

    /// The zones each is in, or may join.
    pub const fn zones(&self) -> ValidZones {
        self.block.zones()
    }

    /// The nodes each has memory of, ascending.
    pub fn nodes(&self) -> NodeLinks<'a, M> {
        self.block.nodes()
    }
}

/// Runs of blocks, ascending; made by [`Blocks::runs`].
#[derive(Debug)]
pub struct BlockRuns<'a, M> {
    blocks: BlockIter<'a, M>,
    ahead: Option<Block<'a, M>>,
}

impl<'a, M: BlockMemory> BlockRuns<'a, M> {
    /// The last block in a row that is surely like `block`: up to there one range of memory covers
    /// them all.
    fn jump(&mut self, block: &Block<'a, M>) -> BlockId {
        let size = self.blocks.blocks.size;
        let until = block.same_until();
        let end = size.block_of(until);
        let last = BlockId(end.0 - 1).max(block.id());
        self.blocks.next = size.frames_of(last).map_or(until, |frames| frames.end());
        last
    }
}

impl<'a, M: BlockMemory> Iterator for BlockRuns<'a, M> {
    type Item = BlockRun<'a, M>;

    fn next(&mut self) -> Option<BlockRun<'a, M>> {
        let first = self.ahead.take().or_else(|| self.blocks.next())?;
        let mut last = self.jump(&first);
        loop {
            self.ahead = self.blocks.next();
            match self.ahead {
                Some(next) if next.id().0 == last.0 + 1 && next.is_like(&first) => {
                    last = self.jump(&next);
                }
                _ => break,
            }
        }
        Some(BlockRun {
            first: first.id(),
            last,
            block: first,
        })
    }
}
