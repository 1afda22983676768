//! A machine's memory comes up, for real except that nothing of the memory itself is touched:
//! [`bring_up`] makes a [`Record`] of a [`Described`] machine.
//!
//! | file | concept |
//! |---|---|
//! | `described` | a machine, still unchecked |
//! | `source`, `this_machine` | machines of logs and tables; the one this runs on |
//! | `bring` | what the path of memory needs of it |
//! | `exercise` | real threads put the result to work |
//! | `error` | [`UpError`] |

mod bring;
mod described;
mod error;
mod exercise;
mod source;
mod this_machine;

use crate::notices::Notices;
use crate::record::{self, Exercise, Machine, Memory, Milestones, Phase, Record};
use bring::Phases;
use described::MOST_DISTANT_NODES;
use firstlight::addr::Order;
use firstlight::frames::{BuildError, Frames, Request};
use firstlight::layout::Layout;
use firstlight::map::MemoryMap;
use firstlight::node::ZoneKind;
use firstlight::start::{Boot, BootMemory, BootSlots, NodeTables};
use firstlight::topology::{TopologyError, Trust};
use firstlight_figures::text::bytes;
use firstlight_host::clock::Clock;
use firstlight_host::metadata::MetadataSpace;
use firstlight_host::threads;
use std::fmt::Display;

pub use described::Described;
pub use error::UpError;
pub use source::{described, no_map};
pub use this_machine::this_machine;

/// Walks the path of memory and puts the result to work; milestones count from the start of
/// `clock`.
///
/// # Errors
/// [`UpError`].
pub fn bring_up(described: Described, clock: Clock) -> Result<Record, UpError> {
    let mut phases = Phases::new(clock);
    let mut corrections = Notices::default();
    phases.end("description read");
    let line = bring::command_line(&described);
    let sizes = bring::sizes(&described, &line)?;
    let mut storage = Vec::with_capacity(sizes.bytes());
    let slots = BootSlots::carve(storage.spare_capacity_mut(), sizes)
        .map_err(|full| UpError::machine("storage", full))?;
    let boot = Boot {
        command_line: &line,
        policy: bring::policy(&described, &mut corrections),
        ..Boot::new(described.map.iter().copied())
    };
    let log = &mut |seen: &dyn Display| corrections.push(seen);
    let boot = boot.early(slots, log).map_err(bring::refused)?;
    phases.end("memory map");
    let BootMemory { map, mut early, .. } = boot;
    let refused = |error: TopologyError| UpError::Machine(error.to_string());
    let topology = described.topology(boot.topology, boot.distances, log);
    let mut topology = topology.map_err(refused)?;
    let applied = topology.apply(&mut early, Trust::Repair, &mut |seen| log(&seen));
    applied.map_err(refused)?;
    phases.end("topology");
    let space = bring::metadata_space(&early, &topology)?;
    phases.end("address space");
    let layout = Layout::build(early, topology, &boot.policy, boot.layout)
        .map_err(|error| UpError::machine("layout", error))?;

    // From here to the last stamp nothing happens but the engine's work.
    let layout_ns = phases.end("layout");
    let frames = Frames::build(layout, &space).map_err(|error| too_small(&map, &error))?;
    phases.end("frame allocator");
    let request = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    let first = frames.allocate(request);
    let first_frame_ns = phases.end("first frame");
    let milestones = Milestones {
        layout_ns: Some(layout_ns),
        first_frame_ns: Some(first_frame_ns),
        all_allocatable_ns: Some(first_frame_ns),
        ..Milestones::default()
    };

    let memory = memory(&frames, &space);
    let first = first.map_err(|error| UpError::machine("first frame", error))?;
    frames
        .free(first, Order::PAGE)
        .map_err(|error| UpError::Check(format!("first frame: {error}")))?;
    let cpus = threads::allowed_cpus().unwrap_or_else(|_| vec![0]);
    let exercise = exercise::exercise(&frames, &cpus, clock)?;
    let measured = Measured {
        milestones,
        phases: phases.into_list(),
        memory,
        exercise,
    };
    Ok(collect(&frames, &map, described, corrections, measured))
}

/// Why there is no allocator, with what there was to make it from.
fn too_small(map: &MemoryMap<'_>, error: &BuildError) -> UpError {
    let memory = bytes(map.usable_bytes());
    UpError::machine(
        "frame allocator",
        format!("{error}; the machine has {memory} of usable memory in all"),
    )
}

/// What was counted on the way.
struct Measured {
    milestones: Milestones,
    phases: Vec<Phase>,
    memory: Memory,
    exercise: Exercise,
}

fn memory(frames: &Frames<'_>, space: &MetadataSpace) -> Memory {
    let metadata = frames.metadata();
    let present_frames = frames.layout().present_frames();
    let managed_frames = frames.statistics().managed_frames;
    Memory {
        present_frames: Some(present_frames),
        managed_frames: Some(managed_frames),
        reserved_frames: Some(present_frames - managed_frames),
        metadata_written_bytes: Some(metadata.written_bytes),
        metadata_reserved_bytes: Some(metadata.reserved_bytes),
        metadata_resident_bytes: space.reservation().resident_bytes().ok(),
    }
}

fn collect(
    frames: &Frames<'_>,
    map: &MemoryMap<'_>,
    described: Described,
    corrections: Notices,
    measured: Measured,
) -> Record {
    let layout = frames.layout();
    let counted: u64 = layout.nodes().iter().map(|node| u64::from(node.cpus)).sum();
    let regions = map.regions().iter().map(|region| record::Region {
        start: region.range.start().get(),
        end: region.range.end().get(),
        kind: region.kind.name().into(),
        more_reliable: region.attributes.more_reliable,
        special_purpose: region.attributes.special_purpose,
    });
    let near = layout.nodes();
    let near = if near.len() > MOST_DISTANT_NODES {
        &[]
    } else {
        near
    };
    let nodes = layout.nodes().iter().map(|node| record::Node {
        node: node.id.0,
        domain: Some(node.domain),
        cpus: Some(u64::from(node.cpus)),
        start_frame: node.span.start().get(),
        end_frame: node.span.end().get(),
        present_frames: node.present_frames,
        distances: near
            .iter()
            .map(|to| layout.distance(node.id, to.id))
            .collect(),
    });
    let zones = layout.zones().iter().map(|zone| record::Zone {
        node: zone.node.0,
        zone: zone.kind.name().into(),
        start_frame: zone.span.start().get(),
        spanned_frames: zone.span.count(),
        present_frames: zone.present_frames,
    });
    Record {
        machine: Machine {
            memory_bytes: Some(layout.present_frames() * firstlight::addr::PAGE_BYTES),
            nodes: Some(layout.nodes().len() as u64),
            cpus: Some(if described.cpus > 0 {
                described.cpus
            } else {
                counted
            }),
            asked: None,
        },
        milestones: measured.milestones,
        phases: measured.phases,
        memory: measured.memory,
        regions: regions.collect(),
        nodes: nodes.collect(),
        zones: zones.collect(),
        corrections: corrections.into_list(),
        notes: described.notes,
        source: described.source,
        exercise: Some(measured.exercise),
        ..Record::new("up", "wall")
    }
}
