//! Nodes from a flattened device tree.

use crate::firmware::fdt::{Fdt, FdtError};
use crate::node::NodeId;

use super::builder::checked;
use super::{TopologyBuilder, TopologyError, TopologyNotice};

impl TopologyBuilder<'_> {
    /// Reads the `numa-node-id` of CPUs and memory in a device tree. These are the nodes'
    /// numbers, as Linux takes them; numbers that are left out become empty nodes. CPUs that are on
    /// no node are counted on node 0; memory that is on none is left to
    /// [`Topology::apply`](super::Topology::apply). A number from 65,536 on is reported and
    /// taken as none.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when a store is too small: for nodes it says how many the
    /// number at hand needs, for ranges how many the whole tree needs.
    pub fn add_tree(
        &mut self,
        tree: &Fdt<'_>,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        let mut without_node = 0;
        for (at, cpu) in tree.located_cpus() {
            match cpu {
                Ok(cpu) if !cpu.enabled => {}
                Ok(cpu) => match self.numbered(at, cpu.node, report)? {
                    Some(node) => self.add_cpus(node, 1),
                    None => without_node += 1,
                },
                Err(error) => report(TopologyNotice::Tree { error }),
            }
        }
        let rows = tree
            .memory()
            .flatten()
            .filter(|row| row.node.is_some_and(|id| u16::try_from(id).is_ok()))
            .count();
        self.must_fit(rows)?;
        for (at, row) in tree.located_memory() {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    report(TopologyNotice::Tree { error });
                    continue;
                }
            };
            let Some(node) = self.numbered(at, row.node, report)? else {
                continue;
            };
            if let Some(range) = checked(node, row.start, row.bytes, report) {
                self.add_memory(node, range, row.hotpluggable)?;
            }
        }
        if without_node > 0 {
            if self.nodes.is_empty() {
                self.pin(NodeId(0), 0)?;
            }
            self.add_cpus(NodeId(0), without_node);
        }
        Ok(())
    }

    /// The node with the number `id`, which the tree's node at `at` gives.
    fn numbered(
        &mut self,
        at: usize,
        id: Option<u32>,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<Option<NodeId>, TopologyError> {
        let Some(id) = id else { return Ok(None) };
        let Ok(number) = u16::try_from(id) else {
            let error = FdtError::TooWide {
                node: at,
                property: "numa-node-id",
            };
            report(TopologyNotice::Tree { error });
            return Ok(None);
        };
        let node = NodeId(number);
        self.pin(node, id)?;
        Ok(Some(node))
    }
}
