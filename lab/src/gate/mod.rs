//! Whether B is slower than A, and in what: [`judge`] makes a [`Verdict`] (schema
//! `firstlight.gate/1`) of comparisons.
//!
//! | clock | a figure has moved if |
//! |---|---|
//! | instructions | its medians differ by more than 0.1 %: the clock is exact |
//! | wall | the rank sum test gives p < 0.01, the medians differ by 5 % or more and by 1 ms, and other runs say so too with p < 0.05 |
//!
//! | file | concept |
//! |---|---|
//! | `statistics` | the test and the interval |
//! | `row` | one figure, judged |
//! | `folder` | folders of records as evidence, machine by machine |
//! | `junit` | the verdict for continuous integration |

mod folder;
mod junit;
mod row;
mod statistics;

use serde::Serialize;

use crate::compare::{Comparison, Kind};
pub use folder::{of_comparison, of_runs};
pub use row::{Judged, State, differs};
pub use statistics::{interval, mann_whitney};

/// Name and version of the form of [`Verdict`].
pub const SCHEMA: &str = "firstlight.gate/1";

/// What counts as moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Method {
    /// Largest probability of a chance, on the wall clock.
    pub alpha: f64,
    /// The same for the runs that confirm it.
    pub confirm_alpha: f64,
    /// Least change of the median in hundredths.
    pub effect_percent: f64,
    /// Least change of the median in nanoseconds.
    pub least_ns: u64,
    /// Least runs a side.
    pub least_runs: usize,
}

impl Method {
    /// For the wall clock.
    pub const WALL: Self = Self {
        alpha: 0.01,
        confirm_alpha: 0.05,
        effect_percent: 5.0,
        least_ns: 1_000_000,
        least_runs: 10,
    };

    /// For the clock that is the same from run to run.
    pub const INSTRUCTIONS: Self = Self {
        alpha: 1.0,
        confirm_alpha: 1.0,
        effect_percent: 0.1,
        least_ns: 1,
        least_runs: 1,
    };

    /// Runs a side that show a change of 18.9 % in 19 of 20 trials, where figures spread as
    /// these do; `docs/statistics.md` has where the factor is from.
    #[must_use]
    pub fn runs_needed(&self, figures: &[&[u64]]) -> usize {
        const MOST_RUNS: usize = 200;
        const FACTOR: f64 = 100.0;
        const CHANGE: f64 = 0.17;
        let spreads = figures
            .iter()
            .filter_map(|ns| statistics::relative_spread(&row::floats(ns)));
        let spread = spreads.fold(0.0, f64::max);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded below and above"
        )]
        let runs = (FACTOR * (spread / CHANGE).powi(2)).ceil().min(1e6) as usize;
        runs.clamp(self.least_runs, MOST_RUNS.max(self.least_runs))
    }

    /// For the clock of this name.
    #[must_use]
    pub fn of(clock: &str) -> Self {
        match clock {
            "instructions" => Self::INSTRUCTIONS,
            _ => Self::WALL,
        }
    }
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `pass`, `regressed`, or `unclear` where there are too few runs.
    pub verdict: &'static str,
    /// Which clock the times are from.
    pub clock: String,
    /// What counts as moved.
    pub method: Method,
    /// Whether A was judged against itself.
    pub itself: bool,
    /// One a machine, the smallest first.
    pub groups: Vec<Group>,
    /// What is slower, on the smallest machine where it is; the largest loss first.
    pub moved: Vec<String>,
    /// Memory of the smallest machine that is slower, where machines of several sizes ran.
    pub smallest_regressed_bytes: Option<u64>,
    /// Largest difference that A has from itself in hundredths, of figures of 1 ms and more;
    /// of an A/A run only.
    pub noise_floor_percent: Option<f64>,
}

/// The figures of one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its memory, where it is known.
    pub memory_bytes: Option<u64>,
    /// Its nodes.
    pub nodes: Option<u64>,
    /// Its CPUs.
    pub cpus: Option<u64>,
    /// Runs of A and of B.
    pub runs: [usize; 2],
    /// Every figure both tell.
    pub rows: Vec<Judged>,
}

/// A comparison, and the same again from other runs where there are any.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// What is judged.
    pub first: Comparison,
    /// What confirms it.
    pub again: Option<Comparison>,
}

/// Judges comparisons of the same clock, one a machine.
#[must_use]
pub fn judge(evidence: &[Evidence], itself: bool) -> Verdict {
    let clock = evidence.first().map_or("wall", |one| &*one.first.clock);
    let method = Method::of(clock);
    let mut groups: Vec<Group> = evidence.iter().map(|one| group(one, &method)).collect();
    groups.sort_by_key(|group| (group.memory_bytes, group.nodes, group.cpus));
    let enough = groups
        .iter()
        .all(|group| group.runs.iter().all(|runs| *runs >= method.least_runs));
    let slower = groups.iter().find(|group| group.has_regressed());
    let verdict = match slower {
        Some(_) => "regressed",
        None if !enough || groups.is_empty() => "unclear",
        None => "pass",
    };
    let several = groups.len() > 1;
    Verdict {
        schema: SCHEMA,
        verdict,
        clock: clock.to_owned(),
        method,
        itself,
        moved: slower.map(Group::moved).unwrap_or_default(),
        smallest_regressed_bytes: slower
            .filter(|_| several)
            .and_then(|group| group.memory_bytes),
        noise_floor_percent: itself.then(|| noise(&groups)),
        groups,
    }
}

/// The largest difference among figures that are long enough to be felt.
fn noise(groups: &[Group]) -> f64 {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let felt = rows.filter(|row| row.a_ns >= 1e6 && row.kind != Kind::Gap);
    let each = felt.filter_map(|row| Some((row.ratio? - 1.0).abs() * 100.0));
    each.fold(0.0, f64::max)
}

fn group(evidence: &Evidence, method: &Method) -> Group {
    let sides = &evidence.first.sides;
    let [a, b] = sides;
    let machine = a.machine.as_ref().or(b.machine.as_ref());
    let rows = evidence.first.rows.iter().filter_map(|row| {
        let again = evidence.again.as_ref().map(|again| {
            let mut rows = again.rows.iter();
            rows.find(|other| (other.kind, &other.name) == (row.kind, &row.name))
        });
        row::judge(row, again, method)
    });
    Group {
        memory_bytes: machine.map(|machine| machine.memory_bytes),
        nodes: machine.map(|machine| machine.nodes),
        cpus: machine.map(|machine| machine.cpus),
        runs: [a.runs, b.runs],
        rows: rows.collect(),
    }
}

impl Group {
    fn has_regressed(&self) -> bool {
        self.rows.iter().any(|row| row.state == State::Regressed)
    }

    /// What is slower: spans before moments, gaps and phases before sums, the largest first.
    fn moved(&self) -> Vec<String> {
        let slower = self.rows.iter().filter(|row| row.state == State::Regressed);
        let mut slower: Vec<&Judged> = slower.collect();
        let moment = |row: &Judged| row.kind == Kind::Milestone;
        slower.sort_by(|a, b| {
            let lost = b.lost_ns().total_cmp(&a.lost_ns());
            moment(a).cmp(&moment(b)).then(lost)
        });
        slower.iter().map(|row| row.words()).collect()
    }
}
