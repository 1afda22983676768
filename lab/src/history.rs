//! Records over time: [`History::of`] puts them in order, set-up by set-up, and finds where
//! figures changed for good.
//!
//! A change point is where the medians on both sides differ by 5 % or more and the rank sum
//! test finds that improbable: less than 0.01 over all cuts of all figures of the set-up that
//! were tried. Records that follow each other are alike, as a busy host slows several in a row:
//! the test counts as many of them as there are independent ones. A step that stands clear of
//! what ten records on each side spread is one as well. The series is cut at the largest clear
//! step, else where chance is least probable, and both parts are looked at again. On the instruction clock each
//! step of more than 0.1 % is one. It is the same for the same records.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::compare::TOTAL;
use crate::records::{FailedBoot, Folder, LeftOut};
use crate::run::{Run, Setup};
use firstlight_figures::rank_sum::{mann_whitney, rank_sum_z, two_sided};
use firstlight_figures::spread::median;

/// Name and version of the form of [`History`].
pub const SCHEMA: &str = "firstlight.history/1";

/// Records over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// One a figure of a set-up, those with changes first.
    pub series: Vec<Series>,
    /// Boots that failed: series end before them.
    pub failed: Vec<FailedBoot>,
    /// Files, or lines of them, that hold no record.
    pub left_out: Vec<LeftOut>,
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// The set-up.
    pub setup: String,
    /// Which clock the times are from.
    pub clock: String,
    /// The figure: a phase, or `total`.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Of a folder: by the records' own time, else in the order of their files.
    #[must_use]
    pub fn of(folder: &Folder) -> Self {
        let mut runs: Vec<&Run> = folder.runs.iter().collect();
        runs.sort_by_key(|run| run.history().1);
        let mut all: BTreeMap<(Setup, String), Vec<(String, f64)>> = BTreeMap::new();
        for run in runs {
            let label = run.history().0;
            for (figure, ms) in figures(run) {
                let key = (Setup::over_releases(run), figure);
                all.entry(key).or_default().push((label.clone(), ms));
            }
        }
        let mut figures_of: BTreeMap<Setup, usize> = BTreeMap::new();
        for (setup, _) in all.keys() {
            *figures_of.entry(setup.clone()).or_default() += 1;
        }
        let series = all.into_iter().map(|((setup, figure), points)| {
            let (labels, ms): (Vec<String>, Vec<f64>) = points.into_iter().unzip();
            let clock = setup.machine.clock.clone();
            let tried = figures_of.get(&setup).copied().unwrap_or(1);
            Series {
                changes: changes(&labels, &ms, (clock != "instructions").then_some(tried)),
                setup: setup.name(),
                clock,
                figure,
                labels,
                ms,
            }
        });
        let mut series: Vec<Series> = series.collect();
        series.sort_by_key(|series| (series.changes.is_empty(), series.figure != TOTAL));
        Self {
            schema: SCHEMA,
            series,
            failed: folder.failed.clone(),
            left_out: folder.left_out.clone(),
        }
    }
}

/// The whole boot, and all phases.
fn figures(run: &Run) -> Vec<(String, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let ms = |ns: u64| ns as f64 / 1e6;
    let total = run.total_ns().map(|ns| (TOTAL.to_owned(), ms(ns)));
    let names = run.phase_names().into_iter();
    let phases = names.filter_map(|name| Some((name.to_owned(), ms(run.spent_ns(name)?))));
    total.into_iter().chain(phases).collect()
}

/// Change points; `figures` of the set-up are looked at, `None` on a clock that is exact.
fn changes(labels: &[String], ms: &[f64], figures: Option<usize>) -> Vec<Change> {
    let mut cuts = Vec::new();
    match figures {
        None => cuts = steps(ms),
        Some(figures) => cut(ms, 0, figures, &mut cuts),
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

/// Least change of the median, as a share of it.
const EFFECT: f64 = 0.05;

/// Finds where `ms` changes most, and looks at both parts; `offset` is where they begin.
fn cut(ms: &[f64], offset: usize, figures: usize, cuts: &mut Vec<usize>) {
    if let Some(at) = clear_step(ms).or_else(|| least_probable(ms, figures)) {
        let (before, after) = ms.split_at(at);
        cuts.push(offset + at);
        cut(before, offset, figures, cuts);
        cut(after, offset + at, figures, cuts);
    }
}

/// The largest step between ten records and ten, all of which are on their side of it, and
/// spread by half of it at most.
fn clear_step(ms: &[f64]) -> Option<usize> {
    const RECORDS: usize = 10;
    const CLEAR: f64 = 2.0;
    let step = |at: usize| {
        let range = |part: &[f64]| {
            let least = part.iter().copied().fold(f64::MAX, f64::min);
            let most = part.iter().copied().fold(f64::MIN, f64::max);
            (least, most)
        };
        let (before, after) = (ms.get(at - RECORDS..at)?, ms.get(at..at + RECORDS)?);
        let (a, b) = (median(&mut before.to_vec())?, median(&mut after.to_vec())?);
        let ((low_a, high_a), (low_b, high_b)) = (range(before), range(after));
        let apart = low_b > high_a || low_a > high_b;
        let far = (b - a).abs();
        let clear = far >= CLEAR * (high_a - low_a).max(high_b - low_b);
        (apart && clear && far >= a * EFFECT && far > 1e-9).then_some((at, far))
    };
    let ends = (ms.len() + 1).saturating_sub(RECORDS);
    let steps = (RECORDS..ends).filter_map(step);
    let largest = steps.max_by(|(_, a), (_, b)| a.total_cmp(b));
    largest.map(|(at, _)| at)
}

/// Where chance explains the difference of both sides least, if it hardly does.
fn least_probable(ms: &[f64], figures: usize) -> Option<usize> {
    const SIDE: usize = 3;
    const ALPHA: f64 = 0.01;
    let tries = SIDE..(ms.len() + 1).saturating_sub(SIDE);
    #[expect(clippy::cast_precision_loss, reason = "a count of cuts")]
    let alpha = ALPHA / (tries.len().max(1) * figures) as f64;
    let mut best: Option<(f64, f64, usize)> = None;
    for at in tries {
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
        let p = improbable(before, a, after, b);
        let better = best.is_none_or(|(least, most, _)| p < least || (p <= least && far > most));
        if p < alpha && better {
            best = Some((p, far, at));
        }
    }
    best.map(|(_, _, at)| at)
}

/// How probable it is that both sides are the same. Where a record is like the one before it,
/// there are fewer independent ones than records.
fn improbable(before: &[f64], a: f64, after: &[f64], b: f64) -> f64 {
    let rest = before.iter().map(|ms| ms - a);
    let rest: Vec<f64> = rest.chain(after.iter().map(|ms| ms - b)).collect();
    let like = likeness(&rest);
    if like > 0.0 {
        let independent = (1.0 - like) / (1.0 + like);
        two_sided(rank_sum_z(before, after) * independent.sqrt())
    } else {
        mann_whitney(before, after)
    }
}

/// How much a record is like the one before it: the correlation of their ranks, 0 to 0.95,
/// without the bias of a short series.
fn likeness(ms: &[f64]) -> f64 {
    let mut sorted = ms.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    let rank = |ms: &f64| {
        let below = sorted.partition_point(|other| other < ms);
        let up_to = sorted.partition_point(|other| other <= ms);
        (below + up_to) as f64 / 2.0
    };
    let ranks: Vec<f64> = ms.iter().map(rank).collect();
    let count = ranks.iter().map(|_| 1.0).sum::<f64>();
    let mean = ranks.iter().sum::<f64>() / count;
    let spread: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    if spread <= 0.0 {
        return 0.0;
    }
    let pairs = ranks.iter().zip(ranks.iter().skip(1));
    let together: f64 = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum();
    let seen = together / spread;
    (seen + (1.0 + 4.0 * seen) / count).clamp(0.0, 0.95)
}

/// Records on each side of a cut that are looked at.
const WINDOW: usize = 100;

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
        changes(&labels, ms, (!exact).then_some(1))
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
        let record = |bytes: u64| {
            let value = json!({"schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
                "source": {"kind": "image"}, "milestones": {},
                "machine": {"asked": {"board": "q35", "memory_bytes": bytes, "nodes": 1, "cpus": 1}},
                "phases": [{"name": "layout", "start_ns": 0, "end_ns": 1000}]});
            Run::of(value).unwrap()
        };
        let history = History::of(&Folder {
            runs: vec![record(16384 << 20), record(16400 << 20)],
            ..Folder::default()
        });
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
        let read = crate::records::read(folder.path()).unwrap();
        let history = History::of(&read);
        assert_eq!(history.left_out.len(), 1, "{:?}", history.left_out);
        let series = &history.series[0];
        assert_eq!(series.labels, ["v1", "v2", "v3", "v4"]);
        assert_eq!(
            (series.changes[0].label.as_str(), series.changes[0].percent),
            ("v3", 100.0)
        );
        assert_eq!(series.plot(), "  ▅▅██  2.000 ms\n    ^\n");
    }
}
