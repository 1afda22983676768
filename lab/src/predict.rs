//! How long a machine will take, from its description: [`predict`], and how often that is
//! right: [`check`].
//!
//! | part | formula | fitted to |
//! |---|---|---|
//! | deferred memmap, the largest node | pages x (14.2 / threads + 1.8) ns | the 42 published rows: the work of a thread, and what memory itself allows |
//! | other kernel | 590 ms + 2.0 ms a GiB | what is left of the published boots |
//! | the engine | 21.5 us + 0.37 us a node | `firstlight up --shape`, 64 GiB to 64 TiB |
//!
//! The range of error is that of the published rows: nine of ten lie in it.

use serde::Serialize;

use crate::log::KernelLog;
use crate::published::{Figure, Threads, machines};

/// Name and version of the form of [`Prediction`].
pub const SCHEMA: &str = "firstlight.predict/1";

/// Nanoseconds a page and thread.
const THREAD_NS: f64 = 14.2;
/// Nanoseconds a page, however many threads.
const MEMORY_NS: f64 = 1.8;
/// The kernel without memory.
const KERNEL_MS: f64 = 590.0;
/// What each GiB adds to it.
const KERNEL_MS_PER_GIB: f64 = 2.0;
/// The engine, and what each node adds to it.
const ENGINE_US: (f64, f64) = (21.5, 0.37);
/// A prediction this near counts as right.
const NEAR: f64 = 0.2;
/// Memory below which Linux puts nothing off: a section beyond the low zones.
const LEAST_DEFERRED_GIB: f64 = 4.5;

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// GiB of each node that has memory.
    pub node_gib: Vec<f64>,
    /// CPUs.
    pub cpus: u32,
}

/// What is expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Threads of the deferred part, a node.
    pub threads: u32,
    /// Linux 6.1 and 6.12, by phase, then all of it.
    pub linux: Vec<Expected>,
    /// The engine, until all memory can be allocated.
    pub engine: Expected,
    /// How the same formulas do on the published rows.
    pub published: Check,
}

/// A figure and its range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// The phase.
    pub phase: &'static str,
    /// Its milliseconds.
    pub ms: f64,
    /// Where nine of ten published rows would lie.
    pub range_ms: (f64, f64),
}

/// How predictions and published rows agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Every row, and every figure of it.
    pub rows: Vec<Checked>,
    /// How many are within 20 %.
    pub near: usize,
    /// Measured over predicted, of deferred initialisation: where nine of ten rows lie.
    pub deferred_range: (f64, f64),
    /// The same of the whole boot.
    pub boot_range: (f64, f64),
}

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The machine.
    pub machine: String,
    /// Threads.
    pub threads: u32,
    /// `boot` or `deferred`.
    pub figure: &'static str,
    /// What was measured.
    pub published_ms: f64,
    /// What the formulas say.
    pub predicted_ms: f64,
    /// Whether that is within 20 %.
    pub near: bool,
}

impl Machine {
    /// The machine that a log speaks of; `None` if it shows no memory.
    #[must_use]
    pub fn of_log(log: &KernelLog) -> Option<Self> {
        let rows = log.node_ranges.iter().map(|row| (row.node, row.span));
        let srat = log.srat_memory.iter().filter(|row| !row.hotplug);
        let srat = srat.map(|row| (row.node, row.span));
        let mut rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            rows = srat.collect();
        }
        if rows.is_empty() {
            let (_, map) = log.memory_rows();
            let usable = map
                .iter()
                .filter(|row| row.kind == crate::log::E820Kind::Usable);
            rows = usable.map(|row| (0, row.span)).collect();
        }
        let mut nodes = std::collections::BTreeMap::<u32, u64>::new();
        for (node, span) in rows {
            let bytes = nodes.entry(node).or_default();
            *bytes = bytes.saturating_add(span.range().map_or(0, |range| range.bytes()));
        }
        let node_gib: Vec<f64> = nodes
            .into_values()
            .filter(|bytes| *bytes > 0)
            .map(gib)
            .collect();
        let cpus = log.cpus.brought_up.or(log.cpus.allowed).unwrap_or(1);
        (!node_gib.is_empty()).then_some(Self { node_gib, cpus })
    }

    /// A machine of so many bytes a node.
    #[must_use]
    pub fn new(node_bytes: impl Iterator<Item = u64>, cpus: u32) -> Self {
        Self {
            node_gib: node_bytes.filter(|bytes| *bytes > 0).map(gib).collect(),
            cpus,
        }
    }

    fn gib(&self) -> f64 {
        self.node_gib.iter().sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a size of memory")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Milliseconds of the deferred part of a node.
fn deferred_ms(node_gib: f64, threads: u32) -> f64 {
    let pages = node_gib * 262_144.0;
    pages * (THREAD_NS / f64::from(threads.max(1)) + MEMORY_NS) / 1e6
}

fn kernel_ms(gib: f64) -> f64 {
    KERNEL_MS + KERNEL_MS_PER_GIB * gib
}

/// What `machine` will take; `threads` a node, else all CPUs of a node.
///
/// ```
/// use firstlight_lab::predict::{Machine, predict};
/// let machine = Machine::new([384 << 30, 384 << 30].into_iter(), 104);
/// let prediction = predict(machine, None);
/// assert_eq!(prediction.threads, 52);
/// assert!((100.0..300.0).contains(&prediction.linux[0].ms));
/// ```
#[must_use]
pub fn predict(machine: Machine, threads: Option<u32>) -> Prediction {
    let published = check();
    let nodes = u32::try_from(machine.node_gib.len())
        .unwrap_or(u32::MAX)
        .max(1);
    let threads = threads.unwrap_or((machine.cpus / nodes).max(1));
    let largest = machine.node_gib.iter().copied().fold(0.0, f64::max);
    let deferred = if largest > LEAST_DEFERRED_GIB {
        deferred_ms(largest, threads)
    } else {
        0.0
    };
    let other = kernel_ms(machine.gib());
    let expected = |phase, ms: f64, (low, high): (f64, f64)| Expected {
        phase,
        ms,
        range_ms: (ms * low, ms * high),
    };
    let engine_ms = (ENGINE_US.0 + ENGINE_US.1 * f64::from(nodes)) / 1e3;
    Prediction {
        schema: SCHEMA,
        threads,
        linux: vec![
            expected("deferred memmap", deferred, published.deferred_range),
            expected("other kernel", other, published.boot_range),
            expected("all", deferred + other, published.boot_range),
        ],
        engine: expected("all memory allocatable", engine_ms, (0.8, 1.25)),
        machine,
        published,
    }
}

/// The formulas on every published row.
#[must_use]
pub fn check() -> Check {
    let mut rows = Vec::new();
    for machine in machines() {
        let node_gib = f64::from(machine.gib_per_node);
        let all_gib = node_gib * f64::from(machine.nodes);
        for row in &machine.rows {
            let deferred = deferred_ms(node_gib, row.threads);
            let name = machine.name();
            rows.push(checked(&name, row, "deferred", &row.deferred, deferred));
            rows.push(checked(
                &name,
                row,
                "boot",
                &row.boot,
                deferred + kernel_ms(all_gib),
            ));
        }
    }
    Check {
        near: rows.iter().filter(|row| row.near).count(),
        deferred_range: range(&rows, "deferred"),
        boot_range: range(&rows, "boot"),
        rows,
    }
}

fn checked(
    machine: &str,
    row: &Threads,
    figure: &'static str,
    published: &Figure,
    predicted_ms: f64,
) -> Checked {
    Checked {
        machine: machine.to_owned(),
        threads: row.threads,
        figure,
        published_ms: published.mean_ms,
        predicted_ms,
        near: (predicted_ms - published.mean_ms).abs() <= published.mean_ms * NEAR,
    }
}

/// Between the twentieth from below and from above of a hundred.
fn range(rows: &[Checked], figure: &str) -> (f64, f64) {
    let rows = rows.iter().filter(|row| row.figure == figure);
    let mut ratios: Vec<f64> = rows
        .map(|row| row.published_ms / row.predicted_ms)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len().saturating_sub(1);
    let at = |part: usize| ratios.get(part).copied().unwrap_or(1.0);
    (at(last / 20), at(last - last / 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_published_rows_are_near_and_the_others_are_named() {
        let check = check();
        assert_eq!(check.rows.len(), 84);
        let near = |figure| {
            check
                .rows
                .iter()
                .filter(|row| row.figure == figure && row.near)
                .count()
        };
        assert_eq!((near("deferred"), near("boot")), (28, 42));
        let far = check.rows.iter().filter(|row| !row.near);
        assert!(far.clone().any(|row| row.machine == "haswell-14g"));
        assert_eq!(far.count() + check.near, 84);
        for (range, figure) in [
            (check.deferred_range, "deferred"),
            (check.boot_range, "boot"),
        ] {
            let inside = check
                .rows
                .iter()
                .filter(|row| row.figure == figure)
                .filter(|row| {
                    let ratio = row.published_ms / row.predicted_ms;
                    (range.0..=range.1).contains(&ratio)
                });
            assert!(inside.count() * 10 >= 42 * 9, "{figure}");
        }
    }

    #[test]
    fn the_machine_of_a_log_is_the_one_it_speaks_of() {
        let log = crate::log::read(
            b"  node   0: [mem 0x0000000100000000-0x00000010ffffffff]\n\
              \x20 node   1: [mem 0x0000001100000000-0x00000020ffffffff]\nsmp: Brought up 2 nodes, 8 CPUs\n",
        );
        let machine = Machine::of_log(&log).unwrap();
        assert_eq!(
            (machine.node_gib.as_slice(), machine.cpus),
            (&[64.0, 64.0][..], 8)
        );
        let prediction = predict(machine, None);
        assert_eq!(prediction.threads, 4);
        assert!(prediction.linux[2].ms > prediction.linux[0].ms);
        assert!(prediction.engine.ms < 0.1);
        assert_eq!(Machine::of_log(&crate::log::read(b"nothing")), None);
        // Little memory is written at once.
        let small = predict(Machine::new([1 << 30].into_iter(), 1), None);
        assert_eq!(small.linux[0].ms, 0.0);
    }
}
