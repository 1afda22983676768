//! A machine as a file, a shape or this machine describes it: [`Described`], still unchecked.

use crate::record::Source;
use firstlight::firmware::acpi::{Slit, Srat, SratEntry};
use firstlight::map::MapEntry;
use firstlight::node::NodeId;
use firstlight::start::{AcpiNodes, NodeTables};
use firstlight::topology::{
    Topology, TopologyBuilder, TopologyError, TopologyStorage, add_srat, set_slit,
};
use std::collections::HashMap;
use std::fmt::Display;

/// Most nodes whose distances are kept and reported: their number is squared. Linux has
/// no more nodes than this.
pub(super) const MOST_DISTANT_NODES: usize = 1024;

/// A machine as somebody described it.
#[derive(Debug)]
pub struct Described {
    pub(super) source: Source,
    pub(super) map: Vec<MapEntry>,
    pub(super) affinity: Affinity,
    pub(super) distances: Distances,
    /// CPUs, where the affinity does not count them.
    pub(super) cpus: u64,
    /// Kernel command lines, one after the other; the map's words of the first
    /// `settled` are in the map already.
    pub(super) command_lines: Vec<String>,
    pub(super) settled: usize,
    pub(super) notes: Vec<String>,
}

/// What was said about nodes.
#[derive(Debug)]
pub(super) enum Affinity {
    /// Nothing: one node.
    Nothing,
    /// A raw SRAT, to be read in place.
    Table(Vec<u8>),
    /// Rows like those of a SRAT, and which domain is which node where that is known.
    Rows {
        entries: Vec<SratEntry>,
        pins: Vec<(u32, u32)>,
    },
}

/// What was said about distances.
#[derive(Debug)]
pub(super) enum Distances {
    Nothing,
    /// A raw SLIT.
    Table(Vec<u8>),
    /// (from node, to node, distance).
    Rows(Vec<(u32, u32, u8)>),
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
                add_srat(&mut builder, rows, &mut |notice| log(&notice))?;
                builder.finish(&mut |notice| log(&notice))
            }
        };
        self.set_distances(&mut topology, distances, log)?;
        Ok(topology)
    }
}

impl Described {
    /// A synthetic machine, which is called `name`: its map, its memory as (node, first byte,
    /// bytes), and the node of each of its CPUs.
    pub fn synthetic(
        name: &str,
        map: Vec<MapEntry>,
        memory: impl IntoIterator<Item = (u16, u64, u64)>,
        cpus: impl IntoIterator<Item = u16>,
    ) -> Self {
        let cpus = cpus.into_iter().zip(0..);
        let mut entries: Vec<SratEntry> = cpus.map(|(node, id)| cpu_row(id, node.into())).collect();
        let count = entries.len() as u64;
        entries.extend(memory.into_iter().map(|(node, base, bytes)| {
            memory_row(node.into(), base, base + (bytes - 1), false, false)
        }));
        Self {
            source: Source {
                kind: "shape".into(),
                name: name.into(),
                map: "synthetic, with the holes of a PC".into(),
                nodes: "synthetic, all the same size".into(),
                ..Source::default()
            },
            map,
            affinity: Affinity::Rows {
                entries,
                pins: Vec::new(),
            },
            distances: Distances::Nothing,
            cpus: count,
            command_lines: Vec::new(),
            settled: 0,
            notes: Vec::new(),
        }
    }

    /// As if it was booted with these words, too.
    pub fn append(&mut self, words: &str) {
        self.command_lines.push(words.to_owned());
        self.source.command_line = self.command_lines.join(" ").trim().to_owned();
    }

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
                set_slit(topology, &slit, storage, &mut |notice| log(&notice))
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

pub(super) fn cpu_row(apic_id: u32, domain: u32) -> SratEntry {
    SratEntry::Cpu {
        apic_id,
        domain,
        enabled: true,
    }
}

pub(super) fn memory_row(
    domain: u32,
    base: u64,
    last: u64,
    hotplug: bool,
    non_volatile: bool,
) -> SratEntry {
    let bytes = last.saturating_sub(base).saturating_add(1);
    SratEntry::Memory {
        domain,
        base,
        bytes,
        enabled: true,
        hotplug,
        non_volatile,
    }
}
