//! The report of a run, for a person.

use crate::output::{GOOD, HEADING, NOTE};
use crate::report::{Page, memory};
use crate::text::{self, bytes, count, microseconds, plural};
use firstlight_lab::record::{Exercise, Record};

/// Everything, or with `full` off what fits a screen.
pub(super) fn report(record: &Record, full: bool) -> String {
    let fold = |most| if full { usize::MAX } else { most };
    let mut page = Page::default();
    heading(&mut page, record);
    memory::remarks(&mut page, "note", NOTE, &record.notes, fold(8));
    memory::regions(&mut page, &record.regions, fold(14));
    memory::remarks(&mut page, "corrected", NOTE, &record.corrections, fold(6));
    memory::nodes(&mut page, record, fold(10));
    memory::zones(&mut page, record, fold(12));
    time_line(&mut page, record);
    memory::metadata(&mut page, &record.memory);
    if let Some(work) = &record.exercise {
        exercise(&mut page, work);
    }
    page.text
}

fn heading(page: &mut Page, record: &Record) {
    let source = &record.source;
    let name = match &*source.kind {
        "this-machine" => "this machine".into(),
        kind => format!("{kind} {}", source.name),
    };
    let machine = &record.machine;
    let size = [
        machine
            .memory_bytes
            .map_or("memory not counted".into(), bytes),
        plural(machine.nodes.unwrap_or(0), "node"),
        match machine.cpus {
            Some(cpus) if cpus > 0 => plural(cpus, "CPU"),
            _ => "CPUs not counted".into(),
        },
    ];
    page.styled(
        HEADING,
        &format!("firstlight up: {name}, {}", size.join(", ")),
    );
    page.line(format!("  map    {}", source.map));
    page.line(format!("  nodes  {}", source.nodes));
    if !source.command_line.is_empty() {
        page.line(format!("  words  {}", source.command_line));
    }
}

fn time_line(page: &mut Page, record: &Record) {
    page.section(
        "Time line",
        "microseconds since the process began; wall clock",
    );
    let milestones = &record.milestones;
    // The last phase ends in the milestones, which say more.
    let steps = record
        .phases
        .split_last()
        .map_or(&[][..], |(_, steps)| steps);
    let mut events: Vec<(u64, u64, &str, bool)> = steps
        .iter()
        .map(|step| (step.end_ns, step.end_ns - step.start_ns, &*step.name, false))
        .collect();
    let layout_ns = milestones.layout_ns.unwrap_or(0);
    for (ns, name) in [
        (milestones.first_frame_ns, "first frame handed out"),
        (milestones.all_allocatable_ns, "all memory allocatable"),
    ] {
        events.extend(ns.map(|ns| (ns, ns.saturating_sub(layout_ns), name, true)));
    }
    events.sort_by_key(|event| event.0);
    let row = |(at, took, name, milestone): &(u64, u64, &str, bool)| {
        let took = microseconds(*took);
        let took = if *milestone {
            format!("{took} after layout")
        } else {
            format!("took {took}")
        };
        vec![microseconds(*at), (*name).into(), took]
    };
    let rows: Vec<_> = events.iter().map(row).collect();
    let lines = text::table("><<", &rows);
    for (line, event) in lines.iter().zip(&events) {
        if event.3 {
            page.styled(GOOD, line);
        } else {
            page.line(line);
        }
    }
}

fn exercise(page: &mut Page, exercise: &Exercise) {
    page.section("Put to work", "");
    page.line(format!(
        "  {} allocated {} and freed {} blocks of 4 KiB to 1 GiB on every node in {} µs",
        plural(exercise.threads, "thread"),
        count(exercise.allocations),
        count(exercise.frees),
        microseconds(exercise.duration_ns),
    ));
    page.line(format!(
        "  then all memory at once: {} frames in {}, freed again",
        count(exercise.drained_frames),
        plural(exercise.drained_blocks, "block"),
    ));
    if exercise.unpinned_threads > 0 {
        let threads = plural(exercise.unpinned_threads, "thread");
        page.line(format!(
            "  {NOTE}note:{NOTE:#} {threads} could not be kept on one CPU"
        ));
    }
    page.styled(GOOD, "  every frame once, none lost, all counters agree");
}
