//! The path of memory, walked once: map, early memory, topology, layout,
//! frames, with a stamp after each step.

use super::source::{Affinity, Described, Distances};
use crate::failure::Failure;
use crate::text::bytes;
use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::cmdline::CommandLine;
use firstlight::early::{Allocation, EarlyMemory, EarlyRegion};
use firstlight::firmware::acpi::{Slit, Srat};
use firstlight::layout::{LayoutPolicy, LayoutStorage, Node, NodeRange, Zone};
use firstlight::map::{MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight::node::NodeId;
use firstlight::topology::{
    NodeInfo, Topology, TopologyBuilder, TopologyRange, TopologyStorage, Trust,
};
use firstlight_host::clock::Clock;
use firstlight_host::metadata::MetadataSpace;
use firstlight_lab::notices::Notices;
use firstlight_lab::record::Phase;
use std::collections::HashMap;

/// Most nodes whose distances are kept and told: their number is squared. Linux has
/// no more nodes than this.
pub(super) const MOST_DISTANT_NODES: usize = 1024;
/// Most nodes the engine can number.
const MOST_NODES: usize = 1 << 16;
/// Slots for what is reserved while a machine comes up, besides a few a node.
const SPARE_SLOTS: usize = 256;

/// Stamps of the steps so far.
pub(super) struct Phases {
    clock: Clock,
    list: Vec<Phase>,
    since_ns: u64,
}

impl Phases {
    pub(super) fn new(clock: Clock) -> Self {
        // Room for every step, so that a stamp never allocates.
        Self {
            clock,
            list: Vec::with_capacity(16),
            since_ns: 0,
        }
    }

    /// Ends the step `name`, which began where the one before ended.
    pub(super) fn end(&mut self, name: &'static str) -> u64 {
        let end_ns = self.clock.now_ns();
        self.list.push(Phase {
            name: name.into(),
            start_ns: self.since_ns,
            end_ns,
        });
        self.since_ns = end_ns;
        end_ns
    }

    pub(super) fn into_list(self) -> Vec<Phase> {
        self.list
    }
}

/// Storage for the map.
pub(super) struct MapStorage {
    scratch: Vec<ScratchEntry>,
    regions: Vec<Region>,
}

impl MapStorage {
    /// Enough for what is described, and for what the command lines change of it.
    pub(super) fn new(described: &Described) -> Self {
        let entries = described.map.len();
        let changes: usize = map_lines(described)
            .map(|line| line.memory_changes().count())
            .sum();
        let regions = 5 * (entries + changes) + 16;
        Self {
            scratch: vec![ScratchEntry::default(); entries],
            regions: vec![Region::default(); regions],
        }
    }
}

/// The command lines whose words for the map have not been acted on.
fn map_lines(described: &Described) -> impl Iterator<Item = CommandLine<'_>> {
    described
        .command_lines
        .iter()
        .skip(described.settled)
        .map(|line| CommandLine::new(line.as_bytes()))
}

/// From firmware's entries, and what the command lines change of them, to a map
/// with some memory.
pub(super) fn map<'s>(
    described: &Described,
    storage: &'s mut MapStorage,
    corrections: &mut Notices,
) -> Result<MemoryMap<'s>, Failure> {
    let refused = |error| Failure::machine("memory map", error);
    let entries = described.map.iter().copied();
    let mut report = |correction| corrections.push(correction);
    let mut map = MemoryMap::build(
        entries,
        &mut storage.scratch,
        &mut storage.regions,
        &mut report,
    )
    .map_err(refused)?;
    for line in map_lines(described) {
        line.change_map(&mut map, &mut |notice| corrections.push(notice))
            .map_err(refused)?;
    }
    if map.memory().next().is_some() {
        return Ok(map);
    }
    let held = MemoryKind::ALL
        .into_iter()
        .filter(|kind| map.bytes_of(*kind) > 0);
    let held: Vec<_> = held
        .map(|kind| format!("{} {kind}", bytes(map.bytes_of(kind))))
        .collect();
    let held = if held.is_empty() {
        "nothing".into()
    } else {
        held.join(", ")
    };
    Err(Failure::machine(
        "memory map",
        format!("no usable memory: expected some, saw {held}"),
    ))
}

/// What the command lines say of zones.
pub(super) fn policy(described: &Described, corrections: &mut Notices) -> LayoutPolicy {
    let lines = described
        .command_lines
        .iter()
        .map(|line| CommandLine::new(line.as_bytes()));
    lines.fold(LayoutPolicy::DEFAULT, |policy, line| {
        line.layout_policy(policy, &mut |bad| corrections.push(bad))
    })
}

/// Storage for early memory, topology and layout.
pub(super) struct Storage {
    memory: Vec<EarlyRegion>,
    reserved: Vec<EarlyRegion>,
    trail: Vec<Allocation>,
    infos: Vec<NodeInfo>,
    ranges: Vec<TopologyRange>,
    distances: Vec<u8>,
}

impl Storage {
    /// Enough for a map and what is said of its nodes: every row has two ends,
    /// and an end adds a region at most.
    pub(super) fn new(map: &MemoryMap<'_>, affinity: &Affinity) -> Self {
        let (nodes, rows) = affinity.capacity();
        let memory = map.regions().len() + 2 * rows + 16;
        let claims = 4 * nodes + SPARE_SLOTS;
        Self {
            memory: vec![EarlyRegion::EMPTY; memory],
            reserved: vec![EarlyRegion::EMPTY; claims],
            trail: vec![Allocation::EMPTY; claims],
            infos: vec![NodeInfo::EMPTY; nodes],
            ranges: vec![TopologyRange::EMPTY; rows],
            distances: Vec::new(),
        }
    }
}

impl Affinity {
    /// Nodes and rows of memory there may be, at most.
    fn capacity(&self) -> (usize, usize) {
        let (pinned, rows) = match self {
            Self::Nothing => (0, 0),
            // The shortest entry has 16 bytes.
            Self::Table(table) => (0, table.len() / 16),
            Self::Rows { entries, pins } => {
                let highest = pins
                    .iter()
                    .filter_map(|(node, _)| usize::try_from(*node).ok())
                    .max();
                (
                    highest.map_or(0, |node| node.saturating_add(1)),
                    entries.len(),
                )
            }
        };
        (pinned.saturating_add(rows).clamp(1, MOST_NODES), rows)
    }
}

/// Early memory with nodes, and the topology that set them.
pub(super) struct Ready<'s> {
    pub(super) early: EarlyMemory<'s>,
    pub(super) topology: Topology<'s>,
}

/// From a map and what is said of nodes to memory that knows its nodes.
pub(super) fn ready<'s>(
    map: &MemoryMap<'_>,
    described: &Described,
    storage: &'s mut Storage,
    corrections: &mut Notices,
    phases: &mut Phases,
) -> Result<Ready<'s>, Failure> {
    let refused = |error| Failure::machine("early memory", error);
    let mut early = EarlyMemory::from_map(
        map,
        &mut storage.memory,
        &mut storage.reserved,
        &mut storage.trail,
    )
    .map_err(refused)?;
    // So that address zero is never handed out.
    let first_page = PhysRange::with_size(0, PAGE_BYTES).unwrap_or_default();
    early.reserve(first_page, "address zero").map_err(refused)?;
    phases.end("early memory");
    let refused = |error| Failure::machine("topology", error);
    let mut topology = match &described.affinity {
        Affinity::Nothing => {
            let cpus = u32::try_from(described.cpus).unwrap_or(u32::MAX);
            Topology::single(&mut storage.infos, cpus).map_err(refused)?
        }
        affinity => {
            let lent = TopologyStorage {
                nodes: &mut storage.infos,
                ranges: &mut storage.ranges,
            };
            let builder = fill(TopologyBuilder::new(lent), affinity, corrections)?;
            builder.finish(&mut |notice| corrections.push(notice))
        }
    };
    set_distances(
        &mut topology,
        &described.distances,
        &mut storage.distances,
        corrections,
    )?;
    topology
        .apply(&mut early, Trust::Repair, &mut |notice| {
            corrections.push(notice)
        })
        .map_err(refused)?;
    phases.end("topology");
    Ok(Ready { early, topology })
}

/// Feeds the rows to `builder`; a raw table is read in place.
fn fill<'s>(
    mut builder: TopologyBuilder<'s>,
    affinity: &Affinity,
    corrections: &mut Notices,
) -> Result<TopologyBuilder<'s>, Failure> {
    let refused = |error| Failure::machine("topology", error);
    match affinity {
        Affinity::Nothing => {}
        Affinity::Table(table) => {
            let srat = Srat::parse(table).map_err(|error| Failure::machine("SRAT", error))?;
            if let Some(fault) = srat.checksum_fault() {
                corrections.push(fault);
            }
            let mut report = |notice| corrections.push(notice);
            builder
                .add_srat(srat.entries(), &mut report)
                .map_err(refused)?;
        }
        Affinity::Rows { entries, pins } => {
            let mut known = HashMap::new();
            for (node, domain) in pins {
                if known.insert(*node, *domain) == Some(*domain) {
                    continue;
                }
                let id = u16::try_from(*node).map_err(|_| {
                    Failure::machine(
                        "topology",
                        format!("node {node} is too many, expected at most {}", u16::MAX),
                    )
                })?;
                builder.pin(NodeId(id), *domain).map_err(refused)?;
            }
            let mut report = |notice| corrections.push(notice);
            builder
                .add_srat(entries.iter().copied().map(Ok), &mut report)
                .map_err(refused)?;
        }
    }
    Ok(builder)
}

/// Gives the topology its distances, where there are any.
fn set_distances<'s>(
    topology: &mut Topology<'s>,
    distances: &Distances,
    storage: &'s mut Vec<u8>,
    corrections: &mut Notices,
) -> Result<(), Failure> {
    let nodes = topology.nodes().len();
    if nodes > MOST_DISTANT_NODES {
        corrections.push(format_args!(
            "{nodes} nodes: distances left out, all other nodes are as far"
        ));
        return Ok(());
    }
    let refused = |error| Failure::machine("distances", error);
    match distances {
        Distances::Nothing => Ok(()),
        Distances::Table(table) => {
            let slit = match Slit::parse(table) {
                Ok(slit) => slit,
                Err(error) => {
                    corrections.push(format_args!("SLIT not used: {error}"));
                    return Ok(());
                }
            };
            if let Some(fault) = slit.checksum_fault() {
                corrections.push(fault);
            }
            *storage = vec![0; nodes * nodes];
            let mut report = |notice| corrections.push(notice);
            topology
                .set_slit(&slit, storage, &mut report)
                .map_err(refused)
        }
        Distances::Rows(rows) => {
            *storage = vec![0; nodes * nodes];
            let known: HashMap<(usize, usize), u8> = rows
                .iter()
                .filter_map(|(from, to, distance)| {
                    Some((
                        (usize::try_from(*from).ok()?, usize::try_from(*to).ok()?),
                        *distance,
                    ))
                })
                .collect();
            topology
                .set_distances(storage, |from, to| known.get(&(from, to)).copied())
                .map_err(refused)
        }
    }
}

/// Storage for a layout.
pub(super) struct Slots {
    nodes: Vec<Node>,
    ranges: Vec<NodeRange>,
    zones: Vec<Zone>,
}

impl Slots {
    pub(super) fn new(ready: &Ready<'_>) -> Self {
        let nodes = ready.topology.nodes().len();
        Self {
            nodes: vec![Node::EMPTY; nodes],
            ranges: vec![NodeRange::EMPTY; ready.early.memory().len()],
            zones: vec![Zone::EMPTY; 4 * nodes],
        }
    }

    pub(super) fn lend(&mut self) -> LayoutStorage<'_> {
        LayoutStorage {
            nodes: &mut self.nodes,
            ranges: &mut self.ranges,
            zones: &mut self.zones,
        }
    }
}

/// Address space for the tables of all frames of `early`: a third of a byte a
/// frame, and some for each node and each end of a range. What is not written
/// costs nothing.
pub(super) fn metadata_space(ready: &Ready<'_>) -> Result<MetadataSpace, Failure> {
    let frames = ready.early.memory_bytes() / PAGE_BYTES;
    let pieces = (4 * ready.early.memory().len() + ready.topology.nodes().len() + 4) as u64;
    let bytes = (frames / 3).saturating_add(pieces.saturating_mul(4 << 20));
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    MetadataSpace::new(bytes).map_err(|error| {
        Failure::Io(format!(
            "cannot reserve {bytes} bytes of address space: {error}"
        ))
    })
}
