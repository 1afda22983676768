//! What a layout is computed from: [`LayoutInput`].

use std::collections::BTreeMap;

use firstlight::addr::PhysAddr;
use firstlight::blocks::BlockSize;
use firstlight::layout::LayoutPolicy;
use firstlight::map::MapEntry;

use crate::log::{KernelLog, MemorySource, PageSize, Processor};
use crate::notices::Notices;

/// Memory of a node, as firmware tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMemory {
    /// The node's number.
    pub node: u16,
    /// Its proximity domain.
    pub domain: u32,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
    /// Memory may come and go here.
    pub hotplug: bool,
}

/// Memory plugged in after the boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PluggedMemory {
    /// Its node.
    pub node: u16,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

/// CPUs of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCpus {
    /// The node's proximity domain.
    pub domain: u32,
    /// How many.
    pub cpus: u32,
}

/// A machine: firmware's map, affinity rows, command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayoutInput {
    /// The memory map.
    pub map: Vec<MapEntry>,
    /// The map already holds what `mem=` and `memmap=` changed.
    pub map_is_changed: bool,
    /// Which memory is on which node; empty on a machine without nodes.
    pub memory: Vec<NodeMemory>,
    /// How many CPUs are on which node, by its number; empty when nobody said.
    pub cpus: BTreeMap<u16, NodeCpus>,
    /// The processor.
    pub processor: Processor,
    /// How large a Linux's pages are, on arm64; elsewhere, and ours, are 4 KiB.
    pub page_size: PageSize,
    /// Its zones, before the command line changes them.
    pub policy: LayoutPolicy,
    /// The kernel's command line.
    pub command_line: String,
    /// The processor says that there is a hypervisor.
    pub hypervisor: bool,
    /// Memory that is plugged in after the boot, ascending.
    pub plugged: Vec<PluggedMemory>,
    /// A size of memory blocks that was asked for.
    pub block_size: Option<BlockSize>,
    /// What firmware's windows for memory (CEDT) advise as the size of memory blocks.
    pub advised_bytes: Option<u64>,
    /// CPUs in all, for a machine that does not say on which node they are.
    pub cpu_count: u32,
    /// What could not be taken from where this comes from.
    pub notices: Notices,
}

impl LayoutInput {
    /// The machine that a kernel log speaks of.
    ///
    /// Where the log has no firmware map, the next best rows stand in for it, and a notice says so.
    pub fn from_log(log: &KernelLog) -> Self {
        let (source, map) = log.map_entries();
        let mut input = Self {
            map,
            map_is_changed: source != MemorySource::Firmware,
            processor: log.processor,
            page_size: log.page_size.unwrap_or_default(),
            command_line: log.command_line.clone().unwrap_or_default(),
            hypervisor: log.virtual_machine.is_some(),
            cpu_count: log.cpus.brought_up.or(log.cpus.allowed).unwrap_or(0),
            ..Self::default()
        };
        if log.processor == Processor::Arm64 {
            input.policy = arm64_policy(log, &input.map);
        }
        if source != MemorySource::Firmware {
            input
                .notices
                .push(format_args!("memory is taken from {source}"));
        }
        for row in &log.srat_memory {
            input.add_memory(
                row.node,
                row.domain,
                (row.span.start, row.span.last),
                row.hotplug,
            );
        }
        if input.memory.is_empty() && source == MemorySource::NodeRanges {
            for row in &log.node_ranges {
                input.add_memory(row.node, row.node, (row.span.start, row.span.last), false);
            }
        }
        for row in &log.srat_cpus {
            input.count_cpu(row.node, row.domain);
        }
        if log.processor == Processor::Arm64 {
            // No line names the CPUs of a device tree; a node without memory is there for some.
            for row in log.node_spans.iter().filter(|row| row.span.is_none()) {
                input.count_cpu(row.node, row.node);
            }
        }
        input
    }

    /// Puts the bytes from `span.0` to `span.1`, both inside, on `node`.
    pub fn add_memory(&mut self, node: u32, domain: u32, span: (u64, u64), hotplug: bool) {
        let (start, last) = span;
        match u16::try_from(node) {
            Ok(node) => self.memory.push(NodeMemory {
                node,
                domain,
                start,
                last,
                hotplug,
            }),
            Err(_) => self.refuse(node),
        }
    }

    /// Counts a CPU on `node`.
    pub fn count_cpu(&mut self, node: u32, domain: u32) {
        let Ok(number) = u16::try_from(node) else {
            return self.refuse(node);
        };
        let row = self
            .cpus
            .entry(number)
            .or_insert(NodeCpus { domain, cpus: 0 });
        row.cpus = row.cpus.saturating_add(1);
    }

    fn refuse(&mut self, node: u32) {
        self.notices.push(format_args!(
            "node {node} left out: node numbers end at {}",
            u16::MAX
        ));
    }
}

/// An arm64 machine's zones. How far its devices reach is in the device tree or in ACPI's IORT, and
/// in a log only where zone DMA ends before memory does.
fn arm64_policy(log: &KernelLog, map: &[MapEntry]) -> LayoutPolicy {
    let first = map.iter().map(|entry| entry.start).min().unwrap_or(0);
    let ends = log.node_ranges.iter().map(|row| row.span.last);
    let last = ends.max().unwrap_or(u64::MAX);
    let rows = log.zones.iter().filter(|row| row.zone == "DMA");
    let dma = rows.map(|row| row.span).next_back();
    let below_4g = LayoutPolicy::arm64(first, 32);
    if dma == Some(None) && first < below_4g.dma32_end.addr().get() {
        // Devices reach less than where memory begins; only Linux since 6.12 says so.
        return LayoutPolicy {
            dma_end: PhysAddr::new(first).frame(),
            ..below_4g
        };
    }
    let limit = dma.flatten().map(|span| span.last);
    let bits = limit.filter(|limit| *limit < last).map_or(32, |limit| {
        // Of an end that is no power of two, memory's own, the bits that it needs.
        u64::BITS - limit.leading_zeros()
    });
    LayoutPolicy::arm64(first, bits)
}
