//! What a kernel said of its machine: [`KernelLog`].

use super::kernel_rows::{
    DeferredRow, E820Change, E820Row, MemblockDump, MemblockEvent, MovableStart, NodeOverlap,
    NodeRow, NodeSpan, PageSize, Processor, SratCpu, SratRow, Unavailable, ZonePages, ZoneRow,
};
use super::line::Line;
use super::problem::LogProblem;
use super::rows::Span;

/// What a kernel said of its machine while it booted. Rows stand in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Release, `6.1.0-55-cloud-amd64`.
    pub release: Option<String>,
    /// Which processor it runs on.
    pub processor: Processor,
    /// How large a page is, if tables or the release say so.
    pub page_size: Option<PageSize>,
    /// The command line.
    pub command_line: Option<String>,
    /// The firmware's memory map, as printed.
    pub e820: Vec<E820Row>,
    /// The map after `mem=` and `memmap=`.
    pub user_map: Vec<E820Row>,
    /// The map cut at what the boot loader passed on ("reserve setup_data"); byte-granular.
    pub setup_data: Vec<E820Row>,
    /// The map after the kernel's own corrections (before 3.x).
    pub modified_map: Vec<E820Row>,
    /// Single changes of the map.
    pub e820_changes: Vec<E820Change>,
    /// Memory of nodes.
    pub srat_memory: Vec<SratRow>,
    /// CPUs of nodes.
    pub srat_cpus: Vec<SratCpu>,
    /// Nodes that claim the same memory.
    pub node_overlaps: Vec<NodeOverlap>,
    /// The one node made up where firmware names none.
    pub faked_node: Option<Span>,
    /// Present memory, node by node ("Early memory node ranges").
    pub node_ranges: Vec<NodeRow>,
    /// Where each node's own data was put.
    pub node_data: Vec<NodeRow>,
    /// Zone bounds.
    pub zones: Vec<ZoneRow>,
    /// Counts of zones' pages (older kernels).
    pub zone_pages: Vec<ZonePages>,
    /// Where Movable zones start.
    pub movable_starts: Vec<MovableStart>,
    /// What nodes span.
    pub node_spans: Vec<NodeSpan>,
    /// Page frames without memory.
    pub unavailable: Vec<Unavailable>,
    /// Nodes whose deferred memory is ready, in the order they said so.
    pub deferred: Vec<DeferredRow>,
    /// The early allocator's trace.
    pub memblock: Vec<MemblockEvent>,
    /// The early allocator's state, whenever printed.
    pub memblock_dumps: Vec<MemblockDump>,
    /// ACPI tables listed.
    pub acpi_tables: Vec<AcpiTable>,
    /// The line that shows a virtual machine: its hypervisor's, or that of its firmware's maker.
    pub virtual_machine: Option<String>,
    /// CPUs.
    pub cpus: CpuCounts,
    /// What could not be taken as it stands: the first [`MOST_PROBLEMS`].
    pub problems: Vec<LogProblem>,
    /// Problems besides these, counted only.
    pub more_problems: u64,
}

/// Most problems of a log that are kept: what is wrong with a log must not need
/// more memory than the log.
pub const MOST_PROBLEMS: usize = 10_000;

/// How many CPUs a log speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// CPUs the kernel allows, those that may be plugged in included.
    pub allowed: Option<u32>,
    /// Those of them that may be plugged in later.
    pub hotplug: Option<u32>,
    /// CPUs that came up.
    pub brought_up: Option<u32>,
    /// Nodes named when they had come up.
    pub nodes: Option<u32>,
}

/// An ACPI table as listed: `ACPI: SRAT 0x00000000A49EB3C0 005A30 (v03 ...)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpiTable {
    /// Its four letters.
    pub signature: String,
    /// Where it lies.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Line number.
    pub line: usize,
}

impl KernelLog {
    pub(super) fn bound_problems(&mut self) {
        let more = self.problems.len().saturating_sub(MOST_PROBLEMS);
        self.problems.truncate(MOST_PROBLEMS);
        self.more_problems += more as u64;
    }

    /// Remarks on addresses no machine has; the row stays, the engine decides what to make of it.
    pub(super) fn note_absurd(&mut self, span: Span, line: &Line<'_>) {
        if span.is_absurd() {
            let what = "reaches beyond 4 PiB, where no machine has addresses; row kept";
            self.problems
                .push(LogProblem::new(line.number, what, &line.text));
        }
    }
}
