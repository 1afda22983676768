//! Memory of a table: chunks of one size, spread over nodes, zero.

use core::slice;

use super::error::TableError;
use super::open::Slot;
use super::size::TableSize;
use crate::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use crate::frames::{Frames, Request};
use crate::node::NodeId;
use crate::platform::Platform;

/// Chunks for each node of a table on several: few, so that the list is short; more than one, so that nodes
/// whose number is no power of two have nearly the same share.
const CHUNKS_A_NODE: u64 = 4;

/// A part of a table's memory: a block of frames that is the table's, and holds zeros.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    frame: Frame,
    order: Order,
}

impl Chunk {
    /// Its frames.
    pub fn frames(&self) -> FrameRange {
        FrameRange::block(self.frame, self.order).unwrap_or_default()
    }
}

/// The order of the chunks of a table of `size` on so many nodes: one block on one node, if it
/// is no larger than 1 GiB; at least four blocks a node, where it has so many pages.
pub fn chunk_order(size: TableSize, nodes: usize) -> Order {
    let pages = pages(size);
    let least = match nodes {
        0 | 1 => 1,
        more => CHUNKS_A_NODE.saturating_mul(more as u64),
    };
    let order = (pages / least.min(pages)).ilog2();
    let order = u8::try_from(order).ok().and_then(Order::new);
    order.unwrap_or(Order::GIANT)
}

/// How many chunks that are: a power of two.
pub fn chunks(size: TableSize, nodes: usize) -> u64 {
    pages(size) / chunk_order(size, nodes).frames()
}

/// Pages of a table, a power of two.
fn pages(size: TableSize) -> u64 {
    let pages = size.bytes.div_ceil(PAGE_BYTES).max(1);
    pages.checked_next_power_of_two().unwrap_or(1 << 63)
}

/// Takes the memory of a table of `size`, chunk after chunk from each of `nodes` in turn (from the nearest
/// with memory, where one is exhausted), and returns it at the start of `list`. All of it holds zeros: known ones, or
/// written by [`Hooks::zero`](crate::frames::Hooks::zero), one call a chunk.
///
/// ```
/// use firstlight_frames::frames::Frames;
/// use firstlight_frames::node::NodeId;
/// use firstlight_workers::tables::{self, Chunk, TableError, TableSize};
///
/// fn over_two_nodes<'l>(
///     frames: &Frames<'_>,
///     size: TableSize,
///     list: &'l mut [Option<Chunk>; 16],
/// ) -> Result<&'l mut [Option<Chunk>], TableError> {
///     tables::allocate(frames, size, &[NodeId(0), NodeId(1)], list)
/// }
/// ```
///
/// # Errors
/// [`TableError::List`] with the number of chunks, [`TableError::NoNode`],
/// [`TableError::OutOfMemory`].
pub fn allocate<'l>(
    frames: &Frames<'_>,
    size: TableSize,
    nodes: &[NodeId],
    list: &'l mut [Option<Chunk>],
) -> Result<&'l mut [Option<Chunk>], TableError> {
    let order = chunk_order(size, nodes.len());
    let (capacity, needed) = (list.len(), chunks(size, nodes.len()));
    let count = usize::try_from(needed).unwrap_or(usize::MAX);
    let list = list
        .get_mut(..count)
        .ok_or(TableError::List { capacity, needed })?;
    let mut turns = nodes.iter().cycle();
    for done in 0..count {
        let node = turns.next().ok_or(TableError::NoNode)?;
        match frames.allocate(Request::new(order).on(*node).zeroed()) {
            Ok(frame) => list[done] = Some(Chunk { frame, order }),
            Err(cause) => {
                free(frames, &mut list[..done]);
                return Err(TableError::OutOfMemory {
                    bytes: size.bytes,
                    done_bytes: done as u64 * order.bytes(),
                    cause,
                });
            }
        }
    }
    Ok(list)
}

/// Frees chunks that were not [mapped](map).
pub fn free(frames: &Frames<'_>, list: &mut [Option<Chunk>]) {
    for chunk in list.iter_mut().filter_map(Option::take) {
        // An error: another call freed what was not its own.
        let _ = frames.free(chunk.frame, chunk.order);
    }
}

/// A chunk as slots, for as long as the platform is there: its frames are never freed. `None` if the
/// platform can't reach it; the chunk is lost then.
///
/// # Safety
/// Through `platform` the frames hold the zeros that [`allocate`] promises: hooks that zero reach the same
/// memory, and so did what made it known to be zero. No code frees frames that are not its own
/// (the [rule of frees](crate::frames#the-rule-of-frees)): a chunk that is freed while it is mapped is the next
/// owner's as well.
#[expect(
    clippy::mut_from_ref,
    reason = "the chunk is consumed: its frames are mapped once"
)]
pub unsafe fn map(platform: &impl Platform, chunk: Chunk) -> Option<&mut [Slot]> {
    let range = chunk.frames().addrs();
    let first = platform.map(range)?.cast::<Slot>();
    let slots = usize::try_from(range.bytes()).ok()? / size_of::<Slot>();
    // SAFETY: the platform's promise: mapped for as long as it is borrowed. Used by nothing else: the chunk was
    // allocated, is consumed, and no code frees it by the caller's promise. Pages are aligned more strictly than slots. All-zero is a valid slot,
    // and zeros are there by the caller's promise.
    Some(unsafe { slice::from_raw_parts_mut(first.as_ptr(), slots) })
}
