//! Room for tables, taken from early memory where it disturbs least.

use super::{Layout, Zone};
use crate::addr::{Order, PAGE_BYTES, PhysRange};
use crate::early::{EarlyError, EarlyRequest};
use crate::node::{NodeId, ZoneKind};

/// No place had room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// Bytes that were needed in one piece.
    pub(crate) needed_bytes: u64,
    /// What early memory answered in the end.
    pub(crate) cause: EarlyError,
}

impl Layout<'_> {
    /// Takes `bytes` for tables of `node` from early memory. Best on the node
    /// itself and below Movable zones, which are to stay free of what can't
    /// move; then outside all Movable zones; then anywhere. Where it is much,
    /// best as whole huge frames: they cost no bitmap and leave no rest.
    pub(crate) fn take_room(
        &mut self,
        node: NodeId,
        bytes: u64,
        owner: &'static str,
    ) -> Result<PhysRange, NoRoom> {
        let movable = |zone: &&Zone| zone.kind == ZoneKind::Movable;
        let own = self
            .zones()
            .iter()
            .filter(movable)
            .find(|zone| zone.node == node);
        let own = own.map(|zone| zone.span.start().addr());
        let lowest = self
            .zones()
            .iter()
            .filter(movable)
            .map(|zone| zone.span.start().addr())
            .min();
        let request = EarlyRequest::new(bytes, PAGE_BYTES, owner).on(node);
        let places = [(true, own), (false, lowest), (true, None), (false, None)];
        let aligns = [Order::HUGE.bytes(), PAGE_BYTES];
        let mut refused = NoRoom {
            needed_bytes: bytes,
            cause: EarlyError::ZeroBytes { owner },
        };
        for (exact_node, max) in places {
            for align in aligns
                .into_iter()
                .filter(|&align| bytes >= align || align == PAGE_BYTES)
            {
                // More than the address space has is no room either.
                let bytes = bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX);
                match self.early.allocate(&EarlyRequest {
                    bytes,
                    align,
                    exact_node,
                    max,
                    ..request
                }) {
                    Ok(range) => return Ok(range),
                    Err(cause) => {
                        refused = NoRoom {
                            needed_bytes: bytes,
                            cause,
                        }
                    }
                }
            }
        }
        Err(refused)
    }
}
