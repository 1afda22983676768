//! Which rows of a log to take as the machine's memory: [`MemorySource`], and the
//! firmware entries the engine's [map](firstlight::map) makes of them.

use std::fmt;

use firstlight::map::{Doubt, MapEntry, MemoryKind};

use super::kernel_log::KernelLog;
use super::kernel_rows::{E820Kind, E820Row};
use super::rows::Span;

/// Where a log's memory map comes from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// The firmware's own rows.
    Firmware,
    /// The map after `mem=` and `memmap=`, where the firmware's is missing.
    User,
    /// The map with the boot loader's data, where nothing better is printed.
    SetupData,
    /// The memory the kernel found present on its nodes.
    NodeRanges,
    /// The memory affinity table, windows for hotplug left out.
    Srat,
    /// The log says nothing of memory.
    Nothing,
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firmware => "the firmware's memory map",
            Self::User => "the map changed by the command line; the log has no firmware map",
            Self::SetupData => "the map with the boot loader's data; the log has no firmware map",
            Self::NodeRanges => "the early memory node ranges; the log has no firmware map",
            Self::Srat => "the memory affinity rows; the log has no firmware map",
            Self::Nothing => "nothing; the log has no memory rows",
        })
    }
}

impl E820Row {
    /// The row as the engine takes firmware entries.
    ///
    /// ```
    /// use firstlight::map::{MapEntry, MemoryKind};
    /// let log = firstlight_lab::log::read(b"BIOS-e820: [mem 0x1000-0x2fff] ACPI NVS");
    /// assert_eq!(log.e820[0].entry(), MapEntry::new(0x1000, 0x2000, MemoryKind::AcpiNvs));
    /// ```
    pub fn entry(&self) -> MapEntry {
        let kind = match self.kind {
            E820Kind::Usable => MemoryKind::Usable,
            E820Kind::Reserved | E820Kind::Type(_) => MemoryKind::Reserved,
            E820Kind::AcpiData => MemoryKind::AcpiReclaimable,
            E820Kind::AcpiNvs => MemoryKind::AcpiNvs,
            E820Kind::Unusable => MemoryKind::Unusable,
            E820Kind::Persistent => MemoryKind::Persistent,
            E820Kind::SoftReserved => MemoryKind::SoftReserved,
        };
        let Span { start, last } = self.span;
        // Rows never end before they start; 2^64 bytes are more than any machine has.
        let bytes = last.saturating_sub(start).saturating_add(1);
        let entry = MapEntry::new(start, bytes, kind);
        match self.kind {
            E820Kind::Type(number) => entry.with_doubt(Doubt::UnknownType(number)),
            _ => entry,
        }
    }
}

impl KernelLog {
    /// The entries to build the engine's memory map from, and where they come from.
    pub fn map_entries(&self) -> (MemorySource, Vec<MapEntry>) {
        let (source, rows) = self.memory_rows();
        (source, rows.iter().map(E820Row::entry).collect())
    }

    /// The rows to take as the machine's memory, and where they come from.
    ///
    /// ```
    /// use firstlight_lab::log::{MemorySource, read};
    /// let log = read(b"ACPI: SRAT: Node 0 PXM 0 [mem 0x00000000-0x7fffffff]");
    /// let (source, rows) = log.memory_rows();
    /// assert_eq!((source, rows.len()), (MemorySource::Srat, 1));
    /// ```
    pub fn memory_rows(&self) -> (MemorySource, Vec<E820Row>) {
        let usable = |(span, line): (Span, usize)| E820Row {
            span,
            kind: E820Kind::Usable,
            line,
        };
        let maps = [
            (MemorySource::Firmware, &self.e820),
            (MemorySource::User, &self.user_map),
            (MemorySource::SetupData, &self.setup_data),
        ];
        if let Some((source, rows)) = maps.into_iter().find(|(_, rows)| !rows.is_empty()) {
            return (source, rows.clone());
        }
        if !self.node_ranges.is_empty() {
            let rows = self
                .node_ranges
                .iter()
                .map(|row| usable((row.span, row.line)));
            return (MemorySource::NodeRanges, rows.collect());
        }
        let present = self
            .srat_memory
            .iter()
            .filter(|row| !row.hotplug && !row.non_volatile);
        let rows: Vec<_> = present.map(|row| usable((row.span, row.line))).collect();
        let source = if rows.is_empty() {
            MemorySource::Nothing
        } else {
            MemorySource::Srat
        };
        (source, rows)
    }
}
