//! A report on a folder of records: [`Report::of`] puts runs of the same set-up together,
//! and each format is rendered from that.
//!
//! | file | concept |
//! |---|---|
//! | `fit` | how phases grow with memory |
//! | `html`, `chart`, `escape`, `style` | one page that needs nothing else, its drawings, its looks |
//!
//! Other forms are in [`export`](crate::export).

mod chart;
mod escape;
mod fit;
mod html;
mod style;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::compare::Spread;
use crate::doctor::{Finding, diagnose};
use crate::record::Gap;
use crate::records::{FailedBoot, Folder, LeftOut};
use crate::run::{Run, Setup as Key, Span};
use crate::sweep;
pub use fit::Fit;

/// Name and version of the form of [`Report`].
pub const SCHEMA: &str = "firstlight.report/1";

/// What is shown of some runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What the page is called.
    pub title: String,
    /// Words that the command lines of all set-ups have; names of set-ups are without them.
    pub words: String,
    /// Where the page is to lie, so that it reaches the logs.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
    /// Set-ups, in the order of system, words, clock and memory.
    pub setups: Vec<Setup>,
    /// How phases grow with memory, where set-ups differ in nothing else.
    pub fits: Vec<Fit>,
    /// Sweeps over numbers of threads.
    pub sweeps: Vec<sweep::Record>,
    /// Boots that failed.
    pub failed: Vec<FailedBoot>,
    /// Files that hold no record.
    pub left_out: Vec<LeftOut>,
}

/// Runs of the same kernel, words, clock and machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// In words.
    pub name: String,
    /// The same without the size of its memory.
    pub family: String,
    /// Which clock the times are from.
    pub clock: String,
    /// Whether its times tell of an emulator.
    pub emulated: bool,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Its runs.
    pub files: Vec<String>,
    /// The whole boot: from power-on, or from where a kernel's own clock begins.
    pub total: Option<Spread>,
    /// Each phase over the runs, in the order of the first.
    pub phases: Vec<PhaseSpread>,
    /// The longest gaps of the run in the middle.
    pub gaps: Vec<Gap>,
    /// What the doctor found in the logs of all runs, each finding once.
    pub findings: Vec<Found>,
    /// The file of the run in the middle.
    pub middle_file: String,
    /// The run in the middle, phase by phase.
    pub middle: Vec<Span>,
    #[serde(skip)]
    pub(crate) runs: Vec<Run>,
}

/// A finding, as the first run that has it shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Runs that have it.
    pub runs: usize,
    /// The file of the first.
    pub file: String,
}

/// A phase of a set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseSpread {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Spread,
}

impl Report {
    /// A report of a folder and `sweeps`.
    #[must_use]
    pub fn of(folder: Folder, sweeps: Vec<sweep::Record>) -> Self {
        let mut groups: BTreeMap<Key, Vec<Run>> = BTreeMap::new();
        let keys = Key::all(folder.runs.iter());
        for (key, run) in keys.into_iter().zip(folder.runs) {
            groups.entry(key).or_default().push(run);
        }
        let words = common_words(groups.keys());
        let setups = groups.into_iter().map(|(mut key, runs)| {
            let own = key.words.split_whitespace();
            let own = own.filter(|word| !words.contains(&(*word).to_owned()));
            key.words = own.collect::<Vec<_>>().join(" ");
            Setup::of(&key, runs)
        });
        let setups: Vec<Setup> = setups.collect();
        Self {
            schema: SCHEMA,
            title: "Boot report".into(),
            words: words.join(" "),
            folder: None,
            fits: fit::fits(&setups),
            setups,
            sweeps,
            failed: folder.failed,
            left_out: folder.left_out,
        }
    }

    /// All runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.setups.iter().map(|setup| setup.files.len()).sum()
    }
}

impl Setup {
    fn of(key: &Key, mut runs: Vec<Run>) -> Self {
        let totals: Vec<u64> = runs.iter().filter_map(Run::total_ns).collect();
        let names = runs.first().map(Run::phase_names).unwrap_or_default();
        let phases = names.into_iter().filter_map(|name| {
            // None where it began before the clock.
            let took: Option<Vec<u64>> = runs.iter().map(|run| run.spent_ns(name)).collect();
            let took = Spread::of(&took?)?;
            let name = name.to_owned();
            Some(PhaseSpread { name, took })
        });
        let phases = phases.collect();
        let files = runs.iter().map(|run| run.file.clone()).collect();
        let findings = findings(&runs);
        runs.sort_by_key(Run::total_ns);
        let middle = runs.get(runs.len() / 2);
        Self {
            name: key.name(),
            family: key.family(),
            clock: key.machine.clock.clone(),
            emulated: key.machine.is_emulated(),
            memory_bytes: key.machine.memory_bytes,
            files,
            total: Spread::of(&totals),
            phases,
            gaps: middle.map(|run| run.gaps.clone()).unwrap_or_default(),
            middle_file: middle.map(|run| run.file.clone()).unwrap_or_default(),
            middle: middle.map(|run| run.phases.clone()).unwrap_or_default(),
            findings,
            runs,
        }
    }
}

impl Setup {
    /// Each run's file and how long it took.
    pub(crate) fn each_run(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.runs.iter().map(|run| (&*run.file, run.total_ns()))
    }
}

/// Words that the command lines of all of several set-ups have.
fn common_words<'k>(keys: impl Iterator<Item = &'k Key>) -> Vec<String> {
    let lines: Vec<Vec<&str>> = keys
        .map(|key| key.words.split_whitespace().collect())
        .collect();
    let Some((first, others)) = lines.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let common = first.iter();
    let common = common.filter(|word| others.iter().all(|line| line.contains(word)));
    common.map(|word| (*word).to_owned()).collect()
}

/// What the doctor finds in the logs of all runs.
fn findings(runs: &[Run]) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for run in runs.iter().filter(|run| run.is_linux()) {
        let mut seen: Vec<&str> = Vec::new();
        for finding in diagnose(&run.file, run.log.join("\n").as_bytes()).findings {
            if seen.contains(&finding.id) {
                continue;
            }
            seen.push(finding.id);
            match all.iter_mut().find(|known| known.finding.id == finding.id) {
                Some(known) => known.runs += 1,
                None => all.push(Found {
                    finding,
                    runs: 1,
                    file: run.file.clone(),
                }),
            }
        }
    }
    all.sort_by(|a, b| b.runs.cmp(&a.runs).then(a.finding.id.cmp(b.finding.id)));
    all
}
