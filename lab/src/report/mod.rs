//! A report on a folder of records: [`Report::of`] puts runs of the same set-up together,
//! and each format is rendered from that.
//!
//! | file | concept |
//! |---|---|
//! | `setup` | runs of one set-up: phases, gaps, findings |
//! | `cpus` | how a Linux does with more CPUs, beside published machines |
//! | `fit` | how phases grow with memory |
//! | `html`, `chart`, `escape`, `style` | one page that needs nothing else, its drawings, its looks |
//!
//! Other forms are in [`export`](crate::export).

mod chart;
mod cpus;
mod escape;
mod fit;
mod html;
mod setup;
mod style;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::published::Machine;
use crate::records::{FailedBoot, Folder, LeftOut};
use crate::run::{Run, Setup as Key};
use crate::sweep;
pub use cpus::Cpus;
pub use fit::Fit;
pub use setup::{Found, PhaseSpread, Setup};

/// Name and version of the form of [`Report`].
pub const SCHEMA: &str = "firstlight.report/1";

/// What is shown of some runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What more CPUs bring, where set-ups of a Linux differ in nothing else.
    pub cpus: Vec<Cpus>,
    /// A published machine to stand beside that.
    pub beside: Option<Machine>,
    /// Sweeps over numbers of threads, those of our image among them.
    pub sweeps: Vec<sweep::Record>,
    /// Boots that failed.
    pub failed: Vec<FailedBoot>,
    /// Files that hold no record.
    pub left_out: Vec<LeftOut>,
}

impl Report {
    /// A report of a folder and `sweeps`.
    #[must_use]
    pub fn of(folder: Folder, mut sweeps: Vec<sweep::Record>) -> Self {
        let mut groups: BTreeMap<Key, Vec<Run>> = BTreeMap::new();
        let keys = Key::all(folder.runs.iter());
        for (key, run) in keys.into_iter().zip(folder.runs) {
            groups.entry(key).or_default().push(run);
        }
        let cpus = cpus::over_cpus(groups.iter().map(|(key, runs)| (key, &**runs)));
        let mut left_out = folder.left_out;
        for runs in groups.values() {
            match sweep::guest::of_runs(runs) {
                Ok(sweep) => sweeps.extend(sweep),
                Err(why) => left_out.push(LeftOut {
                    file: runs.first().map_or(String::new(), |run| run.file.clone()),
                    why: why.to_string(),
                }),
            }
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
            cpus,
            beside: None,
            sweeps,
            failed: folder.failed,
            left_out,
        }
    }

    /// All runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.setups.iter().map(|setup| setup.files.len()).sum()
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
