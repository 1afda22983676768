//! A device tree: memory, command line, CPUs, nodes, devices. It is read in place, so it is
//! reserved.

use core::fmt::Display;

use firstlight::addr::PhysRange;
use firstlight::cmdline::CommandLine;
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::PhysRead;
use firstlight::firmware::fdt::{Fdt, FdtError, FdtSlot, Node};
use firstlight::layout::LayoutPolicy;
use firstlight::map::MapEntry;
use firstlight::start::{Boot, BootMemory, BootSlots, NodeTables, StartError, TreeNodes};
use firstlight_image::virtio::pci::Region;
use spin::{Mutex, MutexGuard, Once};

use super::Cpu;
use crate::arch::cpus::MOST;
use crate::arch::serial::COMPATIBLE;
use crate::arch::{DirectMap, POLICY};
use crate::console::correction;

/// A tree names all memory.
pub(crate) const FIXED: (PhysRange, &str) = (PhysRange::EMPTY, "");

/// Bytes from which the length of a tree is known.
const HEAD_BYTES: u32 = 8;

/// For all CPUs that are started, ranges of memory, reservations and serial ports: with more
/// nodes nothing is lost, but the tree is walked again and again.
static SLOTS: Mutex<[FdtSlot; MOST + 256]> = Mutex::new([FdtSlot::EMPTY; MOST + 256]);

static TREE: Once<Fdt<'static>> = Once::new();

/// The hand-over: a tree.
pub(crate) struct Loader {
    fdt: Fdt<'static>,
    range: PhysRange,
    has_map: bool,
    pub(crate) command_line: CommandLine<'static>,
}

impl Loader {
    /// Reads the tree at `at`; called once.
    ///
    /// # Errors
    /// [`FdtError`] if there is none that can be read.
    pub(crate) fn read(memory: DirectMap, at: u64) -> Result<Self, FdtError> {
        let read = |bytes: u32, seen_bytes: u32| {
            let range = PhysRange::with_size(at, bytes.into());
            let read = range.and_then(|range| Some((range, memory.read(range)?)));
            read.ok_or(FdtError::Truncated {
                seen_bytes: seen_bytes as usize,
                needed_bytes: bytes as usize,
            })
        };
        let (_, head) = read(HEAD_BYTES, 0)?;
        let (range, bytes) = read(Fdt::total_bytes(head)?, HEAD_BYTES)?;
        let slots = &mut *MutexGuard::leak(SLOTS.lock());
        let fdt = Fdt::parse_in(bytes, slots, &COMPATIBLE)?;
        Ok(Self {
            fdt: *TREE.call_once(|| fdt),
            range,
            has_map: true,
            command_line: CommandLine::new(fdt.bootargs()),
        })
    }

    /// The image cannot enter itself again.
    pub(crate) fn may_restart(&self) -> bool {
        false
    }

    /// The memory map.
    ///
    /// # Errors
    /// The [`FdtError`] of a node of memory or of a reservation.
    fn map_entries(
        &self,
        _: DirectMap,
    ) -> Result<impl Iterator<Item = MapEntry> + Clone + use<>, FdtError> {
        let has_map = self.has_map;
        Ok(self.fdt.map_entries()?.filter(move |_| has_map))
    }

    /// No UEFI loader starts this image with a tree alone.
    pub(crate) fn uefi(&self) -> Option<super::uefi::Uefi> {
        None
    }

    /// Early memory: that of the map.
    ///
    /// # Errors
    /// [`StartError`] if there is no map that can be used.
    pub(crate) fn early<'b>(
        &self,
        memory: DirectMap,
        boot: Boot<'b, ()>,
        slots: BootSlots<'static>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<BootMemory<'b, 'static>, StartError> {
        super::early(self.map_entries(memory)?, boot, slots, log)
    }

    /// As if there were no memory map, for tests.
    pub(crate) fn forget_map(&mut self) {
        self.has_map = false;
    }

    /// The zones of this processor.
    pub(crate) fn policy(&self) -> LayoutPolicy {
        POLICY
    }

    /// All of it could be read.
    pub(crate) fn report(&self) {}

    /// Reserves the tree, what it calls in use, and the initial RAM disk.
    pub(crate) fn reserve(
        &self,
        _: DirectMap,
        early: &mut EarlyMemory<'_>,
    ) -> Result<(), EarlyError> {
        early.reserve(self.range, "device tree")?;
        TreeNodes(self.fdt).reserve(early, &mut |seen| correction(seen))?;
        match self.fdt.initrd() {
            Ok(disk) => {
                let disk = disk.and_then(|(start, end)| PhysRange::new(start, end));
                early.reserve(disk.unwrap_or_default(), "initial RAM disk")
            }
            Err(error) => {
                correction(error);
                Ok(())
            }
        }
    }
}

/// CPUs and nodes, of the tree.
pub(crate) struct Tables(Fdt<'static>);

impl Tables {
    /// Those of nodes.
    pub(crate) fn nodes(&self) -> TreeNodes<'static> {
        TreeNodes(self.0)
    }

    /// Usable CPUs, in the order of the tree.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = Cpu> {
        let listed = self.0.cpus().flatten().filter(|cpu| cpu.enabled);
        listed.map(|cpu| Cpu { id: cpu.id })
    }

    /// Reports CPUs that cannot be read.
    pub(crate) fn report_cpus(&self) {
        for error in self.0.cpus().filter_map(Result::err) {
            correction(format_args!("CPU left out: {error}"));
        }
    }

    /// The domain of a CPU.
    pub(crate) fn domain_of(&self, id: u64) -> Option<u32> {
        self.0.cpus().flatten().find(|cpu| cpu.id == id)?.node
    }
}

/// What the tree says of CPUs and nodes.
pub(crate) fn tables(loader: &Loader) -> Tables {
    Tables(loader.fdt)
}

/// The tree, once it was read.
pub(crate) fn tree() -> Option<Fdt<'static>> {
    TREE.get().copied()
}

/// The registers of the console that the boot loader used, if it is a serial port that
/// [`COMPATIBLE`] names.
pub(crate) fn uart(tree: &Fdt<'_>) -> Option<Region> {
    let is_known = |node: &Node<'_>| COMPATIBLE.iter().any(|text| node.lists("compatible", text));
    let node = tree.stdout().filter(is_known);
    region(
        tree,
        &node.or_else(|| tree.compatible(COMPATIBLE[0]).next())?,
    )
}

/// Registers of virtio devices, also of those that are not there.
pub(crate) fn virtio() -> impl Iterator<Item = Region> {
    let of_tree = |tree: Fdt<'static>| {
        let nodes = tree.compatible("virtio,mmio");
        nodes.filter_map(move |node| region(&tree, &node))
    };
    tree().into_iter().flat_map(of_tree)
}

/// The first registers of a node, if their addresses are physical: of a node below the root, or
/// on a bus that does not translate.
pub(crate) fn region(tree: &Fdt<'_>, node: &Node<'_>) -> Option<Region> {
    let (address, bytes) = node.reg().next()?.ok()?;
    let mut buses = tree
        .nodes()
        .filter(|bus| bus.depth() == 1 && bus.name() == node.top());
    let is_physical = node.depth() == 1
        || node.depth() == 2 && buses.any(|bus| bus.property("ranges") == Some(&[]));
    let region = Region {
        address,
        bytes: u32::try_from(bytes).ok()?,
    };
    is_physical.then_some(region)
}
