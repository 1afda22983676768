//! What is kept of each zone of each node: [`ZoneTable`].

use super::marks::ZoneMarks;
use super::segment::NONE;
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicU32, Ordering};

/// A zone of a node.
#[derive(Debug)]
pub(crate) struct ZoneRecord {
    /// Its first segment.
    pub(super) first: u32,
    /// Which water marks it has.
    marks: AtomicU32,
}

impl Default for ZoneRecord {
    fn default() -> Self {
        let marks = AtomicU32::new(NONE);
        Self { first: NONE, marks }
    }
}

/// The zones of a node.
pub(crate) type Zones = [ZoneRecord; ZoneKind::ALL.len()];

/// The zones of all nodes, and the water marks that some have.
#[derive(Debug)]
pub(crate) struct ZoneTable<'m> {
    /// By node.
    zones: &'m [Zones],
    marks: &'m [ZoneMarks],
}

impl<'m> ZoneTable<'m> {
    /// Without water marks.
    pub(super) fn new(zones: &'m [Zones]) -> Self {
        Self { zones, marks: &[] }
    }

    /// How many nodes there are, numbered from 0.
    pub(super) fn nodes(&self) -> usize {
        self.zones.len()
    }

    /// The zones of a node.
    #[inline]
    pub(super) fn of(&self, node: NodeId) -> Option<&'m Zones> {
        self.zones.get(usize::from(node.0))
    }

    /// Counts the free frames of these zones; of two entries for one zone the first counts.
    pub(crate) fn set_marks(&mut self, marks: &'m [ZoneMarks]) {
        self.marks = marks;
        for (index, marks) in (0..NONE).zip(marks).rev() {
            let (node, zone) = marks.zone();
            if let Some(zones) = self.of(node) {
                zones[zone as usize].marks.store(index, Ordering::Relaxed);
            }
        }
    }

    /// Whether the free frames of some zones are counted.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The water marks of a zone.
    pub(super) fn marks_of(&self, node: NodeId, zone: ZoneKind) -> Option<&'m ZoneMarks> {
        let index = &self.of(node)?[zone as usize].marks;
        self.marks.get(index.load(Ordering::Relaxed) as usize)
    }
}
