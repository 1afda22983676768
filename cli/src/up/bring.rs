//! What the path of memory needs to know of a described machine: command lines, storage,
//! nodes; and the stamps of its steps.

use super::source::{Affinity, Described, Distances};
use crate::failure::Failure;
use crate::text::bytes;
use firstlight::addr::PAGE_BYTES;
use firstlight::cmdline::CommandLine;
use firstlight::early::EarlyMemory;
use firstlight::firmware::acpi::{Slit, Srat};
use firstlight::layout::LayoutPolicy;
use firstlight::map::MemoryKind;
use firstlight::node::NodeId;
use firstlight::start::{AcpiNodes, BootSizes, NodeTables, StartError};
use firstlight::topology::{Topology, TopologyBuilder, TopologyError, TopologyStorage};
use firstlight_host::clock::Clock;
use firstlight_host::metadata::MetadataSpace;
use firstlight_lab::notices::Notices;
use firstlight_lab::record::Phase;
use std::collections::HashMap;
use std::fmt::Display;

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

/// The command lines whose words for the map are still to be acted on, as one.
pub(super) fn command_line(described: &Described) -> Vec<u8> {
    let mut line = Vec::new();
    for text in described.command_lines.iter().skip(described.settled) {
        // A line may end in words that are not the kernel's, or in an open quote.
        for word in CommandLine::new(text.as_bytes()).words() {
            line.extend_from_slice(word.text);
            if word.text.iter().filter(|&&byte| byte == b'"').count() % 2 == 1 {
                line.push(b'"');
            }
            line.push(b' ');
        }
    }
    line
}

/// What the other command lines say of zones.
pub(super) fn policy(described: &Described, corrections: &mut Notices) -> LayoutPolicy {
    let settled = described.command_lines.iter().take(described.settled);
    let lines = settled.map(|line| CommandLine::new(line.as_bytes()));
    lines.fold(LayoutPolicy::DEFAULT, |policy, line| {
        line.layout_policy(policy, &mut |bad| corrections.push(bad))
    })
}

/// Storage that is enough: an entry or a change of the map makes five regions at most, every
/// row of nodes has two ends, and an end adds a region at most.
pub(super) fn sizes(described: &Described, line: &[u8]) -> Result<BootSizes, Failure> {
    let (nodes, rows) = match &described.affinity {
        Affinity::Nothing => (1, 0),
        // The shortest entry has 16 bytes.
        Affinity::Table(table) => (table.len() / 16, table.len() / 16),
        Affinity::Rows { entries, pins } => {
            let pinned = pins.iter().map(|(node, _)| *node).max();
            if let Some(node) = pinned.filter(|&node| node > u16::MAX.into()) {
                let most = u16::MAX;
                let seen = format!("node {node} is too many, expected at most {most}");
                return Err(Failure::machine("topology", seen));
            }
            let pinned = pinned.map_or(0, |node| node as usize + 1);
            (pinned + entries.len(), entries.len())
        }
    };
    let nodes = nodes.clamp(1, MOST_NODES);
    let changes = CommandLine::new(line).memory_changes().count();
    let regions = 5 * (described.map.len() + changes) + 2 * rows;
    let ranges = (regions + 16).max(4 * nodes + SPARE_SLOTS);
    let distant = match described.distances {
        Distances::Nothing => 0,
        _ => nodes.min(MOST_DISTANT_NODES),
    };
    Ok(BootSizes {
        ranges,
        nodes,
        distances: distant * distant,
    })
}

/// Why there is no early memory: for want of memory, what there was instead.
pub(super) fn refused(error: StartError) -> Failure {
    let StartError::NoMemory { bytes: held } = error else {
        return Failure::Machine(error.to_string());
    };
    let held = MemoryKind::ALL.into_iter().zip(held);
    let held = held.filter(|(_, held)| *held > 0);
    let held: Vec<_> = held
        .map(|(kind, held)| format!("{} {kind}", bytes(held)))
        .collect();
    let held = if held.is_empty() {
        "nothing".into()
    } else {
        held.join(", ")
    };
    Failure::machine(
        "memory map",
        format!("no usable memory: expected some, saw {held}"),
    )
}

impl NodeTables for Described {
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        distances: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError> {
        let mut topology = match &self.affinity {
            Affinity::Nothing => {
                let cpus = u32::try_from(self.cpus).unwrap_or(u32::MAX);
                Topology::single(storage.nodes, cpus)?
            }
            Affinity::Table(table) => {
                if let Some(fault) = Srat::parse(table)
                    .ok()
                    .and_then(|srat| srat.checksum_fault())
                {
                    log(&fault);
                }
                let srat = Some(&table[..]);
                AcpiNodes {
                    srat,
                    ..AcpiNodes::NONE
                }
                .topology(storage, &mut [], log)?
            }
            Affinity::Rows { entries, pins } => {
                let mut builder = TopologyBuilder::new(storage);
                let mut known = HashMap::new();
                for (node, domain) in pins {
                    if known.insert(*node, *domain) != Some(*domain) {
                        let node = u16::try_from(*node).unwrap_or(u16::MAX);
                        builder.pin(NodeId(node), *domain)?;
                    }
                }
                let rows = entries.iter().copied().map(Ok);
                builder.add_srat(rows, &mut |notice| log(&notice))?;
                builder.finish(&mut |notice| log(&notice))
            }
        };
        self.set_distances(&mut topology, distances, log)?;
        Ok(topology)
    }
}

impl Described {
    /// Gives the topology its distances, where there are any.
    fn set_distances<'s>(
        &self,
        topology: &mut Topology<'s>,
        storage: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<(), TopologyError> {
        let nodes = topology.nodes().len();
        if nodes > MOST_DISTANT_NODES {
            log(&format_args!(
                "{nodes} nodes: distances left out, all other nodes are as far"
            ));
            return Ok(());
        }
        match &self.distances {
            Distances::Nothing => Ok(()),
            Distances::Table(table) => {
                let slit = match Slit::parse(table) {
                    Ok(slit) => slit,
                    Err(error) => {
                        log(&format_args!("SLIT not used: {error}"));
                        return Ok(());
                    }
                };
                if let Some(fault) = slit.checksum_fault() {
                    log(&fault);
                }
                topology.set_slit(&slit, storage, &mut |notice| log(&notice))
            }
            Distances::Rows(rows) => {
                let rows = rows
                    .iter()
                    .map(|&(from, to, distance)| ((from, to), distance));
                let known: HashMap<(u32, u32), u8> = rows.collect();
                topology.set_distances(storage, |from, to| {
                    let pair = (u32::try_from(from).ok()?, u32::try_from(to).ok()?);
                    known.get(&pair).copied()
                })
            }
        }
    }
}

/// Address space for the tables of all frames of `early`: a third of a byte a
/// frame, and some for each node and each end of a range. What is not written
/// costs nothing.
pub(super) fn metadata_space(
    early: &EarlyMemory<'_>,
    topology: &Topology<'_>,
) -> Result<MetadataSpace, Failure> {
    let frames = early.memory_bytes() / PAGE_BYTES;
    let pieces = (4 * early.memory().len() + topology.nodes().len() + 4) as u64;
    let bytes = (frames / 3).saturating_add(pieces.saturating_mul(4 << 20));
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    MetadataSpace::new(bytes).map_err(|error| {
        Failure::Io(format!(
            "cannot reserve {bytes} bytes of address space: {error}"
        ))
    })
}
