//! CPUs: caches drain, CPUs leave and come to another node, and what is freed twice is reported once.

extern crate std;

use super::{Steps, Via, step};
use crate::addr::Order;
use crate::frames::BlockError;
use crate::frames::tests::model::plain::{FREE, numbers};
use crate::node::NodeId;
use proptest::prelude::*;
use std::vec::Vec;

/// A CPU drains its cache.
pub(crate) fn drain(cpus: usize) -> Steps {
    step("drain", 0..cpus, |on, cpu| {
        if let Some(cpu) = on.cpu(Via::Cpu(cpu)) {
            assert_eq!(cpu.drain(), Ok(()));
            assert_eq!(cpu.cached_frames(), 0);
        }
    })
}

/// A CPU looks whether it should drain.
pub(crate) fn poll(cpus: usize) -> Steps {
    step("poll", 0..cpus, |on, cpu| {
        on.cpu(Via::Cpu(cpu)).expect("there is memory").poll()
    })
}

/// A CPU leaves, and comes back on this node.
pub(crate) fn leave(cpus: usize, nodes: u16) -> Steps {
    step("leave", (0..cpus, 0..nodes), |on, (cpu, node)| {
        on.cpus[cpu] = None;
        on.cpus[cpu] = Some(on.frames.cpu(cpu, NodeId(node)).unwrap());
    })
}

/// A page or a huge frame is freed twice, by these ways.
pub(crate) fn twice(via: BoxedStrategy<Via>) -> Steps {
    let how = (via.clone(), via, any::<usize>());
    step("twice", how, |on, (one, other, pick)| {
        let order_of = |at: &usize| {
            let (held, _) = on.held[*at];
            let order = Order::of_block(held.count())?;
            let is_cached = [Order::PAGE, Order::HUGE].contains(&order);
            (is_cached && held.start().is_aligned(order)).then_some((*at, order))
        };
        let all: Vec<_> = (0..on.held.len()).filter_map(|at| order_of(&at)).collect();
        let Some(&(at, order)) = all.get(pick % all.len().max(1)) else {
            return;
        };
        let (range, _) = on.held.swap_remove(at);
        on.model.turn(range, FREE);
        let frame = range.start();
        assert_eq!(on.free(one, frame, order), Ok(()));
        let second = on.free(other, frame, order);
        let named = Err(BlockError::FreedTwice { frame, order });
        let refused = Err(BlockError::NotAllocated { frame, order });
        assert!([refused, named, Ok(())].contains(&second));
        let mut count = usize::from(second.is_err());
        for cpu in 0..on.cpus.len() {
            let drained = on.cpu(Via::Cpu(cpu)).expect("there is memory").drain();
            assert!(drained == named || drained == Ok(()));
            count += usize::from(drained == named);
        }
        assert_eq!(count, 1, "{frame} with {order} was freed twice");
        let is_free = numbers(range).all(|frame| on.is_seen_free(frame));
        assert!(is_free, "{range}");
    })
}
