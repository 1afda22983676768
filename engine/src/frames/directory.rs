//! Which segment a frame lies in, and in which order segments are asked.
//!
//! Segments are kept by address. Those of one node and zone are chained in
//! that order; `heads` holds the first of each chain. Everything lies in
//! metadata memory, sized by the number of segments and nodes.

use super::allocate::{Search, Seen, Want};
use super::geometry::Block;
use super::place::{NONE, Place};
use super::range::RangeCalls;
use super::request::Zones;
use super::segment::Segment;
use crate::addr::Frame;
use crate::node::{NodeId, ZoneKind};
use crate::sync::pause;

/// How often to look for a block of several pages while the words keep changing.
const LOOKS: u32 = 64;

/// First segment of each zone of a node.
pub(crate) type Heads = [u32; ZoneKind::ALL.len()];

/// All segments of a machine.
#[derive(Debug)]
pub(crate) struct Directory<'m> {
    /// By ascending address.
    pub(crate) places: &'m [Place<'m>],
    /// By node.
    pub(crate) heads: &'m [Heads],
    /// Who is taking a range just now.
    pub(crate) range_calls: RangeCalls,
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
        let range_calls = RangeCalls::new();
        Self {
            places,
            heads,
            range_calls,
        }
    }

    /// The segment that covers all of `block`.
    pub(crate) fn segment_of(&self, block: Block) -> Option<&Segment<'m>> {
        self.place_of(block).map(Place::segment)
    }

    /// The same, with its node and zone.
    pub(crate) fn place_of(&self, block: Block) -> Option<&Place<'m>> {
        let place = self.place_at(block.start)?;
        place.frames().covers(block.range()).then_some(place)
    }

    /// The segment `frame` lies in.
    pub(crate) fn segment_at(&self, frame: Frame) -> Option<&Segment<'m>> {
        self.place_at(frame).map(Place::segment)
    }

    /// The segment `frame` lies in, with its node and zone.
    pub(crate) fn place_at(&self, frame: Frame) -> Option<&Place<'m>> {
        let after = self
            .places
            .partition_point(|place| place.frames().start() <= frame);
        let place = self.places.get(after.checked_sub(1)?)?;
        place.frames().contains(frame).then_some(place)
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

    /// Takes a block on `node`, from the highest of `zones` down; from huge frames of the
    /// other mobility only where there is nothing else.
    pub(crate) fn allocate_on(
        &self,
        node: NodeId,
        zones: Zones,
        want: Want,
        seen: &mut Seen,
    ) -> Search {
        seen.mixed = false;
        let places = || self.places_on(node, zones).map(Place::segment);
        let search = first(places(), |segment| segment.allocate(want, seen));
        if search == Search::Nothing && seen.mixed {
            return first(places(), |segment| segment.allocate_mixed(want));
        }
        search
    }

    /// Takes a block from the first of `nodes` that has one.
    ///
    /// Before it says that there is none, it has looked at all of them twice, and
    /// the giant words agreed: between the two all of them said so at the same
    /// moment. A block that wandered from where it was not yet looked at to where
    /// it had been is not missed. Nor is what a call gives back that failed to take a
    /// range. Larger blocks than pages are given up after some looks that saw none if
    /// the words never agree: other CPUs may never rest.
    pub(crate) fn allocate(
        &self,
        nodes: impl Iterator<Item = NodeId> + Clone,
        zones: Zones,
        want: Want,
    ) -> Option<Frame> {
        let (mut before, mut looks) = (None, 0);
        loop {
            let mut seen = Seen::default();
            match first(nodes.clone(), |node| {
                self.allocate_on(node, zones, want, &mut seen)
            }) {
                Search::Found(frame) => return Some(frame),
                Search::Busy => pause(),
                Search::Nothing => {
                    let calls = self.range_calls.seen();
                    let now = Some((seen.words, calls));
                    looks += 1;
                    if before == now && calls.is_quiet() || want.order > 0 && looks == LOOKS {
                        return None;
                    }
                    before = now;
                    if !calls.is_quiet() {
                        pause();
                    }
                }
            }
        }
    }

    /// The segments of `node`, from the highest of `zones` down.
    pub(super) fn places_on(&self, node: NodeId, zones: Zones) -> impl Iterator<Item = &Place<'m>> {
        let downwards = ZoneKind::ALL.into_iter().rev();
        downwards
            .filter(move |&zone| zones.contain(zone))
            .flat_map(move |zone| self.chain(node, zone))
    }
}

/// The first block found in `places`; else whether one of them was busy.
fn first<P>(places: impl Iterator<Item = P>, mut search: impl FnMut(P) -> Search) -> Search {
    let mut nothing = Search::Nothing;
    for place in places {
        match search(place) {
            Search::Nothing => {}
            Search::Busy => nothing = Search::Busy,
            found @ Search::Found(_) => return found,
        }
    }
    nothing
}
