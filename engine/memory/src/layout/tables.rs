//! Early memory for tables, where it disturbs least.

use core::fmt;

use super::{Layout, Zone};
use crate::addr::{Order, PAGE_BYTES, PhysRange};
use crate::early::{EarlyError, EarlyRequest};
use crate::node::{NodeId, ZoneKind};

/// No memory for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace {
    /// Bytes that were needed in one piece.
    pub needed_bytes: u64,
    /// Early memory's last error.
    pub cause: EarlyError,
}

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            needed_bytes,
            cause,
        } = self;
        write!(f, "no memory for a table of {needed_bytes} bytes: {cause}")
    }
}

impl core::error::Error for NoSpace {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl Layout<'_> {
    /// Allocates `bytes` of early memory for tables of `node`, reserved for ever: on
    /// the node itself below Movable zones, which stay free of what can't move; else
    /// outside all Movable zones; else anywhere. Whole huge frames if possible, and if that adds at
    /// most an eighth: they cost no bitmap and leave no rest.
    ///
    /// # Errors
    /// [`NoSpace`], with early memory's last error.
    pub fn allocate_table(
        &mut self,
        node: NodeId,
        bytes: u64,
        owner: &'static str,
    ) -> Result<PhysRange, NoSpace> {
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
        let mut refused = NoSpace {
            needed_bytes: bytes,
            cause: EarlyError::ZeroBytes { owner },
        };
        for (exact_node, max) in places {
            for (align, whole) in aligns
                .into_iter()
                // More than the address space has is refused as too much.
                .map(|align| {
                    (
                        align,
                        bytes.checked_next_multiple_of(align).unwrap_or(u64::MAX),
                    )
                })
                .filter(|&(align, whole)| whole - bytes <= bytes / 8 || align == PAGE_BYTES)
            {
                let bytes = whole;
                match self.early.allocate(&EarlyRequest {
                    bytes,
                    align,
                    exact_node,
                    max,
                    ..request
                }) {
                    Ok(range) => return Ok(range),
                    Err(cause) => {
                        refused = NoSpace {
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
