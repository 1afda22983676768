//! [`Domains`]: which node a proximity domain is, found without reading every node.
//!
//! The index costs no storage of its own: the first slots of the nodes hold, in
//! [`NodeInfo::ranked`], the numbers of the nodes in the order of their domains.
//! A look-up is a binary search; a domain that is new moves the entries above it.

use crate::node::NodeId;

use super::NodeInfo;

fn set(nodes: &mut [NodeInfo], at: usize, ranked: u16) {
    if let Some(slot) = nodes.get_mut(at) {
        slot.ranked = ranked;
    }
}

/// How many nodes have a domain, and so how many slots hold the index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Domains {
    named: usize,
}

impl Domains {
    /// The index of a machine whose only node is `node`.
    pub(super) fn of_one(node: NodeInfo) -> Self {
        Self {
            named: usize::from(node.domain.is_some()),
        }
    }

    /// The node of `domain`: the lowest, if several are.
    pub(super) fn find(self, nodes: &[NodeInfo], domain: u32) -> Option<usize> {
        let at = self.position(nodes, (domain, 0));
        let node = self.ranks(nodes).get(at)?.ranked;
        let node = usize::from(node);
        (nodes.get(node)?.domain == Some(domain)).then_some(node)
    }

    /// Gives `node`, which must be one of `nodes`, the domain `domain`.
    pub(super) fn name(&mut self, nodes: &mut [NodeInfo], node: NodeId, domain: u32) {
        let index = usize::from(node.0);
        let Some(old) = nodes.get(index).map(|info| info.domain) else {
            return;
        };
        if old == Some(domain) {
            return;
        }
        let to = self.position(nodes, (domain, node.0));
        let (from, to) = match old {
            // The old entry's slot is used up by the entries between.
            Some(old) => {
                let from = self.position(nodes, (old, node.0));
                (from, if from < to { to - 1 } else { to })
            }
            None => {
                self.named += 1;
                (self.named - 1, to)
            }
        };
        for at in from..to {
            let above = nodes.get(at + 1).map_or(0, |slot| slot.ranked);
            set(nodes, at, above);
        }
        for at in (to..from).rev() {
            let below = nodes.get(at).map_or(0, |slot| slot.ranked);
            set(nodes, at + 1, below);
        }
        set(nodes, to, node.0);
        if let Some(info) = nodes.get_mut(index) {
            info.domain = Some(domain);
        }
    }

    fn ranks(self, nodes: &[NodeInfo]) -> &[NodeInfo] {
        nodes.get(..self.named).unwrap_or_default()
    }

    /// Where an entry of this domain and node is, or would be.
    fn position(self, nodes: &[NodeInfo], key: (u32, u16)) -> usize {
        let key_of = |slot: &NodeInfo| {
            let node = nodes.get(usize::from(slot.ranked));
            (node.and_then(|node| node.domain), slot.ranked)
        };
        let key = (Some(key.0), key.1);
        let ranks = self.ranks(nodes);
        // Most tables name their domains in ascending order.
        if ranks.last().is_none_or(|slot| key_of(slot) < key) {
            return ranks.len();
        }
        ranks.partition_point(|slot| key_of(slot) < key)
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_finds_what_a_scan_of_every_node_finds(
            names in proptest::collection::vec((0u16..12, 0u32..16), 0..60),
        ) {
            let mut nodes = [NodeInfo::EMPTY; 12];
            let mut domains = Domains::default();
            for (node, domain) in names {
                domains.name(&mut nodes, NodeId(node), domain);
                prop_assert_eq!(nodes[usize::from(node)].domain, Some(domain));
                for domain in 0..17 {
                    let slow = nodes.iter().position(|info| info.domain == Some(domain));
                    prop_assert_eq!(domains.find(&nodes, domain), slow);
                }
            }
        }
    }
}
