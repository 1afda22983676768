//! How a Linux comes up with more and more CPUs: [`Cpus`], in the form in which sweeps over the
//! threads of its deferred initialisation were published.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::log;
use crate::published::{Figure, Machine, cell};
use crate::run::{Run, Setup};

/// Set-ups that differ in their CPUs alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cpus {
    /// The set-ups, without their CPUs.
    pub family: String,
    /// A row a number of CPUs, ascending.
    pub rows: Vec<Row>,
    /// Fewest CPUs whose deferred initialisation needs at most 5 % more than the fastest.
    pub knee_cpus: Option<u64>,
    /// Boots that were made again, as the emulator let their kernel die, and why.
    pub repeated: Vec<String>,
}

/// One number of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// CPUs of the machine.
    pub cpus: u64,
    /// Boots.
    pub runs: usize,
    /// From the kernel's entry to its end, or its first program.
    pub boot: Figure,
    /// Deferred initialisation of the slowest node; `None` where nothing is put off.
    pub deferred: Option<Figure>,
    /// Its share of the boot in hundredths.
    pub share_percent: Option<f64>,
}

/// Those of Linux on the wall clock: on the instruction clock CPUs take turns.
pub(super) fn over_cpus<'r>(groups: impl Iterator<Item = (&'r Setup, &'r [Run])>) -> Vec<Cpus> {
    let mut families: BTreeMap<Setup, Vec<(u64, &[Run])>> = BTreeMap::new();
    for (setup, runs) in groups {
        let counted = setup.machine.clock != "wall" || !runs.iter().all(Run::is_linux);
        if let Some(cpus) = setup.machine.cpus.filter(|_| !counted) {
            let mut family = setup.clone();
            family.machine.cpus = None;
            families.entry(family).or_default().push((cpus, runs));
        }
    }
    let several = families.into_iter().filter(|(_, sizes)| sizes.len() > 1);
    several
        .map(|(family, sizes)| Cpus::of(family.name(), sizes))
        .collect()
}

impl Cpus {
    fn of(family: String, mut sizes: Vec<(u64, &[Run])>) -> Self {
        sizes.sort_by_key(|(cpus, _)| *cpus);
        // Boots without times have no row.
        let mut rows: Vec<Row> = sizes.iter().filter_map(row).collect();
        speedups(&mut rows);
        let repeated = sizes.iter().flat_map(|(cpus, runs)| {
            runs.iter().filter_map(move |run| {
                let (attempts, why) = run.repeated()?;
                Some(format!("{cpus} CPUs, {attempts} attempts: {why}"))
            })
        });
        Self {
            family,
            knee_cpus: knee(&rows),
            rows,
            repeated: repeated.collect(),
        }
    }

    /// The table, and the one of a published machine below it.
    #[must_use]
    pub fn table(&self, beside: Option<&Machine>) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(text, "over CPUs, mean ms (stdev): {}\n", self.family);
        let _ = writeln!(
            text,
            "{:<16} {:>25}  {:>25}  {:>7}",
            "CPUs", "kernel boot", "deferred init", "share"
        );
        for row in &self.rows {
            let deferred = row.deferred.as_ref().map_or(" ".repeat(25), cell);
            let share = row
                .share_percent
                .map_or(String::new(), |share| format!("{share:.1} %"));
            let _ = writeln!(
                text,
                "{:<16} {}  {deferred}  {share:>7}",
                row.cpus,
                cell(&row.boot)
            );
        }
        if let Some(knee) = self.knee_cpus {
            let _ = writeln!(
                text,
                "\nknee: {knee} CPUs, the fewest that need at most 5 % more than the fastest"
            );
        }
        for boot in &self.repeated {
            let _ = writeln!(text, "\nrepeated: {boot}");
        }
        if let Some(machine) = beside {
            let _ = writeln!(
                text,
                "\npublished, {}: {}, {} nodes of {} GiB, {}\n",
                machine.name(),
                machine.cpu,
                machine.nodes,
                machine.gib_per_node,
                machine.platform
            );
            for row in &machine.rows {
                let share = row.deferred.mean_ms / row.boot.mean_ms * 100.0;
                let threads = row.share();
                let _ = writeln!(
                    text,
                    "{threads:<16} {}  {}  {share:>5.1} %",
                    cell(&row.boot),
                    cell(&row.deferred)
                );
            }
        }
        text
    }
}

fn row((cpus, runs): &(u64, &[Run])) -> Option<Row> {
    let boots: Vec<f64> = runs.iter().filter_map(Run::kernel_ms).collect();
    let deferred: Vec<f64> = runs.iter().filter_map(deferred_ms).collect();
    let boot = figure(&boots)?;
    let deferred = figure(&deferred);
    Some(Row {
        cpus: *cpus,
        runs: boots.len(),
        boot,
        deferred,
        share_percent: deferred.map(|deferred| deferred.mean_ms / boot.mean_ms * 100.0),
    })
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn deferred_ms(run: &Run) -> Option<f64> {
    let rows = log::read(run.log.join("\n").as_bytes()).deferred;
    let ms = rows.iter().map(|row| row.milliseconds).max()?;
    Some(ms as f64)
}

fn figure(ms: &[f64]) -> Option<Figure> {
    let count = ms.iter().map(|_| 1.0).sum::<f64>();
    if count < 1.0 {
        return None;
    }
    let mean_ms = ms.iter().sum::<f64>() / count;
    let squares: f64 = ms.iter().map(|ms| (ms - mean_ms).powi(2)).sum();
    Some(Figure {
        speedup_percent: None,
        mean_ms,
        stdev_ms: if count > 1.0 {
            (squares / (count - 1.0)).sqrt()
        } else {
            0.0
        },
    })
}

/// Over the first row.
fn speedups(rows: &mut [Row]) {
    let Some((first, others)) = rows.split_first_mut() else {
        return;
    };
    let of = |first: f64, figure: &mut Figure| {
        figure.speedup_percent = (first > 0.0).then(|| (first - figure.mean_ms) / first * 100.0);
    };
    for row in others {
        of(first.boot.mean_ms, &mut row.boot);
        if let (Some(first), Some(deferred)) = (&first.deferred, &mut row.deferred) {
            of(first.mean_ms, deferred);
        }
    }
}

fn knee(rows: &[Row]) -> Option<u64> {
    let times = rows
        .iter()
        .filter_map(|row| Some((row.cpus, row.deferred?.mean_ms)));
    let fastest = times.clone().map(|(_, ms)| ms).min_by(f64::total_cmp)?;
    let near = times.filter(|(_, ms)| *ms <= fastest * 1.05);
    near.map(|(cpus, _)| cpus).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::machine;
    use serde_json::json;

    fn boot(cpus: u64, boot_ms: u64, deferred_ms: Option<u64>) -> Run {
        let line = |ms| format!("[    1.000000] node 0 deferred pages initialised in {ms}ms");
        let log: Vec<String> = deferred_ms.map(line).into_iter().collect();
        Run::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall", "log": log,
            "source": {"kind": "linux"}, "time_base": {"from": "clock"}, "milestones": {},
            "machine": {"asked": {"board": "q35", "memory_bytes": 16_u64 << 30, "nodes": 1, "cpus": cpus}},
            "phases": [{"name": "drivers", "start_ns": 0, "end_ns": boot_ms * 1_000_000}],
            "host": {"accelerator": "kvm", "attempts": cpus, "retried_because": "int3"},
        }))
        .unwrap()
    }

    fn over(runs: &[Run]) -> Vec<Cpus> {
        let keys = Setup::all(runs.iter());
        over_cpus(keys.iter().zip(runs.chunks(1)))
    }

    #[test]
    fn rows_are_as_published_ones() {
        let boots = [
            vec![boot(1, 1000, Some(400)), boot(1, 1010, Some(410))],
            vec![boot(4, 790, Some(205))],
            vec![boot(2, 800, Some(210))],
        ];
        let keys = boots
            .each_ref()
            .map(|boots| Setup::all(boots.iter())[0].clone());
        let all = over_cpus(keys.iter().zip(boots.iter().map(Vec::as_slice)));
        let cpus = &all[0];
        let row = &cpus.rows[0];
        assert_eq!(
            (row.boot.mean_ms, row.runs, row.boot.speedup_percent),
            (1005.0, 2, None)
        );
        assert!((row.boot.stdev_ms - 7.0710).abs() < 1e-3);
        assert!((row.share_percent.unwrap() - 40.298).abs() < 1e-2);
        let deferred = cpus.rows[1].deferred.unwrap();
        assert!((deferred.speedup_percent.unwrap() - 48.148).abs() < 1e-2);
        assert_eq!((all.len(), cpus.knee_cpus), (1, Some(2)));
        let table = cpus.table(Some(&machine("skylake").unwrap()));
        for part in [
            "16 GiB, Linux, 1 node",
            "48.1 %      210.0 (0.0)",
            "12 % (6)",
            "knee: 2 CPUs",
            "repeated: 2 CPUs, 2 attempts: int3",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        assert!(!table.contains("1 attempts"), "{table}");
    }

    #[test]
    fn one_number_of_cpus_is_no_table_and_nothing_put_off_is_no_figure() {
        assert_eq!(over(&[boot(1, 500, None)]), []);
        let cpus = &over(&[boot(1, 500, None), boot(2, 400, None)])[0];
        assert_eq!((cpus.rows[0].deferred, cpus.knee_cpus), (None, None));
    }
}
