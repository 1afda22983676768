//! Where a machine comes from: this one, a kernel log, a directory of ACPI
//! tables, or a shape. All become a [`Described`] machine, still unchecked.

use crate::failure::Failure;
use crate::file::{self, read};
use crate::text::plural;
use firstlight::addr::PHYS_END;
use firstlight::firmware::acpi::{Madt, Srat, SratEntry};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight_bench::machine::Shape;
use firstlight_host::topology::{Machine, SystemNode};
use firstlight_lab::log::{self, KernelLog, MemorySource};
use firstlight_lab::record::Source;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Log lines that could not be understood and are still quoted.
const MOST_PROBLEMS: usize = 20;

/// A machine as somebody described it.
pub(super) struct Described {
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
pub(super) enum Distances {
    Nothing,
    /// A raw SLIT.
    Table(Vec<u8>),
    /// (from node, to node, distance).
    Rows(Vec<(u32, u32, u8)>),
}

/// The machine this runs on.
pub(super) fn this_machine() -> Result<Described, Failure> {
    let machine = Machine::discover(Path::new("/"))
        .map_err(|error| Failure::Io(format!("this machine shows no memory map: {error}")))?;
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
        None if machine.nodes.is_empty() => ("nobody says: one node".to_owned(), Affinity::Nothing),
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

fn cpu_row(apic_id: u32, domain: u32) -> SratEntry {
    SratEntry::Cpu {
        apic_id,
        domain,
        enabled: true,
    }
}

fn memory_row(domain: u32, base: u64, last: u64, hotplug: bool, non_volatile: bool) -> SratEntry {
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

/// A synthetic machine.
pub(super) fn shape(shape: &Shape, text: &str) -> Described {
    let cpus = shape.cpu_nodes().zip(0..);
    let memory = shape.memory_rows().into_iter();
    let entries = cpus
        .map(|(node, id)| cpu_row(id, node.into()))
        .chain(memory.map(|(node, base, bytes)| {
            memory_row(node.into(), base, base + (bytes - 1), false, false)
        }))
        .collect();
    let source = Source {
        cell: None,
        kind: "shape".into(),
        name: text.into(),
        map: "synthetic, with the holes of a PC".into(),
        nodes: "synthetic, all the same size".into(),
        command_line: String::new(),
        kernel: None,
    };
    Described {
        source,
        map: shape.map(),
        affinity: Affinity::Rows {
            entries,
            pins: Vec::new(),
        },
        distances: Distances::Nothing,
        cpus: u64::from(shape.cpus),
        command_lines: Vec::new(),
        settled: 0,
        notes: Vec::new(),
    }
}

/// A kernel log, a raw SRAT, or a directory that holds a log or tables.
pub(super) fn described(path: &Path) -> Result<Described, Failure> {
    if path.is_dir() {
        return directory(path);
    }
    let content = read(path)?;
    let name = path.display().to_string();
    if signature(&content) == Some(*b"SRAT") {
        let slit = beside(path).map(|path| read(&path)).transpose()?;
        return from_tables("table", name, content, slit);
    }
    from_log("log", name, &content)
}

/// The four letters a raw ACPI table begins with, and its length after them. A log
/// may begin with "SRAT:" too; but no table needs the highest byte of its length,
/// and no text has a zero there.
fn signature(content: &[u8]) -> Option<[u8; 4]> {
    match content {
        [s, i, g, n, _, _, _, 0, ..] => Some([*s, *i, *g, *n]),
        _ => None,
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

/// The file of a directory that has the SLIT of the machine whose SRAT is `srat`.
fn beside(srat: &Path) -> Option<PathBuf> {
    let name = srat.file_name()?.to_str()?;
    let path = srat.with_file_name(name.replace("srat", "slit").replace("SRAT", "SLIT"));
    (path != srat && path.is_file()).then_some(path)
}

/// What a directory holds: at most one log and one machine's tables.
fn directory(path: &Path) -> Result<Described, Failure> {
    let unreadable = |error| Failure::unreadable(path, &error);
    let (mut logs, mut tables, mut slits, mut madts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if !file.is_file() {
            continue;
        }
        let mut start = Vec::new();
        let opened = fs::File::open(&file);
        let opened = opened.and_then(|opened| opened.take(8).read_to_end(&mut start));
        let ending = file
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        match signature(&start).as_ref() {
            _ if opened.is_err() => {}
            Some(b"SRAT") => tables.push(file),
            Some(b"SLIT") => slits.push(file),
            Some(b"APIC") => madts.push(file),
            _ if ["log", "txt", "dmesg"].contains(&ending)
                || file.file_name().is_some_and(|name| name == "dmesg") =>
            {
                logs.push(file);
            }
            _ => {}
        }
    }
    let log = only(path, "kernel log (*.log, *.txt, dmesg)", logs)?;
    let srat = only(path, "SRAT", tables)?;
    let slit = only(path, "SLIT", slits)?;
    let madt = only(path, "MADT", madts)?;
    let name = path.display().to_string();
    let slit = slit.map(|slit| read(&slit)).transpose()?;
    let mut machine = match (log, srat) {
        (Some(log), None) => from_log("directory", name, &read(&log)?)?,
        (Some(log), Some(srat)) => log_and_srat(name, &read(&log)?, &srat)?,
        (None, Some(srat)) => from_tables("directory", name, read(&srat)?, None)?,
        (None, None) => {
            let looked =
                "a kernel log (*.log, *.txt, dmesg) or a raw ACPI table with the signature SRAT";
            return Err(Failure::Machine(format!(
                "{name} describes no machine: looked for {looked}"
            )));
        }
    };
    if let Some(slit) = slit {
        machine.distances = Distances::Table(slit);
    }
    if let Some(madt) = madt {
        machine.cpus = madt_cpus(&read(&madt)?, &mut machine.notes).unwrap_or(machine.cpus);
    }
    Ok(machine)
}

/// A log and the raw SRAT of its machine. What the table says of nodes goes before
/// what the log quotes of it, and stands in for the map if the log shows none.
fn log_and_srat(name: String, log: &[u8], srat: &Path) -> Result<Described, Failure> {
    let table = read(srat)?;
    let nodes = format!("SRAT ({})", srat.display());
    match from_log("directory", name.clone(), log) {
        Ok(mut machine) => {
            Srat::parse(&table).map_err(|error| Failure::machine("SRAT", error))?;
            machine.source.nodes = nodes;
            machine.affinity = Affinity::Table(table);
            Ok(machine)
        }
        Err(_) => {
            let mut machine = from_tables("directory", name, table, None)?;
            let log = log::read(log);
            machine.source.nodes = nodes;
            machine.cpus = log_cpus(&log);
            note_problems(&log, &mut machine.notes);
            machine.command_lines = vec![log.command_line.unwrap_or_default()];
            Ok(machine)
        }
    }
}

/// CPUs that came up, or may come up; 0 if the log counts none.
fn log_cpus(log: &KernelLog) -> u64 {
    u64::from(log.cpus.brought_up.or(log.cpus.allowed).unwrap_or(0))
}

/// The one file of a kind, if there is one.
fn only(folder: &Path, kind: &str, mut files: Vec<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    files.sort();
    if files.len() > 1 {
        let names: Vec<_> = files
            .iter()
            .filter_map(|file| file.file_name()?.to_str())
            .take(4)
            .collect();
        let count = files.len();
        let more = if names.len() < count { ", ..." } else { "" };
        let names = names.join(", ") + more;
        let folder = folder.display();
        return Err(Failure::Machine(format!(
            "{folder} has {count} files of the kind {kind} ({names}), expected one machine; name one of them instead"
        )));
    }
    Ok(files.pop())
}

/// CPUs a MADT lists as enabled.
fn madt_cpus(table: &[u8], notes: &mut Vec<String>) -> Option<u64> {
    match Madt::parse(table) {
        Ok(madt) => {
            let (mut enabled, mut faults) = (0, 0);
            for cpu in madt.cpus() {
                match cpu {
                    Ok(cpu) => enabled += u64::from(cpu.enabled),
                    Err(error) => {
                        if faults == 0 {
                            notes.push(format!("MADT: {error}"));
                        }
                        faults += 1;
                    }
                }
            }
            if faults > 1 {
                notes.push(format!("MADT: and {} more like this", faults - 1));
            }
            Some(enabled)
        }
        Err(error) => {
            notes.push(format!("MADT not used: {error}"));
            None
        }
    }
}

/// Tables alone: the memory rows of the SRAT serve as the map.
fn from_tables(
    kind: &'static str,
    name: String,
    srat: Vec<u8>,
    slit: Option<Vec<u8>>,
) -> Result<Described, Failure> {
    let table = Srat::parse(&srat).map_err(|error| Failure::machine(&name, error))?;
    let mut map = Vec::new();
    for entry in table.entries() {
        if let Ok(SratEntry::Memory {
            base,
            bytes,
            enabled: true,
            hotplug: false,
            non_volatile,
            ..
        }) = entry
        {
            let kind = if non_volatile {
                MemoryKind::Persistent
            } else {
                MemoryKind::Usable
            };
            map.push(MapEntry::new(base, bytes, kind));
        }
    }
    let rows = plural(map.len() as u64, "row");
    let source = Source {
        cell: None,
        kind: kind.into(),
        name,
        map: format!("SRAT ({rows} of memory)"),
        nodes: "SRAT".into(),
        command_line: String::new(),
        kernel: None,
    };
    Ok(Described {
        source,
        map,
        affinity: Affinity::Table(srat),
        distances: slit.map_or(Distances::Nothing, Distances::Table),
        cpus: 0,
        command_lines: Vec::new(),
        settled: 0,
        notes: vec![
            "no e820 rows: took the memory rows of the SRAT, which leave out firmware's own holes"
                .into(),
        ],
    })
}

/// What a kernel log says.
fn from_log(kind: &'static str, name: String, content: &[u8]) -> Result<Described, Failure> {
    let log = log::read(content);
    let (map_source, map) = log.map_entries();
    if map_source == MemorySource::Nothing {
        return Err(file::no_map(&name, content));
    }
    let mut notes = Vec::new();
    if map_source != MemorySource::Firmware {
        notes.push(format!("memory map: {map_source}"));
    }
    note_problems(&log, &mut notes);
    let (nodes, affinity) = log_affinity(&log);
    let source = Source {
        cell: None,
        kind: kind.into(),
        name,
        map: format!("{map_source} ({})", plural(map.len() as u64, "row")),
        nodes: nodes.into(),
        command_line: String::new(),
        kernel: None,
    };
    let cpus = log_cpus(&log);
    Ok(Described {
        source,
        map,
        affinity,
        distances: Distances::Nothing,
        cpus,
        settled: usize::from(map_source != MemorySource::Firmware),
        command_lines: vec![log.command_line.unwrap_or_default()],
        notes,
    })
}

/// Quotes the first lines of a log that could not be understood.
fn note_problems(log: &KernelLog, notes: &mut Vec<String>) {
    let (shown, more) = log.problems.split_at(log.problems.len().min(MOST_PROBLEMS));
    notes.extend(shown.iter().map(ToString::to_string));
    let more = more.len() as u64 + log.more_problems;
    if more > 0 {
        notes.push(format!("and {} more like these", plural(more, "line")));
    }
}

/// Nodes from the log's SRAT rows, or else from its node ranges.
fn log_affinity(log: &KernelLog) -> (&'static str, Affinity) {
    let mut entries: Vec<SratEntry> = log
        .srat_cpus
        .iter()
        .map(|cpu| {
            cpu_row(
                u32::try_from(cpu.hardware_id).unwrap_or(u32::MAX),
                cpu.domain,
            )
        })
        .collect();
    let mut pins: Vec<(u32, u32)> = log
        .srat_cpus
        .iter()
        .map(|cpu| (cpu.node, cpu.domain))
        .collect();
    for row in &log.srat_memory {
        entries.push(memory_row(
            row.domain,
            row.span.start,
            row.span.last,
            row.hotplug,
            row.non_volatile,
        ));
        pins.push((row.node, row.domain));
    }
    if !log.srat_memory.is_empty() {
        return ("SRAT rows", Affinity::Rows { entries, pins });
    }
    if log.node_ranges.is_empty() {
        return ("nobody says: one node", Affinity::Nothing);
    }
    for row in &log.node_ranges {
        entries.push(memory_row(
            row.node,
            row.span.start,
            row.span.last,
            false,
            false,
        ));
        pins.push((row.node, row.node));
    }
    ("early memory node ranges", Affinity::Rows { entries, pins })
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
