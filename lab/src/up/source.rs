//! Machines of files: a kernel log, a raw ACPI table, a directory with a log or tables.

use super::described::{Affinity, Described, Distances, cpu_row, memory_row};
use super::error::UpError;
use crate::file::read;
use crate::log::{self, KernelLog, MemorySource};
use crate::record::Source;
use firstlight::firmware::acpi::{Madt, Srat, SratEntry};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight_figures::text::plural;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Log lines that could not be understood and are still quoted.
const MOST_PROBLEMS: usize = 20;

/// The machine of a kernel log, of a raw SRAT, or of a directory that holds a log or tables.
///
/// # Errors
/// [`UpError`]: what was looked for, and where.
pub fn described(path: &Path) -> Result<Described, UpError> {
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

/// The file of a directory that has the SLIT of the machine whose SRAT is `srat`.
fn beside(srat: &Path) -> Option<PathBuf> {
    let name = srat.file_name()?.to_str()?;
    let path = srat.with_file_name(name.replace("srat", "slit").replace("SRAT", "SLIT"));
    (path != srat && path.is_file()).then_some(path)
}

/// What a directory holds: at most one log and one machine's tables.
fn directory(path: &Path) -> Result<Described, UpError> {
    let unreadable = |error| UpError::unreadable(path, &error);
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
            return Err(UpError::Machine(format!(
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
fn log_and_srat(name: String, log: &[u8], srat: &Path) -> Result<Described, UpError> {
    let table = read(srat)?;
    let nodes = format!("SRAT ({})", srat.display());
    match from_log("directory", name.clone(), log) {
        Ok(mut machine) => {
            Srat::parse(&table).map_err(|error| UpError::machine("SRAT", error))?;
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
fn only(folder: &Path, kind: &str, mut files: Vec<PathBuf>) -> Result<Option<PathBuf>, UpError> {
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
        return Err(UpError::Machine(format!(
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
) -> Result<Described, UpError> {
    let table = Srat::parse(&srat).map_err(|error| UpError::machine(&name, error))?;
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
fn from_log(kind: &'static str, name: String, content: &[u8]) -> Result<Described, UpError> {
    let log = log::read(content);
    let (map_source, map) = log.map_entries();
    if map_source == MemorySource::Nothing {
        return Err(UpError::Machine(no_map(&name, content)));
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
        return ("no table of nodes: one node", Affinity::Nothing);
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

/// Why the log `name` describes no machine.
#[must_use]
pub fn no_map(name: &str, content: &[u8]) -> String {
    let lines = plural(content.split(|byte| *byte == b'\n').count() as u64, "line");
    format!(
        "{name} has no memory map: looked in {lines} for \"BIOS-e820:\" rows, \"user:\" rows, \
         \"reserve setup_data:\" rows, \"Early memory node ranges\" and \"SRAT: Node\" rows"
    )
}
