//! Made-up machines: [`Machine`] says what memory there is and on which node,
//! [`Storage`] is what laying it out needs.

use std::error::Error;

use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::layout::{Layout, LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
use firstlight::node::NodeId;
use firstlight::topology::{
    NodeInfo, Topology, TopologyBuilder, TopologyRange, TopologyStorage, Trust,
};

/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;
/// Where memory-mapped devices live: no memory between 3 and 4 GiB.
const DEVICES: (u64, u64) = (3 * GIB, 4 * GIB);

/// A machine's memory and what of it is taken at start.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of nodes.
    pub nodes: u16,
    /// Memory and its node, ascending.
    pub memory: Vec<(PhysRange, NodeId)>,
    /// Reserved before the allocator comes up.
    pub reserved: Vec<PhysRange>,
}

/// A range that the caller knows not to end before it starts.
fn range(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).unwrap_or(PhysRange::EMPTY)
}

impl Machine {
    /// A PC: `memory_bytes` shared out evenly over `nodes`, with the holes
    /// below 1 MiB and 4 GiB; kernel, initial RAM disk and some of the
    /// firmware's tables are reserved.
    ///
    /// ```
    /// use firstlight_bench::machine::{GIB, Machine};
    /// let machine = Machine::pc(64 * GIB, 2);
    /// assert_eq!(machine.memory.len(), 4);
    /// assert_eq!(machine.end_bytes(), 65 * GIB);
    /// ```
    #[must_use]
    pub fn pc(memory_bytes: u64, nodes: u16) -> Self {
        let per_node = memory_bytes / u64::from(nodes);
        let lift = |at: u64| if at < DEVICES.0 { at } else { at + GIB };
        let mut memory = Vec::new();
        for node in 0..nodes {
            let start = u64::from(node) * per_node;
            let end = start + per_node;
            let cuts = [0x1000, 0x9_f000, 0x10_0000, DEVICES.0];
            // Low memory has a hole; what is below 3 GiB ends there.
            for (from, to) in [
                (cuts[0], cuts[1]),
                (cuts[2], cuts[3]),
                (DEVICES.0, u64::MAX),
            ] {
                let (from, to) = (start.max(from), end.min(to));
                if from < to {
                    let bytes = to - from;
                    memory.push((range(lift(from), lift(from) + bytes), NodeId(node)));
                }
            }
        }
        let reserved = [
            (0x100_0000, 0x480_0000),   // kernel
            (0x2fc3_1000, 0x3400_0000), // initial RAM disk
            (0x3ffd_c000, 0x3ffe_1400), // tables, not whole pages
            (0x8_0000, 0x8_3000),       // start-up code of the other CPUs
        ];
        Self {
            nodes,
            memory,
            reserved: reserved.map(|(start, end)| range(start, end)).to_vec(),
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
            huges * 80 + (self.memory.len() as u64) * 4096 + u64::from(self.nodes) * (4 << 20);
        usize::try_from(bytes + (4 << 20)).unwrap_or(usize::MAX)
    }

    /// What laying this machine out needs.
    #[must_use]
    pub fn storage(&self) -> Storage {
        let nodes = usize::from(self.nodes);
        let ranges = self.memory.len();
        // Every table of the allocator is a reservation too.
        let claims = self.reserved.len() + 2 * nodes + 8;
        Storage {
            memory: vec![EarlyRegion::EMPTY; ranges + 1],
            reserved: vec![EarlyRegion::EMPTY; claims],
            trail: vec![Allocation::EMPTY; claims],
            infos: vec![NodeInfo::EMPTY; nodes],
            rows: vec![TopologyRange::EMPTY; ranges],
            nodes: vec![Node::EMPTY; nodes],
            ranges: vec![NodeRange::EMPTY; ranges],
            zones: vec![Zone::EMPTY; 4 * nodes],
        }
    }

    /// All that comes before the layout.
    ///
    /// # Errors
    /// Whatever early memory or the topology refuses.
    pub fn parts<'s>(&self, storage: &'s mut Storage) -> Result<Parts<'s>, Box<dyn Error>> {
        let mut early = EarlyMemory::new(
            &mut storage.memory,
            &mut storage.reserved,
            &mut storage.trail,
        );
        let mut builder = TopologyBuilder::new(TopologyStorage {
            nodes: &mut storage.infos,
            ranges: &mut storage.rows,
        });
        for node in 0..self.nodes {
            builder.pin(NodeId(node), u32::from(node))?;
            builder.add_cpus(NodeId(node), 8);
        }
        for &(range, node) in &self.memory {
            early.add(range, EarlyFlags::NONE)?;
            builder.add_memory(node, range, false)?;
        }
        for &range in &self.reserved {
            early.reserve(range, "made up")?;
        }
        let mut topology = builder.finish(&mut |_| {});
        topology.apply(&mut early, Trust::Repair, &mut |_| {})?;
        Ok(Parts {
            early,
            topology,
            storage: LayoutStorage {
                nodes: &mut storage.nodes,
                ranges: &mut storage.ranges,
                zones: &mut storage.zones,
            },
        })
    }

    /// The machine's layout.
    ///
    /// # Errors
    /// As [`Self::parts`], or what the layout refuses.
    pub fn layout<'s>(&self, storage: &'s mut Storage) -> Result<Layout<'s>, Box<dyn Error>> {
        self.parts(storage)?.build()
    }

    /// Its name in tables: `4 TiB, 8 nodes`.
    #[must_use]
    pub fn name(&self) -> String {
        // The holes cost less than a MiB; what is meant is the round number.
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

/// What is lent to early memory, topology and layout.
#[derive(Debug)]
pub struct Storage {
    memory: Vec<EarlyRegion>,
    reserved: Vec<EarlyRegion>,
    trail: Vec<Allocation>,
    infos: Vec<NodeInfo>,
    rows: Vec<TopologyRange>,
    nodes: Vec<Node>,
    ranges: Vec<NodeRange>,
    zones: Vec<Zone>,
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
    /// What the layout refuses.
    pub fn build(self) -> Result<Layout<'s>, Box<dyn Error>> {
        Ok(Layout::build(
            self.early,
            self.topology,
            &LayoutPolicy::DEFAULT,
            self.storage,
        )?)
    }
}
