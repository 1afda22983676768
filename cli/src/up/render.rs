//! The report of a run, for a person.

use super::record::{Node, Record, Region};
use crate::output::{FAINT, GOOD, HEADING, NOTE};
use crate::text::{self, Align, bytes, count, microseconds, plural};
use anstyle::Style;
use std::fmt::Write;

const PAGE_BYTES: u64 = firstlight::addr::PAGE_BYTES;

/// Everything, or with `full` off what fits a screen.
pub(super) fn report(record: &Record, full: bool) -> String {
    let fold = |most| if full { usize::MAX } else { most };
    let mut page = Page {
        text: String::new(),
    };
    heading(&mut page, record);
    remarks(&mut page, "note", NOTE, &record.notes, fold(8));
    regions(&mut page, &record.regions, fold(14));
    remarks(&mut page, "corrected", NOTE, &record.corrections, fold(6));
    nodes(&mut page, &record.nodes, fold(10));
    zones(&mut page, record, fold(12));
    time_line(&mut page, record);
    metadata(&mut page, record);
    exercise(&mut page, record);
    page.text
}

struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn styled(&mut self, style: Style, line: &str) {
        let _ = writeln!(self.text, "{style}{line}{style:#}");
    }

    fn section(&mut self, name: &str, aside: &str) {
        let gap = if aside.is_empty() { "" } else { "  " };
        let _ = writeln!(
            self.text,
            "\n{HEADING}{name}{HEADING:#}{gap}{FAINT}{aside}{FAINT:#}"
        );
    }

    fn table(&mut self, columns: &[Align], rows: &[Vec<String>]) {
        for line in text::table(columns, rows) {
            self.line(line);
        }
    }

    fn more(&mut self, hidden: usize) {
        if hidden > 0 {
            self.styled(FAINT, &format!("  ... and {hidden} more (--full)"));
        }
    }
}

fn heading(page: &mut Page, record: &Record) {
    let source = &record.source;
    let name = match source.kind {
        "this-machine" => "this machine".into(),
        kind => format!("{kind} {}", source.name),
    };
    let machine = &record.machine;
    let size = [
        bytes(machine.memory_bytes),
        plural(machine.nodes, "node"),
        if machine.cpus > 0 {
            plural(machine.cpus, "CPU")
        } else {
            "CPUs not counted".into()
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

fn remarks(page: &mut Page, word: &str, style: Style, remarks: &[String], most: usize) {
    let (shown, hidden) = text::fold(remarks, most);
    for remark in shown {
        page.line(format!("  {style}{word}:{style:#} {remark}"));
    }
    page.more(hidden);
}

fn regions(page: &mut Page, regions: &[Region], most: usize) {
    let memory = regions
        .iter()
        .filter(|region| region.kind == "usable")
        .count();
    page.section(
        "Memory map",
        &format!(
            "{}, {memory} of them usable",
            plural(regions.len() as u64, "region")
        ),
    );
    let (shown, hidden) = text::fold(regions, most);
    let row = |region: &Region| {
        let mut kind = region.kind.to_owned();
        for (is, words) in [
            (region.more_reliable, " (more reliable)"),
            (region.special_purpose, " (special purpose)"),
        ] {
            kind.push_str(if is { words } else { "" });
        }
        // Inclusive, as firmware and kernels print it.
        let range = format!(
            "{:#014x}-{:#014x}",
            region.start,
            region.end.saturating_sub(1)
        );
        vec![range, bytes(region.end - region.start), kind]
    };
    let rows: Vec<_> = shown.iter().map(row).collect();
    page.table(&[Align::Left, Align::Right, Align::Left], &rows);
    page.more(hidden);
}

fn nodes(page: &mut Page, nodes: &[Node], most: usize) {
    page.section("Nodes", "");
    let (shown, hidden) = text::fold(nodes, most);
    let mut rows = vec![
        ["node", "domain", "CPUs", "memory", "frames", "distances"]
            .map(String::from)
            .to_vec(),
    ];
    let counted = nodes.iter().any(|node| node.cpus > 0);
    for node in shown {
        let (near, far) = node.distances.split_at(node.distances.len().min(12));
        let mut distances: Vec<String> = near.iter().map(u8::to_string).collect();
        distances.extend((!far.is_empty()).then(|| "...".into()));
        let frames = match node.present_frames {
            0 => "no memory".into(),
            _ => format!("{:#x}..{:#x}", node.start_frame, node.end_frame),
        };
        rows.push(vec![
            node.node.to_string(),
            node.domain.to_string(),
            if counted {
                count(node.cpus)
            } else {
                "?".into()
            },
            bytes(node.present_frames * PAGE_BYTES),
            frames,
            distances.join(" "),
        ]);
    }
    page.table(
        &[
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Left,
            Align::Left,
        ],
        &rows,
    );
    page.more(hidden);
}

fn zones(page: &mut Page, record: &Record, most: usize) {
    page.section("Zones", "");
    let (shown, hidden) = text::fold(&record.zones, most);
    let mut rows = vec![
        ["node", "zone", "from frame", "spanned", "present"]
            .map(String::from)
            .to_vec(),
    ];
    rows.extend(shown.iter().map(|zone| {
        vec![
            zone.node.to_string(),
            zone.zone.into(),
            format!("{:#x}", zone.start_frame),
            bytes(zone.spanned_frames * PAGE_BYTES),
            bytes(zone.present_frames * PAGE_BYTES),
        ]
    }));
    page.table(
        &[
            Align::Right,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Right,
        ],
        &rows,
    );
    page.more(hidden);
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
        .map(|step| (step.end_ns, step.end_ns - step.start_ns, step.name, false))
        .collect();
    let layout_ns = milestones.layout_ns;
    for (ns, name) in [
        (milestones.first_frame_ns, "first frame handed out"),
        (milestones.all_allocatable_ns, "all memory allocatable"),
    ] {
        events.push((ns, ns.saturating_sub(layout_ns), name, true));
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
    let lines = text::table(&[Align::Right, Align::Left, Align::Left], &rows);
    for (line, event) in lines.iter().zip(&events) {
        if event.3 {
            page.styled(GOOD, line);
        } else {
            page.line(line);
        }
    }
}

fn metadata(page: &mut Page, record: &Record) {
    let memory = &record.memory;
    page.section("Metadata", "when all memory was allocatable");
    let rows = [
        [
            "frames".into(),
            format!(
                "{} present, {} to hand out, {} reserved",
                count(memory.present_frames),
                count(memory.managed_frames),
                count(memory.reserved_frames)
            ),
        ],
        [
            "written".into(),
            format!(
                "{} ({} bytes)",
                bytes(memory.metadata_written_bytes),
                count(memory.metadata_written_bytes)
            ),
        ],
        [
            "resident".into(),
            memory
                .metadata_resident_bytes
                .map_or("the operating system would not say".into(), bytes),
        ],
        [
            "reserved".into(),
            format!(
                "{} of address space, {} a frame",
                bytes(memory.metadata_reserved_bytes),
                per_frame(memory.metadata_reserved_bytes, memory.present_frames)
            ),
        ],
    ]
    .map(Vec::from);
    page.table(&[Align::Left, Align::Left], &rows);
}

/// `0.25 bytes`.
fn per_frame(bytes: u64, frames: u64) -> String {
    let hundredths = (u128::from(bytes) * 100).div_ceil(u128::from(frames.max(1)));
    format!("{}.{:02} bytes", hundredths / 100, hundredths % 100)
}

fn exercise(page: &mut Page, record: &Record) {
    let exercise = &record.exercise;
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
