//! The results: [`Record`], schema `firstlight.bench-alloc/1`.
//!
//! An operation is a block allocated and a block freed; of `random-free` a block
//! freed. Nanoseconds are CPU time of all threads, divided by their operations.

use super::cell::{Cell, Round};
use firstlight_figures::spread;
use serde::Serialize;

/// Name and version of the record's form.
pub const SCHEMA: &str = "firstlight.bench-alloc/1";

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The clock of the times: each thread's CPU time.
    pub clock: &'static str,
    /// CPUs of this host that the process may use.
    pub cpus: usize,
    /// Memory of the synthetic machine.
    pub memory_bytes: u64,
    /// Frames of it that are free at the start.
    pub frames: u64,
    /// Most that a cell may take.
    pub cell_ms: u64,
    /// Most that the whole run should take.
    pub run_ms: u64,
    /// One for each contestant, workload, order, number of threads and, near full, fullness.
    pub rows: Vec<Row>,
    /// Cells that a contestant has no row for.
    pub absent: Vec<Absent>,
    /// Huge and giant frames left by long-lived blocks.
    pub fragmentation: Vec<Fragmentation>,
    /// Single requests at their worst.
    pub answers: Option<Answers>,
    /// Remarks on contestants.
    pub notes: Vec<Note>,
}

/// Several figures of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Half of them are not above.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// `None` without figures.
    ///
    /// ```
    /// use firstlight_bench::alloc::Spread;
    /// let spread = Spread::of([4.0, 1.0, 2.0].into_iter()).unwrap();
    /// assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 4.0));
    /// assert_eq!(Spread::of(std::iter::empty()), None);
    /// ```
    #[must_use]
    pub fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let spread = spread::Spread::of(figures)?;
        Some(Self {
            median: hundredths(spread.median),
            min: hundredths(spread.min),
            max: hundredths(spread.max),
        })
    }
}

/// The resolution of the clocks.
fn hundredths(ns: f64) -> f64 {
    (ns * 100.0).round() / 100.0
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// `firstlight`, `lifo`, `spin-lifo`, or the name of a crate.
    pub contestant: &'static str,
    /// Its name.
    pub workload: &'static str,
    /// Order of the blocks; of `mixed` the largest.
    pub order: u8,
    /// Threads at the same time.
    pub threads: usize,
    /// How full memory was, in percent; of `near-full` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_percent: Option<f64>,
    /// An operation.
    pub ns_per_op: Spread,
    /// Of `bulk`: a block allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_ns: Option<Spread>,
    /// Of `bulk`: a block freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ns: Option<Spread>,
    /// Of `bulk`: an operation over tables that were untouched before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold_ns_per_op: Option<Spread>,
    /// Of `cross-cpu`: the same through the ring alone, without an allocator. It is not
    /// subtracted: threads without other work contend for the ring more often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_ns_per_op: Option<f64>,
    /// Rounds behind the figures.
    pub rounds: usize,
    /// The time was up before all was done: the figures are of the finished part.
    pub cut_short: bool,
    /// Time of the cell, its preparation included.
    pub cell_ms: u64,
    /// Requests that were refused for want of memory.
    pub refused: u64,
    /// Memory that the contestant had written to, at most.
    pub metadata_bytes_per_frame: f64,
}

impl Row {
    /// The row of a cell; `None` if nothing was measured.
    pub(super) fn of(cell: &Cell, frames: u64, ring_ns_per_op: Option<f64>) -> Option<Self> {
        let task = cell.task;
        let rounds = if cell.rounds.is_empty() {
            &cell.cold
        } else {
            &cell.rounds
        };
        let spread =
            |figure: fn(&Round) -> Option<f64>| Spread::of(rounds.iter().filter_map(figure));
        #[expect(clippy::cast_precision_loss, reason = "a ratio to print")]
        let metadata = cell.touched_bytes as f64 / frames.max(1) as f64;
        Some(Self {
            contestant: cell.contestant.name(),
            workload: task.workload.name(),
            order: task.order.get(),
            threads: task.threads,
            full_percent: task.full_percent(),
            ns_per_op: spread(|round| Some(round.ns))?,
            allocate_ns: spread(|round| round.halves.map(|halves| halves.0)),
            free_ns: spread(|round| round.halves.map(|halves| halves.1)),
            cold_ns_per_op: Spread::of(cell.cold.iter().map(|round| round.ns)),
            ring_ns_per_op,
            rounds: rounds.len(),
            cut_short: cell.is_cut_short(),
            cell_ms: cell.spent_ns / 1_000_000,
            refused: cell.refused,
            metadata_bytes_per_frame: (metadata * 1e4).round() / 1e4,
        })
    }
}

/// A cell without a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Absent {
    /// The contestant.
    pub contestant: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// Its order.
    pub order: u8,
    /// Its threads.
    pub threads: usize,
    /// How full memory would have been, in percent; of `near-full` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_percent: Option<f64>,
    /// Why there is none.
    pub reason: &'static str,
}

/// Large free blocks left by long-lived ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fragmentation {
    /// `firstlight`, or the name of a crate.
    pub contestant: &'static str,
    /// Frames still held at the end, none of them movable.
    pub long_lived_frames: u64,
    /// Huge frames (order 9) that can still be allocated.
    pub huge_frames: u64,
    /// The most that an allocator leaves that does not know which blocks stay: what there was at start, less what
    /// unmovable blocks filled when they were most.
    pub huge_at_best: u64,
    /// Giant frames (order 18) that can still be allocated.
    pub giant_frames: u64,
    /// What these make, at most what there was at start.
    pub giant_at_best: u64,
    /// The time was up before all blocks had come and gone.
    pub cut_short: bool,
}

/// Single requests of firstlight at their worst, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answers {
    /// Size of a machine, every other page of which is held: requests must fail.
    pub checkerboard_bytes: u64,
    /// Of orders 1 to 8.
    pub checkerboard: Vec<Refusal>,
    /// Size of a machine, all pages of which are held.
    pub full_bytes: u64,
    /// Of orders 0, 9 and 18.
    pub full: Vec<Refusal>,
    /// Blocks freed and allocated while memory is 1, 99 and 99.9 percent full.
    pub fullness: Option<Fullness>,
    /// Requests that must fail while 1, 8 and 32 threads allocate and free; fewer rows if
    /// the time was up.
    pub under_churn: Vec<UnderChurn>,
}

/// Requests that must fail while other threads allocate and free small blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnderChurn {
    /// Order of the requests.
    pub order: u8,
    /// Threads that allocate and free.
    pub churn_threads: usize,
    /// Order of their blocks, the only free ones.
    pub churn_order: u8,
    /// The longest request, in CPU time of its thread.
    pub max_ns: u64,
    /// The longest request by the wall clock: with more threads than CPUs, its thread
    /// waits for its turn, too.
    pub max_wall_ns: u64,
    /// Requests in the cell's time.
    pub requests: u64,
    /// Whether all were refused.
    pub refused: bool,
    /// The last request returned only when the other threads had stopped, after twice
    /// the cell's time: it may not return at all while they run.
    pub cut_short: bool,
}

/// A request that must fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// Its order.
    pub order: u8,
    /// The first one.
    pub first_ns: f64,
    /// The mean of many more.
    pub repeated_ns: f64,
    /// The first one, divided by the size of the machine.
    pub first_ns_per_tib: f64,
    /// Whether all were refused.
    pub refused: bool,
}

/// An operation of `near-full`, the least of all rounds, with memory so full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fullness {
    /// 1 percent.
    pub empty_ns: f64,
    /// 99 percent.
    pub full_99_ns: f64,
    /// 99.9 percent.
    pub full_99_9_ns: f64,
}

/// A remark on a contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Note {
    /// The contestant.
    pub contestant: &'static str,
    /// In words.
    pub text: &'static str,
}
