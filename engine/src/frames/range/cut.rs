//! Up to a huge frame of frames, anywhere: the start of the smallest block that holds them.
//!
//! It costs what a block does, however finely memory is broken up: no range is tried frame by frame. What is left of the
//! block is free again at once.

use crate::addr::{FrameRange, Order};
use crate::frames::request::Request;
use crate::frames::word::geometry::{HUGE_ORDER, blocks_up_to};
use crate::frames::zone::Nodes;
use crate::node::NodeId;

/// Order of the smallest block of so many frames, so aligned, if that is a huge frame at most. `less_one` is the
/// number less one, or of several the bits that are set in any.
#[inline(always)]
pub(crate) fn order_of(less_one: u64) -> Option<Order> {
    let order = u64::BITS - less_one.leading_zeros();
    if order <= u32::from(HUGE_ORDER) {
        Order::new(u8::try_from(order).ok()?)
    } else {
        None
    }
}

/// Order of the block that a request is cut from. None for zeros: the rest would be zeroed, too.
pub(crate) fn order(frames: u64, align_frames: u64, request: &Request) -> Option<Order> {
    if request.is_zeroed() {
        return None;
    }
    order_of((frames - 1) | (align_frames - 1))
}

/// Takes a block of the request's order from this node and gives back what is past `frames` of it.
pub(crate) fn allocate(
    nodes: &Nodes<'_>,
    node: NodeId,
    frames: u64,
    request: &Request,
) -> Option<FrameRange> {
    let all = request.order().frames();
    // Searches beside it must not take for used up what is given back.
    let mut call = (frames < all).then(|| nodes.segments.range_calls.begin());
    let start = nodes.take_once(node, request)?;
    if let Some(call) = &mut call {
        // There: memory of which some is allocated stays.
        let online = nodes.segments.at(start)?.online()?;
        for rest in blocks_up_to(start.get() + frames, start.get() + all) {
            // An error: another call freed what it did not have.
            let _ = online.give(rest);
        }
        call.undo();
    }
    let row = FrameRange::of(start, frames);
    nodes.count_range(row, -1);
    Some(row)
}
