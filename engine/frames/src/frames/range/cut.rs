//! Up to a huge frame of frames, anywhere: the start of the smallest block that holds them.
//!
//! It costs what a block does, however finely memory is broken up: no range is tried frame by frame. The rest of the
//! block stays free.

use crate::addr::{FrameRange, Order};
use crate::frames::request::Request;
use crate::frames::search::BlockRequest;
use crate::frames::word::geometry::HUGE_ORDER;
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

/// What frames that are requested are the start of. None for zeros: these are looked for frame by frame.
#[inline(always)]
pub(crate) fn of(
    frames: u64,
    align_frames: u64,
    request: &Request,
) -> Option<BlockRequest<'static>> {
    if request.is_zeroed() {
        return None;
    }
    let align_less_one = (align_frames - 1) | (request.order().frames() - 1);
    let order = order_of((frames - 1) | align_less_one)?;
    Some(BlockRequest {
        spare: u32::try_from(order.frames() - frames).ok()?,
        ..BlockRequest::block(order.get(), request.mobility())
    })
}

/// Takes what is wanted from this node.
pub(crate) fn allocate(
    nodes: &Nodes<'_>,
    node: NodeId,
    request: &Request,
    want: BlockRequest<'_>,
) -> Option<FrameRange> {
    let start = nodes.take_once(node, request, want)?;
    let row = FrameRange::of(start, want.frames().into());
    nodes.count_range(row, -1);
    Some(row)
}
