//! A case of boots that are made for it: [`booted`].

use super::{Case, Evidence, Method, Rules, State, Verdict, judge};
use crate::boot::Request;
use crate::compare::{Comparison, Kind, Sides, Unlike, in_turns, of_sides};
use crate::record::Record;
use crate::run::NoRecord;

/// Boots both in turns, as often as their spread wants it or `runs` says, and all of it once
/// more if something seems to have moved; `boot` makes one.
///
/// # Errors
/// What `boot` says, [`Unlike`], [`NoRecord`].
pub fn booted<E>(
    sides: &Sides<'_>,
    runs: Option<u32>,
    rules: &Rules,
    boot: &mut dyn FnMut(&Request) -> Result<Record, E>,
) -> Result<Case, E>
where
    E: From<Unlike> + From<NoRecord>,
{
    let [(a, of_a), (b, _)] = sides;
    let method = Method::of(of_a.clock());
    let count = |runs: usize| Some(u32::try_from(runs).unwrap_or(u32::MAX));
    let mut all = in_turns(sides, runs.or(count(method.least_runs)), boot)?;
    let mut first = of_sides(sides, &all)?;
    let needed = method.runs_needed(&longest(&first));
    let more = needed.saturating_sub(method.least_runs);
    if runs.is_none() && more > 0 {
        let others = in_turns(sides, count(more), boot)?;
        for (all, others) in all.iter_mut().zip(others) {
            all.extend(others);
        }
        first = of_sides(sides, &all)?;
    }
    let name = match a == b {
        true => (*a).to_owned(),
        false => format!("{a} -> {b}"),
    };
    let mut evidence = Evidence {
        name,
        first,
        again: None,
    };
    let case = |evidence: &Evidence| Case {
        pairs: vec![evidence.clone()],
        ..Case::default()
    };
    if has_moved(&judge(&case(&evidence), rules)) {
        let again = in_turns(sides, runs.or(count(needed)), boot)?;
        evidence.again = Some(of_sides(sides, &again)?);
    }
    Ok(case(&evidence))
}

/// The whole boot of both sides, run by run.
fn longest(comparison: &Comparison) -> Vec<&[u64]> {
    let mut rows = comparison.rows.iter();
    let total = rows.find(|row| row.kind == Kind::Total);
    let sides = total.into_iter().flat_map(|row| [&row.a, &row.b]);
    sides.flatten().map(|side| side.ns.as_slice()).collect()
}

/// Whether something waits to be confirmed.
fn has_moved(verdict: &Verdict) -> bool {
    let mut rows = verdict.groups.iter().flat_map(|group| &group.rows);
    rows.any(|row| row.decides && row.state == State::Unconfirmed)
}
