//! Records over time: [`History::of`] puts them in order, set-up by set-up, and finds where
//! figures changed for good.
//!
//! A change point is where the medians on both sides differ by 5 % or more and the rank sum
//! test gives p < 0.01 for the records on both sides, three at least on each. The series
//! is cut where the test finds it least probable, and both parts are looked at again. On
//! the instruction clock each step of more than 0.1 % is one. It is the same for the same
//! records.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::gate::mann_whitney;
use crate::records::Stored;
use crate::report::run::{memory, plural};
use firstlight_figures::spread::median;

/// Name and version of the form of [`History`].
pub const SCHEMA: &str = "firstlight.history/1";

/// Records over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// One a figure of a set-up, those with changes first.
    pub series: Vec<Series>,
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The set-up.
    pub setup: String,
    /// Which clock the times are from.
    pub clock: String,
    /// The figure: a phase, or `all`.
    pub figure: String,
    /// Labels of the records, in order.
    pub labels: Vec<String>,
    /// Their milliseconds.
    pub ms: Vec<f64>,
    /// Where it changed for good.
    pub changes: Vec<Change>,
}

/// A change point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Index of the first record after it.
    pub at: usize,
    /// That record's label.
    pub label: String,
    /// Median before it, back to the change before.
    pub before_ms: f64,
    /// Median after it, up to the next one.
    pub after_ms: f64,
    /// The difference in hundredths of the first.
    pub percent: f64,
}

/// Puts `record` at the end of the history in `folder`, with a label and a time.
///
/// # Errors
/// What the system says; a record is written whole or, on a full disk, as a line that
/// readers pass over.
pub fn append(folder: &Path, record: &Value, label: &str, unix_seconds: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut line = record.clone();
    line["history"] = json!({"label": label, "unix_seconds": unix_seconds});
    let text = format!("\n{line}\n");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("history.jsonl"))?;
    // One write: two labs that append at the same time do not tear each other's lines.
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

impl History {
    /// Of `records`: by their own time, else in the order given.
    #[must_use]
    pub fn of(records: &[Stored]) -> Self {
        let mut records: Vec<&Stored> = records.iter().collect();
        records.sort_by_key(|stored| stored.value["history"]["unix_seconds"].as_u64());
        // Memory to the byte: what is shown of it is rounded.
        type Key = (String, Option<u64>, String, String);
        let mut all: BTreeMap<Key, Vec<(String, f64)>> = BTreeMap::new();
        for stored in records {
            let value = &stored.value;
            let file = stored
                .path
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned());
            let label = value["history"]["label"].as_str().map(str::to_owned);
            let label = label.or(file).unwrap_or_default();
            let clock = value["clock"].as_str().unwrap_or_default();
            for (figure, ms) in figures(value) {
                let bytes = asked(value, "memory_bytes");
                let key = (setup(value), bytes, clock.to_owned(), figure);
                all.entry(key).or_default().push((label.clone(), ms));
            }
        }
        let series = all.into_iter().map(|((setup, _, clock, figure), points)| {
            let (labels, ms): (Vec<String>, Vec<f64>) = points.into_iter().unzip();
            Series {
                changes: changes(&labels, &ms, clock == "instructions"),
                setup,
                clock,
                figure,
                labels,
                ms,
            }
        });
        let mut series: Vec<Series> = series.collect();
        series.sort_by_key(|series| series.changes.is_empty());
        Self {
            schema: SCHEMA,
            series,
        }
    }
}

/// What was asked for, else what the record says of the machine.
fn asked(value: &Value, key: &str) -> Option<u64> {
    let machine = &value["machine"];
    machine["asked"][key].as_u64().or(machine[key].as_u64())
}

/// What stays the same over time: system, words and machine, not the release.
fn setup(value: &Value) -> String {
    let mut parts = vec![
        value["source"]["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    ];
    parts.extend(asked(value, "memory_bytes").map(memory));
    parts.extend(asked(value, "nodes").map(|nodes| plural(nodes, "node")));
    parts.extend(asked(value, "cpus").map(|cpus| plural(cpus, "CPU")));
    let words = value["source"]["command_line"].as_str().unwrap_or_default();
    if !words.is_empty() {
        parts.push(words.to_owned());
    }
    parts.join(", ")
}

/// All phases, and their sum.
fn figures(value: &Value) -> Vec<(String, f64)> {
    let mut figures: Vec<(String, f64)> = Vec::new();
    let mut all = 0.0;
    for phase in value["phases"].as_array().into_iter().flatten() {
        let (start, end) = (phase["start_ns"].as_f64(), phase["end_ns"].as_f64());
        let (Some(start), Some(end), Some(name)) = (start, end, phase["name"].as_str()) else {
            continue;
        };
        let ms = (end - start).max(0.0) / 1e6;
        all += ms;
        match figures.iter_mut().find(|figure| figure.0 == name) {
            Some(figure) => figure.1 += ms,
            None => figures.push((name.to_owned(), ms)),
        }
    }
    if all > 0.0 {
        figures.push(("all".into(), all));
    }
    figures
}

fn changes(labels: &[String], ms: &[f64], exact: bool) -> Vec<Change> {
    let mut cuts = Vec::new();
    if exact {
        cuts = steps(ms);
    } else {
        cut(ms, 0, &mut cuts);
    }
    cuts.sort_unstable();
    let mut changes = Vec::new();
    for (number, at) in cuts.iter().enumerate() {
        let start = number
            .checked_sub(1)
            .and_then(|before| cuts.get(before))
            .copied();
        let end = cuts.get(number + 1).copied().unwrap_or(ms.len());
        let middle = |part: Option<&[f64]>| part.and_then(|part| median(&mut part.to_vec()));
        let before = middle(ms.get(start.unwrap_or(0)..*at));
        let after = middle(ms.get(*at..end));
        if let (Some(before_ms), Some(after_ms), Some(label)) = (before, after, labels.get(*at)) {
            changes.push(Change {
                at: *at,
                label: label.clone(),
                before_ms,
                after_ms,
                percent: if before_ms > 0.0 {
                    (after_ms / before_ms - 1.0) * 100.0
                } else {
                    100.0
                },
            });
        }
    }
    changes
}

/// Where the clock is exact: every step.
fn steps(ms: &[f64]) -> Vec<usize> {
    let pairs = ms.iter().zip(ms.iter().skip(1)).enumerate();
    let far = pairs.filter(|(_, (before, after))| {
        let change = (*after - *before).abs();
        change > *before * 0.001 && change > 1e-9
    });
    far.map(|(at, _)| at + 1).collect()
}

/// Finds where `ms` changes most, and looks at both parts; `offset` is where they begin.
fn cut(ms: &[f64], offset: usize, cuts: &mut Vec<usize>) {
    const SIDE: usize = 3;
    const EFFECT: f64 = 0.05;
    const ALPHA: f64 = 0.01;
    let mut best: Option<(f64, f64, usize)> = None;
    for at in SIDE..(ms.len() + 1).saturating_sub(SIDE) {
        let (before, after) = ms.split_at(at);
        // Far away records say nothing new, and the test has its price.
        let before = before
            .get(before.len().saturating_sub(WINDOW)..)
            .unwrap_or(before);
        let after = after.get(..WINDOW).unwrap_or(after);
        let (Some(a), Some(b)) = (median(&mut before.to_vec()), median(&mut after.to_vec())) else {
            continue;
        };
        let far = (b - a).abs();
        if far < a * EFFECT || far < 1e-9 {
            continue;
        }
        let p = mann_whitney(before, after);
        let better = best.is_none_or(|(least, most, _)| p < least || (p <= least && far > most));
        if p < ALPHA && better {
            best = Some((p, far, at));
        }
    }
    if let Some((_, _, at)) = best {
        let (before, after) = ms.split_at(at);
        cuts.push(offset + at);
        cut(before, offset, cuts);
        cut(after, offset + at, cuts);
    }
}

/// Records on each side of a cut that are looked at.
const WINDOW: usize = 20;

impl Series {
    /// The series for a terminal: a column a record, changes marked below.
    #[must_use]
    pub fn plot(&self) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const MOST: usize = 100;
        let from = self.ms.len().saturating_sub(MOST);
        let shown = self.ms.get(from..).unwrap_or_default();
        let most = shown.iter().copied().fold(0.0, f64::max).max(1e-12);
        let mut line = String::new();
        let mut marks = String::new();
        for (at, ms) in shown.iter().enumerate() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 7"
            )]
            let height = (ms / most * 7.0).round().clamp(0.0, 7.0) as usize;
            line.push(BARS.get(height).copied().unwrap_or('█'));
            let changed = self.changes.iter().any(|change| change.at == from + at);
            marks.push(if changed { '^' } else { ' ' });
        }
        let mut text = String::new();
        let _ = writeln!(
            text,
            "  {line}  {:.3} ms",
            shown.last().copied().unwrap_or(0.0)
        );
        if !marks.trim().is_empty() {
            let _ = writeln!(text, "  {}", marks.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ms: &[f64], exact: bool) -> Vec<usize> {
        let labels: Vec<String> = (0..ms.len()).map(|at| at.to_string()).collect();
        changes(&labels, ms, exact)
            .iter()
            .map(|change| change.at)
            .collect()
    }

    /// A level with a little noise.
    fn level(ms: f64, count: u32) -> impl Iterator<Item = f64> {
        (0..count).map(move |n| ms * (1.0 + f64::from(n * 7 % 5) / 500.0))
    }

    #[test]
    fn changes_for_good_are_found_where_they_are() {
        let series: Vec<f64> = level(100.0, 12)
            .chain(level(118.9, 12))
            .chain(level(90.0, 12))
            .collect();
        assert_eq!(found(&series, false), [12, 24]);
        assert_eq!(found(&series, false), found(&series, false));
        let steady: Vec<f64> = level(100.0, 40).collect();
        assert_eq!(found(&steady, false), [0; 0]);
        // One slow boot is none.
        let mut one = steady.clone();
        one[20] = 500.0;
        assert_eq!(found(&one, false), [0; 0]);
        for short in [&[][..], &[1.0], &[1.0, 9.0], &[1.0, 1.0, 9.0, 9.0]] {
            assert_eq!(found(short, false), [0; 0]);
        }
    }

    #[test]
    fn on_the_instruction_clock_one_record_is_enough() {
        assert_eq!(found(&[100.0, 100.0, 101.0, 101.0], true), [2]);
        assert_eq!(found(&[100.0, 101.0], true), [1]);
        assert_eq!(found(&[100.0, 100.0], true), [0; 0]);
    }

    #[test]
    fn machines_that_round_to_the_same_memory_are_not_mixed() {
        let record = |bytes: u64| Stored {
            path: "r.json".into(),
            value: json!({"clock": "wall", "source": {"kind": "image"},
                "machine": {"asked": {"memory_bytes": bytes}},
                "phases": [{"name": "layout", "start_ns": 0, "end_ns": 1000}]}),
        };
        let history = History::of(&[record(16384 << 20), record(16400 << 20)]);
        let series = history.series.iter();
        let layout: Vec<&Series> = series.filter(|one| one.figure == "layout").collect();
        assert_eq!(layout.len(), 2, "{layout:?}");
        assert_eq!(layout[0].setup, layout[1].setup);
    }

    #[test]
    fn what_is_appended_is_read_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let record = |ns: u64| {
            json!({"schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
                "source": {"kind": "image"}, "machine": {}, "milestones": {},
                "phases": [{"name": "layout", "start_ns": 0, "end_ns": ns}]})
        };
        for (at, ns) in [(3, 2_000_000), (1, 1_000_000), (2, 1_000_000)] {
            append(folder.path(), &record(ns), &format!("v{at}"), at).unwrap();
        }
        // A lab that died while it wrote.
        let file = folder.path().join("history.jsonl");
        let mut text = fs::read_to_string(&file).unwrap();
        text.push_str("{\"schema\": \"fir");
        fs::write(&file, text).unwrap();
        append(folder.path(), &record(2_000_000), "v4", 4).unwrap();
        let history = History::of(&crate::records::read(folder.path()).unwrap());
        let series = &history.series[0];
        assert_eq!(series.labels, ["v1", "v2", "v3", "v4"]);
        assert_eq!(
            (series.changes[0].label.as_str(), series.changes[0].percent),
            ("v3", 100.0)
        );
        assert!(series.plot().contains('^'), "{}", series.plot());
    }
}
