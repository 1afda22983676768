//! The synthetic machines of measurements, tests of this crate and `up --shape`:
//! [`Shape`] is size, nodes and CPUs, [`Machine`] the memory of each node,
//! [`Storage`] the storage of its layout.

mod shape;

pub use shape::{Shape, ShapeError};

use std::error::Error;
use std::mem::MaybeUninit;

use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory};
use firstlight::frames::CpuCache;
use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage};
use firstlight::map::MemoryKind;
use firstlight::node::NodeId;
use firstlight::start::{BootSizes, BootSlots};
use firstlight::topology::{Topology, TopologyBuilder, Trust};

/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;
/// CPUs of each node of [`Machine::pc`].
const CPUS_A_NODE: u32 = 8;

/// A machine's memory, and the ranges that are reserved at start.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of nodes.
    pub nodes: u16,
    /// Memory and its node, ascending.
    pub memory: Vec<(PhysRange, NodeId)>,
    /// Reserved before the allocator comes up.
    pub reserved: Vec<PhysRange>,
}

/// Caches for so many CPUs, never freed.
#[must_use]
pub fn cpu_caches(cpus: usize) -> &'static [CpuCache] {
    let caches: Vec<_> = (0..cpus).map(|_| CpuCache::new()).collect();
    caches.leak()
}

/// A range that the caller knows not to end before it starts.
fn range(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).unwrap_or(PhysRange::EMPTY)
}

impl Machine {
    /// The usable memory of `shape`, in whole pages and without the first one, which
    /// kernels leave alone.
    ///
    /// ```
    /// use firstlight_bench::machine::Machine;
    /// let machine = Machine::of(&"memory=64G,nodes=2".parse()?);
    /// assert_eq!(machine.memory.len(), 4);
    /// assert_eq!(machine.end_bytes(), 65 << 30);
    /// # Ok::<(), firstlight_bench::machine::ShapeError>(())
    /// ```
    #[must_use]
    pub fn of(shape: &Shape) -> Self {
        let map = shape.map();
        let usable = map.iter().filter(|entry| entry.kind == MemoryKind::Usable);
        let usable: Vec<(u64, u64)> = usable
            .map(|entry| (entry.start, entry.start + entry.bytes))
            .collect();
        let mut memory = Vec::new();
        for (node, start, bytes) in shape.memory_rows() {
            for (from, to) in &usable {
                let (from, to) = (start.max(*from).max(PAGE_BYTES), (start + bytes).min(*to));
                let (from, to) = (from.next_multiple_of(PAGE_BYTES), to & !(PAGE_BYTES - 1));
                if from < to {
                    memory.push((range(from, to), NodeId(node)));
                }
            }
        }
        Self {
            nodes: shape.nodes,
            memory,
            reserved: Vec::new(),
        }
    }

    /// A PC of so much memory: kernel, initial RAM disk and some of the firmware's
    /// tables are reserved.
    #[must_use]
    pub fn pc(memory_bytes: u64, nodes: u16) -> Self {
        let reserved = [
            (0x100_0000, 0x480_0000),   // kernel
            (0x2fc3_1000, 0x3400_0000), // initial RAM disk
            (0x3ffd_c000, 0x3ffe_1400), // tables, not whole pages
            (0x8_0000, 0x8_3000),       // start-up code of the other CPUs
        ];
        let shape = Shape {
            memory_bytes,
            nodes,
            cpus: CPUS_A_NODE * u32::from(nodes),
        };
        Self {
            reserved: reserved.map(|(start, end)| range(start, end)).to_vec(),
            ..Self::of(&shape)
        }
    }

    /// First byte past all memory.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.memory
            .iter()
            .map(|(range, _)| range.end().get())
            .max()
            .unwrap_or(0)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().map(|(range, _)| range.bytes()).sum()
    }

    /// Enough for the allocator's tables: an upper bound.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        let huges = self.memory_bytes() / (2 << 20) + 2 * self.memory.len() as u64;
        let bytes =
            huges * 144 + (self.memory.len() as u64) * 4096 + u64::from(self.nodes) * (4 << 20);
        usize::try_from(bytes + (4 << 20)).unwrap_or(usize::MAX)
    }

    /// Enough for descriptors of `each` bytes and their alignment.
    #[must_use]
    pub fn descriptor_bytes(&self, each: usize) -> usize {
        // Zones cut a range at most three times; each piece may begin at a huge page.
        let pieces = 4 * self.memory.len() as u64 + 4;
        let bytes = self.frames().saturating_mul(each as u64);
        let bytes = bytes.saturating_add(pieces.saturating_mul(4 << 20));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The storage of this machine's layout.
    #[must_use]
    pub fn storage(&self) -> Storage {
        let nodes = usize::from(self.nodes);
        let ranges = self.memory.len();
        // Every table of the allocator is a reservation, so are descriptors of a range,
        // which zones cut in up to four.
        let reservations = self.reserved.len() + 2 * nodes + 8 * ranges + 16;
        let sizes = BootSizes::new(reservations, nodes).without_distances();
        Storage {
            memory: Box::new_uninit_slice(sizes.bytes()),
            sizes,
        }
    }

    /// All that comes before the layout.
    ///
    /// # Errors
    /// Errors of early memory or the topology.
    pub fn parts<'s>(&self, storage: &'s mut Storage) -> Result<Parts<'s>, Box<dyn Error>> {
        let slots = BootSlots::carve(&mut storage.memory, storage.sizes)?;
        let mut early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
        let mut builder = TopologyBuilder::new(slots.topology);
        for node in 0..self.nodes {
            builder.pin(NodeId(node), u32::from(node))?;
            builder.add_cpus(NodeId(node), CPUS_A_NODE);
        }
        for &(range, node) in &self.memory {
            early.add(range, EarlyFlags::NONE)?;
            builder.add_memory(node, range, false)?;
        }
        for &range in &self.reserved {
            early.reserve(range, "synthetic")?;
        }
        let mut topology = builder.finish(&mut |_| {});
        topology.apply(&mut early, Trust::Repair, &mut |_| {})?;
        Ok(Parts {
            early,
            topology,
            storage: slots.layout,
        })
    }

    /// The machine's layout.
    ///
    /// # Errors
    /// As [`Self::parts`], or an error of the layout.
    pub fn layout<'s>(&self, storage: &'s mut Storage) -> Result<Layout<'s>, Box<dyn Error>> {
        self.parts(storage)?.build()
    }

    /// Its name in tables: `4 TiB, 8 nodes`.
    #[must_use]
    pub fn name(&self) -> String {
        // The holes take less than a MiB: the round number is meant.
        let gib = (self.memory_bytes() + GIB / 2) / GIB;
        let memory = if gib >= 1024 && gib.is_multiple_of(1024) {
            format!("{} TiB", gib / 1024)
        } else {
            format!("{gib} GiB")
        };
        let nodes = self.nodes;
        format!(
            "{memory}, {nodes} node{}",
            if nodes == 1 { "" } else { "s" }
        )
    }

    /// Page frames of memory.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.memory_bytes() / PAGE_BYTES
    }
}

/// Storage of early memory, topology and layout.
#[derive(Debug)]
pub struct Storage {
    memory: Box<[MaybeUninit<u8>]>,
    sizes: BootSizes,
}

/// Early memory and topology, ready to be laid out.
#[derive(Debug)]
pub struct Parts<'s> {
    early: EarlyMemory<'s>,
    topology: Topology<'s>,
    storage: LayoutStorage<'s>,
}

impl<'s> Parts<'s> {
    /// Lays them out.
    ///
    /// # Errors
    /// An error of the layout.
    pub fn build(self) -> Result<Layout<'s>, Box<dyn Error>> {
        Ok(Layout::build(
            self.early,
            self.topology,
            &LayoutPolicy::DEFAULT,
            self.storage,
        )?)
    }
}
