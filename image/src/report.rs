//! The results: lines for a reader, events for a program. Lines carry the time of the
//! step that they describe.

use core::sync::atomic::{AtomicBool, Ordering};

use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::clock::Frequency;
use firstlight::events::{Event as Stamp, Events};
use firstlight::layout::Layout;
use firstlight_image::json::Outgoing;
use firstlight_image::record::{Cut, LINE_BYTES, Printable};
use firstlight_wire::{Event, SCHEMA, milestone, phase};

use crate::arch::cpus::FIRST_PAGE_END;
use crate::arch::restart;
use crate::console::{self, event, line_at};
use crate::machine::Machine;
use crate::processors::Processors;

/// Most distances that fit one event.
const MOST_DISTANCES: usize = 512;

/// Whether a report was begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Begins one; whether it is the first.
pub(crate) fn begin() -> bool {
    !BEGUN.swap(true, Ordering::Relaxed)
}

/// Reports all of it.
pub(crate) fn report(
    machine: &Machine,
    clock: Option<(Frequency, &str)>,
    processors: &Processors,
    events: &Events<'_>,
) {
    begin();
    let at = |step| ended(events, step);
    start(machine, at(phase::MEMORY_MAP));
    map(machine, at(phase::MEMORY_MAP));
    let layout = machine.frames.layout();
    nodes(layout, at(phase::TOPOLOGY));
    zones(layout, at(phase::LAYOUT));
    memory(machine, at(phase::FIRST_FRAME));
    cpus(machine, clock, processors, at(phase::OTHER_CPUS));
    console::remarks();
    for stamp in events.list() {
        event(&outgoing(*stamp));
    }
    if events.lost() > 0 {
        console::note(format_args!(
            "{} events did not fit their storage",
            events.lost()
        ));
    }
}

/// A recorded event, as it is sent.
pub(crate) fn outgoing(stamp: Stamp) -> Outgoing<'static> {
    match stamp {
        // It was the previous kernel's last step.
        Stamp::Phase {
            name: phase::FIRMWARE,
            end_ticks,
            ..
        } if restart::count() > 0 => Event::Phase {
            name: phase::RESTART,
            start_ticks: restart::left(),
            end_ticks,
        },
        Stamp::Phase {
            name,
            start_ticks,
            end_ticks,
        } => Event::Phase {
            name,
            start_ticks,
            end_ticks,
        },
        Stamp::Milestone { name, ticks } => Event::Milestone {
            name,
            ticks,
            source: milestone::source(name),
        },
    }
}

/// When a step ended.
fn ended(events: &Events<'_>, step: &str) -> u64 {
    let end = events.list().iter().find_map(|event| match *event {
        Stamp::Phase {
            name, end_ticks, ..
        } if name == step => Some(end_ticks),
        _ => None,
    });
    end.unwrap_or_default()
}

fn start(machine: &Machine, ticks: u64) {
    let mut bytes = [0; LINE_BYTES];
    let words = machine.command_line.text();
    let command_line = Cut::text(&mut bytes, format_args!("{}", Printable(words)));
    line_at(ticks, format_args!("command line: {command_line}"));
    event(&first(command_line));
}

/// The first event.
pub(crate) fn first(command_line: &str) -> Outgoing<'_> {
    Event::Start {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        command_line,
    }
}

fn map(machine: &Machine, ticks: u64) {
    line_at(ticks, format_args!("physical memory map:"));
    for region in machine.map.regions() {
        let (range, kind) = (region.range, region.kind.name());
        line_at(ticks, format_args!("  {} {kind}", Range(range)));
        event(&Event::Region {
            start: range.start().get(),
            end: range.end().get(),
            kind,
            more_reliable: region.attributes.more_reliable,
            special_purpose: region.attributes.special_purpose,
        });
    }
}

fn nodes(layout: &Layout<'_>, ticks: u64) {
    let nodes = layout.nodes();
    for node in nodes {
        let mut distances = [0; MOST_DISTANCES];
        let near = nodes.iter().zip(&mut distances);
        near.for_each(|(to, distance)| *distance = layout.distance(node.id, to.id));
        let distances = distances.get(..nodes.len()).unwrap_or_default();
        let (frames, mib) = (node.span, mib(node.present_frames));
        match node.present_frames {
            0 => line_at(
                ticks,
                format_args!("node {}: no memory, {} CPUs", node.id.0, node.cpus),
            ),
            _ => {
                let span = Range(frames.addrs());
                line_at(
                    ticks,
                    format_args!("node {}: {span} {mib} MiB, {} CPUs", node.id.0, node.cpus),
                );
            }
        }
        event(&Event::Node {
            node: node.id.0,
            domain: node.domain,
            cpus: node.cpus.into(),
            start_frame: frames.start().get(),
            end_frame: frames.end().get(),
            present_frames: node.present_frames,
            distances,
        });
    }
}

fn zones(layout: &Layout<'_>, ticks: u64) {
    for zone in layout.zones() {
        let (node, name, pages) = (zone.node.0, zone.kind.name(), zone.present_frames);
        let span = Range(zone.span.addrs());
        line_at(
            ticks,
            format_args!("zone {name:<8} node {node}: {span} {pages} pages"),
        );
        event(&Event::Zone {
            node,
            zone: name,
            start_frame: zone.span.start().get(),
            spanned_frames: zone.span.count(),
            present_frames: pages,
        });
    }
}

fn memory(machine: &Machine, ticks: u64) {
    let metadata = machine.ready;
    let present_frames = machine.frames.layout().present_frames();
    let managed_frames = machine.frames.statistics().managed_frames;
    line_at(
        ticks,
        format_args!(
            "memory: {} MiB allocatable of {} MiB; allocator's tables: {} bytes written, {} KiB reserved",
            mib(managed_frames),
            mib(present_frames),
            metadata.written_bytes,
            metadata.reserved_bytes >> 10
        ),
    );
    if let Some(end) = FIRST_PAGE_END {
        let kib = end.get() >> 10;
        line_at(
            ticks,
            format_args!("memory: the first {kib} KiB are left to firmware"),
        );
    }
    event(&Event::Memory {
        present_frames,
        managed_frames,
        reserved_frames: present_frames - managed_frames,
        metadata_written_bytes: metadata.written_bytes,
        metadata_reserved_bytes: metadata.reserved_bytes,
    });
}

fn cpus(machine: &Machine, clock: Option<(Frequency, &str)>, processors: &Processors, ticks: u64) {
    let (listed, started) = (processors.listed, processors.started());
    line_at(ticks, format_args!("CPUs: {started} of {listed} run"));
    if let Some((clock, source)) = clock {
        line_at(
            ticks,
            format_args!("clock: {} kHz, source: {source}", clock.hz() / 1000),
        );
        event(&Event::Clock {
            hz: clock.hz(),
            source,
        });
    }
    let layout = machine.frames.layout();
    event(&Event::Machine {
        memory_bytes: layout.present_frames() * PAGE_BYTES,
        nodes: layout.nodes().len() as u64,
        cpus: listed as u64,
        cpus_started: started as u64,
    });
}

/// Whole MiB that frames make.
const fn mib(frames: u64) -> u64 {
    (frames * PAGE_BYTES) >> 20
}

/// A range as firmware prints it, its last byte included.
struct Range(PhysRange);

impl core::fmt::Display for Range {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (start, end) = (self.0.start().get(), self.0.end().get());
        write!(f, "[mem {start:#014x}-{:#014x}]", end.saturating_sub(1))
    }
}
