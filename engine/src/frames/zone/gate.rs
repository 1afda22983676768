//! Which zones a request may take from, by the water marks: [`Gate`].

use super::marks::ZoneMarks;
use crate::frames::request::Request;
use crate::node::{NodeId, ZoneKind};

/// Which zones a request may take from: those where enough stays free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'m> {
    marks: &'m [ZoneMarks],
    frames: u64,
    highest: ZoneKind,
}

impl<'m> Gate<'m> {
    /// For a request of `frames` frames; `None` if it may take from all.
    #[inline]
    pub(crate) fn new(marks: &'m [ZoneMarks], request: &Request, frames: u64) -> Option<Self> {
        let is_open = marks.is_empty() || request.is_from_reserve();
        (!is_open).then_some(Self {
            marks,
            frames,
            highest: request.highest_zone(),
        })
    }

    /// How many frames more than those it is for the request may take from a zone.
    pub(crate) fn most(&self, node: NodeId, zone: ZoneKind) -> u64 {
        let mut marks = self.marks.iter();
        let marks = marks.find(|marks| marks.zone() == (node, zone));
        marks.map_or(u64::MAX, |marks| {
            marks
                .above_reserve(zone < self.highest)
                .saturating_sub(self.frames)
        })
    }

    /// Whether the request may take from a zone.
    pub(crate) fn allows(&self, node: NodeId, zone: ZoneKind) -> bool {
        let mut marks = self.marks.iter();
        let marks = marks.find(|marks| marks.zone() == (node, zone));
        marks.is_none_or(|marks| marks.leaves_enough(self.frames, zone < self.highest))
    }
}
