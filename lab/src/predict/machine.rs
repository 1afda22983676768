//! A machine of which times are predicted, [`Machine`], and the formulas of its parts.

use firstlight::blocks::SizePolicy;
use serde::Serialize;

use crate::log::{self, Line};

/// Nanoseconds a page and thread.
const THREAD_NS: f64 = 14.2;
/// Nanoseconds a page, however many threads.
const MEMORY_NS: f64 = 1.8;
/// The kernel without memory.
const KERNEL_MS: f64 = 590.0;
/// What each GiB adds to it.
const KERNEL_MS_PER_GIB: f64 = 2.0;
/// The published machine with many blocks, and how long they took by search and by lookup.
pub(super) const BLOCKS: f64 = 16_288.0;
const SEARCHED_MS: f64 = 14_000.0;
const LOOKED_UP_MS: f64 = 500.0;
/// Linux finds a block by a lookup from here on.
const LOOKED_UP_FROM: (u32, u32) = (5, 8);

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// GiB of each node that has memory.
    pub node_gib: Vec<f64>,
    /// CPUs.
    pub cpus: u32,
    /// MiB of a memory block, as Linux chooses it.
    pub block_mib: u64,
    /// Whether the kernel is older than 5.8, which searched for each memory block.
    pub searches_blocks: bool,
}

impl Machine {
    /// The machine that a log speaks of; `None` if it shows no memory.
    #[must_use]
    pub fn of_log(content: &[u8]) -> Option<Self> {
        let log = log::read(content);
        let rows = log.node_ranges.iter().map(|row| (row.node, row.span));
        let srat = log.srat_memory.iter().filter(|row| !row.hotplug);
        let srat = srat.map(|row| (row.node, row.span));
        let mut rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            rows = srat.collect();
        }
        if rows.is_empty() {
            let (_, map) = log.memory_rows();
            let usable = map
                .iter()
                .filter(|row| row.kind == crate::log::E820Kind::Usable);
            rows = usable.map(|row| (0, row.span)).collect();
        }
        let end = rows
            .iter()
            .map(|(_, span)| span.last.saturating_add(1))
            .max();
        let mut nodes = std::collections::BTreeMap::<u32, u64>::new();
        for (node, span) in rows {
            let bytes = nodes.entry(node).or_default();
            *bytes = bytes.saturating_add(span.range().map_or(0, |range| range.bytes()));
        }
        let cpus = log.cpus.brought_up.or(log.cpus.allowed).unwrap_or(1);
        let mut machine = Self::new(nodes.into_values(), cpus);
        machine.block_mib = log::lines(content)
            .iter()
            .find_map(block_mib)
            .unwrap_or_else(|| chosen_mib(end.unwrap_or(0), log.virtual_machine.is_some()));
        if let Some(release) = &log.release {
            machine.searches_blocks = searches(release);
        }
        (!machine.node_gib.is_empty()).then_some(machine)
    }

    /// A machine of so many bytes a node, not a virtual one, with a kernel of today.
    #[must_use]
    pub fn new(node_bytes: impl Iterator<Item = u64>, cpus: u32) -> Self {
        let node_bytes: Vec<u64> = node_bytes.filter(|bytes| *bytes > 0).collect();
        let end = node_bytes.iter().copied().fold(0, u64::saturating_add);
        Self {
            node_gib: node_bytes.into_iter().map(gib).collect(),
            cpus,
            block_mib: chosen_mib(end, false),
            searches_blocks: false,
        }
    }

    /// Memory blocks.
    pub(super) fn blocks(&self) -> f64 {
        let mib = u32::try_from(self.block_mib.max(1)).unwrap_or(u32::MAX);
        (self.gib() * 1024.0 / f64::from(mib)).ceil()
    }

    pub(super) fn blocks_ms(&self) -> f64 {
        let part = self.blocks() / BLOCKS;
        match self.searches_blocks {
            true => SEARCHED_MS * part * part,
            false => LOOKED_UP_MS * part,
        }
    }

    pub(super) fn gib(&self) -> f64 {
        self.node_gib.iter().sum()
    }
}

/// Whether a kernel of this release searches for each memory block.
///
/// ```
/// use firstlight_lab::predict::searches;
/// assert!(searches("5.7.19") && searches("4.18") && !searches("5.10.0") && !searches("6.1"));
/// ```
#[must_use]
pub fn searches(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse::<u32>().ok();
    number()
        .zip(number())
        .is_some_and(|version| version < LOOKED_UP_FROM)
}

/// MiB of the block that Linux chooses where memory ends at `end_bytes`.
fn chosen_mib(end_bytes: u64, is_virtual: bool) -> u64 {
    let policy = SizePolicy {
        end_bytes,
        is_virtual,
        ..SizePolicy::default()
    };
    policy.choose().size.bytes() >> 20
}

/// `x86/mm: Memory block size: 2048MB`.
fn block_mib(line: &Line<'_>) -> Option<u64> {
    let (_, size) = line.text.split_once("Memory block size: ")?;
    let mib = size.strip_suffix("MB")?.parse().ok()?;
    (1..=1 << 20).contains(&mib).then_some(mib)
}

#[expect(clippy::cast_precision_loss, reason = "a size of memory")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Milliseconds of the deferred part of a node.
pub(super) fn deferred_ms(node_gib: f64, threads: u32) -> f64 {
    let pages = node_gib * 262_144.0;
    pages * (THREAD_NS / f64::from(threads.max(1)) + MEMORY_NS) / 1e6
}

pub(super) fn kernel_ms(gib: f64) -> f64 {
    KERNEL_MS + KERNEL_MS_PER_GIB * gib
}
