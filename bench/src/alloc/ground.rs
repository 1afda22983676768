//! The machine that all contestants allocate from: [`Ground`].

use crate::machine::Machine;
use firstlight::addr::{Frame, FrameRange, Order};
use std::error::Error;

/// A machine's free memory, the same for all.
#[derive(Debug)]
pub struct Ground {
    /// The machine.
    pub machine: Machine,
    /// Its free memory when the allocator comes up.
    pub free: Vec<FrameRange>,
    /// Frames in it.
    pub frames: u64,
}

impl Ground {
    /// A PC of `memory_bytes` and one node.
    ///
    /// # Errors
    /// A machine that cannot be laid out.
    pub fn new(memory_bytes: u64) -> Result<Self, Box<dyn Error>> {
        let machine = Machine::pc(memory_bytes, 1);
        let mut storage = machine.storage();
        let layout = machine.layout(&mut storage)?;
        let free: Vec<FrameRange> = layout
            .early()
            .free_ranges()
            .map(|free| free.range.inner_frames())
            .filter(|frames| !frames.is_empty())
            .collect();
        let frames = free.iter().map(|range| range.count()).sum();
        Ok(Self {
            machine,
            free,
            frames,
        })
    }

    /// Every free block of `order`, aligned to its size, ascending.
    pub fn blocks(&self, order: Order) -> impl Iterator<Item = Frame> + '_ {
        let frames = order.frames();
        self.free.iter().flat_map(move |range| {
            let first = range.start().get().next_multiple_of(frames);
            (first..range.end().get())
                .step_by(usize::try_from(frames).unwrap_or(usize::MAX))
                .filter(move |start| start + frames <= range.end().get())
                .map(Frame::new)
        })
    }

    /// How many of them there are.
    #[must_use]
    pub fn block_count(&self, order: Order) -> usize {
        self.blocks(order).count()
    }

    /// Bytes up to the end of memory.
    #[must_use]
    pub fn end_bytes(&self) -> usize {
        usize::try_from(self.machine.end_bytes()).unwrap_or(usize::MAX)
    }
}
