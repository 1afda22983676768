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
    /// Calls `call` with early memory, for a kernel that maps memory itself: the page tables come from here,
    /// reservations are added of any iterator. Its limit and its direction are as before once that returns.
    ///
    /// ```
    /// use firstlight::addr::{PhysAddr, PhysRange};
    /// use firstlight::early::{Direction, EarlyError, EarlyMemory, EarlyRequest};
    /// use firstlight::layout::Layout;
    /// use firstlight::map::MapEntry;
    /// use firstlight::start::{Boot, BootSlots, StartError};
    ///
    /// /// What the loader has mapped.
    /// const MAPPED: PhysAddr = PhysAddr::new(1 << 30);
    ///
    /// fn layout(
    ///     boot: Boot<'_, impl IntoIterator<Item = MapEntry>>,
    ///     modules: impl Iterator<Item = PhysRange>,
    ///     map: fn(PhysRange, table: &mut dyn FnMut() -> Option<PhysAddr>),
    ///     storage: BootSlots<'static>,
    /// ) -> Result<Layout<'static>, StartError> {
    ///     let boot = boot.early(storage, &mut |_| {})?.with_early(|early| {
    ///         early.reserve_all(modules.map(|module| (module, "module")))?;
    ///         early.set_limit(MAPPED); // tables are written through what is mapped
    ///         early.set_direction(Direction::BottomUp); // low memory need not stay free here
    ///         let all = PhysRange::new(0, early.end().get()).unwrap_or_default();
    ///         let table = EarlyRequest::new(4096, 4096, "page tables");
    ///         map(all, &mut || Some(early.allocate(&table).ok()?.start()));
    ///         Ok::<(), EarlyError>(())
    ///     })?;
    ///     boot.layout(&mut |_| {})
    /// }
    /// ```
    ///
    /// With the feature `x86_64`, `PageTableFrames` of `&mut EarlyMemory` are that crate's frame allocator. A
    /// mapper that takes tables from a global allocator: [`EarlyMemory::EMPTY`].
    ///
    /// # Errors
    /// Those of `call`.
    pub fn with_early<E>(
        mut self,
        call: impl FnOnce(&mut EarlyMemory<'s>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (limit, direction) = (self.early.limit(), self.early.direction());
        call(&mut self.early)?;
        self.early.set_limit(limit);
        self.early.set_direction(direction);
        Ok(self)
    }

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
