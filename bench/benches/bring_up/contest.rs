//! The harness: interleaved rounds of all contestants over one machine, and
//! their tables.

use std::time::Instant;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight_bench::machine::Machine;
use firstlight_figures::random::Random;
use firstlight_figures::spread::Spread;
use firstlight_workloads::Cpu;

/// Rounds for a contestant whose first run took no longer than [`SLOW_NS`].
const ROUNDS: usize = 21;
/// Rounds for a slower one.
const SLOW_ROUNDS: usize = 3;
const SLOW_NS: f64 = 100e6;

/// The work once memory can be allocated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// The first page, the first 2 MiB, the first 1 GiB.
    First,
    /// Pairs of order 0, pairs of order 9, pages held and freed in random order.
    Steady,
}

impl Task {
    /// Headings of the three measurements.
    pub(crate) const fn columns(self) -> [&'static str; 3] {
        match self {
            Self::First => ["first page", "first 2 MiB", "first 1 GiB"],
            Self::Steady => ["page pair", "2 MiB pair", "page, 4,096 held"],
        }
    }
}

/// One run: nanoseconds until all memory could be allocated, and of the task.
pub(crate) struct Sample {
    pub(crate) up_ns: f64,
    /// `None` where the contestant refused.
    pub(crate) task_ns: [Option<f64>; 3],
}

/// What all contestants are given: the machine and its free memory.
pub(crate) struct Setup<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) free: &'a [FrameRange],
    pub(crate) task: Task,
}

/// An allocator that can be brought up on a machine.
pub(crate) trait Contestant {
    fn name(&self) -> &'static str;
    /// Why it is left out.
    fn left_out(&self, _machine: &Machine) -> Option<String> {
        None
    }
    /// Replaces metadata memory by untouched memory.
    fn refresh(&mut self, machine: &Machine);
    /// Brings the machine up and does the task.
    fn run(&mut self, setup: &Setup<'_>) -> Sample;
    /// The metadata it has written once it is up, after [`Self::run`].
    fn written(&self) -> String;
}

/// The time of `work` in nanoseconds, and its value.
pub(crate) fn time<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

/// Does `task` on the allocator that `up` brings up.
pub(crate) fn measure<L: Cpu>(task: Task, up: impl FnOnce() -> L) -> Sample {
    let (up_ns, mut live) = time(up);
    let task_ns = match task {
        Task::First => [Order::PAGE, Order::HUGE, Order::GIANT].map(|order| {
            let (ns, block) = time(|| live.allocate(order));
            block.map(|_| ns)
        }),
        Task::Steady => [
            pairs(&mut live, Order::PAGE, 20_000),
            pairs(&mut live, Order::HUGE, 2_000),
            held(&mut live),
        ],
    };
    Sample { up_ns, task_ns }
}

/// Nanoseconds a block allocated and freed at once.
fn pairs<L: Cpu>(live: &mut L, order: Order, count: u32) -> Option<f64> {
    let first = live.allocate(order)?;
    live.free(first, order);
    let (ns, _) = time(|| {
        for _ in 0..count {
            if let Some(frame) = live.allocate(order) {
                live.free(std::hint::black_box(frame), order);
            }
        }
    });
    Some(ns / f64::from(count))
}

/// Nanoseconds a page of 4,096 that are allocated, then freed in random order.
fn held<L: Cpu>(live: &mut L) -> Option<f64> {
    const COUNT: u16 = 4096;
    let mut order: Vec<u16> = (0..COUNT).collect();
    Random::new(1).shuffle(&mut order);
    let mut frames = vec![Frame::new(0); order.len()];
    let (ns, all) = time(|| {
        for slot in &mut frames {
            *slot = live.allocate(Order::PAGE)?;
        }
        for &at in &order {
            live.free(frames[usize::from(at)], Order::PAGE);
        }
        Some(())
    });
    all.map(|()| ns / f64::from(COUNT))
}

/// All measurements of one kind.
#[derive(Default)]
struct Series(Vec<f64>);

impl Series {
    fn spread(&self) -> Option<Spread> {
        Spread::of(self.0.iter().copied())
    }

    fn median(&self) -> Option<f64> {
        self.spread().map(|spread| spread.median)
    }

    /// `median (min .. max)`.
    fn show(&self) -> String {
        match self.spread() {
            Some(Spread {
                median, min, max, ..
            }) => format!("{} ({} .. {})", nice(median), nice(min), nice(max)),
            None => "-".into(),
        }
    }
}

/// A time in the unit that suits it.
pub(crate) fn nice(ns: f64) -> String {
    match ns {
        ns if ns < 99.5 => format!("{ns:.1} ns"),
        ns if ns < 1e4 => format!("{ns:.0} ns"),
        ns if ns < 1e5 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e8 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.0} ms", ns / 1e6),
    }
}

/// How much more than `ours`; below 1 the rival is faster.
fn ratio(series: &Series, ours: Option<f64>) -> String {
    match (series.median(), ours) {
        (Some(theirs), Some(ours)) if ours > 0.0 => match theirs / ours {
            times if times < 9.95 => format!("{times:.2} x"),
            times if times < 99.5 => format!("{times:.0} x"),
            times => format!("{:.0} x", (times / 10.0).round() * 10.0),
        },
        _ => "-".into(),
    }
}

/// Everything measured of one contestant.
#[derive(Default)]
struct Score {
    fresh: Series,
    warm: Series,
    task: [Series; 3],
    written: String,
}

/// Runs the rounds and prints the table. The first contestant is ours.
/// Returns our medians: fresh, warm.
pub(crate) fn contest(
    machine: &Machine,
    free: &[FrameRange],
    task: Task,
    contestants: &mut [Box<dyn Contestant>],
) -> [Option<f64>; 2] {
    let setup = Setup {
        machine,
        free,
        task,
    };
    let mut scores: Vec<Score> = contestants.iter().map(|_| Score::default()).collect();
    let mut rounds_left: Vec<usize> = Vec::new();
    for (contestant, score) in contestants.iter_mut().zip(&mut scores) {
        // The warm-up; it also finds slow contestants.
        rounds_left.push(if contestant.left_out(machine).is_some() {
            0
        } else {
            contestant.refresh(machine);
            let (ns, _) = time(|| contestant.run(&setup));
            score.written = contestant.written();
            if ns > SLOW_NS { SLOW_ROUNDS } else { ROUNDS }
        });
    }
    for _ in 0..ROUNDS {
        for ((contestant, score), left) in contestants
            .iter_mut()
            .zip(&mut scores)
            .zip(&mut rounds_left)
        {
            let Some(fewer) = left.checked_sub(1) else {
                continue;
            };
            *left = fewer;
            contestant.refresh(machine);
            let fresh = contestant.run(&setup);
            let warm = contestant.run(&setup);
            score.fresh.0.push(fresh.up_ns);
            score.warm.0.push(warm.up_ns);
            // First allocations meet untouched metadata; steady ones do not.
            let of_task = if task == Task::First { fresh } else { warm };
            for (series, ns) in score.task.iter_mut().zip(of_task.task_ns) {
                series.0.extend(ns);
            }
        }
    }
    let ours = [scores[0].fresh.median(), scores[0].warm.median()];
    match task {
        Task::First => print_first(machine, contestants, &scores),
        Task::Steady => print_steady(contestants, &scores),
    }
    ours
}

fn print_first(machine: &Machine, contestants: &[Box<dyn Contestant>], scores: &[Score]) {
    let ours = &scores[0];
    let [page, huge, giant] = Task::First.columns();
    println!(
        "| {} | memory fresh | ratio | memory warm | ratio | {page} | {huge} | {giant} | written |",
        machine.name()
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (contestant, score) in contestants.iter().zip(scores) {
        if let Some(left_out) = contestant.left_out(machine) {
            println!(
                "| {} | left out: {left_out} | | | | | | | |",
                contestant.name()
            );
            continue;
        }
        let task = score
            .task
            .each_ref()
            .map(|series| series.median().map_or("-".into(), nice));
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            contestant.name(),
            score.fresh.show(),
            ratio(&score.fresh, ours.fresh.median()),
            score.warm.show(),
            ratio(&score.warm, ours.warm.median()),
            task.join(" | "),
            score.written,
        );
    }
    println!();
}

fn print_steady(contestants: &[Box<dyn Contestant>], scores: &[Score]) {
    let [page, huge, held] = Task::Steady.columns();
    println!("| | {page} | ratio | {huge} | ratio | {held} | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for (contestant, score) in contestants
        .iter()
        .zip(scores)
        .filter(|(_, score)| !score.warm.0.is_empty())
    {
        let cells: Vec<String> = score
            .task
            .iter()
            .zip(&scores[0].task)
            .map(|(theirs, ours)| format!("{} | {}", theirs.show(), ratio(theirs, ours.median())))
            .collect();
        println!("| {} | {} |", contestant.name(), cells.join(" | "));
    }
    println!();
}
