//! Tables of `firstlight bench alloc`.

use std::fmt::Write;

use serde::Deserialize;

use crate::guests::{head, whole};
use crate::record::Record;

const OURS: &str = "firstlight";

/// What is shown of a document of the schema `firstlight.bench-alloc/1`.
#[derive(Deserialize)]
struct Bench {
    rows: Vec<Row>,
    fragmentation: Vec<Fragmentation>,
    answers: Option<Answers>,
}

#[derive(Deserialize)]
struct Row {
    contestant: String,
    workload: String,
    order: u8,
    threads: usize,
    full_percent: Option<f64>,
    ns_per_op: Least,
    cut_short: bool,
    metadata_bytes_per_frame: Option<f64>,
}

#[derive(Deserialize)]
struct Least {
    min: f64,
}

#[derive(Deserialize)]
struct Fragmentation {
    contestant: String,
    huge_frames: f64,
    huge_at_best: f64,
    giant_frames: f64,
    giant_at_best: f64,
    cut_short: bool,
}

#[derive(Deserialize)]
struct Answers {
    checkerboard: Vec<Refusal>,
    full: Vec<Refusal>,
    fullness: Option<Fullness>,
    under_churn: Vec<UnderChurn>,
}

#[derive(Deserialize)]
struct Refusal {
    order: u8,
    first_ns: f64,
    repeated_ns: f64,
}

#[derive(Deserialize)]
struct Fullness {
    empty_ns: f64,
    full_99_ns: f64,
    full_99_9_ns: f64,
}

#[derive(Deserialize)]
struct UnderChurn {
    churn_threads: usize,
    max_ns: f64,
    max_wall_ns: f64,
    requests: f64,
    cut_short: bool,
}

impl Row {
    fn cell(&self) -> (String, String, usize) {
        let order = match &*self.workload {
            "mixed" => format!("0-{}", self.order),
            _ => self.order.to_string(),
        };
        let full = self.full_percent.map(|percent| format!(" {percent} %"));
        (
            format!("{}{}", self.workload, full.unwrap_or_default()),
            order,
            self.threads,
        )
    }

    fn figure(&self) -> String {
        let mark = if self.cut_short { ">" } else { "" };
        match self.ns_per_op.min {
            ns if ns < 99.95 => format!("{mark}{ns:.1}"),
            ns => format!("{mark}{}", whole(ns)),
        }
    }
}

/// Each once, in the order in which they come.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    list
}

fn bench_of(record: &Record) -> Result<Bench, String> {
    let run = record.runs.first().ok_or("no run")?;
    let bench = serde_json::from_value(run.output.clone());
    bench.map_err(|error| format!("{}: {error}", run.command))
}

/// All of its tables but that of [`fragmentation`].
pub(crate) fn render(record: &Record) -> Result<String, String> {
    let bench = bench_of(record)?;
    let mut text = times(&bench.rows);
    text += &faster(&bench.rows);
    text += &bytes(&bench.rows);
    if let Some(found) = &bench.answers {
        text += &answers(found);
    }
    Ok(text)
}

/// What is left beside long-lived blocks.
pub(crate) fn fragmentation(record: &Record) -> Result<String, String> {
    let columns = [
        "fragmentation",
        "huge frames left",
        "at best",
        "giant frames left",
        "at best",
    ];
    let mut table = head(&columns.map(String::from));
    for row in bench_of(record)?.fragmentation {
        let cut = if row.cut_short { " (cut short)" } else { "" };
        let figures = [
            row.huge_frames,
            row.huge_at_best,
            row.giant_frames,
            row.giant_at_best,
        ];
        let figures = figures.map(whole).join(" | ");
        let _ = writeln!(table, "| {}{cut} | {figures} |", row.contestant);
    }
    Ok(table + "\n")
}

fn times(rows: &[Row]) -> String {
    let contestants = distinct(rows.iter().map(|row| &*row.contestant));
    let mut columns = ["workload", "order", "threads"].map(String::from).to_vec();
    columns.extend(contestants.iter().map(|name| (*name).to_owned()));
    let mut table = head(&columns);
    for cell in distinct(rows.iter().map(Row::cell)) {
        let (workload, order, threads) = &cell;
        let _ = write!(table, "| {workload} | {order} | {threads} |");
        for name in &contestants {
            let row = rows
                .iter()
                .find(|row| row.contestant == *name && row.cell() == cell);
            let figure = row.map_or("-".into(), Row::figure);
            let _ = match *name == OURS {
                true => write!(table, " **{figure}** |"),
                false => write!(table, " {figure} |"),
            };
        }
        table.push('\n');
    }
    table
        + "\nNanoseconds, the least of all rounds; `>`: cut short, the figure is of the finished part.\n\n"
}

/// The cells in which others take less, by contestant.
fn faster(rows: &[Row]) -> String {
    let mut text = String::from("Less than firstlight takes, in cells that are not cut short:\n\n");
    let ours = |cell| {
        let mut ours = rows.iter().filter(|row| row.contestant == OURS);
        ours.find(|row| row.cell() == cell)
            .map(|row| row.ns_per_op.min)
    };
    for name in distinct(rows.iter().map(|row| &*row.contestant)) {
        let theirs: Vec<&Row> = rows
            .iter()
            .filter(|row| row.contestant == name && !row.cut_short)
            .collect();
        let less: Vec<String> = theirs
            .iter()
            .filter(|row| ours(row.cell()).is_some_and(|ours| row.ns_per_op.min < ours))
            .map(|row| {
                let (workload, order, threads) = row.cell();
                format!("{workload} of order {order}, {}", plural(threads))
            })
            .collect();
        let _ = match less.len() {
            0 => Ok(()),
            all if all == theirs.len() => writeln!(text, "- `{name}`: all of its cells"),
            _ => writeln!(text, "- `{name}`: {}", less.join("; ")),
        };
    }
    text + "\n"
}

fn plural(threads: usize) -> String {
    let ending = if threads == 1 { "" } else { "s" };
    format!("{threads} thread{ending}")
}

/// Memory written, where all rows have it.
fn bytes(rows: &[Row]) -> String {
    if rows
        .iter()
        .any(|row| row.metadata_bytes_per_frame.is_none())
    {
        return String::new();
    }
    let mut table = head(&["bytes a frame", "least", "most"].map(String::from));
    for name in distinct(rows.iter().map(|row| &*row.contestant)) {
        let of = rows.iter().filter(|row| row.contestant == name);
        let all: Vec<f64> = of.filter_map(|row| row.metadata_bytes_per_frame).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(table, "| {name} | {least:.3} | {most:.3} |");
    }
    table + "\n"
}

fn answers(answers: &Answers) -> String {
    let columns = [
        "a request of firstlight that must fail",
        "order",
        "first, us",
        "again, us",
    ];
    let mut text = head(&columns.map(String::from));
    for (what, refusals) in [
        ("every other page held", &answers.checkerboard),
        ("all held", &answers.full),
    ] {
        for row in refusals {
            let (first, again) = (row.first_ns / 1e3, row.repeated_ns / 1e3);
            let _ = writeln!(text, "| {what} | {} | {first:.1} | {again:.2} |", row.order);
        }
    }
    let columns = [
        "threads beside a request of order 9",
        "longest, ms of CPU",
        "of wall clock",
        "requests",
    ];
    let _ = write!(text, "\n{}", head(&columns.map(String::from)));
    for row in &answers.under_churn {
        let cut = if row.cut_short { ">" } else { "" };
        let (cpu, wall) = (row.max_ns / 1e6, row.max_wall_ns / 1e6);
        let requests = whole(row.requests);
        let _ = writeln!(
            text,
            "| {} | {cut}{cpu:.3} | {cut}{wall:.1} | {requests} |",
            row.churn_threads
        );
    }
    if let Some(Fullness {
        empty_ns,
        full_99_ns,
        full_99_9_ns,
    }) = answers.fullness
    {
        let _ = write!(
            text,
            "\n{}| {empty_ns:.1} | {full_99_ns:.1} ({:.1} times) | {full_99_9_ns:.1} ({:.0} times) |\n",
            head(&["freed and allocated, ns: 1 % full", "99 %", "99.9 %"].map(String::from)),
            full_99_ns / empty_ns,
            full_99_9_ns / empty_ns
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contestant: &str, order: u8, ns: f64, cut_short: bool) -> Row {
        Row {
            contestant: contestant.into(),
            workload: "bulk".into(),
            order,
            threads: 2,
            full_percent: None,
            ns_per_op: Least { min: ns },
            cut_short,
            metadata_bytes_per_frame: None,
        }
    }

    #[test]
    fn rivals_stand_beside_ours_and_where_they_are_faster_is_said() {
        let rows = [
            row(OURS, 0, 4.84, false),
            row("lifo", 0, 0.9, false),
            row("tree", 0, 3.0, true),
            row(OURS, 9, 32.5, false),
            row("lifo", 9, 1.1, false),
            row("list", 0, 1234.5, false),
            row("list", 9, 20.0, false),
        ];
        let table = times(&rows);
        assert!(
            table.contains("| bulk | 0 | 2 | **4.8** | 0.9 | >3.0 | 1,234 |"),
            "{table}"
        );
        assert!(
            table.contains("| bulk | 9 | 2 | **32.5** | 1.1 | - | 20.0 |"),
            "{table}"
        );
        let text = faster(&rows);
        assert!(text.contains("- `lifo`: all of its cells\n"), "{text}");
        assert!(
            text.contains("- `list`: bulk of order 9, 2 threads\n"),
            "{text}"
        );
        assert!(
            !text.contains("tree") && !text.contains("`firstlight`"),
            "{text}"
        );
    }
}
