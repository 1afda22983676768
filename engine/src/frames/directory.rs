//! Which segment a frame lies in, and in which order segments are asked.
//!
//! Segments are kept by address. Those of one node and zone are chained in
//! that order; `heads` holds the first of each chain. Everything lies in
//! metadata memory, sized by the number of segments and nodes.

use super::allocate::Search;
use super::geometry::Block;
use super::place::{NONE, Place};
use super::segment::Segment;
use crate::addr::Frame;
use crate::node::{NodeId, ZoneKind};
use crate::sync::pause;

/// First segment of each zone of a node.
pub(crate) type Heads = [u32; ZoneKind::ALL.len()];

/// All segments of a machine.
#[derive(Debug)]
pub(crate) struct Directory<'m> {
    /// By ascending address.
    pub(crate) places: &'m [Place<'m>],
    /// By node.
    pub(crate) heads: &'m [Heads],
}

impl<'m> Directory<'m> {
    /// Chains `places`, which are in ascending order, by node and zone.
    /// Every node number must be below the length of `heads`.
    pub(crate) fn new(places: &'m mut [Place<'m>], heads: &'m mut [Heads]) -> Self {
        heads.fill([NONE; ZoneKind::ALL.len()]);
        // From the last to the first, so that each chain ascends.
        let mut index = u32::try_from(places.len()).unwrap_or(NONE);
        for place in places.iter_mut().rev() {
            index -= 1;
            let head = &mut heads[usize::from(place.node.0)][place.zone as usize];
            place.next = core::mem::replace(head, index);
        }
        Self { places, heads }
    }

    /// The segment that covers all of `block`.
    pub(crate) fn segment_of(&self, block: Block) -> Option<&Segment<'m>> {
        let segment = self.segment_at(block.start)?;
        segment.frames.covers(block.range()).then_some(segment)
    }

    /// The segment `frame` lies in.
    pub(crate) fn segment_at(&self, frame: Frame) -> Option<&Segment<'m>> {
        let after = self
            .places
            .partition_point(|place| place.frames().start() <= frame);
        let place = self.places.get(after.checked_sub(1)?)?;
        place.frames().contains(frame).then(|| place.segment())
    }

    /// The segments of a node and zone, ascending.
    pub(crate) fn chain(&self, node: NodeId, zone: ZoneKind) -> impl Iterator<Item = &Place<'m>> {
        let head = self
            .heads
            .get(usize::from(node.0))
            .map_or(NONE, |zones| zones[zone as usize]);
        let place = |index: u32| self.places.get(index as usize);
        core::iter::successors(place(head), move |at| place(at.next))
    }

    /// Takes a block of `order` on `node`, from its `highest` zone down.
    #[inline]
    pub(crate) fn allocate_on(&self, node: NodeId, highest: ZoneKind, order: u8) -> Search {
        let mut nothing = Search::Nothing;
        for place in self.places_on(node, highest) {
            match place.segment().allocate(order) {
                Search::Nothing => {}
                Search::Busy => nothing = Search::Busy,
                found @ Search::Found(_) => return found,
            }
        }
        nothing
    }

    /// Takes a block of `order` from the first of `nodes` that has one.
    ///
    /// Before it says that there is none, it has looked at all of them between
    /// two readings of the giant words that agree: a block that wandered from
    /// where it was not yet looked at to where it had been is not missed.
    pub(crate) fn allocate(
        &self,
        nodes: impl Iterator<Item = NodeId> + Clone,
        highest: ZoneKind,
        order: u8,
    ) -> Option<Frame> {
        let mut before = None;
        loop {
            let mut nothing = Search::Nothing;
            for node in nodes.clone() {
                match self.allocate_on(node, highest, order) {
                    Search::Nothing => {}
                    Search::Busy => nothing = Search::Busy,
                    Search::Found(frame) => return Some(frame),
                }
            }
            if nothing == Search::Busy {
                pause();
                continue;
            }
            let places = nodes.clone().flat_map(|node| self.places_on(node, highest));
            let now = places.fold(0, |sum: u64, place| {
                sum.rotate_left(1) ^ place.segment().fingerprint()
            });
            if before == Some(now) {
                return None;
            }
            before = Some(now);
        }
    }

    /// The segments of `node`, from its `highest` zone down.
    fn places_on(&self, node: NodeId, highest: ZoneKind) -> impl Iterator<Item = &Place<'m>> {
        let zones = ZoneKind::ALL
            .into_iter()
            .rev()
            .filter(move |&zone| zone <= highest);
        zones.flat_map(move |zone| self.chain(node, zone))
    }
}
