//! Two set-ups beside each other: [`compare`] makes a [`Comparison`] (schema
//! `firstlight.compare/1`) of the run records of both.
//!
//! | file | concept |
//! |---|---|
//! | `contestant` | what is compared, [`Contestant`]: boots of both in turns, or runs that were made |
//! | `base` | from where moments and the whole boot count |
//! | `measures` | the spans and moments of a run that are compared |
//! | `spread` | median, MAD and range of some runs, [`Spread`] |
//! | `words` | what a system does in the compared span |
//!
//! A phase that a run does not have takes it no time, where both sides are the same system
//! and the run's clock covers it.

mod base;
mod contestant;
mod measures;
mod spread;
mod words;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use contestant::{Contestant, Sides, in_turns, of_sides};
pub use measures::{Kind, TOTAL};
pub use spread::Spread;

use crate::gaps;
use crate::record::{Asked, Word};
use crate::run::Run;
use base::Base;
pub(crate) use measures::gaps_before;
use measures::{Measure, measures};

/// Name and version of the form of [`Comparison`].
pub const SCHEMA: &str = "firstlight.compare/1";

/// Two set-ups beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: Word,
    /// `wall`, or `instructions`: one instruction is one nanosecond.
    pub clock: String,
    /// From where moments and the whole boot count, in words.
    #[serde(default)]
    pub counted_from: String,
    /// What to know before the figures are read.
    pub notes: Vec<String>,
    /// A, then B.
    pub sides: [Side; 2],
    /// What was measured.
    pub rows: Vec<Row>,
}

/// One set-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// What was given: options or a file.
    pub given: String,
    /// `image` or `linux`.
    pub system: Word,
    /// What the kernel calls itself.
    pub release: Option<String>,
    /// The guest's command line.
    pub command_line: String,
    /// The machine.
    pub machine: Option<Asked>,
    /// What ran it.
    pub accelerator: Option<String>,
    /// Frames of memory, so that a figure can be told for each.
    pub pages: Option<u64>,
    /// Runs there are figures of.
    pub runs: usize,
    /// What it does in the compared span, in words.
    pub does: Vec<String>,
}

/// One figure of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// What kind of figure.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Of A; `None` if A does not tell it.
    pub a: Option<Spread>,
    /// Of B.
    pub b: Option<Spread>,
    /// Median of B over median of A.
    pub ratio: Option<f64>,
}

impl Comparison {
    /// The comparison of every second run, from the first or the second on.
    pub(crate) fn half(&self, odd: usize) -> Self {
        let half = |spread: &Option<Spread>| {
            let ns = spread.iter().flat_map(|spread| &spread.ns);
            Spread::of(&ns.skip(odd).step_by(2).copied().collect::<Vec<_>>())
        };
        let mut halved = self.clone();
        halved.rows = self
            .rows
            .iter()
            .map(|row| Row::new(row.kind, row.name.clone(), half(&row.a), half(&row.b)))
            .collect();
        for side in &mut halved.sides {
            side.runs = (side.runs + 1 - odd) / 2;
        }
        halved
    }
}

impl Row {
    /// The figure `name` of both.
    pub(crate) fn new(kind: Kind, name: String, a: Option<Spread>, b: Option<Spread>) -> Self {
        let ratio = match (&a, &b) {
            (Some(a), Some(b)) if a.median_ns > 0.0 => Some(b.median_ns / a.median_ns),
            _ => None,
        };
        Self {
            kind,
            name,
            a,
            b,
            ratio,
        }
    }
}

/// Runs that cannot stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// A side without a run.
    #[error("a side without a run; expected at least 1")]
    NoRun,
    /// Times of different clocks.
    #[error("one run's clock is {0:?}, another's {1:?}: expected the same (--clock) on both sides")]
    Clocks(String, String),
}

/// What was given for a side, and its runs.
pub type Given<'r> = (&'r str, &'r [Run]);

/// Puts A and B beside each other.
///
/// # Errors
/// [`Unlike`].
pub fn compare(a: Given<'_>, b: Given<'_>) -> Result<Comparison, Unlike> {
    let (Some(first), Some(other)) = (a.1.first(), b.1.first()) else {
        return Err(Unlike::NoRun);
    };
    let all = || a.1.iter().chain(b.1);
    if let Some(strange) = all().find(|run| run.clock != first.clock) {
        return Err(Unlike::Clocks(first.clock.clone(), strange.clock.clone()));
    }
    let runs: Vec<Run> = all().cloned().collect();
    let base = Base::of(&runs);
    let phases = common_phases(&runs);
    let of = |runs: &[Run]| -> Vec<Vec<Measure>> {
        let each = runs.iter();
        each.map(|run| measures(run, &base, &phases)).collect()
    };
    Ok(Comparison {
        schema: SCHEMA.into(),
        clock: first.clock.clone(),
        counted_from: base.words(),
        notes: notes(first, other, a.1.len().max(b.1.len())),
        sides: [side(a, first), side(b, other)],
        rows: rows(&of(a.1), &of(b.1)),
    })
}

fn side((given, runs): Given<'_>, first: &Run) -> Side {
    Side {
        given: given.to_owned(),
        system: first.source.kind.clone(),
        release: first.release().map(str::to_owned),
        command_line: first.source.command_line.clone(),
        machine: first.machine.asked.clone(),
        accelerator: first.host.as_ref().map(|host| host.accelerator.clone()),
        pages: first.memory.present_frames,
        runs: runs.len(),
        does: words::does(first),
    }
}

fn notes(a: &Run, b: &Run, runs: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if a.clock == "instructions" {
        notes.push("instructions are the same from run to run: one run each is enough".into());
    } else if runs < 2 && ![a, b].iter().all(|run| run.is_log()) {
        notes.push("one run on the wall clock says little: --runs asks for more".into());
    }
    if a.machine.asked != b.machine.asked {
        notes.push("the machines are not the same".into());
    }
    let late = |side: &&Run| side.spent_ns("memmap early").is_none();
    if [a, b].iter().any(late) {
        let late = "a Linux's clock began to run after the start of memmap early: it has no sum of descriptors";
        notes.push(late.into());
    }
    notes
}

/// Phases of any of `runs`, where all are of one system: two systems have no names in common.
fn common_phases(runs: &[Run]) -> Vec<String> {
    let kind = runs.first().map(|run| &run.source.kind);
    let mut names: Vec<String> = Vec::new();
    if runs.iter().all(|run| Some(&run.source.kind) == kind) {
        for name in runs.iter().flat_map(Run::phase_names) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// A named step this long is shown whatever others take.
const LONG_STEP_NS: u64 = 1_000_000;

/// Names of what explains and is among the longest of its kind in some run.
fn longest<'r>(runs: impl Iterator<Item = &'r Vec<Measure>>) -> BTreeSet<(Kind, &'r str)> {
    let mut names = BTreeSet::new();
    for run in runs {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.explains()) {
            let alike = run.iter().filter(|measure| measure.kind == kind);
            let mut alike: Vec<&Measure> = alike.collect();
            alike.sort_by_key(|measure| std::cmp::Reverse(measure.ns));
            let long = |measure: &Measure| kind != Kind::Gap && measure.ns >= LONG_STEP_NS;
            let mut alike = alike.into_iter().enumerate();
            let kept = alike
                .by_ref()
                .take_while(|(at, measure)| *at < gaps::MOST || long(measure));
            names.extend(kept.map(|(_, measure)| (kind, measure.name.as_str())));
        }
    }
    names
}

/// Figures in the order in which A tells them, then what only B tells.
fn rows(a: &[Vec<Measure>], b: &[Vec<Measure>]) -> Vec<Row> {
    let mut keys: Vec<(Kind, String)> = Vec::new();
    for measure in a.iter().chain(b).flatten() {
        let key = (measure.kind, measure.name.clone());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let longest = longest(a.iter().chain(b));
    keys.retain(|(kind, name)| !kind.explains() || longest.contains(&(*kind, name)));
    keys.sort_by_key(|(kind, _)| *kind);
    let spread = |runs: &[Vec<Measure>], key: &(Kind, String)| {
        let alike = |measure: &&Measure| (measure.kind, &measure.name) == (key.0, &key.1);
        let figures = runs.iter().flatten().filter(alike);
        Spread::of(&figures.map(|measure| measure.ns).collect::<Vec<_>>())
    };
    let row = |key: (Kind, String)| {
        let (a, b) = (spread(a, &key), spread(b, &key));
        Row::new(key.0, key.1, a, b)
    };
    keys.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TimeBase;
    use serde_json::json;

    fn image(clock: &str, words: &str, all_ns: u64) -> Run {
        Run::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": clock,
            "source": {"kind": "image", "command_line": words, "kernel": {"release": "0.1.0"}},
            "machine": {"asked": {"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 1}},
            "milestones": {"entry_ns": 1000, "all_allocatable_ns": all_ns, "cpus_started_ns": null},
            "phases": [
                {"name": "descriptors", "start_ns": 1100, "end_ns": 1300},
                {"name": "clock", "start_ns": 1300, "end_ns": 1310},
                {"name": "clock", "start_ns": 1320, "end_ns": 1340},
            ],
            "memory": {"present_frames": 100},
        }))
        .unwrap()
    }

    #[test]
    fn figures_stand_beside_each_other() {
        let a = [
            image("wall", "", 2000),
            image("wall", "", 4000),
            image("wall", "", 3000),
        ];
        let b = [image("wall", "descriptors=eager", 6000)];
        let comparison = compare(("--memory 1G", &a), ("b.json", &b)).unwrap();
        let all = comparison
            .rows
            .iter()
            .find(|row| row.name == "all memory allocatable");
        let all = all.unwrap();
        assert_eq!(all.kind, Kind::Milestone);
        let spread = all.a.as_ref().unwrap();
        assert_eq!(
            (spread.runs, spread.median_ns, spread.mad_ns),
            (3, 3000.0, 1000.0)
        );
        assert_eq!((spread.min_ns, spread.max_ns), (2000, 4000));
        assert_eq!(all.ratio, Some(2.0));
        let clock = comparison
            .rows
            .iter()
            .find(|row| row.name == "clock")
            .unwrap();
        assert_eq!(clock.a.as_ref().unwrap().median_ns, 30.0);
        assert!(!comparison.rows.iter().any(|row| row.name == "all CPUs run"));
        assert_eq!(
            (comparison.sides[1].runs, comparison.sides[1].pages),
            (1, Some(100))
        );
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["counted_from"], "power-on");
        assert_eq!(json["rows"][0]["kind"], "total");
        assert_eq!(json["rows"][0]["a"]["median_ns"], 1340.0);
    }

    #[test]
    fn different_clocks_are_refused() {
        let (a, b) = ([image("wall", "", 2000)], [image("instructions", "", 2000)]);
        let refused = compare(("", &a), ("", &b)).unwrap_err();
        assert!(refused.to_string().contains("--clock"), "{refused}");
        assert_eq!(compare(("", &a), ("", &[])), Err(Unlike::NoRun));
    }

    #[test]
    fn what_to_know_is_noted() {
        let notes = |a: &[Run], b: &[Run]| compare(("", a), ("", b)).unwrap().notes.join("; ");
        let counted = [image("instructions", "", 2000)];
        assert!(notes(&counted, &counted).contains("one run each is enough"));
        let once = [image("wall", "", 2000)];
        assert!(notes(&once, &once).contains("says little"));
        let mut larger = image("wall", "", 2000);
        larger.machine.asked.as_mut().unwrap().memory_bytes += 1;
        let mut linux = image("wall", "", 2000);
        linux.source.kind = "linux".into();
        linux.time_base = Some(TimeBase {
            unclocked: vec!["memmap early".into()],
            ..TimeBase::default()
        });
        let text = notes(&[larger.clone(), larger], &[linux.clone(), linux]);

        for part in ["not the same", "no sum"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
