//! Which zones a request may take from, by the water marks: [`Gate`].

use super::record::ZoneTable;
use crate::frames::request::Request;
use crate::node::{NodeId, ZoneKind};

/// Which zones a request may take from: those where enough stays free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a, 'm> {
    zones: &'a ZoneTable<'m>,
    frames: u64,
    highest: ZoneKind,
}

impl<'a, 'm> Gate<'a, 'm> {
    /// For a request of `frames` frames; `None` if it may take from all.
    #[inline]
    pub(crate) fn new(zones: &'a ZoneTable<'m>, request: &Request, frames: u64) -> Option<Self> {
        let is_open = !zones.has_marks() || request.is_from_reserve();
        (!is_open).then_some(Self {
            zones,
            frames,
            highest: request.highest_zone(),
        })
    }

    /// How many frames more than those it is for the request may take from a zone.
    pub(crate) fn most(&self, node: NodeId, zone: ZoneKind) -> u64 {
        let marks = self.zones.marks_of(node, zone);
        marks.map_or(u64::MAX, |marks| {
            let above = marks.above_reserve(self.highest);
            above.saturating_sub(self.frames)
        })
    }

    /// Whether the request may take from a zone.
    pub(crate) fn allows(&self, node: NodeId, zone: ZoneKind) -> bool {
        let marks = self.zones.marks_of(node, zone);
        marks.is_none_or(|marks| marks.leaves_enough(self.frames, self.highest))
    }
}
