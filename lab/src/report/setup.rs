//! Runs of one set-up: [`Setup`].

use serde::Serialize;

use crate::compare::Spread;
use crate::doctor::{Finding, diagnose};
use crate::record::{Gap, Step};
use crate::run::{Run, Setup as Key, Span};

/// Runs of the same kernel, words, clock and machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setup {
    /// In words.
    pub name: String,
    /// `name` without the size of its memory.
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
    /// The slowest initcalls of that run, where its log names them.
    pub initcalls: Vec<Step>,
    /// The slowest services of that run, where its log names them.
    pub services: Vec<Step>,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseSpread {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Spread,
}

impl Setup {
    pub(super) fn of(key: &Key, mut runs: Vec<Run>) -> Self {
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
            initcalls: middle.map(|run| run.initcalls.clone()).unwrap_or_default(),
            services: middle.map(|run| run.services.clone()).unwrap_or_default(),
            middle_file: middle.map(|run| run.file.clone()).unwrap_or_default(),
            middle: middle.map(|run| run.phases.clone()).unwrap_or_default(),
            findings,
            runs,
        }
    }

    /// Each run's file and how long it took.
    pub(crate) fn each_run(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.runs.iter().map(|run| (&*run.file, run.total_ns()))
    }
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
