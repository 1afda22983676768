//! Nodes from a flattened device tree.

use crate::firmware::fdt::Fdt;
use crate::node::NodeId;

use super::builder::checked;
use super::{TopologyBuilder, TopologyError, TopologyNotice};

impl TopologyBuilder<'_> {
    /// Reads the `numa-node-id` of CPUs and memory in a device tree: nodes are
    /// numbered in the order of CPUs, then of memory. CPUs that are on no node are
    /// counted on node 0; memory that is on none is left to
    /// [`Topology::apply`](super::Topology::apply).
    ///
    /// # Errors
    /// [`TopologyError::Full`] when a store is too small; for ranges it says how
    /// many the whole tree needs.
    pub fn add_tree(
        &mut self,
        tree: &Fdt<'_>,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        let mut without_node = 0;
        for cpu in tree.cpus() {
            match cpu {
                Ok(cpu) if !cpu.enabled => {}
                Ok(cpu) => match cpu.node {
                    Some(id) => {
                        let node = self.node_of(id)?;
                        self.add_cpus(node, 1);
                    }
                    None => without_node += 1,
                },
                Err(error) => report(TopologyNotice::Tree { error }),
            }
        }
        let rows = tree
            .memory()
            .flatten()
            .filter(|row| row.node.is_some())
            .count();
        self.must_fit(rows)?;
        for row in tree.memory() {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    report(TopologyNotice::Tree { error });
                    continue;
                }
            };
            let Some(id) = row.node else { continue };
            let node = self.node_of(id)?;
            if let Some(range) = checked(node, row.start, row.bytes, report) {
                self.add_memory(node, range, row.hotpluggable)?;
            }
        }
        if without_node > 0 {
            if self.nodes.is_empty() {
                self.node_of(0)?;
            }
            self.add_cpus(NodeId(0), without_node);
        }
        Ok(())
    }
}
