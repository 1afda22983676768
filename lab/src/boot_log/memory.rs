//! Map, nodes and zones of a Linux, from the rows it printed.
//!
//! Zones are not printed node by node; they follow from what is: a zone of a node
//! is where the node's span and the zone's meet, and has the frames of the node's
//! ranges there.

use std::collections::BTreeMap;

use firstlight::addr::PAGE_BYTES;

use crate::log::{KernelLog, MemorySource, Span};
use crate::record::{Node, Record, Region, Zone};

/// Frames from the first to before the second.
type Frames = (u64, u64);

/// Puts map, nodes and zones into `record`.
pub(super) fn tell(log: &KernelLog, record: &mut Record) {
    record.regions = regions(log);
    let (source, rows) = log.map_entries();
    if source != MemorySource::Nothing {
        let count = rows.len();
        record.source.map = format!("{source}, as the kernel printed it ({count} rows)");
    }
    let ranges = node_ranges(log);
    record.source.nodes = if log.srat_memory.is_empty() {
        "firmware does not say: one node".into()
    } else {
        "SRAT rows".into()
    };
    record.nodes = nodes(log, &ranges);
    record.zones = zones(log, &ranges);
    if !ranges.is_empty() {
        // A hostile log may name the same memory any number of times.
        let nodes = record.nodes.iter().map(|node| node.present_frames);
        let present = nodes.fold(0, u64::saturating_add);
        record.memory.present_frames = Some(present);
        record.machine.memory_bytes = present.checked_mul(PAGE_BYTES);
        record.machine.nodes = Some(record.nodes.len() as u64);
    }
    record.machine.cpus = log.cpus.brought_up.map(u64::from);
}

fn regions(log: &KernelLog) -> Vec<Region> {
    let (_, entries) = log.map_entries();
    let mut regions: Vec<Region> = entries
        .iter()
        .map(|entry| Region {
            start: entry.start,
            end: entry.start.saturating_add(entry.bytes),
            kind: entry.kind.name().into(),
            more_reliable: false,
            special_purpose: false,
        })
        .collect();
    regions.sort_by_key(|region| region.start);
    regions
}

/// Present memory of each node, ascending; nodes without memory have no ranges.
fn node_ranges(log: &KernelLog) -> BTreeMap<u16, Vec<Frames>> {
    let mut ranges: BTreeMap<u16, Vec<Frames>> = BTreeMap::new();
    for row in &log.node_ranges {
        if let Ok(node) = u16::try_from(row.node) {
            ranges.entry(node).or_default().push(frames(row.span));
        }
    }
    let empty = log.node_spans.iter().filter(|span| span.span.is_none());
    let named = empty.map(|span| span.node);
    for node in named.chain(log.srat_cpus.iter().map(|cpu| cpu.node)) {
        if let (Ok(node), false) = (u16::try_from(node), ranges.is_empty()) {
            ranges.entry(node).or_default();
        }
    }
    for list in ranges.values_mut() {
        list.sort_unstable();
    }
    ranges
}

/// Whole frames of `span`, which kernels print in whole frames.
fn frames(span: Span) -> Frames {
    let end = span.last.saturating_add(1) / PAGE_BYTES;
    (span.start.div_ceil(PAGE_BYTES).min(end), end)
}

fn count(ranges: impl Iterator<Item = Frames>) -> u64 {
    ranges
        .map(|(start, end)| end.saturating_sub(start))
        .fold(0, u64::saturating_add)
}

fn span(ranges: &[Frames]) -> Frames {
    let start = ranges.first().map_or(0, |range| range.0);
    (start, ranges.iter().map(|range| range.1).max().unwrap_or(0))
}

fn meet(one: Frames, other: Frames) -> Option<Frames> {
    let (start, end) = (one.0.max(other.0), one.1.min(other.1));
    (start < end).then_some((start, end))
}

/// What firmware's rows say of a node.
#[derive(Clone, Copy, Default)]
struct Described {
    domain: Option<u32>,
    cpus: u64,
}

fn described(log: &KernelLog) -> BTreeMap<u32, Described> {
    let mut nodes: BTreeMap<u32, Described> = BTreeMap::new();
    for row in &log.srat_memory {
        let node = nodes.entry(row.node).or_default();
        node.domain.get_or_insert(row.domain);
    }
    for cpu in &log.srat_cpus {
        let node = nodes.entry(cpu.node).or_default();
        node.domain.get_or_insert(cpu.domain);
        node.cpus += 1;
    }
    nodes
}

fn nodes(log: &KernelLog, ranges: &BTreeMap<u16, Vec<Frames>>) -> Vec<Node> {
    let described = described(log);
    let alone = ranges.len() == 1;
    let rows = ranges.iter().map(|(node, ranges)| {
        let said = described.get(&u32::from(*node)).copied();
        let said = said.unwrap_or_default();
        let (start_frame, end_frame) = span(ranges);
        Node {
            node: *node,
            domain: said.domain,
            cpus: if !log.srat_cpus.is_empty() {
                Some(said.cpus)
            } else if alone {
                log.cpus.brought_up.map(u64::from)
            } else {
                // Newer kernels do not print which CPU is where.
                None
            },
            start_frame,
            end_frame,
            present_frames: count(ranges.iter().copied()),
            distances: Vec::new(),
        }
    });
    rows.collect()
}

/// Bounds of the zones, each once, whatever the log says.
fn zone_bounds(log: &KernelLog) -> Vec<(&str, Frames)> {
    let mut bounds: Vec<(&str, Frames)> = Vec::new();
    for row in &log.zones {
        let known = bounds.iter().any(|(name, _)| *name == row.zone);
        if let (Some(span), false) = (row.span, known) {
            bounds.push((&row.zone, frames(span)));
        }
    }
    bounds
}

fn zones(log: &KernelLog, ranges: &BTreeMap<u16, Vec<Frames>>) -> Vec<Zone> {
    let bounds = zone_bounds(log);
    let movable: BTreeMap<u32, u64> = log
        .movable_starts
        .iter()
        .map(|row| (row.node, row.start / PAGE_BYTES))
        .collect();
    let mut zones = Vec::new();
    for (node, ranges) in ranges {
        let movable = movable.get(&u32::from(*node)).copied();
        let below = bounds.iter().map(|(name, (start, end))| {
            let end = movable.map_or(*end, |movable| movable.min(*end));
            (*name, (*start, end))
        });
        let above = movable.map(|start| ("Movable", (start, u64::MAX)));
        zones.extend(
            below
                .chain(above)
                .filter_map(|(name, bounds)| zone(*node, ranges, name, bounds)),
        );
    }
    zones
}

/// The part of a node within `bounds`, if it has memory.
fn zone(node: u16, ranges: &[Frames], name: &str, bounds: Frames) -> Option<Zone> {
    let (start, end) = meet(span(ranges), bounds)?;
    let present = ranges.iter().filter_map(|range| meet(*range, (start, end)));
    let present_frames = count(present);
    (present_frames > 0).then(|| Zone {
        node,
        zone: name.to_owned().into(),
        start_frame: start,
        spanned_frames: end - start,
        present_frames,
    })
}
