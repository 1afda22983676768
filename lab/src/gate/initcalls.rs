//! Initcalls decide, though there are hundreds of them: one that takes a millisecond more, where
//! chance explains none of so many.
//!
//! One that a side does not run takes it no time. Between kernels of different releases such a one
//! only explains: initcalls are renamed.

use super::Method;
use super::method::floats;
use super::row::Judged;
use crate::compare::{Comparison, Kind, Row, Spread};
use firstlight_figures::rank_sum::mann_whitney;

/// The least change that decides, in nanoseconds, on whichever clock.
const LEAST_NS: f64 = 1e6;

/// The rows of a comparison; runs that name initcalls, and not this one, spent no time in it.
pub(super) fn filled(comparison: &Comparison) -> Vec<Row> {
    let runs = |side: fn(&Row) -> &Option<Spread>| {
        let initcalls = comparison
            .rows
            .iter()
            .filter(|row| row.kind == Kind::Initcall);
        initcalls
            .filter_map(|row| Some(side(row).as_ref()?.ns.len()))
            .max()
    };
    let (Some(of_a), Some(of_b)) = (runs(|row| &row.a), runs(|row| &row.b)) else {
        return comparison.rows.clone();
    };
    let fill = |spread: &Option<Spread>, runs: usize| {
        let mut ns = spread
            .as_ref()
            .map_or_else(Vec::new, |spread| spread.ns.clone());
        ns.resize(ns.len().max(runs), 0);
        Spread::of(&ns)
    };
    let filled = |row: &Row| match row.kind {
        Kind::Initcall => {
            let (a, b) = (fill(&row.a, of_a), fill(&row.b, of_b));
            Row::new(row.kind, row.name.clone(), a, b)
        }
        _ => row.clone(),
    };
    comparison.rows.iter().map(filled).collect()
}

/// Has the initcalls decide of which it is certain that they moved; `again` are the rows of the
/// other runs.
pub(super) fn decide(
    rows: &mut [Judged],
    again: Option<&[Row]>,
    comparison: &Comparison,
    method: &Method,
) {
    let [a, b] = &comparison.sides;
    let is_one_release = a.release == b.release;
    let initcalls = rows.iter().filter(|row| row.kind == Kind::Initcall);
    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
    let alpha = method.alpha / initcalls.count() as f64;
    for row in rows.iter_mut().filter(|row| row.kind == Kind::Initcall) {
        let is_run = row.a_ns.min(row.b_ns) > 0.0;
        // The dearest comes last: it counts orders of runs.
        row.decides &= row.lost_ns().abs() >= LEAST_NS
            && (is_run || is_one_release)
            && row
                .p
                .is_none_or(|p| both(p, chance(again, &row.name)) < alpha);
    }
}

/// How probable what the other runs say of an initcall is by chance.
fn chance(again: Option<&[Row]>, name: &str) -> f64 {
    let mut rows = again.into_iter().flatten();
    let row = rows.find(|row| (row.kind, &*row.name) == (Kind::Initcall, name));
    let sides = row.and_then(|row| Some((row.a.as_ref()?, row.b.as_ref()?)));
    sides.map_or(1.0, |(a, b)| mann_whitney(&floats(&a.ns), &floats(&b.ns)))
}

/// How probable two sets of runs are together, by Fisher's method; 1 says nothing.
fn both(first: f64, again: f64) -> f64 {
    if again >= 1.0 {
        return first;
    }
    // Zero has no logarithm.
    let product = (first * again).max(f64::MIN_POSITIVE);
    product * (1.0 - product.ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Case, Outcome, Rules, Verdict, judge};
    use crate::records::Folder;
    use crate::run::Run;
    use serde_json::json;

    /// Runs of a kernel whose boot varies by far more than its initcalls.
    fn runs(release: &str, clock: &str, count: u64, initcalls: &[(&str, u64)]) -> Folder {
        let run = |n: u64| {
            let vary = n * 7919 % 100;
            let mut log = vec!["[    0.000000] Linux version 6.1.0".to_owned()];
            for quiet in 0..200 {
                log.push(format!(
                    "[    0.100000] initcall quiet{quiet}+0x0/0x1 returned 0 after {} usecs",
                    2000 + (n * 31 + quiet * 17) % 90
                ));
            }
            for (name, micros) in initcalls {
                log.push(format!(
                    "[    0.500000] initcall {name}+0x0/0x1 returned 0 after {} usecs",
                    micros + vary
                ));
            }
            log.push("[    0.600000] Run /init as init process".to_owned());
            Run::of(json!({
                "schema": "firstlight.run/1", "kind": "boot", "clock": clock,
                "source": {"kind": "linux", "command_line": "", "kernel": {"release": release}},
                "machine": {"asked": {"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 1}},
                "milestones": {}, "log": log,
                "phases": [{"name": "kernel", "start_ns": 0, "end_ns": 2_000_000_000 + vary * 10_000_000}],
            }))
            .unwrap()
        };
        Folder {
            runs: (0..count).map(run).collect(),
            ..Folder::default()
        }
    }

    fn verdict(a: &Folder, b: &Folder) -> Verdict {
        judge(
            &Case::of_folders(("a", a), ("b", b)).unwrap(),
            &Rules::default(),
        )
    }

    #[test]
    fn five_milliseconds_more_are_found_by_name() {
        let of = |micros| runs("6.1", "wall", 20, &[("jent_mod_init", micros)]);
        assert_eq!(verdict(&of(3000), &of(3000)).verdict, Outcome::Pass);
        let slower = verdict(&of(3000), &of(8000));
        assert_eq!(slower.verdict, Outcome::Regressed);
        assert!(
            slower.moved[0].starts_with("initcall \"jent_mod_init\": 3."),
            "{:?}",
            slower.moved
        );
        assert_eq!(verdict(&of(8000), &of(3000)).verdict, Outcome::Pass);
        // Half a millisecond is no more than others vary by.
        assert_eq!(verdict(&of(3000), &of(3500)).verdict, Outcome::Pass);
    }

    #[test]
    fn a_new_initcall_is_found_in_a_kernel_of_the_same_release() {
        let old = runs("6.1", "wall", 20, &[]);
        let added = |release| runs(release, "wall", 20, &[("slow_init", 5000)]);
        let found = verdict(&old, &added("6.1"));
        assert_eq!(found.verdict, Outcome::Regressed);
        assert!(
            found.moved[0].starts_with("initcall \"slow_init\": 0.000 -> 5."),
            "{:?}",
            found.moved
        );
        // In another release it may have had another name: it is shown.
        let other = verdict(&old, &added("6.12"));
        assert_eq!(other.verdict, Outcome::Pass);
        let row = other.groups[0]
            .rows
            .iter()
            .find(|row| row.name == "slow_init")
            .unwrap();
        assert!(
            !row.decides && row.state == crate::gate::State::Regressed,
            "{row:?}"
        );
    }

    /// A phase of a Linux is what is between two stamps in whole microseconds.
    #[test]
    fn on_the_instruction_clock_a_stamp_that_is_one_off_is_no_change() {
        let of = |end_ns: u64| {
            let run = Run::of(json!({
                "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
                "source": {"kind": "linux", "command_line": "", "kernel": {"release": "6.1"}},
                "machine": {"asked": {"board": "q35", "memory_bytes": 1 << 30, "nodes": 1, "cpus": 1}},
                "milestones": {}, "log": [],
                "phases": [
                    {"name": "root file system", "start_ns": 0, "end_ns": end_ns},
                    {"name": "initrd", "start_ns": end_ns, "end_ns": 9_000_000},
                ],
            }));
            Folder {
                runs: vec![run.unwrap()],
                ..Folder::default()
            }
        };
        assert_eq!(verdict(&of(187_000), &of(188_000)).verdict, Outcome::Pass);
        assert_eq!(
            verdict(&of(187_000), &of(189_000)).verdict,
            Outcome::Regressed
        );
    }

    #[test]
    fn two_sets_of_runs_say_more_than_one() {
        assert!((both(0.01, 1.0) - 0.01).abs() < 1e-12);
        // Of two even chances: 0.25 (1 + ln 4).
        assert!((both(0.5, 0.5) - 0.596_573_6).abs() < 1e-6);
        assert!(both(2e-4, 1e-3) < 1e-5 && both(2e-4, 0.9) > 2e-4);
    }

    #[test]
    fn on_the_instruction_clock_too_a_millisecond_decides() {
        let of = |micros| runs("6.1", "instructions", 1, &[("jent_mod_init", micros)]);
        assert_eq!(verdict(&of(3000), &of(8000)).verdict, Outcome::Regressed);
        assert_eq!(verdict(&of(3000), &of(3900)).verdict, Outcome::Pass);
    }
}
