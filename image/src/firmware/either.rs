//! An Arm machine: a device tree from a loader by Linux's boot protocol; or, from the UEFI loader, UEFI's memory map with
//! ACPI's tables, or with a device tree where firmware has no ACPI.

use core::fmt::Display;

use firstlight::addr::PhysRange;
use firstlight::cmdline::CommandLine;
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::acpi::SerialPort;
use firstlight::firmware::psci::PsciConduit;
use firstlight::layout::LayoutPolicy;
use firstlight::start::{
    AcpiNodes, Boot, BootMemory, BootSlots, NodeTables, StartError, TreeNodes,
};
use firstlight::topology::{Topology, TopologyError, TopologyStorage};
use firstlight_image::virtio::pci::Region;
use spin::Once;

use super::{Cpu, acpi, pvh, tree};
use crate::arch::{self, DirectMap};

pub(crate) use super::acpi::Root;
pub(crate) use super::tree::{FIXED, virtio};

/// Why a hand-over cannot be read.
pub(crate) type LoaderError = StartError;

/// How a device tree begins.
const TREE: [u8; 4] = 0xd00d_feed_u32.to_be_bytes();

/// The hand-over.
pub(crate) struct Loader {
    from: From,
    pub(crate) command_line: CommandLine<'static>,
}

enum From {
    Tree(tree::Loader),
    /// With a tree, where firmware has no ACPI.
    Uefi(&'static pvh::Loader, Option<&'static tree::Loader>),
}

/// What the UEFI loader hands over: a static, so that the hand-over of others is no larger for it.
static BY_UEFI: Once<(pvh::Loader, Option<tree::Loader>)> = Once::new();

impl Loader {
    /// Reads the tree, or what the UEFI loader hands over, at `at`; called once.
    ///
    /// # Errors
    /// [`StartError`] if there is none that can be read.
    pub(crate) fn read(memory: DirectMap, at: u64) -> Result<Self, StartError> {
        if !arch::is_by_uefi() {
            let tree = tree::Loader::read(memory, at)?;
            return Ok(Self {
                command_line: tree.command_line,
                from: From::Tree(tree),
            });
        }
        let loader = pvh::Loader::read(memory, at)?;
        let tree = match loader.rsdp() {
            Some(_) => None,
            None => loader.module(memory, &TREE),
        };
        let tree = tree.map(|at| tree::Loader::read(memory, at)).transpose()?;
        let (loader, tree) = BY_UEFI.call_once(|| (loader, tree));
        Ok(Self {
            command_line: loader.command_line,
            from: From::Uefi(loader, tree.as_ref()),
        })
    }

    /// Whether the command line may have a word for restarts.
    pub(crate) fn may_restart(&self) -> bool {
        match &self.from {
            From::Tree(tree) => tree.may_restart(),
            From::Uefi(loader, _) => loader.may_restart(),
        }
    }

    /// Early memory: that of the tree's map, or UEFI's.
    ///
    /// # Errors
    /// [`StartError`] if there is no map that can be used.
    #[inline(always)]
    pub(crate) fn early<'b>(
        &self,
        memory: DirectMap,
        boot: Boot<'b, ()>,
        slots: BootSlots<'static>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<BootMemory<'b, 'static>, StartError> {
        match &self.from {
            From::Tree(tree) => tree.early(memory, boot, slots, log),
            From::Uefi(loader, _) => loader.early(memory, boot, slots, log),
        }
    }

    /// What the UEFI loader hands over, if it was that one.
    pub(crate) fn uefi(&self) -> Option<super::uefi::Uefi> {
        match &self.from {
            From::Tree(tree) => tree.uefi(),
            From::Uefi(loader, _) => loader.uefi(),
        }
    }

    /// As if there were no memory map, for tests.
    pub(crate) fn forget_map(&mut self) {
        match &mut self.from {
            From::Tree(tree) => tree.forget_map(),
            // UEFI's map is not the loader's to forget.
            From::Uefi(..) => {}
        }
    }

    /// The zones of this processor.
    pub(crate) fn policy(&self) -> LayoutPolicy {
        match &self.from {
            From::Tree(tree) => tree.policy(),
            From::Uefi(loader, _) => loader.policy(),
        }
    }

    /// Reports what could not be read.
    pub(crate) fn report(&self) {
        match &self.from {
            From::Tree(tree) => tree.report(),
            From::Uefi(loader, _) => loader.report(),
        }
    }

    /// Reserves the hand-over, and a tree.
    pub(crate) fn reserve(
        &self,
        memory: DirectMap,
        early: &mut EarlyMemory<'_>,
    ) -> Result<(), EarlyError> {
        match &self.from {
            From::Tree(tree) => tree.reserve(memory, early),
            From::Uefi(loader, tree) => {
                loader.reserve(memory, early)?;
                tree.map_or(Ok(()), |tree| tree.reserve(memory, early))
            }
        }
    }
}

/// What a tree lists, or what other tables do.
enum Either<T, O> {
    Tree(T),
    Other(O),
}

impl<T: Iterator, O: Iterator<Item = T::Item>> Iterator for Either<T, O> {
    type Item = T::Item;

    fn next(&mut self) -> Option<T::Item> {
        match self {
            Self::Tree(list) => list.next(),
            Self::Other(list) => list.next(),
        }
    }
}

/// CPUs and nodes, of a tree or of ACPI.
pub(crate) enum Tables {
    Tree(tree::Tables),
    Acpi(acpi::Tables),
}

impl Tables {
    /// Those of nodes.
    pub(crate) fn nodes(&self) -> Nodes {
        match self {
            Self::Tree(tables) => Nodes::Tree(tables.nodes()),
            Self::Acpi(tables) => Nodes::Acpi(tables.nodes()),
        }
    }

    /// Usable CPUs, in the order of the tables.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = Cpu> {
        match self {
            Self::Tree(tables) => Either::Tree(tables.cpus()),
            Self::Acpi(tables) => Either::Other(tables.cpus()),
        }
    }

    /// Reports CPUs that cannot be read.
    pub(crate) fn report_cpus(&self) {
        match self {
            Self::Tree(tables) => tables.report_cpus(),
            Self::Acpi(tables) => tables.report_cpus(),
        }
    }

    /// The domain of a CPU.
    pub(crate) fn domain_of(&self, id: u64) -> Option<u32> {
        match self {
            Self::Tree(tables) => tables.domain_of(id),
            Self::Acpi(tables) => tables.domain_of(id),
        }
    }
}

/// Tables of nodes, of a tree or of ACPI.
pub(crate) enum Nodes {
    Tree(TreeNodes<'static>),
    Acpi(AcpiNodes<'static>),
}

impl NodeTables for Nodes {
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        distances: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError> {
        match self {
            Self::Tree(nodes) => nodes.topology(storage, distances, log),
            Self::Acpi(nodes) => nodes.topology(storage, distances, log),
        }
    }
}

/// The root of ACPI's tables; none with a tree.
pub(crate) fn root(memory: DirectMap, loader: &Loader) -> Option<Root> {
    match &loader.from {
        From::Uefi(loader, None) => acpi::root(memory, loader),
        _ => None,
    }
}

/// Reserves ACPI's tables.
///
/// # Errors
/// [`EarlyError::Full`] when storage is too small.
pub(crate) fn reserve(
    memory: DirectMap,
    root: Option<&Root>,
    early: &mut EarlyMemory<'_>,
) -> Result<bool, EarlyError> {
    match root {
        Some(root) => acpi::reserve(memory, Some(root), early),
        None => Ok(true),
    }
}

/// Reads the tables that are needed.
pub(crate) fn tables(memory: DirectMap, loader: &Loader, root: Option<&Root>) -> Tables {
    match &loader.from {
        From::Tree(tree) => Tables::Tree(tree::tables(tree)),
        From::Uefi(_, Some(tree)) => Tables::Tree(tree::tables(tree)),
        From::Uefi(_, None) => Tables::Acpi(acpi::tables(memory, root)),
    }
}

/// How firmware is called, once tree or tables were read.
pub(crate) fn psci() -> Option<PsciConduit> {
    match tree::tree() {
        Some(tree) => tree.psci(),
        None => acpi::psci(),
    }
}

/// Registers of the serial port for the log.
pub(crate) enum Port {
    /// One that the serial port's driver names.
    Tree(Region),
    Acpi(SerialPort),
    /// The tables are not read yet, or cannot be: a board's usual one.
    Usual,
}

/// The serial port for the log, if there is one.
pub(crate) fn port() -> Option<Port> {
    if let Some(tree) = tree::tree() {
        return tree::uart(&tree).map(Port::Tree);
    }
    if !arch::is_by_uefi() {
        return Some(Port::Usual);
    }
    acpi::port().map(Port::Acpi)
}

/// Registers of the serial port, where ACPI names it.
pub(crate) fn registers(tables: &Tables) -> Option<PhysRange> {
    match tables {
        Tables::Tree(_) => None,
        Tables::Acpi(tables) => tables.rest.registers(),
    }
}
