//! The order of fallback to other nodes: by distance, then round the ring of node numbers, so
//! that nodes at equal distance share the load.
//!
//! Nothing is stored: the order is needed only when a node is exhausted, and a table would cost
//! the square of the number of nodes at start.

use crate::node::NodeId;

/// All of `nodes` nodes, `from` first, then the others from the nearest to the
/// farthest. Reads the distance of each node once for every distance there is.
pub(crate) fn by_distance(
    from: NodeId,
    nodes: u32,
    distance: impl Fn(NodeId, NodeId) -> u8 + Clone,
) -> impl Iterator<Item = NodeId> + Clone {
    let node = move |steps: u32| {
        // Below `nodes`, which is at most 2^16.
        NodeId(u16::try_from((u32::from(from.0) + steps) % nodes).unwrap_or(u16::MAX))
    };
    // 0 for the node itself, even if a table says that another one is nearer.
    let far = move |steps: u32| match steps {
        0 => 0,
        _ => u32::from(distance(from, node(steps))) + 1,
    };
    let (mut level, mut steps) = (0, 0..nodes);
    core::iter::from_fn(move || {
        loop {
            if let Some(steps) = steps.find(|&steps| far(steps) == level) {
                return Some(node(steps));
            }
            level = (0..nodes).map(&far).filter(|&other| other > level).min()?;
            steps = 0..nodes;
        }
    })
}

#[cfg(all(test, not(firstlight_loom)))]
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
        assert_eq!(by_distance(NodeId(7), 2, |_, _| 20).count(), 2);
        assert_eq!(by_distance(NodeId(0), 0, |_, _| 20).count(), 0);
        let most = if cfg!(miri) { 1 << 8 } else { 1 << 16 };
        assert_eq!(
            by_distance(NodeId(9), most, |_, _| 20).count(),
            most as usize
        );
    }
}
