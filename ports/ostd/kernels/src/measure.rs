//! What a pair of an allocation and a free costs. Under QEMU's instruction clock a tick of the
//! TSC is an instruction.

use core::alloc::Layout;

use ostd::arch::read_tsc;
use ostd::early_println;
use ostd::mm::PAGE_SIZE;
use ostd::mm::frame::GlobalFrameAllocator;

/// Pairs in a batch; the cheapest batch counts, since timer interrupts fall into some.
const PAIRS: usize = 256;
/// Batches.
const BATCHES: usize = 16;

/// Frames, alignment in frames, blocks held at a time, name.
const SHAPES: [(usize, usize, usize, &str); 8] = [
    (1, 1, 1, "one-frame"),
    (16, 1, 1, "16-frames"),
    (64, 1, 1, "64-frames"),
    (3, 1, 1, "3-frames"),
    (10, 1, 1, "10-frames"),
    (1, 512, 1, "one-aligned-to-512"),
    (4, 1, 64, "bursts-of-order-2"),
    (512, 512, 1, "a-huge-frame"),
];

/// Prints what a pair of each shape costs.
pub fn run(allocator: &dyn GlobalFrameAllocator) {
    for (frames, align, held, name) in SHAPES {
        match pair(allocator, frames, align, held) {
            Some(ticks) => early_println!("measured {} {}", name, ticks),
            None => early_println!("measured {} refused", name),
        }
    }
}

/// Ticks a pair, of `held` blocks allocated before the first of them is freed.
#[inline(never)]
fn pair(
    allocator: &dyn GlobalFrameAllocator,
    frames: usize,
    align: usize,
    held: usize,
) -> Option<u64> {
    let layout = Layout::from_size_align(frames * PAGE_SIZE, align * PAGE_SIZE).ok()?;
    let mut blocks = [0; 64];
    let blocks = blocks.get_mut(..held)?;
    let _guard = ostd::irq::disable_local();
    let mut least = u64::MAX;
    for _ in 0..BATCHES {
        let before = read_tsc();
        for _ in 0..PAIRS / held {
            for block in blocks.iter_mut() {
                *block = allocator.alloc(layout)?;
            }
            for block in blocks.iter() {
                allocator.dealloc(*block, layout.size());
            }
        }
        least = least.min(read_tsc() - before);
    }
    Some(least / PAIRS as u64)
}
