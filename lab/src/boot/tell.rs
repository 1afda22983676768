//! From what our image said to a record: [`tell`].
//!
//! Ticks become nanoseconds once the image has told how many make a second. An
//! image that never does has no times, and a note says so.

use super::events::{Event, Events};
use super::moments::{Time, reach};
use super::restart;
use crate::record::{self, Record};
use firstlight_wire::phase;

/// Fills `record` with what `events` say. What they do not say stays `None`.
pub fn tell(events: &Events, record: &mut Record) {
    let hz = events.list.iter().find_map(|event| match event {
        Event::Clock { hz, .. } if *hz > 0 => Some(*hz),
        _ => None,
    });
    if hz.is_none() {
        let why = "the image did not find out how fast its clock is: nothing has a time";
        record.notes.push(why.into());
    }
    let time = Time { hz };
    let (first, next) = restart::split(&events.list);
    for event in first {
        place(event, time, record);
    }
    firmware(record);
    if let Some(handed) = first.last() {
        restart::tell(handed, next, time, record);
    }
    record.events.clone_from(&events.raw);
}

/// What was before the image began is a phase, too, unless the image told it.
fn firmware(record: &mut Record) {
    let first = record.phases.iter().map(|phase| phase.start_ns).min();
    if let Some(end_ns) = record.milestones.entry_ns
        && end_ns > 0
        && first.is_none_or(|first| first >= end_ns)
    {
        let phase = record::Phase {
            name: phase::FIRMWARE.into(),
            start_ns: 0,
            end_ns,
        };
        record.phases.insert(0, phase);
    }
}

/// Puts one event where it belongs.
fn place(event: &Event, time: Time, record: &mut Record) {
    match event {
        Event::Start {
            version,
            command_line,
            ..
        } => {
            record.source.command_line.clone_from(command_line);
            if let Some(kernel) = &mut record.source.kernel {
                kernel.release = Some(version.clone());
            }
        }
        Event::Phase {
            name,
            start_ticks,
            end_ticks,
        } => {
            if let (Some(start_ns), Some(end_ns)) = (time.ns(*start_ticks), time.ns(*end_ticks)) {
                record.phases.push(record::Phase {
                    name: name.clone().into(),
                    start_ns,
                    end_ns,
                });
            }
        }
        Event::Milestone { name, ticks, .. } => {
            reach(name, time.ns(*ticks), &mut record.milestones);
        }
        Event::Machine { .. } | Event::Memory { .. } => size(event, record),
        Event::Region { .. } | Event::Node { .. } | Event::Zone { .. } => row(event, record),
        Event::Correction { text } => record.corrections.push(text.clone()),
        Event::Note { text } | Event::Failure { text } => record.notes.push(text.clone()),
        Event::Selftest(selftest) => record.selftest = Some(*selftest),
        Event::Bench {
            contestant,
            workload,
            order,
            threads,
            operations,
            ticks,
        } => record.bench.push(record::Bench {
            contestant: contestant.clone(),
            workload: workload.clone(),
            order: *order,
            threads: *threads,
            operations: *operations,
            duration_ns: time.ns(*ticks),
        }),
        Event::Descriptors(descriptors) => record.descriptors = Some(descriptors.clone()),
        Event::Zeroed(zeroed) => {
            record.zeroed = Some(record::Zeroed {
                allocated_bytes: zeroed.allocated_bytes,
                zeroed_bytes: zeroed.zeroed_bytes,
                known_zero_bytes: zeroed.known_zero_bytes,
                wrong_blocks: zeroed.wrong_blocks,
                duration_ns: time.ns(zeroed.ticks),
            });
        }
        Event::DeferredWork(work) => record.deferred_work = Some(*work),
        Event::Sweep {
            node,
            part,
            chunking,
            descriptor_bytes,
            threads,
            cpus,
            pages,
            bytes_written,
            ticks,
        } => record.sweep.push(record::Swept {
            node: *node,
            part: part.clone(),
            chunking: chunking.clone(),
            descriptor_bytes: *descriptor_bytes,
            threads: *threads,
            cpus: *cpus,
            pages: *pages,
            bytes_written: *bytes_written,
            duration_ns: time.ns(*ticks),
        }),
        // The host adds what it saw.
        Event::Balloon(_)
        | Event::HandedOver(_)
        | Event::Restart(_)
        | Event::Hotplug(_)
        | Event::Knob { .. }
        | Event::Clock { .. }
        | Event::Acceptance { .. }
        | Event::End { .. }
        | Event::Unknown => {}
    }
}

fn size(event: &Event, record: &mut Record) {
    match event {
        Event::Machine {
            memory_bytes,
            nodes,
            cpus,
            cpus_started,
        } => {
            record.machine.memory_bytes = Some(*memory_bytes);
            record.machine.nodes = Some(*nodes);
            record.machine.cpus = Some(*cpus_started);
            if cpus_started < cpus {
                record.notes.push(format!(
                    "{cpus_started} of {cpus} CPUs were running when the image ended"
                ));
            }
        }
        Event::Memory {
            present_frames,
            managed_frames,
            reserved_frames,
            metadata_written_bytes,
            metadata_reserved_bytes,
        } => {
            record.memory = record::Memory {
                present_frames: Some(*present_frames),
                managed_frames: Some(*managed_frames),
                reserved_frames: Some(*reserved_frames),
                metadata_written_bytes: Some(*metadata_written_bytes),
                metadata_reserved_bytes: Some(*metadata_reserved_bytes),
                metadata_resident_bytes: None,
            };
        }
        _ => {}
    }
}

fn row(event: &Event, record: &mut Record) {
    match event {
        Event::Region {
            start,
            end,
            kind,
            more_reliable,
            special_purpose,
        } => record.regions.push(record::Region {
            start: *start,
            end: *end,
            kind: kind.clone().into(),
            more_reliable: *more_reliable,
            special_purpose: *special_purpose,
        }),
        Event::Node {
            node,
            domain,
            cpus,
            start_frame,
            end_frame,
            present_frames,
            distances,
        } => record.nodes.push(record::Node {
            node: *node,
            domain: Some(*domain),
            cpus: Some(*cpus),
            start_frame: *start_frame,
            end_frame: *end_frame,
            present_frames: *present_frames,
            distances: distances.clone(),
        }),
        Event::Zone {
            node,
            zone,
            start_frame,
            spanned_frames,
            present_frames,
        } => record.zones.push(record::Zone {
            node: *node,
            zone: zone.clone().into(),
            start_frame: *start_frame,
            spanned_frames: *spanned_frames,
            present_frames: *present_frames,
        }),
        _ => {}
    }
}
