//! What is done to a machine: a step checks what comes of it, and brings the model along.

extern crate std;

pub(super) mod blocks;
pub(super) mod borrow;
pub(super) mod cpus;
pub(super) mod hotplug;
pub(super) mod isolation;
pub(super) mod ranges;

use core::fmt::{Debug, Formatter, Result};
use std::boxed::Box;

use super::machine::Machine;
use super::plain::HUGE;
use crate::addr::{FrameRange, Order};
use crate::frames::Request;
use crate::frames::tests::kit::frames;
use crate::frames::word::geometry::{GIANT_FRAMES, HUGE_ORDER};
use crate::node::{NodeId, ZoneKind};
use proptest::prelude::*;

pub(super) trait Step: Debug {
    fn take(&self, on: &mut Machine);
}

/// A step of any kind.
pub(super) type AnyStep = Box<dyn Step>;
/// Steps of one kind or several, drawn at random.
pub(super) type Steps = BoxedStrategy<AnyStep>;

/// A step: its name, what was drawn for it, and what it does.
struct Drawn<T>(&'static str, T, fn(&mut Machine, T));

impl<T: Debug> Debug for Drawn<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {:?}", self.0, self.1)
    }
}

impl<T: Debug + Clone> Step for Drawn<T> {
    fn take(&self, on: &mut Machine) {
        (self.2)(on, self.1.clone());
    }
}

fn step<S>(name: &'static str, made: S, take: fn(&mut Machine, S::Value)) -> Steps
where
    S: Strategy<Value: Clone + 'static> + 'static,
{
    let made = made.prop_map(move |made| Box::new(Drawn(name, made, take)) as AnyStep);
    made.boxed()
}

/// The way of a call: past all caches, or through a CPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Shared,
    Cpu(usize),
}

/// Past all caches, or through one of so many CPUs.
pub(super) fn via(cpus: usize) -> BoxedStrategy<Via> {
    match cpus {
        0 => Just(Via::Shared).boxed(),
        1 => prop_oneof![1 => Just(Via::Shared), 2 => Just(Via::Cpu(0))].boxed(),
        _ => prop_oneof![1 => Just(Via::Shared), 5 => (0..cpus).prop_map(Via::Cpu)].boxed(),
    }
}

/// Orders up to this one; most are of pages and huge frames.
pub(super) fn orders(most: u8) -> BoxedStrategy<u8> {
    let between = prop_oneof![3 => 1..HUGE_ORDER, 2 => HUGE_ORDER + 1..most];
    prop_oneof![4 => Just(0), 2 => Just(HUGE_ORDER), 1 => Just(most), 5 => between].boxed()
}

/// Requests for any mobility, for one of so many nodes or any, and for a zone up to one of these or any.
pub(super) fn requests(
    orders: BoxedStrategy<u8>,
    nodes: u16,
    zones: &'static [ZoneKind],
) -> BoxedStrategy<Request> {
    let zone = prop::option::of(prop::sample::select(zones));
    let node = prop::option::weighted(0.75, (0..nodes, any::<bool>()));
    let made = (orders, any::<bool>(), zone, node).prop_map(|(order, movable, zone, node)| {
        let request = Request::new(Order::new(order).unwrap());
        let request = if movable { request.movable() } else { request };
        let request = zone.map_or(request, |zone| request.zone(zone));
        match node {
            Some((node, true)) => request.only_on(NodeId(node)),
            Some((node, false)) => request.on(NodeId(node)),
            None => request,
        }
    });
    made.boxed()
}

/// A number of frames of any scale; small ones under Miri.
pub(super) fn lens() -> BoxedStrategy<u64> {
    let small = prop_oneof![
        3 => 1u64..40,
        2 => 60u64..70,
        3 => HUGE - 12..2 * HUGE + 76,
        1 => (1u64..4).prop_map(|n| n * HUGE),
    ];
    let large = prop_oneof![
        2 => (1..GIANT_FRAMES / HUGE + 88).prop_map(|n| n * HUGE),
        2 => 1u64..2 * GIANT_FRAMES,
        2 => (GIANT_FRAMES - 600)..(GIANT_FRAMES + 600),
        1 => (1u64..4).prop_map(|n| n * GIANT_FRAMES),
    ];
    if cfg!(miri) {
        small.boxed()
    } else {
        prop_oneof![3 => small, 2 => large].boxed()
    }
}

/// Frames of a block, which begins where its order allows, or any number of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    Block(u8),
    Frames(u64),
}

/// Frames around where something begins or ends: memory, what is reserved, or what was allocated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    border: usize,
    off: i64,
    size: Size,
}

pub(super) fn blocks_at(orders: BoxedStrategy<u8>) -> BoxedStrategy<Place> {
    anywhere(orders.prop_map(Size::Block))
}

pub(super) fn ranges_at() -> BoxedStrategy<Place> {
    anywhere(lens().prop_map(Size::Frames))
}

fn anywhere(sizes: impl Strategy<Value = Size> + 'static) -> BoxedStrategy<Place> {
    let huges = (-3i64..4).prop_map(|n| n * HUGE.cast_signed());
    let off = prop_oneof![3 => -3i64..3, 2 => -600i64..600, 1 => huges, 1 => 0i64..8192];
    let made = (any::<usize>(), off, sizes);
    made.prop_map(|(border, off, size)| Place { border, off, size })
        .boxed()
}

impl Place {
    fn range(self, on: &Machine) -> FrameRange {
        let at = self.border % (on.borders.len() + 2 * on.held.len());
        let border = on.borders.get(at).copied().unwrap_or_else(|| {
            let (held, _) = on.held[(at - on.borders.len()) / 2];
            let ends = [held.start(), held.end()];
            ends[at % 2]
        });
        let start = border.get().saturating_add_signed(self.off);
        match self.size {
            Size::Block(order) => frames(start >> order << order, ((start >> order) + 1) << order),
            Size::Frames(count) => frames(start, start + count),
        }
    }
}
