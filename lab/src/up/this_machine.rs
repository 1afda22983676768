//! The machine this runs on.

use super::described::{Affinity, Described, Distances, cpu_row, memory_row};
use super::error::UpError;
use crate::record::Source;
use firstlight::addr::PHYS_END;
use firstlight::firmware::acpi::Srat;
use firstlight::map::MapEntry;
use firstlight_figures::text::plural;
use firstlight_host::topology::{Machine, SystemNode};
use std::path::Path;

/// The machine this runs on.
///
/// # Errors
/// [`UpError`]: it shows no memory map.
pub fn this_machine() -> Result<Described, UpError> {
    let machine = Machine::discover(Path::new("/"))
        .map_err(|error| UpError::Io(format!("this machine shows no memory map: {error}")))?;
    let mut notes = machine.notes;
    let map: Vec<MapEntry> = machine.map.iter().filter_map(|row| row.entry()).collect();
    if map.len() < machine.map.len() {
        let backwards = plural((machine.map.len() - map.len()) as u64, "row");
        notes.push(format!(
            "{}: left out {backwards}, which ended before the start",
            machine.map_source
        ));
    }
    let map_from = format!(
        "{} ({})",
        machine.map_source,
        plural(map.len() as u64, "row")
    );
    let cpus = machine.cpus.len() as u64;
    let srat = machine.srat.filter(|srat| usable_srat(srat, &mut notes));
    let (nodes_from, affinity) = match srat {
        Some(srat) => ("ACPI SRAT".to_owned(), Affinity::Table(srat)),
        None if machine.nodes.is_empty() => {
            ("no table of nodes: one node".to_owned(), Affinity::Nothing)
        }
        None => {
            let from = "/sys/devices/system/node".to_owned();
            (from, system_rows(&machine.nodes, &mut notes))
        }
    };
    let distances = match machine.slit {
        Some(slit) => Distances::Table(slit),
        None => system_distances(&machine.nodes),
    };
    let source = Source {
        cell: None,
        kind: "this-machine".into(),
        name: String::new(),
        map: map_from,
        nodes: nodes_from,
        command_line: String::new(),
        kernel: None,
    };
    Ok(Described {
        source,
        map,
        affinity,
        distances,
        cpus,
        command_lines: Vec::new(),
        settled: 0,
        notes,
    })
}

/// The kernel's own nodes as rows; the kernel's numbers are kept.
fn system_rows(nodes: &[SystemNode], notes: &mut Vec<String>) -> Affinity {
    let mut entries = Vec::new();
    for node in nodes {
        entries.extend(node.cpus.iter().map(|cpu| cpu_row(*cpu, node.id)));
        let span = |(start, last): &(u64, u64)| memory_row(node.id, *start, *last, false, false);
        // A single node needs no borders: all memory is its.
        match nodes {
            [_] => entries.push(span(&(0, PHYS_END - 1))),
            _ => entries.extend(node.ranges.iter().map(span)),
        }
    }
    if nodes.len() > 1 && nodes.iter().all(|node| node.ranges.is_empty()) {
        let problem = "the kernel has no memory blocks, so where nodes begin and end is not known";
        notes.push(format!("{problem}; all memory is put on the first node"));
    }
    Affinity::Rows {
        entries,
        pins: nodes.iter().map(|node| (node.id, node.id)).collect(),
    }
}

fn system_distances(nodes: &[SystemNode]) -> Distances {
    let mut rows = Vec::new();
    for from in nodes {
        for (to, distance) in nodes.iter().zip(&from.distances) {
            // 255 means unreachable; more is not heard of.
            rows.push((from.id, to.id, u8::try_from(*distance).unwrap_or(u8::MAX)));
        }
    }
    if rows.is_empty() {
        Distances::Nothing
    } else {
        Distances::Rows(rows)
    }
}

/// Whether the table can be read at all; if not, a note says why.
fn usable_srat(table: &[u8], notes: &mut Vec<String>) -> bool {
    match Srat::parse(table) {
        Ok(_) => true,
        Err(error) => {
            notes.push(format!("SRAT not used: {error}"));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_node_has_all_memory_whatever_its_number() {
        let node = SystemNode {
            id: 3,
            cpus: vec![0, 1],
            ..SystemNode::default()
        };
        let mut notes = Vec::new();
        let Affinity::Rows { entries, pins } = system_rows(&[node], &mut notes) else {
            panic!("rows");
        };
        assert_eq!(pins, [(3, 3)]);
        assert!(entries.contains(&memory_row(3, 0, PHYS_END - 1, false, false)));
        assert!(notes.is_empty());
    }
}
