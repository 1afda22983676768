//! The order in which other nodes help out: by distance, then round the ring
//! of node numbers, so that neighbours at equal distance share the load.
//!
//! Nothing is stored: the order is needed only when a node has run out, and a
//! table would cost the square of the number of nodes at start.

use crate::node::NodeId;

/// All nodes, `from` first, then the others from the nearest to the farthest.
pub(crate) fn by_distance(
    from: NodeId,
    nodes: u16,
    distance: impl Fn(NodeId, NodeId) -> u8,
) -> impl Iterator<Item = NodeId> {
    let key = move |node: u16| {
        let steps = (u32::from(node) + u32::from(nodes) - u32::from(from.0)) % u32::from(nodes);
        let far = if steps == 0 {
            0
        } else {
            u32::from(distance(from, NodeId(node))) + 1
        };
        (far, steps)
    };
    let mut last = None;
    core::iter::from_fn(move || {
        let next = (0..nodes)
            .map(|node| (key(node), node))
            .filter(|&(key, _)| last < Some(key))
            .min()?;
        last = Some(next.0);
        Some(NodeId(next.1))
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn nearest_first_then_round_the_ring() {
        // Two sockets of two nodes each.
        let distance = |a: NodeId, b: NodeId| match (a.0, b.0) {
            (a, b) if a == b => 10,
            (a, b) if a / 2 == b / 2 => 12,
            _ => 32,
        };
        let order = |from| {
            by_distance(NodeId(from), 4, distance)
                .map(|n| n.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(0), [0, 1, 2, 3]);
        assert_eq!(order(1), [1, 0, 2, 3]);
        assert_eq!(order(3), [3, 2, 0, 1]);
    }

    #[test]
    fn a_broken_distance_table_loses_no_node() {
        let order: Vec<_> = by_distance(NodeId(1), 3, |_, _| 255).map(|n| n.0).collect();
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(by_distance(NodeId(0), 1, |_, _| 0).count(), 1);
    }
}
