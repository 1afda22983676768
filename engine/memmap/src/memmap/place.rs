//! Where a run of frames lies: [`SectionPlace`].
#![deny(unsafe_code)]

use crate::node::{NodeId, ZoneKind};

/// Node, zone and section of a run of frames: what the first content of their
/// descriptors may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionPlace {
    /// The node.
    pub node: NodeId,
    /// The zone.
    pub zone: ZoneKind,
    /// The section: frame number over [`SECTION_FRAMES`](crate::layout::SECTION_FRAMES).
    pub section: u64,
}
