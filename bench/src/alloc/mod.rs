//! Allocators beside each other: [`run`], the work of `firstlight bench alloc`.
//!
//! | file | contents |
//! |---|---|
//! | `task` | the measurements |
//! | `ground` | the machine and its free memory |
//! | `contestant` | the allocators, and the tasks that each cannot do |
//! | `workers` | pinned threads that begin together, and their clocks |
//! | `turn` | the rounds of one contestant, over the loops of `firstlight-workloads` |
//! | `cell` | one contestant's figures of one task |
//! | `budget` | the time of the whole run, and each cell's part of it |
//! | `fragmentation`, `answers`, `churn` | not loops: large blocks left by long-lived ones, single requests |
//! | `record` | the document |
//!
//! For each task all contestants have their turns one after the other, three times,
//! each time built afresh; the least of all rounds is the figure that other VMs on the
//! host disturb least.

mod answers;
mod block_shares;
mod budget;
mod cell;
mod churn;
mod contestant;
mod fragmentation;
mod ground;
mod record;
mod task;
mod turn;
mod workers;

pub use block_shares::{BlockShares, Share, ShareRow, block_shares};
pub use contestant::{Contestant, Need, Visitor};
pub use ground::Ground;
pub use record::{
    Absent, Answers, Fragmentation, Fullness, Note, Record, Refusal, Row, SCHEMA, Spread,
    UnderChurn,
};
pub use task::{Task, UnknownName, Workload};

use budget::Budget;
use cell::{Cell, TURNS};
use firstlight::addr::Order;
use firstlight_host::threads::allowed_cpus;
use std::error::Error;
use turn::{Buffers, Idle, Turn};
use workers::{Limit, Workers};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of threads, none of them 0; empty for 1 and 2, as far as there are CPUs.
    pub threads: Vec<usize>,
    /// The allocators, in the order of rows.
    pub contestants: Vec<Contestant>,
    /// The workloads, in the order of rows.
    pub workloads: Vec<Workload>,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Most that a cell may take, its preparation included.
    pub cell_ms: u64,
    /// Most that the whole run should take: cells without any time are listed as absent.
    pub run_ms: u64,
}

/// The reason of cells for which the run had no time left.
const NO_TIME: &str = "nothing was done before the time was up";
/// Cells that the answers count for when time is divided.
const ANSWERS_CELLS: u64 = 50;
/// And one contestant's fragmentation, which has no figure unless it is finished.
const FRAGMENTATION_CELLS: u64 = 10;

/// A run.
struct Bench<'b> {
    options: &'b Options,
    budget: Budget,
    cpus: Vec<u32>,
    ground: Ground,
    buffers: Buffers,
    record: Record,
}

/// Measures; `progress` is called with each step.
///
/// # Errors
/// A machine that cannot be brought up, threads or memory that cannot be had.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Record, Box<dyn Error>> {
    let cpus = allowed_cpus()?;
    let threads: Vec<usize> = match options.threads.as_slice() {
        [] => vec![1, 2]
            .into_iter()
            .filter(|threads| *threads <= cpus.len())
            .collect(),
        numbers => numbers.to_vec(),
    };
    let budget = Budget::new(options.run_ms, options.cell_ms, cells(options, &threads));
    let ground = Ground::new(options.memory_bytes)?;
    let most = threads.iter().copied().max().unwrap_or(1);
    let blocks = usize::try_from(ground.frames)?;
    let contestants = options.contestants.iter();
    let notes = contestants.filter_map(|contestant| {
        let text = contestant.note()?;
        let contestant = contestant.name();
        Some(Note { contestant, text })
    });
    let mut bench = Bench {
        options,
        budget,
        buffers: Buffers::new(blocks, most),
        record: Record {
            schema: SCHEMA,
            clock: "thread-cpu",
            cpus: cpus.len(),
            memory_bytes: options.memory_bytes,
            frames: ground.frames,
            cell_ms: options.cell_ms,
            run_ms: options.run_ms,
            rows: Vec::new(),
            absent: Vec::new(),
            fragmentation: Vec::new(),
            answers: None,
            notes: notes.collect(),
        },
        cpus,
        ground,
    };
    for workload in &options.workloads {
        for task in threads
            .iter()
            .flat_map(|threads| Task::of(*workload, *threads))
        {
            bench.task(task, progress)?;
        }
        match workload {
            Workload::Fragmentation => bench.fragmentation(progress)?,
            Workload::Answers => bench.answers(progress)?,
            _ => {}
        }
    }
    Ok(bench.record)
}

/// Cells that the run has.
fn cells(options: &Options, threads: &[usize]) -> u64 {
    let contestants = &options.contestants;
    let of = |task: Task| {
        let able = contestants
            .iter()
            .filter(|able| able.unsupported(&task).is_none());
        able.count() as u64
    };
    let of_workload = |workload: &Workload| match workload {
        Workload::Fragmentation => of(FRAGMENTATION) * FRAGMENTATION_CELLS,
        Workload::Answers => ANSWERS_CELLS,
        _ => {
            let threads = threads.iter();
            let tasks = threads.flat_map(|threads| Task::of(*workload, *threads));
            tasks.map(of).sum()
        }
    };
    options.workloads.iter().map(of_workload).sum()
}

/// The task of the answers.
const ANSWERS: Task = Task {
    workload: Workload::Answers,
    order: Order::PAGE,
    ..FRAGMENTATION
};

/// The task of `fragmentation`.
const FRAGMENTATION: Task = Task {
    workload: Workload::Fragmentation,
    order: Order::HUGE,
    threads: 1,
    free_per_mille: 0,
};

impl Bench<'_> {
    /// All turns of all contestants.
    fn task(&mut self, task: Task, progress: &mut dyn FnMut(&str)) -> Result<(), Box<dyn Error>> {
        let mut cells = Vec::new();
        for contestant in &self.options.contestants {
            match contestant.unsupported(&task) {
                Some(reason) => self.record.absent.push(absent(*contestant, task, reason)),
                None => cells.push(Cell::new(*contestant, task)),
            }
        }
        let cell_ns = self.budget.begin(cells.len() as u64);
        let ring = if task.workload == Workload::CrossCpu && cell_ns > 0 {
            self.ring(task, cell_ns)?
        } else {
            None
        };
        for _ in 0..TURNS {
            for cell in &mut cells {
                let left_ns = self.budget.left_ns();
                match cell.next_turn_ns(cell_ns).map(|ns| ns.min(left_ns)) {
                    Some(ns @ 1..) => {
                        progress(&format!("{task}: {}", cell.contestant));
                        self.turn(cell, ns)?;
                    }
                    // It would fit if the run had more time.
                    _ if cell.next_turn_ns(self.budget.cell_ns()).is_some() => cell.cut(),
                    _ => {}
                }
            }
        }
        for cell in &cells {
            match Row::of(cell, self.ground.frames, ring) {
                Some(row) => self.record.rows.push(row),
                None => self
                    .record
                    .absent
                    .push(absent(cell.contestant, task, NO_TIME)),
            }
        }
        Ok(())
    }

    fn turn(&mut self, cell: &mut Cell, ns: u64) -> Result<(), Box<dyn Error>> {
        let (contestant, task) = (cell.contestant, cell.task);
        let need = Need {
            order: task.order,
            threads: task.threads,
        };
        let workers = Workers {
            cpus: &self.cpus,
            threads: task.threads,
        };
        let limit = Limit::new(ns).by_one(workers.outnumber_cpus());
        let mut turn = Turn {
            cell,
            blocks: self.ground.block_count(task.order),
            buffers: &mut self.buffers,
            workers,
            limit,
        };
        contestant.show(&self.ground, need, &mut turn)?;
        cell.spend(limit.elapsed_ns());
        Ok(())
    }

    /// The least cost of the ring of `cross-cpu` alone.
    fn ring(&mut self, task: Task, cell_ns: u64) -> Result<Option<f64>, Box<dyn Error>> {
        let mut cell = Cell::new(Contestant::Lifo, task);
        for _ in 0..TURNS {
            let mut turn = Turn {
                cell: &mut cell,
                blocks: 0,
                buffers: &mut self.buffers,
                workers: Workers {
                    cpus: &self.cpus,
                    threads: task.threads,
                },
                limit: Limit::new(cell_ns / 10),
            };
            turn.visit(&Idle, &|| 0)?;
        }
        let rounds = cell.rounds.iter().map(|round| round.ns);
        Ok(Spread::of(rounds).map(|spread| spread.min))
    }

    fn fragmentation(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), Box<dyn Error>> {
        let task = FRAGMENTATION;
        for contestant in &self.options.contestants {
            if let Some(reason) = contestant.unsupported(&task) {
                self.record.absent.push(absent(*contestant, task, reason));
                continue;
            }
            let ns = self.budget.begin(FRAGMENTATION_CELLS);
            if ns == 0 {
                self.record.absent.push(absent(*contestant, task, NO_TIME));
                continue;
            }
            progress(&format!("fragmentation: {contestant}"));
            let mut lifetimes = fragmentation::Lifetimes::new(&self.ground, ns);
            let need = Need {
                order: task.order,
                threads: 1,
            };
            contestant.show(&self.ground, need, &mut lifetimes)?;
            self.record.fragmentation.push(lifetimes.row(*contestant));
        }
        Ok(())
    }

    fn answers(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), Box<dyn Error>> {
        if !self.options.contestants.contains(&Contestant::Firstlight) {
            return Ok(());
        }
        let absent = absent(Contestant::Firstlight, ANSWERS, NO_TIME);
        if self.budget.left_ns() == 0 {
            self.record.absent.push(absent);
            return Ok(());
        }
        progress("answers: what must be refused");
        let Some(mut answers) = answers::answers(self.budget.run())? else {
            self.record.absent.push(absent);
            return Ok(());
        };
        progress("answers: full memory beside empty");
        let [empty, full_99, full_99_9] = [990, 10, 1].map(|free_per_mille| Task {
            workload: Workload::NearFull,
            order: Order::PAGE,
            threads: 1,
            free_per_mille,
        });
        let mut least = |task| -> Result<Option<f64>, Box<dyn Error>> {
            let mut cell = Cell::new(Contestant::Firstlight, task);
            let ns = self.budget.cell_ns().min(self.budget.left_ns());
            self.turn(&mut cell, ns)?;
            let rounds = cell.rounds.iter().map(|round| round.ns);
            Ok(Spread::of(rounds).map(|spread| spread.min))
        };
        if let (Some(empty_ns), Some(full_99_ns), Some(full_99_9_ns)) =
            (least(empty)?, least(full_99)?, least(full_99_9)?)
        {
            answers.fullness = Some(Fullness {
                empty_ns,
                full_99_ns,
                full_99_9_ns,
            });
        } else {
            self.record.absent.push(absent.clone());
        }
        for threads in churn::THREADS {
            // It may take twice as long.
            let ns = self.budget.cell_ns().min(self.budget.left_ns() / 2);
            if ns == 0 {
                self.record.absent.push(Absent { threads, ..absent });
                continue;
            }
            progress(&format!("answers: beside {threads} threads"));
            let row = churn::under_churn(&self.cpus, threads, ns)?;
            answers.under_churn.push(row);
        }
        self.record.answers = Some(answers);
        Ok(())
    }
}

fn absent(contestant: Contestant, task: Task, reason: &'static str) -> Absent {
    Absent {
        contestant: contestant.name(),
        workload: task.workload.name(),
        order: task.order.get(),
        threads: task.threads,
        full_percent: task.full_percent(),
        reason,
    }
}
