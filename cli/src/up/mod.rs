//! `firstlight up`: a machine's memory comes up, for real except that nothing
//! of the memory itself is touched.
//!
//! [`source`] says what the machine is, [`bring`] what the path of memory needs of it,
//! [`exercise`] puts the result to work, and [`render`] shows the
//! [record](firstlight_lab::record) of it to a person.

mod bring;
mod exercise;
mod render;
mod source;

use crate::failure::Failure;
use crate::file;
use crate::output::Output;
use bring::{MOST_DISTANT_NODES, Phases};
use clap::Args;
use firstlight::addr::Order;
use firstlight::frames::{BuildError, Frames, Request};
use firstlight::layout::Layout;
use firstlight::map::MemoryMap;
use firstlight::node::ZoneKind;
use firstlight::start::{Boot, BootMemory, BootSlots, NodeTables};
use firstlight::topology::{TopologyError, Trust};
use firstlight_bench::machine::{Shape, ShapeError};
use firstlight_host::clock::Clock;
use firstlight_host::metadata::MetadataSpace;
use firstlight_host::threads;
use firstlight_lab::boot::record_of_result;
use firstlight_lab::notices::Notices;
use firstlight_lab::record::{self, Exercise, Machine, Memory, Milestones, Phase, Record};
use source::Described;
use std::fmt::Display;
use std::path::PathBuf;

/// Bring up a machine's memory and see when it was ready
///
/// The engine runs for real: it lays out nodes and zones, writes its tables
/// into reserved address space, and real threads allocate and free. The memory
/// the map speaks of is not touched.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A kernel log, a raw ACPI SRAT, or a directory with a log and raw ACPI tables
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "shape")]
    machine: Option<PathBuf>,
    /// What a run from a stick found, firstlight/result.jsonl on it: shown as a boot's record
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "shape", "append"])]
    result: Option<PathBuf>,
    /// A synthetic machine: memory=SIZE[,nodes=N][,cpus=N]; else 1 node, 1 CPU a node
    #[arg(long, value_name = "SHAPE", value_parser = named_shape)]
    shape: Option<(Shape, String)>,
    /// Kernel command line words to apply: mem= memmap= kernelcore= movablecore= movable_node
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    append: String,
    /// Show every region, node, zone and correction
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight up                                      this machine
  firstlight up --machine dmesg.txt                  the machine a kernel log speaks of
  firstlight up --machine tables/                    raw ACPI tables, with or without a log
  firstlight up --shape memory=4T,nodes=8,cpus=64    a synthetic machine
  firstlight up --append \"kernelcore=25% mem=16G\"    as if booted with these words
  firstlight up --result result.jsonl                what a run from a stick found
  firstlight up --json | jq .milestones              for programs

Exit codes: see firstlight --help";

fn named_shape(text: &str) -> Result<(Shape, String), ShapeError> {
    Ok((text.parse()?, text.to_owned()))
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, clock: Clock, output: &mut Output) -> Result<(), Failure> {
    if let Some(path) = &options.result {
        let name = path.display().to_string();
        let record = record_of_result(&name, &file::read(path)?)
            .map_err(|error| Failure::machine(&name, error))?;
        return output.print(&record, |record| {
            crate::boot::render::report(record, options.full)
        });
    }
    let mut described = match (&options.machine, &options.shape) {
        (Some(path), _) => source::described(path)?,
        (None, Some((shape, text))) => source::shape(shape, text),
        (None, None) => source::this_machine()?,
    };
    described.command_lines.push(options.append.clone());
    described.source.command_line = described.command_lines.join(" ").trim().to_owned();
    let record = bring_up(described, clock)?;
    output.print(&record, |record| render::report(record, options.full))
}

/// Walks the path of memory and puts the result to work.
fn bring_up(described: Described, clock: Clock) -> Result<Record, Failure> {
    let mut phases = Phases::new(clock);
    let mut corrections = Notices::default();
    phases.end("description read");
    let line = bring::command_line(&described);
    let sizes = bring::sizes(&described, &line)?;
    let mut storage = Vec::with_capacity(sizes.bytes());
    let slots = BootSlots::carve(storage.spare_capacity_mut(), sizes)
        .map_err(|full| Failure::machine("storage", full))?;
    let boot = Boot {
        command_line: &line,
        policy: bring::policy(&described, &mut corrections),
        ..Boot::new(described.map.iter().copied())
    };
    let log = &mut |seen: &dyn Display| corrections.push(seen);
    let boot = boot.early(slots, log).map_err(bring::refused)?;
    phases.end("memory map");
    let BootMemory { map, mut early, .. } = boot;
    let refused = |error: TopologyError| Failure::Machine(error.to_string());
    let topology = described.topology(boot.topology, boot.distances, log);
    let mut topology = topology.map_err(refused)?;
    let applied = topology.apply(&mut early, Trust::Repair, &mut |seen| log(&seen));
    applied.map_err(refused)?;
    phases.end("topology");
    let space = bring::metadata_space(&early, &topology)?;
    phases.end("address space");
    let layout = Layout::build(early, topology, &boot.policy, boot.layout)
        .map_err(|error| Failure::machine("layout", error))?;

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
    let first = first.map_err(|error| Failure::machine("first frame", error))?;
    frames
        .free(first, Order::PAGE)
        .map_err(|error| Failure::Check(format!("first frame: {error}")))?;
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
fn too_small(map: &MemoryMap<'_>, error: &BuildError) -> Failure {
    let memory = crate::text::bytes(map.usable_bytes());
    Failure::machine(
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
