//! What firmware and boot loader hand over: [`Boot`].
#![deny(unsafe_code)]

use core::fmt::Display;

use crate::addr::{PAGE_BYTES, PhysRange};
use crate::cmdline::CommandLine;
use crate::early::EarlyMemory;
use crate::layout::{Layout, LayoutPolicy};
use crate::map::{MapEntry, MemoryKind, MemoryMap};

use super::{BootMemory, BootSlots, NodeTables, OneNode, StartError};

/// The hand-over: firmware's memory map, and what the kernel knows of it.
///
/// Made by [`Boot::new`], whose defaults are an empty command line, nothing in use and one
/// node.
#[derive(Clone, Copy)]
pub struct Boot<'b, M> {
    /// Firmware's memory map, as a parser of [`firmware`](crate::firmware) yields it.
    pub map: M,
    /// The kernel command line: `mem=` and `memmap=` change the map, `kernelcore=`,
    /// `movablecore=` and `movable_node` the policy.
    pub command_line: &'b [u8],
    /// In use for ever, and for what: the kernel's image, its modules, tables that are read in place, and the
    /// loader's page tables for as long as a CPU walks them. Most loaders list those nowhere: what is not here
    /// is handed out, and the first owner's writes change what is mapped.
    pub reserved: &'b [(PhysRange, &'static str)],
    /// In use for boot, freed later through the allocator: an initial RAM disk.
    pub freeable: &'b [(PhysRange, &'static str)],
    /// Firmware's tables of nodes.
    pub nodes: &'b dyn NodeTables,
    /// The policy of zones before the command line changes it.
    pub policy: LayoutPolicy,
}

impl<M> Boot<'_, M> {
    /// A machine of one node with this memory map.
    pub const fn new(map: M) -> Self {
        Self {
            map,
            command_line: &[],
            reserved: &[],
            freeable: &[],
            nodes: &OneNode { cpus: 1 },
            policy: LayoutPolicy::DEFAULT,
        }
    }
}

impl<'b, M: IntoIterator<Item = MapEntry>> Boot<'b, M> {
    /// The machine's layout, for kernels that want descriptors, unaccepted memory or early
    /// allocations before [`Frames::build`](crate::frames::Frames::build).
    ///
    /// # Errors
    /// As [`start`](super::start).
    pub fn layout<'s>(
        self,
        storage: impl Into<BootSlots<'s>>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Layout<'s>, StartError> {
        self.early(storage, log)?.layout(log)
    }

    /// The memory map after the command line, and early memory in which everything in use is
    /// reserved: the first page, [`Self::reserved`], [`Self::freeable`] and what
    /// [`Self::nodes`] reserve.
    ///
    /// # Errors
    /// [`StartError::Map`], [`StartError::NoMemory`] or [`StartError::Early`].
    pub fn early<'s>(
        self,
        storage: impl Into<BootSlots<'s>>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<BootMemory<'b, 's>, StartError> {
        let slots = storage.into();
        let entries = self.map.into_iter();
        let mut map = MemoryMap::build(entries, slots.scratch, slots.map, &mut |seen| log(&seen))?;
        let line = CommandLine::new(self.command_line);
        line.change_map(&mut map, &mut |seen| log(&seen))?;
        if map.memory().next().is_none() {
            return Err(StartError::NoMemory {
                bytes: MemoryKind::ALL.map(|kind| map.bytes_of(kind)),
            });
        }
        let policy = line.layout_policy(self.policy, &mut |seen| log(&seen));

        let mut early = EarlyMemory::from_map(&map, slots.memory, slots.reserved, slots.owners)?;
        let first_page = PhysRange::with_size(0, PAGE_BYTES).unwrap_or_default();
        early.reserve(first_page, "address zero")?;
        for (range, owner) in self.reserved {
            early.reserve(*range, owner)?;
        }
        for (range, owner) in self.freeable {
            early.reserve_freeable(*range, owner)?;
        }
        self.nodes.reserve(&mut early, log)?;
        early.set_movable_node(policy.movable_node);
        Ok(BootMemory {
            map,
            early,
            nodes: self.nodes,
            policy,
            topology: slots.topology,
            distances: slots.distances,
            layout: slots.layout,
        })
    }
}
