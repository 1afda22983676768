//! Two folders of records, or one comparison, as evidence: [`of_runs`], [`of_comparison`].

use std::collections::BTreeMap;

use super::{Evidence, Method};
use crate::compare::{Comparison, Told, Unlike, compare};
use crate::record::Asked;

/// The runs of both sides, machine by machine. On the wall clock, the odd runs of a side
/// confirm the even ones where there are enough for both.
///
/// # Errors
/// [`Unlike`]: no machine that both sides have runs of, or runs by different clocks.
pub fn of_runs(a: (&str, &[Told]), b: (&str, &[Told])) -> Result<Vec<Evidence>, Unlike> {
    let (machines_a, machines_b) = (by_machine(a.1), by_machine(b.1));
    let mut evidence = Vec::new();
    for (machine, runs_a) in &machines_a {
        let Some(runs_b) = machines_b.get(machine) else {
            continue;
        };
        let halves = |runs: &[Told], odd: usize| -> Vec<Told> {
            runs.iter().skip(odd).step_by(2).cloned().collect()
        };
        let wall = runs_a
            .first()
            .is_some_and(|run| run.clock != "instructions");
        let fewest = runs_a.len().min(runs_b.len());
        let both = wall && fewest >= 2 * Method::WALL.least_runs;
        evidence.push(if both {
            let side = |odd| compare((a.0, &halves(runs_a, odd)), (b.0, &halves(runs_b, odd)));
            Evidence {
                first: side(0)?,
                again: Some(side(1)?),
            }
        } else {
            Evidence {
                first: compare((a.0, runs_a), (b.0, runs_b))?,
                again: None,
            }
        });
    }
    if evidence.is_empty() {
        return Err(Unlike::NoRun);
    }
    Ok(evidence)
}

/// A comparison made earlier; its runs in two halves where there are enough.
#[must_use]
pub fn of_comparison(comparison: Comparison) -> Evidence {
    let fewest = comparison.sides.iter().map(|side| side.runs).min();
    let wall = comparison.clock != "instructions";
    if !wall || fewest.is_none_or(|runs| runs < 2 * Method::WALL.least_runs) {
        return Evidence {
            first: comparison,
            again: None,
        };
    }
    Evidence {
        again: Some(comparison.half(1)),
        first: comparison.half(0),
    }
}

/// Memory, nodes, CPUs and board; runs of which nothing is known are one machine.
type Machine = Option<(u64, u64, u64, String)>;

fn by_machine(runs: &[Told]) -> BTreeMap<Machine, Vec<Told>> {
    let mut machines: BTreeMap<Machine, Vec<Told>> = BTreeMap::new();
    for run in runs {
        let key = |asked: &Asked| {
            let board = asked.board.to_string();
            (asked.memory_bytes, asked.nodes, asked.cpus, board)
        };
        let machine = run.asked().map(key);
        machines.entry(machine).or_default().push(run.clone());
    }
    machines
}
