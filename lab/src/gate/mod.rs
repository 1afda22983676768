//! Whether B is slower than A, and in what: [`judge`] makes a [`Verdict`] (schema
//! `firstlight.gate/1`) of a [`Case`].
//!
//! The whole boot decides where it has moved; where it has not, its parts do, initcalls among
//! them. Gaps and services explain.
//! What is missing, too little or not confirmed is no pass.
//!
//! | clock | a figure has moved if |
//! |---|---|
//! | instructions | its medians differ by more than 0.1 %: the clock is exact |
//! | wall | the rank sum test gives p < 0.01, the medians differ by 5 % or more and by 1 ms, and other runs say so too with p < 0.05 |
//!
//! | file | concept |
//! |---|---|
//! | `method` | what counts as moved |
//! | `row` | one figure, judged |
//! | `pairs` | what is judged: set-ups of two folders, machine by machine |
//! | `booted` | boots that are made to be judged |
//! | `ends` | logs of both sides, up to one end |
//! | `figures` | which figures decide |
//! | `initcalls` | when an initcall decides |
//! | `group` | one set-up, judged |

mod booted;
mod ends;
mod figures;
mod group;
mod initcalls;
mod method;
mod pairs;
mod row;

use serde::Serialize;

use crate::records::{FailedBoot, LeftOut};
pub use booted::booted;
pub use figures::{Figures, is_meant};
pub use group::Group;
pub use method::{Bounds, Method};
pub use pairs::{Case, Evidence, Missing};
pub use row::{Judged, State, differs};

/// Name and version of the form of [`Verdict`].
pub const SCHEMA: &str = "firstlight.gate/1";

/// How a case is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Which figures decide.
    pub figures: Figures,
    /// What counts as moved.
    pub bounds: Bounds,
    /// A is judged against itself.
    pub itself: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Nothing that decides is slower.
    Pass,
    /// Something is, or no longer boots.
    Regressed,
    /// It cannot be said.
    Unclear,
}

impl Outcome {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Regressed => "regressed",
            Self::Unclear => "unclear",
        }
    }
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What came of it.
    pub verdict: Outcome,
    /// Why it is unclear, a sentence each.
    pub unclear: Vec<String>,
    /// Which clock the times of the first set-up are from.
    pub clock: String,
    /// What counts as moved there.
    pub method: Method,
    /// Whether A was judged against itself.
    pub itself: bool,
    /// One a set-up, the smallest machine first.
    pub groups: Vec<Group>,
    /// What is slower, on the smallest machine where it is: the whole boot first, then the
    /// largest loss.
    pub moved: Vec<String>,
    /// Gaps that are longer there; they do not decide.
    pub explained: Vec<String>,
    /// Memory of the smallest machine that is slower, where machines of several sizes ran.
    pub smallest_regressed_bytes: Option<u64>,
    /// Largest difference that A has from itself in hundredths, of figures of 1 ms and more;
    /// of an A/A run only.
    pub noise_floor_percent: Option<f64>,
    /// Boots of A and of B that failed.
    pub failed: [Vec<FailedBoot>; 2],
    /// Files that hold no record.
    pub left_out: Vec<LeftOut>,
}

/// Judges a case, each set-up by the rules of its clock.
#[must_use]
pub fn judge(case: &Case, rules: &Rules) -> Verdict {
    let of_pairs = case.pairs.iter().map(|one| &*one.first.clock);
    let of_missing = case.missing.iter().map(|one| &*one.machine.clock);
    let clock = of_pairs
        .chain(of_missing)
        .next()
        .unwrap_or("wall")
        .to_owned();
    let method = Method::of(&clock).with(rules.bounds);
    let pairs = case.pairs.iter().map(|one| Group::of(one, rules));
    let alone = case.missing.iter().map(Group::alone);
    let mut groups: Vec<Group> = pairs.chain(alone).collect();
    groups.sort_by(|a, b| a.order().cmp(&b.order()));
    let slower = groups
        .iter()
        .find(|group| group.outcome == Outcome::Regressed);
    let mut moved = slower.map(|group| group.moved(true)).unwrap_or_default();
    let explained = slower.map(|group| group.moved(false)).unwrap_or_default();
    let memory = |group: Option<&Group>| group.and_then(|group| group.memory_bytes);
    let several = memory(groups.first()) != memory(groups.last());
    let smallest = slower
        .filter(|_| several)
        .and_then(|group| group.memory_bytes);
    let [failed_a, failed_b] = &case.failed;
    let in_a = |boot: &&FailedBoot| failed_a.iter().any(|other| other.cell == boot.cell);
    let lost = failed_b.iter().filter(|boot| !in_a(boot));
    moved.extend(lost.map(|boot| format!("{} does not boot: {}", boot.cell, boot.message)));
    let unclear = unclear(case, &groups, rules);
    Verdict {
        schema: SCHEMA,
        verdict: match (moved.is_empty(), unclear.is_empty()) {
            (false, _) => Outcome::Regressed,
            (true, false) => Outcome::Unclear,
            (true, true) => Outcome::Pass,
        },
        unclear,
        clock,
        method,
        itself: rules.itself,
        moved,
        explained,
        smallest_regressed_bytes: smallest,
        noise_floor_percent: rules.itself.then(|| noise(&groups)),
        groups,
        failed: case.failed.clone(),
        left_out: case.left_out.clone(),
    }
}

/// Why nothing can be said, or not of all.
fn unclear(case: &Case, groups: &[Group], rules: &Rules) -> Vec<String> {
    let mut why = Vec::new();
    if case.pairs.is_empty() {
        why.push("no set-up has runs of A and of B".to_owned());
    }
    for group in groups {
        why.extend(
            group
                .unclear
                .iter()
                .map(|reason| format!("{}: {reason}", group.name)),
        );
    }
    let figures = case.pairs.iter().flat_map(|pair| &pair.first.rows);
    let figures = figures.map(|row| (row.kind, &*row.name));
    for name in rules.figures.unknown(figures) {
        why.push(format!("no figure is called {name:?}"));
    }
    let [failed_a, failed_b] = &case.failed;
    for (side, failed) in [("A", failed_a), ("B", failed_b)] {
        let more = failed
            .iter()
            .map(|boot| format!("a boot of {side} failed, {}: {}", boot.cell, boot.message));
        why.extend(more);
    }
    why.extend(
        case.left_out
            .iter()
            .map(|file| format!("{} is left out: {}", file.file, file.why)),
    );
    why
}

/// The largest difference among figures that are long enough to be felt.
fn noise(groups: &[Group]) -> f64 {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let felt = rows.filter(|row| row.a_ns >= 1e6 && !row.kind.explains());
    let each = felt.filter_map(|row| Some((row.ratio? - 1.0).abs() * 100.0));
    each.fold(0.0, f64::max)
}
