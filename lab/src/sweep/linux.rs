//! A sweep over CPUs with a Linux: [`Record`] (schema `firstlight.sweep-linux/1`), in the form
//! in which the sweeps over threads of its deferred initialisation were published.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::log;
use crate::published::{Figure, Machine, cell};
use crate::record;

/// The name of the form of [`Record`].
pub const SCHEMA: &str = "firstlight.sweep-linux/1";

/// A sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the kernel calls itself.
    pub release: Option<String>,
    /// Memory of the guests.
    pub memory_bytes: u64,
    /// Their nodes.
    pub nodes: u64,
    /// What ran them.
    pub accelerator: String,
    /// A row a number of CPUs.
    pub rows: Vec<Row>,
    /// Fewest CPUs whose deferred initialisation needs at most 5 % more than the fastest.
    pub knee_threads: Option<u64>,
    /// A published machine to stand beside.
    pub beside: Option<Machine>,
    /// Boots that were made again, as the emulator let their kernel die, and why.
    #[serde(default)]
    pub repeated: Vec<String>,
    /// Boots that failed, and why: they are in no row.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// One number of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// CPUs of the guest.
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

/// Why there is no sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTime;

impl std::fmt::Display for NoTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no line of a boot's log has a time; expected printk.time=1")
    }
}

impl std::error::Error for NoTime {}

impl Record {
    /// A sweep of `boots`, some for each number of CPUs, beside a published machine. Boots in
    /// `failed` are in no row.
    ///
    /// # Errors
    /// [`NoTime`].
    pub fn of(
        boots: &[Vec<record::Record>],
        failed: Vec<String>,
        beside: Option<Machine>,
    ) -> Result<Self, NoTime> {
        let mut rows = Vec::new();
        // A number of CPUs of which no boot went well has no row.
        for boots in boots.iter().filter(|boots| !boots.is_empty()) {
            rows.push(row(boots).ok_or(NoTime)?);
        }
        let first = boots.iter().flatten().next().ok_or(NoTime)?;
        speedups(&mut rows);
        let asked = first.machine.asked.as_ref();
        let host = first.host.as_ref();
        let kernel = first.source.kernel.as_ref();
        Ok(Self {
            schema: SCHEMA.into(),
            release: kernel.and_then(|kernel| kernel.release.clone()),
            memory_bytes: asked.map_or(0, |asked| asked.memory_bytes),
            nodes: asked.map_or(0, |asked| asked.nodes),
            accelerator: host.map_or(String::new(), |host| host.accelerator.to_string()),
            knee_threads: knee(&rows),
            rows,
            beside,
            repeated: boots.iter().flatten().filter_map(repeated).collect(),
            failed,
        })
    }

    /// The table, and the published one below it.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let release = self.release.as_deref().unwrap_or("of no known version");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "Linux {release}, {} GiB, {} nodes, {}: mean ms (stdev)\n",
            self.memory_bytes >> 30,
            self.nodes,
            self.accelerator
        );
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
        if let Some(knee) = self.knee_threads {
            let _ = writeln!(
                text,
                "\nknee: {knee} CPUs, the fewest that need at most 5 % more than the fastest"
            );
        }
        for (what, boots) in [("repeated", &self.repeated), ("failed", &self.failed)] {
            for boot in boots {
                let _ = writeln!(text, "\n{what}: {boot}");
            }
        }
        if self.accelerator == "tcg" {
            text.push_str("\nemulated: ratios mean something, times do not\n");
        }
        if let Some(machine) = &self.beside {
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
                let threads = format!("{} % ({})", row.percent_of_cpus, row.threads);
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

/// What is said of a boot that took more than one attempt.
fn repeated(boot: &record::Record) -> Option<String> {
    let host = boot.host.as_ref().filter(|host| host.attempts > 1)?;
    let cpus = boot.machine.asked.as_ref().map_or(0, |asked| asked.cpus);
    let why = host.retried_because.as_deref().unwrap_or_default();
    Some(format!("{cpus} CPUs, {} attempts: {why}", host.attempts))
}

fn row(boots: &[record::Record]) -> Option<Row> {
    let ends: Option<Vec<f64>> = boots.iter().map(boot_ms).collect();
    let deferred: Vec<f64> = boots.iter().filter_map(deferred_ms).collect();
    let boot = figure(&ends?)?;
    let deferred = figure(&deferred);
    Some(Row {
        cpus: boots.first()?.machine.asked.as_ref()?.cpus,
        runs: boots.len(),
        boot,
        deferred,
        share_percent: deferred.map(|deferred| deferred.mean_ms / boot.mean_ms * 100.0),
    })
}

/// To the end of the kernel's part.
#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn boot_ms(boot: &record::Record) -> Option<f64> {
    let phases = boot.phases.iter();
    let own = phases.filter(|phase| !["initrd", "services", "shutdown"].contains(&&*phase.name));
    let end_ns = own.map(|phase| phase.end_ns).max()?;
    let ns = end_ns.checked_sub(boot.milestones.entry_ns.unwrap_or(0))?;
    Some(ns as f64 / 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn deferred_ms(boot: &record::Record) -> Option<f64> {
    let rows = log::read(boot.log.join("\n").as_bytes()).deferred;
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
    let times = || {
        rows.iter()
            .filter_map(|row| Some((row.cpus, row.deferred?.mean_ms)))
    };
    let fastest = times().map(|(_, ms)| ms).min_by(f64::total_cmp)?;
    times()
        .filter(|(_, ms)| *ms <= fastest * 1.05)
        .map(|(cpus, _)| cpus)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::machine;
    use crate::record::{Asked, Phase};

    fn boot(cpus: u64, boot_ms: u64, deferred_ms: u64) -> record::Record {
        let mut boot = record::Record::new("boot", "wall");
        boot.machine.asked = Some(Asked {
            board: "q35".into(),
            memory_bytes: 16 << 30,
            nodes: 1,
            cpus,
            firmware: "loader".into(),
            balloon: false,
            hotplug: None,
        });
        boot.phases.push(Phase {
            name: "drivers".into(),
            start_ns: 0,
            end_ns: boot_ms * 1_000_000,
        });
        boot.log = vec![format!(
            "[    1.000000] node 0 deferred pages initialised in {deferred_ms}ms"
        )];
        boot
    }

    #[test]
    fn rows_are_as_published_ones() {
        let boots = [
            vec![boot(1, 1000, 400), boot(1, 1010, 410)],
            vec![boot(2, 800, 210)],
            vec![boot(4, 790, 205)],
        ];
        let record = Record::of(&boots, Vec::new(), Some(machine("skylake").unwrap())).unwrap();
        let row = &record.rows[0];
        assert_eq!(
            (row.boot.mean_ms, row.runs, row.boot.speedup_percent),
            (1005.0, 2, None)
        );
        assert!((row.boot.stdev_ms - 7.0710).abs() < 1e-3);
        assert!((row.share_percent.unwrap() - 40.298).abs() < 1e-2);
        let deferred = record.rows[1].deferred.unwrap();
        assert!((deferred.speedup_percent.unwrap() - 48.148).abs() < 1e-2);
        assert_eq!(record.knee_threads, Some(2));
        let table = record.table();
        assert!(
            table.contains("48.1 %      210.0 (0.0)") && table.contains("12 % (6)"),
            "{table}"
        );
        assert!(table.contains("knee: 2 CPUs"), "{table}");
    }

    #[test]
    fn nothing_put_off_is_no_row_of_it() {
        let mut small = boot(1, 500, 0);
        small.log.clear();
        let record = Record::of(&[vec![small]], Vec::new(), None).unwrap();
        assert_eq!((record.rows[0].deferred, record.knee_threads), (None, None));
        let nothing = record::Record::new("boot", "wall");
        assert_eq!(Record::of(&[vec![nothing]], Vec::new(), None), Err(NoTime));
    }
}
