//! What came of it: schema `firstlight.bench-pool/1`, and a table for people.

use super::guest::Timed;
use crate::output::{GOOD, HEADING};
use crate::text::{self, bytes};
use firstlight_figures::spread;
use firstlight_pool::protocol::PageSize;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Where the memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Variant {
    /// 64 MiB of the kernel's, whatever the size beside it.
    Floor,
    /// The kernel zeroes it while QEMU waits, for one thread.
    Prealloc,
    /// For as many threads of QEMU as there are CPUs.
    PreallocThreads,
    /// For a thread on each CPU, before QEMU is started.
    Prefault,
    /// The pool.
    Pool,
    /// The floor while a slab that came back is filled.
    FloorFilling,
    /// The pool meanwhile.
    PoolFilling,
}

impl Variant {
    const ALL: [Self; 7] = [
        Self::Floor,
        Self::Prealloc,
        Self::PreallocThreads,
        Self::Prefault,
        Self::Pool,
        Self::FloorFilling,
        Self::PoolFilling,
    ];
}

/// One start.
#[derive(Debug)]
pub(super) struct Run {
    variant: Variant,
    timed: Timed,
    take: Option<Duration>,
}

impl Run {
    pub(super) fn new(variant: Variant, timed: Timed, take: Option<Duration>) -> Self {
        Self {
            variant,
            timed,
            take,
        }
    }
}

/// Several times of the same.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// In milliseconds; `None` of none.
    fn of(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let ms = spread::Spread::of(times.map(|time| time.as_secs_f64() * 1e3))?;
        Some(Self {
            median: micro(ms.median),
            min: micro(ms.min),
            max: micro(ms.max),
        })
    }
}

/// Milliseconds to the microsecond: the clock knows no more of a process.
fn micro(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

/// All starts of one size and variant.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Row {
    size_bytes: u64,
    variant: Variant,
    /// From the start of QEMU, for the pool from asking for the memory.
    spawn_to_qmp_ms: Spread,
    /// To the guest's first instruction.
    spawn_to_guest_ms: Spread,
    /// The part of it that asking the pool took.
    take_ms: Option<Spread>,
    runs: usize,
}

impl Row {
    /// The row of `variant`; `None` if it never ran.
    pub(super) fn of(size_bytes: u64, variant: Variant, runs: &[Run]) -> Option<Self> {
        let mine = || runs.iter().filter(|run| run.variant == variant);
        Some(Self {
            size_bytes,
            variant,
            spawn_to_qmp_ms: Spread::of(mine().map(|run| run.timed.to_qmp))?,
            spawn_to_guest_ms: Spread::of(mine().map(|run| run.timed.to_guest))?,
            take_ms: Spread::of(mine().filter_map(|run| run.take)),
            runs: mine().count(),
        })
    }
}

impl Row {
    /// Of the medians to QMP's greeting.
    fn times_faster_than(&self, other: &Self) -> f64 {
        other.spawn_to_qmp_ms.median / self.spawn_to_qmp_ms.median
    }
}

/// Several guests started at once: until the last greets.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct AtOnce {
    guests: u32,
    /// Of each guest.
    size_bytes: u64,
    prealloc_ms: Spread,
    pool_ms: Spread,
    runs: usize,
}

impl AtOnce {
    /// Of pairs of fresh and pool; `None` of none.
    pub(super) fn of(guests: u32, size_bytes: u64, times: &[(Duration, Duration)]) -> Option<Self> {
        Some(Self {
            guests,
            size_bytes,
            prealloc_ms: Spread::of(times.iter().map(|(fresh, _)| *fresh))?,
            pool_ms: Spread::of(times.iter().map(|(_, pool)| *pool))?,
            runs: times.len(),
        })
    }
}

/// Asking the pool and having the memory in hand, as the client sees it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct TakeRoundTrip {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    takes: usize,
}

impl TakeRoundTrip {
    /// `None` of none.
    pub(super) fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort();
        let takes = times.len();
        // The smallest time that so many in a hundred do not exceed.
        let at = |percent: usize| {
            let rank = (takes * percent).div_ceil(100).max(1);
            Some(micro(times.get(rank - 1)?.as_secs_f64() * 1e6))
        };
        Some(Self {
            p50_us: at(50)?,
            p99_us: at(99)?,
            max_us: at(100)?,
            takes,
        })
    }
}

/// Processor time for filling a slab.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct FillCost {
    size_bytes: u64,
    /// Of a thread that asks the kernel for all of it.
    kernel_ms: Spread,
    /// Of the daemon's worker.
    worker_ms: Spread,
    /// Of the smallest of each.
    ratio: f64,
    runs: usize,
}

impl FillCost {
    /// Of pairs of the kernel's and the worker's; `None` of none.
    pub(super) fn of(size_bytes: u64, times: &[(Duration, Duration)]) -> Option<Self> {
        let kernel_ms = Spread::of(times.iter().map(|(kernel, _)| *kernel))?;
        let worker_ms = Spread::of(times.iter().map(|(_, worker)| *worker))?;
        Some(Self {
            size_bytes,
            kernel_ms,
            worker_ms,
            ratio: micro(worker_ms.min / kernel_ms.min),
            runs: times.len(),
        })
    }
}

/// A loop on one CPU while the worker fills on another.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Neighbour {
    /// What bounds it.
    bound_by: &'static str,
    /// What it loses of its speed, median of pairs of windows; less than nothing by chance.
    loses_percent: f64,
    /// How fast was filled meanwhile, median: less than usual where the CPU has other work.
    fill_bytes_per_s: u64,
    windows: usize,
}

impl Neighbour {
    /// Of pairs of work done without and with filling; `None` of none.
    pub(super) fn of(
        bound_by: &'static str,
        fill_bytes_per_s: u64,
        windows: &[(u64, u64)],
    ) -> Option<Self> {
        // Counts of work are far below 2^53.
        #[expect(clippy::cast_precision_loss, reason = "a share of it is shown")]
        let lost = |(quiet, filling): &(u64, u64)| 100.0 - *filling as f64 * 100.0 / *quiet as f64;
        let mut lost: Vec<f64> = windows.iter().filter(|pair| pair.0 > 0).map(lost).collect();
        Some(Self {
            bound_by,
            loses_percent: micro(spread::median(&mut lost)?),
            fill_bytes_per_s,
            windows: lost.len(),
        })
    }
}

/// What filling costs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Cost {
    pub(super) fill: Option<FillCost>,
    /// Nothing on a machine with one CPU.
    pub(super) neighbours: Vec<Neighbour>,
}

/// The document.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    schema: &'static str,
    clock: &'static str,
    page: PageSize,
    /// That this process may use: threads of `prealloc-threads`, of which QEMU starts 16 at most, and of `prefault`.
    cpus: u32,
    rows: Vec<Row>,
    /// Milliseconds to QMP that each GiB adds, from the smallest to the largest
    /// size; prealloc and pool.
    prealloc_slope_ms_per_gib: Option<f64>,
    pool_slope_ms_per_gib: Option<f64>,
    pub(super) at_once: Option<AtOnce>,
    pub(super) take_round_trip: Option<TakeRoundTrip>,
    /// Only where it was asked for.
    pub(super) cost: Option<Cost>,
}

impl Record {
    /// Without any rows, of a process that may use so many CPUs.
    pub(super) fn new(page: PageSize, cpus: u32) -> Self {
        Self {
            schema: "firstlight.bench-pool/1",
            clock: "wall",
            page,
            cpus,
            rows: Vec::new(),
            prealloc_slope_ms_per_gib: None,
            pool_slope_ms_per_gib: None,
            at_once: None,
            take_round_trip: None,
            cost: None,
        }
    }

    /// Adds what came of one size.
    pub(super) fn add(&mut self, size_bytes: u64, runs: &[Run]) {
        for variant in Variant::ALL {
            self.rows.extend(Row::of(size_bytes, variant, runs));
        }
        self.prealloc_slope_ms_per_gib = slope(&self.rows, Variant::Prealloc);
        self.pool_slope_ms_per_gib = slope(&self.rows, Variant::Pool);
    }

    /// For people: each size's variants in one line.
    pub(super) fn table(&self) -> String {
        let mut page = format!(
            "{HEADING}firstlight bench pool: QEMU on {} pages, until it answers on QMP\n\
             milliseconds, median (smallest-largest){HEADING:#}\n",
            self.page
        );
        self.starts(&mut page);
        self.starts_while_filling(&mut page);
        self.totals(&mut page);
        if let Some(cost) = &self.cost {
            cost.lines(&mut page);
        }
        page
    }

    /// The rows of each size.
    fn sizes(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.size_bytes == b.size_bytes)
    }

    /// Where the memory comes from, a line each; a column for each size.
    fn starts(&self, page: &mut String) {
        let mut columns = Vec::new();
        for rows in self.sizes() {
            let row = |variant| rows.iter().find(|row| row.variant == variant);
            let (Some(floor), Some(pool)) = (row(Variant::Floor), row(Variant::Pool)) else {
                continue;
            };
            let rivals = [
                Variant::Prealloc,
                Variant::PreallocThreads,
                Variant::Prefault,
            ]
            .map(row);
            let fastest = rivals.iter().flatten().map(|row| row.spawn_to_qmp_ms);
            let fastest = fastest.min_by(|a, b| a.median.total_cmp(&b.median));
            let ms = pool.spawn_to_qmp_ms;
            let to_qmp =
                |row: Option<&Row>| row.map_or_else(String::new, |row| shown(row.spawn_to_qmp_ms));
            let mut column = vec![bytes(pool.size_bytes), shown(floor.spawn_to_qmp_ms)];
            column.extend(rivals.map(to_qmp));
            column.extend([
                shown(ms),
                fastest.map_or_else(String::new, |rival| {
                    format!("{:.1} times", rival.median / ms.median)
                }),
                format!("{:.2} times", ms.median / floor.spawn_to_qmp_ms.median),
                pool.take_ms
                    .map_or_else(String::new, |take| format!("{:.3}", take.median)),
            ]);
            columns.push(column);
        }
        let cpus = self.cpus;
        let names = [
            String::new(),
            "64 MiB, any memory".into(),
            "prealloc, 1 thread".into(),
            format!("prealloc, {cpus} threads"),
            format!("zeroed by {cpus} CPUs"),
            "the pool".into(),
            "  faster by".into(),
            "  of 64 MiB's".into(),
            "  its request, ms".into(),
        ];
        let line = |(at, name): (usize, String)| {
            let cells = columns.iter().filter_map(|column| column.get(at));
            [name].into_iter().chain(cells.cloned()).collect()
        };
        let cells: Vec<Vec<String>> = names.into_iter().enumerate().map(line).collect();
        for line in text::table("<>", &cells) {
            let _ = writeln!(page, "{line}");
        }
        let _ = writeln!(
            page,
            "64 MiB is the floor: the same QEMU with so little memory, whatever the column.\n\
             The kernel zeroes the memory for QEMU's threads (prealloc; 16 at most), or for a\n\
             thread on each CPU before QEMU starts. Faster: than the fastest of these.\n\
             The request to the pool is part of its time."
        );
    }

    /// Whether what memory adds to a start from the pool is no more than starts of the floor differ, whose
    /// memory is the same in all columns.
    fn is_by_chance(&self) -> bool {
        let Some((small, large)) = smallest_and_largest(&self.rows, Variant::Pool) else {
            return true;
        };
        let floor = || {
            let rows = self.rows.iter();
            rows.filter(|row| row.variant == Variant::Floor)
        };
        let ms = |row: &Row| row.spawn_to_qmp_ms;
        let slowest = floor().map(|row| ms(row).max).fold(0.0, f64::max);
        let fastest = floor().map(|row| ms(row).min).fold(slowest, f64::min);
        ms(large).median - ms(small).median <= slowest - fastest
    }

    fn starts_while_filling(&self, page: &mut String) {
        for rows in self.sizes() {
            let row = |variant| rows.iter().find(|row| row.variant == variant);
            let (Some(floor), Some(pool)) = (row(Variant::FloorFilling), row(Variant::PoolFilling))
            else {
                continue;
            };
            let _ = writeln!(
                page,
                "While a slab that came back is filled: 64 MiB {}, {} from the pool {}, {:.2} x",
                shown(floor.spawn_to_qmp_ms),
                bytes(pool.size_bytes),
                shown(pool.spawn_to_qmp_ms),
                floor.times_faster_than(pool),
            );
        }
    }

    fn totals(&self, page: &mut String) {
        if let (Some(fresh), Some(pool)) =
            (self.prealloc_slope_ms_per_gib, self.pool_slope_ms_per_gib)
        {
            let pool = match self.is_by_chance() {
                true => "about 0".into(),
                false => format!("{pool:.2}"),
            };
            let _ = writeln!(
                page,
                "\nEach GiB more: {fresh:.2} ms with prealloc, {GOOD}{pool} ms{GOOD:#} from the pool"
            );
        }
        if let Some(crowd) = &self.at_once {
            let _ = writeln!(
                page,
                "{} guests of {} at once, until the last greets: {} ms with prealloc, \
                 {GOOD}{} ms{GOOD:#} from the pool",
                crowd.guests,
                bytes(crowd.size_bytes),
                shown(crowd.prealloc_ms),
                shown(crowd.pool_ms),
            );
        }
        if let Some(trip) = &self.take_round_trip {
            let _ = writeln!(
                page,
                "Requests for a page of {}, one after another: {:.1} us (p50), {:.1} us (p99), \
                 {:.1} us (slowest of {})",
                self.page, trip.p50_us, trip.p99_us, trip.max_us, trip.takes,
            );
        }
    }
}

impl Cost {
    fn lines(&self, page: &mut String) {
        if let Some(fill) = &self.fill {
            let _ = writeln!(
                page,
                "Filling {} takes {} ms of processor time, the kernel alone {} ms: {:.3} times (smallest of {})",
                bytes(fill.size_bytes),
                shown(fill.worker_ms),
                shown(fill.kernel_ms),
                fill.ratio,
                fill.runs,
            );
        }
        for neighbour in &self.neighbours {
            let _ = writeln!(
                page,
                "Meanwhile, at {} a second, a {}-bound loop on another CPU loses {:.1} % (median of {})",
                bytes(neighbour.fill_bytes_per_s),
                neighbour.bound_by,
                neighbour.loses_percent,
                neighbour.windows,
            );
        }
        if self.neighbours.is_empty() {
            let _ = writeln!(
                page,
                "No second CPU: what a neighbour loses was not measured"
            );
        }
    }
}

/// The rows of the smallest and of the largest size.
fn smallest_and_largest(rows: &[Row], variant: Variant) -> Option<(&Row, &Row)> {
    let mine = || rows.iter().filter(|row| row.variant == variant);
    let small = mine().min_by_key(|row| row.size_bytes)?;
    Some((small, mine().max_by_key(|row| row.size_bytes)?))
}

/// What a GiB adds, from the smallest to the largest size.
fn slope(rows: &[Row], variant: Variant) -> Option<f64> {
    let (small, large) = smallest_and_largest(rows, variant)?;
    let mib = (large.size_bytes - small.size_bytes) >> 20;
    let gib = f64::from(u32::try_from(mib).ok().filter(|mib| *mib > 0)?) / 1024.0;
    let ms = large.spawn_to_qmp_ms.median - small.spawn_to_qmp_ms.median;
    Some(micro(ms / gib))
}

fn shown(spread: Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(three_digits);
    format!("{median} ({min}-{max})")
}

/// Milliseconds, with a decimal where these are less than 100.
fn three_digits(ms: f64) -> String {
    let decimals = usize::from(ms < 99.95);
    format!("{ms:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variant: Variant, ms: u64) -> Run {
        let timed = Timed {
            to_qmp: Duration::from_millis(ms),
            to_guest: Duration::from_millis(ms + 5),
        };
        let take = (variant == Variant::Pool).then(|| Duration::from_micros(30));
        Run::new(variant, timed, take)
    }

    #[test]
    fn rows_have_the_fields_of_the_schema() {
        let both = |fresh: [u64; 4], pool: [u64; 3]| {
            let fresh = fresh.map(|ms| run(Variant::Prealloc, ms));
            let pool = pool.map(|ms| run(Variant::Pool, ms));
            let floor = [run(Variant::Floor, 10)];
            let faster = [run(Variant::Prefault, 80)];
            floor
                .into_iter()
                .chain(fresh)
                .chain(faster)
                .chain(pool)
                .collect::<Vec<_>>()
        };
        let (small, large) = (
            both([100, 90, 120, 110], [20, 19, 25]),
            both([510; 4], [22; 3]),
        );
        let mut record = Record::new(PageSize::Huge, 2);
        record.add(1 << 30, &small);
        record.add(5 << 30, &large);
        let ms = Duration::from_millis;
        record.at_once = AtOnce::of(6, 1 << 30, &[(ms(300), ms(60)), (ms(100), ms(40))]);
        record.take_round_trip = TakeRoundTrip::of((1..=200).map(Duration::from_micros).collect());
        let seen = serde_json::to_value(&record).expect("JSON");
        assert_eq!(seen["schema"], "firstlight.bench-pool/1");
        let expected = serde_json::json!({
            "size_bytes": 1 << 30, "variant": "prealloc", "runs": 4, "take_ms": null,
            "spawn_to_qmp_ms": {"median": 105.0, "min": 90.0, "max": 120.0},
            "spawn_to_guest_ms": {"median": 110.0, "min": 95.0, "max": 125.0},
        });
        assert_eq!(seen["rows"][1], expected);
        assert_eq!(seen["rows"][2]["variant"], "prefault");
        assert_eq!(seen["rows"][3]["spawn_to_qmp_ms"]["median"], 20.0);
        assert_eq!(seen["rows"][3]["take_ms"]["median"], 0.03);
        assert_eq!(seen["prealloc_slope_ms_per_gib"], 101.25);
        assert_eq!(seen["pool_slope_ms_per_gib"], 0.5);
        assert_eq!(seen["at_once"]["prealloc_ms"]["median"], 200.0);
        assert_eq!(seen["at_once"]["pool_ms"]["max"], 60.0);
        let trip =
            serde_json::json!({"p50_us": 100.0, "p99_us": 198.0, "max_us": 200.0, "takes": 200});
        assert_eq!(seen["take_round_trip"], trip);
        record.cost = Some(Cost {
            fill: FillCost::of(1 << 30, &[(ms(110), ms(102)), (ms(100), ms(130))]),
            neighbours: Neighbour::of("memory", 5, &[(100, 90), (200, 190), (100, 104)])
                .into_iter()
                .collect(),
        });
        let seen = serde_json::to_value(&record.cost).expect("JSON");
        assert_eq!(seen["fill"]["ratio"], 1.02);
        assert_eq!(seen["neighbours"][0]["loses_percent"], 5.0);
        let table = record.table();
        assert!(table.contains("1.020 times (smallest of 2)"), "{table}");
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = table.lines().map(squeezed).collect();
        for line in [
            "1 GiB 5 GiB",
            "64 MiB, any memory 10.0 (10.0-10.0) 10.0 (10.0-10.0)",
            "prealloc, 1 thread 105 (90.0-120) 510 (510-510)",
            "zeroed by 2 CPUs 80.0 (80.0-80.0) 80.0 (80.0-80.0)",
            "the pool 20.0 (19.0-25.0) 22.0 (22.0-22.0)",
            "faster by 4.0 times 3.6 times",
            "of 64 MiB's 2.00 times 2.20 times",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line} in {table}");
        }
        assert!(
            table.lines().take(12).all(|line| line.len() <= 80),
            "{table}"
        );
    }

    #[test]
    fn what_a_gib_adds_is_no_figure_where_it_is_chance() {
        let shown = |floor: [u64; 2], small: u64, large: u64| {
            let mut record = Record::new(PageSize::Huge, 2);
            for (bytes, pool) in [(1 << 30, small), (5 << 30, large)] {
                let floor = floor.map(|ms| run(Variant::Floor, ms));
                let fresh = run(Variant::Prealloc, 100 * (bytes >> 30));
                let others = [fresh, run(Variant::Pool, pool)];
                let runs: Vec<_> = floor.into_iter().chain(others).collect();
                record.add(bytes, &runs);
            }
            let table = anstream::adapter::strip_str(&record.table()).to_string();
            let line = table.lines().find(|line| line.starts_with("Each GiB"));
            line.expect("a line").to_owned()
        };
        let line =
            |pool| format!("Each GiB more: 100.00 ms with prealloc, {pool} ms from the pool");
        assert_eq!(shown([20, 29], 21, 31), line("2.50"));
        assert_eq!(shown([20, 30], 21, 31), line("about 0"));
        assert_eq!(shown([20, 20], 21, 11), line("about 0"));
    }

    #[test]
    fn nothing_has_no_row() {
        assert!(Row::of(1, Variant::Pool, &[run(Variant::Prealloc, 1)]).is_none());
        assert!(slope(&[], Variant::Pool).is_none());
        assert!(AtOnce::of(6, 1, &[]).is_none());
        assert!(TakeRoundTrip::of(Vec::new()).is_none());
    }
}
