//! How long a machine will take, from its description: [`predict`], and how often that is
//! right: [`check`].
//!
//! | part | formula | fitted to |
//! |---|---|---|
//! | deferred memmap, the largest node | pages x (14.2 / threads + 1.8) ns | the 42 published rows: the work of a thread, and what memory itself allows |
//! | other kernel | 590 ms + 2.0 ms a GiB | what is left of the published boots |
//! | memory blocks | blocks x 31 us; before Linux 5.8 14 s x (blocks / 16,288)² | the published machine of 2 TiB: 0.5 s by lookup, 14 s while each was found by a search |
//! | the engine | 21.5 us + 0.37 us a node | `firstlight up --shape`, 64 GiB to 64 TiB |
//!
//! The range of error is that of the published rows: nine of ten lie in it. Where a machine is larger
//! than those the rows are of it is as many times wider, to both sides; that of memory blocks, which were measured
//! on one machine, is from half to twice. [`Expected::measured_ms`] is what a log itself says.

mod machine;

pub use machine::{Machine, searches};
use serde::Serialize;

use crate::boot_log;
use crate::log;
use crate::published::{Figure, Threads, machines};
use machine::{BLOCKS, deferred_ms, kernel_ms};

/// Name and version of the form of [`Prediction`].
pub const SCHEMA: &str = "firstlight.predict/1";

/// The engine, and what each node adds to it.
const ENGINE_US: (f64, f64) = (21.5, 0.37);
/// A prediction this near counts as right.
const NEAR: f64 = 0.2;
/// The range of what was measured on one machine.
const ONE_MACHINE: (f64, f64) = (0.5, 2.0);
/// Memory below which Linux puts nothing off: a section beyond the low zones.
const LEAST_DEFERRED_GIB: f64 = 4.5;

/// What is expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prediction {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Threads of the deferred part, a node.
    pub threads: u32,
    /// Linux, by phase, then all of it.
    pub linux: Vec<Expected>,
    /// The engine, until all memory can be allocated.
    pub engine: Expected,
    /// How the same formulas do on the published rows.
    pub published: Check,
}

/// A figure and its range.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expected {
    /// The phase.
    pub phase: &'static str,
    /// Its milliseconds.
    pub ms: f64,
    /// Where nine of ten published rows would lie.
    pub range_ms: (f64, f64),
    /// How many times larger the machine is than those it is fitted to, where it is: the range is
    /// wider by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond: Option<f64>,
    /// What the log itself says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_ms: Option<f64>,
}

impl Expected {
    fn new(phase: &'static str, ms: f64, (low, high): (f64, f64), beyond: f64) -> Self {
        let wider = beyond.max(1.0);
        Self {
            phase,
            ms,
            range_ms: (ms * low / wider, ms * high * wider),
            beyond: (beyond > 1.0).then_some(beyond),
            measured_ms: None,
        }
    }
}

/// How predictions and published rows agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Every row, and every figure of it.
    pub rows: Vec<Checked>,
    /// How many are within 20 %.
    pub near: usize,
    /// Measured over predicted, of deferred initialisation: where nine of ten rows lie.
    pub deferred_range: (f64, f64),
    /// Measured over predicted, of the whole boot: where nine of ten rows lie.
    pub boot_range: (f64, f64),
    /// Published boots that nothing was fitted to.
    pub outside: Vec<Outside>,
}

/// A published boot that nothing was fitted to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outside {
    /// The machine.
    pub machine: &'static str,
    /// What was measured.
    pub published_ms: f64,
    /// What the formulas say.
    pub predicted_ms: f64,
    /// The range they give.
    pub range_ms: (f64, f64),
    /// Whether what was measured is in it.
    pub inside: bool,
    /// What to know of it.
    pub note: &'static str,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    let mut published = check();
    published.outside = outside(&published);
    expected(machine, threads, published)
}

/// Published boots of machines that nothing was fitted to.
fn outside(published: &Check) -> Vec<Outside> {
    const GIB: u64 = 1 << 30;
    let blocks = |machine: Machine, searches_blocks: bool| Machine {
        block_mib: 128,
        searches_blocks,
        ..machine
    };
    // Neither source tells nodes; two TiB have eight as a rule, of no CPUs that are known.
    let many = blocks(Machine::new([256 * GIB; 8].into_iter(), 8), true);
    let guest = blocks(Machine::new([1024 * GIB].into_iter(), 84), true);
    let row = |machine, of: Machine, published_ms, note| {
        let all = expected(of, None, published.clone()).linux.pop();
        let (predicted_ms, range_ms) = all.map_or((0.0, (0.0, 0.0)), |all| (all.ms, all.range_ms));
        Outside {
            machine,
            published_ms,
            predicted_ms,
            range_ms,
            inside: (range_ms.0..=range_ms.1).contains(&published_ms),
            note,
        }
    };
    vec![
        row(
            "2 TiB, 16,288 blocks of 128 MiB, before 5.8",
            many,
            21_000.0,
            "14 of the 21 s are those that memory blocks are fitted to",
        ),
        row(
            "a guest of 1 TiB with 84 CPUs, 5.7, blocks of 128 MiB at the worst",
            guest,
            18_170.0,
            "these formulas can't give it: its source has the boot of the guest, not what of it is the kernel's",
        ),
    ]
}

fn expected(machine: Machine, threads: Option<u32>, published: Check) -> Prediction {
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
    let (fitted_node, fitted_all) = fitted_gib();
    let (of_node, of_all) = (largest / fitted_node, machine.gib() / fitted_all);
    let parts = [
        Expected::new(
            "deferred memmap",
            deferred,
            published.deferred_range,
            of_node,
        ),
        Expected::new("other kernel", other, published.boot_range, of_all),
        Expected::new(
            "memory blocks",
            machine.blocks_ms(),
            ONE_MACHINE,
            machine.blocks() / BLOCKS,
        ),
    ];
    let fitted = Expected::new("all", deferred + other, published.boot_range, of_all);
    let blocks = parts[2].clone();
    let all = Expected {
        ms: fitted.ms + blocks.ms,
        range_ms: (
            fitted.range_ms.0 + blocks.range_ms.0,
            fitted.range_ms.1 + blocks.range_ms.1,
        ),
        ..fitted
    };
    let engine_ms = (ENGINE_US.0 + ENGINE_US.1 * f64::from(nodes)) / 1e3;
    Prediction {
        schema: SCHEMA,
        threads,
        linux: parts.into_iter().chain([all]).collect(),
        engine: Expected::new("all memory allocatable", engine_ms, (0.8, 1.25), 0.0),
        machine,
        published,
    }
}

/// The largest node, and the largest machine, of the published rows, in GiB.
fn fitted_gib() -> (f64, f64) {
    let sizes = machines().into_iter().map(|machine| {
        let node = f64::from(machine.gib_per_node);
        (node, node * f64::from(machine.nodes))
    });
    sizes.fold((0.0, 0.0), |most, size| {
        (most.0.max(size.0), most.1.max(size.1))
    })
}

impl Prediction {
    /// Puts what the first boot of a log says beside what was expected.
    pub fn put_beside(&mut self, content: &[u8]) {
        let deferred = log::read(content).deferred;
        let slowest = deferred.iter().map(|row| row.milliseconds).max();
        let Some(record) = boot_log::records("", content).into_iter().next() else {
            return;
        };
        let spans = record.phases.iter();
        let start = spans.clone().map(|phase| phase.start_ns).min();
        // What comes after the kernel is not its.
        let kernels = ["services", "initrd", "shutdown"];
        let ends = spans
            .clone()
            .filter(|phase| !kernels.contains(&&*phase.name))
            .map(|phase| phase.end_ns);
        let all = start
            .zip(ends.max())
            .map(|(start, end)| ms(end.saturating_sub(start)));
        let phase = |name: &str| {
            let mut alike = spans.clone().filter(|phase| phase.name == name).peekable();
            alike.peek()?;
            let ns = alike.map(|phase| phase.end_ns.saturating_sub(phase.start_ns));
            Some(ms(ns.fold(0, u64::saturating_add)))
        };
        let deferred = slowest.map(|slowest| ms(slowest.saturating_mul(1_000_000)));
        let blocks = phase("memory blocks");
        for row in &mut self.linux {
            row.measured_ms = match row.phase {
                "deferred memmap" => deferred,
                "memory blocks" => blocks,
                "all" => all,
                _ => {
                    all.map(|all| (all - deferred.unwrap_or(0.0) - blocks.unwrap_or(0.0)).max(0.0))
                }
            };
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
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
        outside: Vec::new(),
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
        let log = b"  node   0: [mem 0x0000000100000000-0x00000010ffffffff]\n\
              \x20 node   1: [mem 0x0000001100000000-0x00000020ffffffff]\nsmp: Brought up 2 nodes, 8 CPUs\n";
        let machine = Machine::of_log(log).unwrap();
        assert_eq!(
            (machine.node_gib.as_slice(), machine.cpus),
            (&[64.0, 64.0][..], 8)
        );
        let prediction = predict(machine, None);
        assert_eq!(prediction.threads, 4);
        assert!(prediction.linux[3].ms > prediction.linux[0].ms);
        assert!(prediction.engine.ms < 0.1);
        assert_eq!(Machine::of_log(b"nothing"), None);
        // Little memory is written at once.
        let small = predict(Machine::new([1 << 30].into_iter(), 1), None);
        assert_eq!(small.linux[0].ms, 0.0);
    }

    #[test]
    fn what_nothing_was_fitted_to_is_in_the_range_or_said_to_be_beyond() {
        let check = predict(Machine::new([1 << 40].into_iter(), 8), None).published;
        let [blocks, guest] = check.outside.as_slice() else {
            panic!("{:?}", check.outside);
        };
        assert!(
            blocks.inside && blocks.published_ms == 21_000.0,
            "{blocks:?}"
        );
        // Not by a range that holds anything.
        assert!(blocks.range_ms.1 < 3.0 * blocks.published_ms, "{blocks:?}");
        assert!((14_000.0..25_000.0).contains(&blocks.predicted_ms));
        assert!(
            !guest.inside && guest.note.contains("can't give it"),
            "{guest:?}"
        );
    }

    #[test]
    fn many_blocks_cost_and_machines_beyond_what_was_fitted_have_a_wider_range() {
        let ms = |machine: &Machine, row: usize| predict(machine.clone(), None).linux[row].clone();
        let mut machine = Machine::new([512 << 30].into_iter(), 8);
        assert_eq!(machine.block_mib, 2048);
        assert!(ms(&machine, 2).ms < 10.0);
        machine.block_mib = 128;
        let looked_up = ms(&machine, 2).ms;
        machine.searches_blocks = true;
        assert!(looked_up > 100.0 && ms(&machine, 2).ms > 5.0 * looked_up);
        let width = |gib: u64| {
            let all = ms(&Machine::new([gib << 30; 2].into_iter(), 8), 1);
            (all.range_ms.1 / all.range_ms.0, all.beyond)
        };
        let (fitted, beyond) = width(384);
        assert_eq!(beyond, None);
        let (wider, beyond) = width(4 * 384);
        assert!((wider / fitted - 16.0).abs() < 1e-6 && beyond == Some(4.0));
        let small = b"[    0.000000] Linux version 5.4.0\n\
            [    0.000000]   node   0: [mem 0x0000000000000000-0x00000000ffffffff]\n\
            [    0.100000] x86/mm: Memory block size: 512MB\n";
        let machine = Machine::of_log(small).unwrap();
        assert_eq!((machine.block_mib, machine.searches_blocks), (512, true));
    }
}
