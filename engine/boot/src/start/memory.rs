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
    /// use firstlight_frames::addr::{PhysAddr, PhysRange};
    /// use firstlight_frames::early::{Direction, EarlyError, EarlyMemory, EarlyRequest};
    /// use firstlight_frames::layout::Layout;
    /// use firstlight_frames::map::MapEntry;
    /// use firstlight_boot::start::{Boot, BootSlots, StartError};
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
    /// mapper that takes page tables from a global allocator gets them so before
    /// [`Frames`](crate::frames::Frames) is there:
    ///
    /// ```
    /// use std::sync::{Mutex, OnceLock}; // a kernel has a lock and a cell of its own
    /// use firstlight_frames::addr::{Frame, Order};
    /// use firstlight_frames::early::{EarlyError, EarlyMemory, EarlyRequest};
    /// use firstlight_frames::frames::{Frames, Request};
    ///
    /// static EARLY: Mutex<EarlyMemory<'static>> = Mutex::new(EarlyMemory::EMPTY);
    /// static FRAMES: OnceLock<Frames<'static>> = OnceLock::new();
    ///
    /// /// What the mapper calls, before and after.
    /// fn page_table() -> Option<Frame> {
    ///     if let Some(frames) = FRAMES.get() {
    ///         return frames.allocate(Request::new(Order::PAGE)).ok();
    ///     }
    ///     let request = EarlyRequest::new(4096, 4096, "page tables");
    ///     let table = EARLY.lock().ok()?.allocate(&request).ok()?;
    ///     Some(table.start().frame())
    /// }
    ///
    /// /// For `BootMemory::with_early`: `map_all` maps memory, and calls `page_table`.
    /// fn with_mapper(
    ///     early: &mut EarlyMemory<'static>,
    ///     map_all: impl FnOnce(),
    /// ) -> Result<(), EarlyError> {
    ///     core::mem::swap(early, &mut *EARLY.lock().unwrap());
    ///     map_all();
    ///     core::mem::swap(early, &mut *EARLY.lock().unwrap());
    ///     Ok(())
    /// }
    /// # let (mut memory, mut reserved) = (Vec::leak(vec![Default::default(); 4]), Vec::leak(vec![Default::default(); 4]));
    /// # let mut early = EarlyMemory::new(memory, reserved, &mut []);
    /// # early.add(firstlight_frames::addr::PhysRange::new(0, 0x10_0000).unwrap(), Default::default())?;
    /// # assert_eq!(page_table(), None);
    /// # with_mapper(&mut early, || assert_eq!(page_table(), Some(Frame::new(0xff))))?;
    /// # assert_eq!((page_table(), early.reserved_bytes()), (None, 4096));
    /// # Ok::<(), EarlyError>(())
    /// ```
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
