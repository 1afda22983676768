//! The steps of a case, chosen at random.

use firstlight::addr::Order;
use firstlight::frames::Request;
use firstlight::node::{NodeId, ZoneKind};
use proptest::prelude::*;

use crate::cpu_model::CPUS;
use crate::kit::{GIB, MIB};

/// The way of a call: through a CPU, or past all caches.
pub(crate) type Via = Option<usize>;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Allocate(Via, Wanted),
    /// So many pages or huge frames, one after the other.
    Many(Via, Wanted, usize),
    /// Frees what was allocated, all of it or a part.
    Free(Via, usize, u8, u64),
    FreeMany(Via, usize, usize),
    AllocateAt(u64, u8),
    /// Frees anything at all of which a part is free, or that is no memory.
    Wild(Via, u64, u8),
    /// Frees a page or a huge frame twice.
    Twice(Via, Via, usize),
    Drain(usize),
    Poll(usize),
    Leave(usize, u16),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) order: u8,
    pub(crate) movable: bool,
    pub(crate) zone: Option<usize>,
    pub(crate) node: Option<u16>,
    pub(crate) only_on_it: bool,
}

impl Wanted {
    pub(crate) fn request(self) -> Request {
        let mut request = Request::new(Order::new(self.order).unwrap());
        if self.movable {
            request = request.movable();
        }
        if let Some(zone) = self.zone {
            request = request.zone(ZoneKind::ALL[zone]);
        }
        match self.node {
            Some(node) if self.only_on_it => request.only_on(NodeId(node)),
            Some(node) => request.on(NodeId(node)),
            None => request,
        }
    }
}

pub(crate) fn via() -> impl Strategy<Value = Via> {
    prop_oneof![1 => Just(None), 5 => (0..CPUS).prop_map(Some)]
}

pub(crate) fn orders() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0u8), 3 => Just(9u8), 3 => 1u8..=8, 1 => 10u8..=13]
}

pub(crate) fn wanted() -> impl Strategy<Value = Wanted> {
    let zone = prop_oneof![5 => Just(None), 1 => (0usize..4).prop_map(Some)];
    let node = prop_oneof![3 => Just(None), 1 => (0u16..2).prop_map(Some)];
    (orders(), any::<bool>(), zone, node, any::<bool>()).prop_map(
        |(order, movable, zone, node, only_on_it)| Wanted {
            order,
            movable,
            zone,
            node,
            only_on_it,
        },
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let most: usize = if cfg!(miri) { 40 } else { 700 };
    let starts = || {
        let bases = [MIB, 9 * MIB, 4 * GIB, 4 * GIB + 11 * MIB, 5 * GIB];
        (proptest::sample::select(bases.to_vec()), 0..8192u64)
            .prop_map(|(base, more)| (base / 4096 + more).saturating_sub(100))
    };
    prop_oneof![
        6 => (via(), wanted()).prop_map(|(via, wanted)| Step::Allocate(via, wanted)),
        4 => (via(), wanted(), 1..most).prop_map(|(via, wanted, count)| Step::Many(via, wanted, count)),
        5 => (via(), any::<usize>(), orders(), any::<u64>())
            .prop_map(|(via, pick, order, part)| Step::Free(via, pick, order, part)),
        4 => (via(), any::<usize>(), 1..most).prop_map(|(via, pick, count)| Step::FreeMany(via, pick, count)),
        1 => (starts(), orders()).prop_map(|(frame, order)| Step::AllocateAt(frame, order)),
        1 => (via(), starts(), orders()).prop_map(|(via, frame, order)| Step::Wild(via, frame, order)),
        1 => (via(), via(), any::<usize>()).prop_map(|(via, other, pick)| Step::Twice(via, other, pick)),
        1 => (0..CPUS).prop_map(Step::Drain),
        1 => (0..CPUS).prop_map(Step::Poll),
        1 => (0..CPUS, 0u16..2).prop_map(|(cpu, node)| Step::Leave(cpu, node)),
    ]
}
