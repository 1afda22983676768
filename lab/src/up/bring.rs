//! What the path of memory needs to know of a described machine: command lines, storage,
//! nodes; and the stamps of its steps.

use super::described::{Affinity, Described, Distances, MOST_DISTANT_NODES};
use super::error::UpError;
use crate::notices::Notices;
use crate::record::Phase;
use firstlight::addr::PAGE_BYTES;
use firstlight::cmdline::CommandLine;
use firstlight::early::EarlyMemory;
use firstlight::layout::LayoutPolicy;
use firstlight::map::MemoryKind;
use firstlight::start::{BootSizes, StartError};
use firstlight::topology::Topology;
use firstlight_figures::text::bytes;
use firstlight_host::clock::Clock;
use firstlight_host::metadata::MetadataSpace;

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
pub(super) fn sizes(described: &Described, line: &[u8]) -> Result<BootSizes, UpError> {
    let (nodes, rows) = match &described.affinity {
        Affinity::Nothing => (1, 0),
        // The shortest entry has 16 bytes.
        Affinity::Table(table) => (table.len() / 16, table.len() / 16),
        Affinity::Rows { entries, pins } => {
            let pinned = pins.iter().map(|(node, _)| *node).max();
            if let Some(node) = pinned.filter(|&node| node > u16::MAX.into()) {
                let most = u16::MAX;
                let seen = format!("node {node} is too many, expected at most {most}");
                return Err(UpError::machine("topology", seen));
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
pub(super) fn refused(error: StartError) -> UpError {
    let StartError::NoMemory { bytes: held } = error else {
        return UpError::Machine(error.to_string());
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
    UpError::machine(
        "memory map",
        format!("no usable memory: expected some, saw {held}"),
    )
}

/// Address space for the tables of all frames of `early`: a third of a byte a
/// frame, and some for each node and each end of a range. What is not written
/// costs nothing.
pub(super) fn metadata_space(
    early: &EarlyMemory<'_>,
    topology: &Topology<'_>,
) -> Result<MetadataSpace, UpError> {
    let frames = early.memory_bytes() / PAGE_BYTES;
    let pieces = (4 * early.memory().len() + topology.nodes().len() + 4) as u64;
    let bytes = (frames / 3).saturating_add(pieces.saturating_mul(4 << 20));
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    MetadataSpace::new(bytes).map_err(|error| {
        UpError::Io(format!(
            "cannot reserve {bytes} bytes of address space: {error}"
        ))
    })
}
