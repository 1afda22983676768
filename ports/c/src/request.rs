//! Which block is wanted: [`fl_request`].

use engine::addr::{Frame, Order, PAGE_BYTES};
use engine::frames::{AllocError, Request};
use engine::node::{NodeId, ZoneKind};

use crate::check;
use crate::error::fl_error::{self, *};

/// The largest order: a block of 1 GiB.
pub const FL_MAX_ORDER: u32 = 18;
/// The order of a block of 2 MiB.
pub const FL_HUGE_ORDER: u32 = 9;

/// Bytes in a frame.
pub const FL_FRAME_BYTES: u64 = 4096;

/// Frames below 16 MiB.
pub const FL_ZONE_DMA: u32 = 0;
/// Frames from 16 MiB to 4 GiB.
pub const FL_ZONE_DMA32: u32 = 1;
/// Frames from 4 GiB up.
pub const FL_ZONE_NORMAL: u32 = 2;
/// Frames for content that can be moved; a span has none.
pub const FL_ZONE_MOVABLE: u32 = 3;

/// fl_request.node is preferred; then the others, by their distance from it.
pub const FL_ON_NODE: u32 = 1;
/// Only the preferred node will do; with FL_ON_NODE.
pub const FL_THIS_NODE_ONLY: u32 = 2;
/// fl_request.zone and those below it will do.
pub const FL_UP_TO_ZONE: u32 = 4;
/// Only fl_request.zone will do.
pub const FL_ONLY_ZONE: u32 = 8;
/// The content can be moved: it is kept apart from what can't be.
pub const FL_MOVABLE: u32 = 16;
/// Rather fail than drain CPUs' caches: for a large block that smaller ones can replace.
pub const FL_NO_DRAIN: u32 = 32;

const _: () = assert!(FL_MAX_ORDER == Order::GIANT.get() as u32);
const _: () = assert!(FL_HUGE_ORDER == Order::HUGE.get() as u32);
const _: () = assert!(FL_FRAME_BYTES == PAGE_BYTES);
const _: () = assert!(FL_ZONE_DMA == ZoneKind::Dma as u32);
const _: () = assert!(FL_ZONE_DMA32 == ZoneKind::Dma32 as u32);
const _: () = assert!(FL_ZONE_NORMAL == ZoneKind::Normal as u32);
const _: () = assert!(FL_ZONE_MOVABLE == ZoneKind::Movable as u32);

const ALL_FLAGS: u32 =
    FL_ON_NODE | FL_THIS_NODE_ONLY | FL_UP_TO_ZONE | FL_ONLY_ZONE | FL_MOVABLE | FL_NO_DRAIN;

/// Which block is wanted. All zero is one frame from the CPU's own node, in zone Normal or below.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fl_request {
    /// The block has 2^order frames and is aligned to its size. Where the number of frames is an
    /// argument, the least alignment.
    pub order: u32,
    /// The sum of flags FL_ON_NODE to FL_NO_DRAIN.
    pub flags: u32,
    /// With FL_ON_NODE; else 0.
    pub node: u32,
    /// With FL_UP_TO_ZONE or FL_ONLY_ZONE; else 0.
    pub zone: u32,
    /// NULL, or where FL_OUT_OF_MEMORY stores the number of frames that other CPUs cache and
    /// whose drain is pending: if it is not 0, another attempt may succeed.
    pub held_by_cpus: *mut u64,
}

impl fl_request {
    /// The engine's form of the request.
    pub(crate) fn to_engine(self) -> Result<Request, fl_error> {
        let has = |flag| self.flags & flag != 0;
        let both = has(FL_UP_TO_ZONE) && has(FL_ONLY_ZONE);
        let names_node = has(FL_ON_NODE) || self.node == 0 && !has(FL_THIS_NODE_ONLY);
        let names_zone = has(FL_UP_TO_ZONE) || has(FL_ONLY_ZONE) || self.zone == 0;
        if self.flags & !ALL_FLAGS != 0 || both || !names_node || !names_zone {
            return Err(FL_BAD_FLAGS);
        }
        if !self.held_by_cpus.is_null() {
            check::pointer(self.held_by_cpus)?;
        }
        let mut request = Request::new(check::order(self.order)?);
        if has(FL_MOVABLE) {
            request = request.movable();
        }
        if has(FL_THIS_NODE_ONLY) {
            request = request.only_on(node(self.node)?);
        } else if has(FL_ON_NODE) {
            request = request.on(node(self.node)?);
        }
        if has(FL_UP_TO_ZONE) {
            request = request.zone(zone(self.zone)?);
        }
        if has(FL_ONLY_ZONE) {
            request = request.only_zone(zone(self.zone)?);
        }
        if has(FL_NO_DRAIN) {
            request = request.no_drain();
        }
        Ok(request)
    }
}

/// Stores the address of what `find` finds for a request; where CPUs hold what it lacks, how much
/// goes where the request says.
///
/// # Safety
/// `request` and `address` are null, misaligned, or point to a request and a number of the
/// caller's; `held_by_cpus` of the request is null, or points to a number of the caller's.
#[inline(always)]
pub(crate) unsafe fn allocate(
    request: *const fl_request,
    address: *mut u64,
    find: impl FnOnce(Request) -> Result<Result<Frame, AllocError>, fl_error>,
) -> Result<(), fl_error> {
    let address = check::pointer(address)?;
    // SAFETY: by the contract.
    let wanted = unsafe { *check::shared(request)? };
    let found = find(wanted.to_engine()?)?.inspect_err(|error| {
        if matches!(error, AllocError::OutOfMemory { .. }) && !wanted.held_by_cpus.is_null() {
            // SAFETY: the caller's, not null; `to_engine` found it aligned.
            unsafe { wanted.held_by_cpus.write(error.held_by_cpus()) };
        }
    });
    // SAFETY: the caller's, not null, aligned.
    unsafe { address.write(found?.addr().get()) };
    Ok(())
}

/// A node's number.
pub(crate) fn node(number: u32) -> Result<NodeId, fl_error> {
    u16::try_from(number)
        .map(NodeId)
        .map_err(|_| FL_NO_SUCH_NODE)
}

/// A zone's number.
pub(crate) fn zone(number: u32) -> Result<ZoneKind, fl_error> {
    let index = usize::try_from(number).map_err(|_| FL_NO_SUCH_ZONE)?;
    ZoneKind::ALL.get(index).copied().ok_or(FL_NO_SUCH_ZONE)
}
