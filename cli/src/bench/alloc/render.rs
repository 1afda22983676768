//! The record as tables: a block for each workload, in it a line for each
//! contestant and a column for each order and number of threads.

use crate::output::{FAINT, GOOD, HEADING, NOTE};
use crate::text::{self, bytes, count, head};
use firstlight_bench::alloc::{Answers, Fragmentation, Record, Row, UnderChurn, Workload};
use std::fmt::Write;
use std::time::Duration;

/// The yardstick of ratios.
const YARDSTICK: &str = "spin-lifo";

/// The whole page.
pub(super) fn page(record: &Record) -> String {
    let mut page = format!(
        "{HEADING}firstlight bench alloc: {} of memory, nanoseconds an operation{HEADING:#}\n\
         {FAINT}least of all rounds (median), times the yardstick {YARDSTICK}; CPU time, {} CPUs{FAINT:#}\n",
        bytes(record.memory_bytes),
        record.cpus,
    );
    for workload in Workload::ALL {
        let rows = record.rows.iter();
        let rows: Vec<&Row> = rows.filter(|row| row.workload == workload.name()).collect();
        if !rows.is_empty() {
            block(&mut page, workload, &rows);
        }
    }
    if !record.fragmentation.is_empty() {
        fragmentation(&mut page, &record.fragmentation);
    }
    if let Some(answers) = &record.answers {
        self::answers(&mut page, answers);
    }
    remarks(&mut page, record);
    page
}

/// What a column of figures is of.
#[derive(Clone, Copy, PartialEq)]
struct Column {
    order: u8,
    threads: usize,
    full_percent: Option<f64>,
}

impl Column {
    fn of(row: &Row) -> Self {
        Self {
            order: row.order,
            threads: row.threads,
            full_percent: row.full_percent,
        }
    }

    fn heading(self, workload: Workload) -> String {
        let what = match (workload, self.full_percent) {
            (Workload::Mixed, _) => format!("0-{}", self.order),
            (_, Some(percent)) => format!("{percent} %"),
            _ => format!("order {}", self.order),
        };
        format!("{what}, {} thr", self.threads)
    }
}

/// One workload.
fn block(page: &mut String, workload: Workload, rows: &[&Row]) {
    let (mut columns, mut names): (Vec<Column>, Vec<&str>) = (Vec::new(), Vec::new());
    for row in rows {
        if !columns.contains(&Column::of(row)) {
            columns.push(Column::of(row));
        }
        if !names.contains(&row.contestant) {
            names.push(row.contestant);
        }
    }
    let find = |name: &str, column: Column| {
        let mut rows = rows.iter();
        rows.find(|row| row.contestant == name && Column::of(row) == column)
    };
    let mut lines = vec![vec![workload.name().to_owned()]];
    for column in &columns {
        lines[0].extend([column.heading(workload), String::new()]);
    }
    lines[0].push("bytes/frame".into());
    for name in &names {
        let mut line = vec![(*name).to_owned()];
        let mut metadata = 0.0f64;
        for column in &columns {
            let yardstick = find(YARDSTICK, *column).map(|row| row.ns_per_op.min);
            let Some(row) = find(name, *column) else {
                line.extend(["-".into(), String::new()]);
                continue;
            };
            metadata = metadata.max(row.metadata_bytes_per_frame);
            let best = rows
                .iter()
                .filter(|other| Column::of(other) == *column)
                .all(|other| other.ns_per_op.min >= row.ns_per_op.min);
            line.push(figure(row, best));
            line.push(yardstick.map_or(String::new(), |yardstick| {
                times(row.ns_per_op.min / yardstick)
            }));
        }
        line.push(format!("{metadata:.3}"));
        lines.push(line);
    }
    print(page, &lines);
    extras(page, workload, rows);
}

/// `*4.41 (4.52)`: the star is the best of the column, `>` what ran out of time.
fn figure(row: &Row, best: bool) -> String {
    let mark = if best { "*" } else { "" };
    let cut = if row.cut_short { ">" } else { "" };
    let spread = row.ns_per_op;
    format!("{mark}{cut}{} ({})", ns(spread.min), ns(spread.median))
}

/// As many digits as mean something.
fn ns(ns: f64) -> String {
    if ns < 100.0 {
        format!("{ns:.1}")
    } else {
        format!("{ns:.0}")
    }
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.2} x")
    } else {
        format!("{ratio:.0} x")
    }
}

/// Under a heading line; the best of a column and our own line stand out.
fn print(page: &mut String, lines: &[Vec<String>]) {
    page.push('\n');
    for (at, line) in text::table("<>", lines).iter().enumerate() {
        let _ = match at {
            0 => writeln!(page, "{HEADING}{line}{HEADING:#}"),
            _ if line.starts_with("  firstlight ") => writeln!(page, "{GOOD}{line}{GOOD:#}"),
            _ => writeln!(page, "{line}"),
        };
    }
}

/// What a block says below its table.
fn extras(page: &mut String, workload: Workload, rows: &[&Row]) {
    let ours = rows.iter().filter(|row| row.contestant == "firstlight");
    match workload {
        Workload::Bulk => {
            for row in ours {
                let least = |spread: Option<firstlight_bench::alloc::Spread>| {
                    spread.map_or("?".into(), |spread| ns(spread.min))
                };
                let _ = writeln!(
                    page,
                    "  {FAINT}firstlight, order {}, {} thr: allocate {}, free {}; over untouched tables {}{FAINT:#}",
                    row.order,
                    row.threads,
                    least(row.allocate_ns),
                    least(row.free_ns),
                    least(row.cold_ns_per_op),
                );
            }
        }
        Workload::CrossCpu => {
            let mut shown: Vec<usize> = Vec::new();
            for row in rows {
                if let Some(ring) = row.ring_ns_per_op.filter(|_| !shown.contains(&row.threads)) {
                    shown.push(row.threads);
                    let threads = row.threads;
                    let ring = ns(ring);
                    let _ = writeln!(
                        page,
                        "  {FAINT}{threads} thr: the ring alone, without an allocator, {ring}{FAINT:#}"
                    );
                }
            }
        }
        _ => {}
    }
}

fn fragmentation(page: &mut String, rows: &[Fragmentation]) {
    let head = [
        "fragmentation",
        "huge left",
        "at best",
        "giant left",
        "at best",
        "frames held",
    ];
    let mut lines = vec![head.map(String::from).to_vec()];
    for row in rows {
        let cut = if row.cut_short { ">" } else { "" };
        lines.push(vec![
            format!("{}{cut}", row.contestant),
            count(row.huge_frames),
            count(row.huge_at_best),
            count(row.giant_frames),
            count(row.giant_at_best),
            count(row.long_lived_frames),
        ]);
    }
    print(page, &lines);
}

fn answers(page: &mut String, answers: &Answers) {
    let mut lines = vec![head([
        "answers of firstlight",
        "order",
        "first, ns",
        "again, ns",
    ])];
    let checkerboard = format!(
        "every other page of {} held",
        bytes(answers.checkerboard_bytes)
    );
    let full = format!("all of {} held", bytes(answers.full_bytes));
    for (what, refusals) in [(checkerboard, &answers.checkerboard), (full, &answers.full)] {
        for (at, refusal) in refusals.iter().enumerate() {
            lines.push(vec![
                if at == 0 { what.clone() } else { String::new() },
                refusal.order.to_string(),
                format!("{:.0}", refusal.first_ns),
                format!("{:.1}", refusal.repeated_ns),
            ]);
        }
    }
    print(page, &lines);
    if let Some(fullness) = answers.fullness {
        let _ = writeln!(
            page,
            "  blocks freed and allocated, ns: {} in memory that is 1 % full, {} ({}) at 99 %, {} ({}) at 99.9 %",
            ns(fullness.empty_ns),
            ns(fullness.full_99_ns),
            times(fullness.full_99_ns / fullness.empty_ns),
            ns(fullness.full_99_9_ns),
            times(fullness.full_99_9_ns / fullness.empty_ns),
        );
    }
    under_churn(page, &answers.under_churn);
}

fn under_churn(page: &mut String, rows: &[UnderChurn]) {
    if rows.is_empty() {
        return;
    }
    let head = [
        "requests of firstlight beside",
        "order",
        "longest, ms of CPU",
        "of wall clock",
        "requests",
    ];
    let mut lines = vec![head.map(String::from).to_vec()];
    let ms = |ns: u64| {
        let us = ns / 1000;
        format!("{}.{:03}", us / 1000, us % 1000)
    };
    for row in rows {
        let cut = if row.cut_short { ">" } else { "" };
        lines.push(vec![
            format!(
                "{} of order {}",
                text::plural(row.churn_threads as u64, "thread"),
                row.churn_order
            ),
            row.order.to_string(),
            format!("{cut}{}", ms(row.max_ns)),
            format!("{cut}{}", ms(row.max_wall_ns)),
            count(row.requests),
        ]);
    }
    print(page, &lines);
}

/// The meaning of the marks, and the cells without a figure.
fn remarks(page: &mut String, record: &Record) {
    let cut = record.rows.iter().any(|row| row.cut_short)
        || record.fragmentation.iter().any(|row| row.cut_short)
        || record
            .answers
            .iter()
            .flat_map(|answers| &answers.under_churn)
            .any(|row| row.cut_short);
    page.push('\n');
    let _ = writeln!(page, "{FAINT}* the least of its column{FAINT:#}");
    if cut {
        let _ = writeln!(
            page,
            "{NOTE}> ran out of time ({} ms a cell, {} s in all): the figure is of the finished part{NOTE:#}",
            record.cell_ms,
            Duration::from_millis(record.run_ms).as_secs_f64(),
        );
    }
    for note in &record.notes {
        let _ = writeln!(page, "{FAINT}{}: {}{FAINT:#}", note.contestant, note.text);
    }
    let mut shown = Vec::new();
    for absent in &record.absent {
        let key = (absent.contestant, absent.workload, absent.reason);
        if !shown.contains(&key) {
            shown.push(key);
            let _ = writeln!(
                page,
                "{FAINT}- {} has no figure for {}: {}{FAINT:#}",
                absent.contestant, absent.workload, absent.reason
            );
        }
    }
}
