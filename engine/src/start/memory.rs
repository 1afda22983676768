//! Memory before its nodes are known: [`BootMemory`].
#![deny(unsafe_code)]

use core::fmt::Display;

use crate::early::EarlyMemory;
use crate::layout::{Layout, LayoutPolicy, LayoutStorage};
use crate::map::MemoryMap;
use crate::topology::{TopologyStorage, Trust};

use super::{NodeTables, StartError};

/// Memory is known and what is in use is reserved; nodes have not been applied.
///
/// All parts are public: a kernel may reserve and allocate more in `early`, replace `nodes`
/// by tables it could not read before, and then call [`Self::layout`], or do the steps of
/// `layout` itself.
pub struct BootMemory<'b, 's> {
    /// The memory map.
    pub map: MemoryMap<'s>,
    /// Its memory, of which everything in use is reserved.
    pub early: EarlyMemory<'s>,
    /// Firmware's tables of nodes.
    pub nodes: &'b dyn NodeTables,
    /// The policy of zones.
    pub policy: LayoutPolicy,
    /// Storage for the topology.
    pub topology: TopologyStorage<'s>,
    /// Storage for the distances of the topology.
    pub distances: &'s mut [u8],
    /// Storage for the layout.
    pub layout: LayoutStorage<'s>,
}

impl<'s> BootMemory<'_, 's> {
    /// Applies the nodes and lays memory out.
    ///
    /// # Errors
    /// [`StartError::Topology`] or [`StartError::Layout`].
    pub fn layout(mut self, log: &mut dyn FnMut(&dyn Display)) -> Result<Layout<'s>, StartError> {
        let mut topology = self.nodes.topology(self.topology, self.distances, log)?;
        topology.apply(&mut self.early, Trust::Repair, &mut |seen| log(&seen))?;
        let layout = Layout::build(self.early, topology, &self.policy, self.layout)?;
        Ok(layout)
    }
}
