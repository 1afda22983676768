//! Since when a boot is slower: [`search`] measures both ends, then halves what lies between.
//!
//! | file | concept |
//! |---|---|
//! | `git` | the commits of a tree, driven by `git bisect` |
//! | `list` | kernel images in order |
//!
//! Both ends are verified first: the bad one must be slower than the good one by the rules
//! of the gate. What moved most is the figure that decides; a candidate is bad if it is
//! nearer to the bad end. What cannot be built or booted is passed over.

mod git;
mod list;

use serde::Serialize;

use crate::compare::{Comparison, Kind, compare};
use crate::gate::{Case, Evidence, Judged, Rules, State, is_meant, judge};
use crate::run::Run;
pub use git::Git;
pub use list::List;

/// Name and version of the form of [`Answer`].
pub const SCHEMA: &str = "firstlight.bisect/1";

/// What a candidate turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As fast as the good end.
    Good,
    /// As slow as the bad end.
    Bad,
    /// It could not be measured.
    Skip,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Measure this one.
    Try(String),
    /// This one is the first that is slower.
    Found(String),
    /// One of these is; none of them but the last can be measured.
    OneOf(Vec<String>),
}

/// Candidates between a good and a bad one.
pub trait Candidates {
    /// Takes what the latest one turned out to be, and says what is next.
    ///
    /// # Errors
    /// Why there is no next one.
    fn next(&mut self, mark: Option<Mark>) -> Result<Next, String>;

    /// Makes the candidate ready to be measured, and says what there is to know of it.
    ///
    /// # Errors
    /// Why that failed.
    fn take(&mut self, name: &str) -> Result<String, String>;
}

/// Since when, and in what.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answer {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The first that is slower; `None` where several cannot be told apart.
    pub first_bad: Option<String>,
    /// What there is to know of it, such as its subject.
    pub about: Option<String>,
    /// All that may be it.
    pub candidates: Vec<String>,
    /// The figure that decided.
    pub figure: Judged,
    /// All figures that moved between the ends.
    pub moved: Vec<String>,
    /// What was measured, the ends first.
    pub steps: Vec<Step>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// What was measured.
    pub name: String,
    /// What it turned out to be.
    pub mark: Mark,
    /// The figure, where there is one.
    pub ns: Option<f64>,
    /// Why it was passed over.
    pub why: Option<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoAnswer {
    /// An end cannot be measured.
    #[error("{0}, an end, cannot be measured: {1}")]
    End(String, String),
    /// The bad end is not slower than the good one.
    #[error(
        "the bad end is not slower than the good one: expected a regression between them (firstlight gate)"
    )]
    NotSlower,
    /// No figure of both ends has this name.
    #[error("no figure of both ends is called {0:?}; expected one of: {known}", known = .1.join(", "))]
    NoFigure(String, Vec<String>),
    /// The candidates say so.
    #[error("{0}")]
    Candidates(String),
}

/// Searches between `good` and `bad`; `measure` boots what was made ready, as often as its
/// clock wants it. `figure` names what decides; else the span that lost most does.
///
/// # Errors
/// [`NoAnswer`].
pub fn search(
    candidates: &mut dyn Candidates,
    (good, bad): (&str, &str),
    figure: Option<&str>,
    measure: &mut dyn FnMut(&str) -> Result<Vec<Run>, String>,
) -> Result<Answer, NoAnswer> {
    let mut end = |name: &str| {
        let taken = candidates.take(name).and_then(|_| measure(name));
        taken.map_err(|why| NoAnswer::End(name.to_owned(), why))
    };
    let (of_good, of_bad) = (end(good)?, end(bad)?);
    let comparison = between(&of_good, &of_bad).map_err(NoAnswer::Candidates)?;
    let exact = comparison.clock == "instructions";
    let again = if exact {
        None
    } else {
        Some(between(&end(good)?, &end(bad)?).map_err(NoAnswer::Candidates)?)
    };
    let evidence = Evidence {
        name: format!("{good} .. {bad}"),
        first: comparison,
        again,
    };
    let case = Case {
        pairs: vec![evidence],
        ..Case::default()
    };
    let verdict = judge(&case, &Rules::default());
    let rows = verdict.groups.iter().flat_map(|group| &group.rows);
    let rows: Vec<&Judged> = rows.collect();
    let figure = slower(&rows, figure)?;
    let step = |name: &str, mark, ns| Step {
        name: name.to_owned(),
        mark,
        ns: Some(ns),
        why: None,
    };
    let mut steps = vec![
        step(good, Mark::Good, figure.a_ns),
        step(bad, Mark::Bad, figure.b_ns),
    ];
    let mut next = candidates.next(None).map_err(NoAnswer::Candidates)?;
    while let Next::Try(name) = next {
        let step = one(candidates, &name, &of_good, &figure, measure);
        let mark = step.mark;
        steps.push(step);
        next = candidates.next(Some(mark)).map_err(NoAnswer::Candidates)?;
    }
    let (first_bad, all) = match next {
        Next::Found(name) => (Some(name.clone()), vec![name]),
        Next::OneOf(names) => (None, names),
        Next::Try(_) => (None, Vec::new()),
    };
    Ok(Answer {
        schema: SCHEMA,
        about: first_bad
            .as_ref()
            .and_then(|name| candidates.take(name).ok()),
        first_bad,
        candidates: all,
        moved: verdict.moved,
        figure,
        steps,
    })
}

/// The figure that decides: the one that is named, else the span with the largest loss.
fn slower(rows: &[&Judged], figure: Option<&str>) -> Result<Judged, NoAnswer> {
    let meant = |row: &&&Judged| figure.is_none_or(|name| is_meant(name, row.kind, &row.name));
    let rows_meant: Vec<&Judged> = rows.iter().filter(meant).copied().collect();
    if let (Some(name), true) = (figure, rows_meant.is_empty()) {
        let known = rows.iter().filter(|row| !row.kind.explains());
        let known = known.map(|row| row.title()).collect();
        return Err(NoAnswer::NoFigure(name.to_owned(), known));
    }
    let slower = rows_meant.into_iter();
    let slower = slower.filter(|row| row.state == State::Regressed);
    deciding(slower).ok_or(NoAnswer::NotSlower)
}

/// The figure with the largest loss; a span says more than a moment or a sum, and a
/// phase more than a gap that lost 1 % more: the stamps around a gap are rounded.
fn deciding<'j>(rows: impl Iterator<Item = &'j Judged>) -> Option<Judged> {
    let span = |row: &Judged| matches!(row.kind, Kind::Phase | Kind::Gap);
    let lost = |row: &Judged| {
        let part = if row.kind == Kind::Gap { 0.99 } else { 1.0 };
        (row.b_ns - row.a_ns) * part
    };
    let most = rows.max_by(|a, b| {
        let lost = lost(a).total_cmp(&lost(b));
        span(a).cmp(&span(b)).then(lost)
    });
    most.cloned()
}

fn one(
    candidates: &mut dyn Candidates,
    name: &str,
    of_good: &[Run],
    figure: &Judged,
    measure: &mut dyn FnMut(&str) -> Result<Vec<Run>, String>,
) -> Step {
    let measured = candidates.take(name).and_then(|_| measure(name));
    let compared = measured.and_then(|runs| between(of_good, &runs));
    let ns = compared.and_then(|comparison| {
        let mut rows = comparison.rows.iter();
        let row = rows.find(|row| (row.kind, &row.name) == (figure.kind, &figure.name));
        let ns = row.and_then(|row| row.b.as_ref()).map(|b| b.median_ns);
        // A phase or an initcall that a candidate does not have takes it no time.
        let absent = matches!(figure.kind, Kind::Phase | Kind::Initcall).then_some(0.0);
        ns.or(absent)
            .ok_or_else(|| format!("its log has no {:?}", figure.name))
    });
    let (mark, ns, why) = match ns {
        Ok(ns) if ns > f64::midpoint(figure.a_ns, figure.b_ns) => (Mark::Bad, Some(ns), None),
        Ok(ns) => (Mark::Good, Some(ns), None),
        Err(why) => (Mark::Skip, None, Some(why)),
    };
    Step {
        name: name.to_owned(),
        mark,
        ns,
        why,
    }
}

fn between(a: &[Run], b: &[Run]) -> Result<Comparison, String> {
    compare(("good", a), ("bad", b)).map_err(|error| error.to_string())
}
