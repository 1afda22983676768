//! The bench of allocators: every contestant is a real allocator.

use firstlight::addr::{Frame, Order};
use firstlight_bench::alloc::{
    Contestant, Ground, Need, Options, Record, Task, Visitor, Workload, run,
};
use firstlight_workloads::work::{Churn, Mixed, empty, fill, pairs};
use firstlight_workloads::{Allocator, Cpu};
use proptest::prelude::*;
use std::collections::HashSet;
use std::error::Error;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

/// Allocated frames.
#[derive(Default)]
struct Held(Mutex<HashSet<u64>>);

impl Held {
    /// Panics where one is held although it becomes so now, or the other way round.
    fn change(&self, start: Frame, order: Order, allocated: bool) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for frame in start.get()..start.get() + order.frames() {
            let changed = if allocated {
                held.insert(frame)
            } else {
                held.remove(&frame)
            };
            let what = if allocated {
                "handed out twice"
            } else {
                "not held"
            };
            assert!(changed, "frame {frame:#x} of {order} is {what}");
        }
    }
}

/// A CPU's handle whose calls are checked.
struct Watched<'h, C>(C, &'h Held);

impl<C: Cpu> Cpu for Watched<'_, C> {
    fn allocate(&mut self, order: Order) -> Option<Frame> {
        let frame = self.0.allocate(order)?;
        self.1.change(frame, order, true);
        Some(frame)
    }

    fn free(&mut self, frame: Frame, order: Order) -> bool {
        // Before another thread can allocate it.
        self.1.change(frame, order, false);
        assert!(
            self.0.free(frame, order),
            "{frame} of {order} was not accepted"
        );
        true
    }
}

/// One step of one CPU: allocates, or frees the block at an index.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(u8),
    Free(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let allocate = (0..=9u8).prop_map(Step::Allocate);
    let free = any::<prop::sample::Index>().prop_map(Step::Free);
    let step = prop_oneof![3 => allocate, 2 => free];
    prop::collection::vec((0..2usize, step), 1..200)
}

/// Two CPUs take turns.
struct Steps<'s> {
    steps: &'s [(usize, Step)],
    one_order: bool,
}

impl Visitor for Steps<'_> {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        _touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let held = Held::default();
        let mut blocks: Vec<(usize, Frame, Order)> = Vec::new();
        for (index, step) in self.steps {
            let handle = |index| {
                let cpu = allocator.cpu(index).ok_or("no such CPU")?;
                Ok::<_, Box<dyn Error>>(Watched(cpu, &held))
            };
            match step {
                Step::Allocate(order) => {
                    let order = if self.one_order { 0 } else { *order };
                    let order = Order::new(order).ok_or("no such order")?;
                    let frame = handle(*index)?.allocate(order);
                    blocks.extend(frame.map(|frame| (*index, frame, order)));
                }
                Step::Free(at) if !blocks.is_empty() => {
                    let (owner, frame, order) = blocks.swap_remove(at.index(blocks.len()));
                    // A list for each thread is full of its own blocks.
                    let index = if self.one_order { owner } else { *index };
                    handle(index)?.free(frame, order);
                }
                Step::Free(_) => {}
            }
        }
        Ok(())
    }
}

/// Whether all its blocks have one order.
fn is_list(contestant: Contestant) -> bool {
    contestant
        .unsupported(&Task::of(Workload::Mixed, 1)[0])
        .is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_frame_is_handed_out_twice(steps in steps()) {
        let ground = Ground::new(128 << 20).map_err(|error| TestCaseError::fail(error.to_string()))?;
        for contestant in Contestant::ALL {
            let one_order = is_list(contestant);
            let mut steps = Steps { steps: &steps, one_order };
            let need = Need { order: Order::PAGE, threads: 2 };
            contestant
                .show(&ground, need, &mut steps)
                .map_err(|error| TestCaseError::fail(format!("{contestant}: {error}")))?;
        }
    }
}

/// The loops of the bench themselves, by two threads at once.
struct Loops {
    order: Order,
    mixed: bool,
    /// Blocks that each thread held at once.
    filled: Vec<usize>,
}

impl Visitor for Loops {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        _touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let (held, order, mixed) = (Held::default(), self.order, self.mixed);
        let both = Barrier::new(2);
        let work = |index: usize| {
            let mut cpu = allocator.cpu(index).map(|cpu| Watched(cpu, &held));
            // Every frame of a block is checked.
            let few = if order == Order::PAGE { 1 } else { 40 };
            let paired = cpu.as_mut().map(|cpu| pairs(cpu, order, 400 / few));
            // The first thread to fill memory leaves none for the other's pairs.
            both.wait();
            let mut cpu = cpu?;
            assert_eq!(paired, Some(400 / few));
            let mut slots = vec![Frame::new(0); 2_000];
            let filled = fill(&mut cpu, order, &mut slots);
            let slots = &mut slots[..filled];
            Churn::new(slots, 3).run(&mut cpu, order, 4_000 / few);
            let kept: Vec<Frame> = slots
                .iter()
                .copied()
                .filter(|frame| frame.get() != u64::MAX)
                .collect();
            assert_eq!(empty(&mut cpu, order, &kept), kept.len());
            if mixed {
                let mut live = vec![None; 100];
                let mut mix = Mixed::new(&mut live, 5);
                mix.run(&mut cpu, 500);
                mix.end(&mut cpu);
            }
            Some(filled)
        };
        self.filled = thread::scope(|scope| {
            let threads = [0, 1].map(|index| scope.spawn(move || work(index)));
            let joined = threads
                .into_iter()
                .filter_map(|thread| match thread.join() {
                    Ok(filled) => filled,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
            joined.collect()
        });
        assert!(held.0.into_inner().is_ok_and(|held| held.is_empty()));
        Ok(())
    }
}

#[test]
fn the_loops_never_hold_a_frame_twice() -> Result<(), Box<dyn Error>> {
    let ground = Ground::new(128 << 20)?;
    for contestant in Contestant::ALL {
        for order in [Order::PAGE, Order::HUGE] {
            let mut loops = Loops {
                order,
                mixed: !is_list(contestant),
                filled: Vec::new(),
            };
            contestant.show(&ground, Need { order, threads: 2 }, &mut loops)?;
            assert_eq!(loops.filled.len(), 2, "{contestant}");
            assert!(
                loops.filled.iter().all(|filled| *filled > 0),
                "{contestant}"
            );
        }
    }
    Ok(())
}

/// A row or a reason for every contestant and task of 1 and 2 threads.
fn every_cell_is_listed(record: &Record, workloads: &[Workload]) {
    for &workload in workloads {
        for task in [1, 2]
            .into_iter()
            .flat_map(|threads| Task::of(workload, threads))
        {
            for contestant in Contestant::ALL {
                let full = (workload == Workload::NearFull)
                    .then(|| f64::from(1000 - task.free_per_mille) / 10.0);
                let rows = record.rows.iter().filter(|row| {
                    (row.contestant, row.workload) == (contestant.name(), workload.name())
                        && (row.order, row.threads) == (task.order.get(), task.threads)
                        && row.full_percent == full
                });
                let absent = record.absent.iter().filter(|absent| {
                    (absent.contestant, absent.workload) == (contestant.name(), workload.name())
                        && (absent.order, absent.threads) == (task.order.get(), task.threads)
                        && absent.full_percent == full
                });
                let (rows, absent) = (rows.count(), absent.count());
                assert_eq!(rows + absent, 1, "{contestant}, {task}: {rows} rows");
            }
        }
    }
}

#[test]
fn every_cell_has_a_row_or_a_reason() -> Result<(), Box<dyn Error>> {
    let workloads: Vec<Workload> = Workload::ALL[..7].to_vec();
    let options = Options {
        threads: vec![1, 2],
        contestants: Contestant::ALL.to_vec(),
        workloads: workloads.clone(),
        memory_bytes: 256 << 20,
        cell_ms: 2,
        run_ms: u64::MAX,
    };
    let mut steps = 0;
    let record = run(&options, &mut |_| steps += 1)?;
    assert!(steps > 100, "{steps} steps reported");
    every_cell_is_listed(&record, &workloads);
    for row in &record.rows {
        let spread = row.ns_per_op;
        assert!(
            0.0 < spread.min && spread.min <= spread.median && spread.median <= spread.max,
            "{row:?}"
        );
        assert!(
            row.metadata_bytes_per_frame >= 0.0 && row.rounds > 0,
            "{row:?}"
        );
        assert_eq!(row.ring_ns_per_op.is_some(), row.workload == "cross-cpu");
        assert_eq!(row.full_percent.is_some(), row.workload == "near-full");
    }
    // A million pairs do not fit into 2 ms.
    let pairs: Vec<_> = record
        .rows
        .iter()
        .filter(|row| row.workload == "pair")
        .collect();
    assert!(!pairs.is_empty() && pairs.iter().all(|row| row.cut_short));
    // Lists of blocks cannot be fragmented; all others have a row.
    assert_eq!(record.fragmentation.len(), 6);
    for row in &record.fragmentation {
        assert!(row.huge_frames <= row.huge_at_best, "{row:?}");
    }
    Ok(())
}

#[test]
fn a_run_without_time_names_every_cell_that_it_left_out() -> Result<(), Box<dyn Error>> {
    let mut options = Options {
        threads: vec![1, 2],
        contestants: Contestant::ALL.to_vec(),
        workloads: Workload::ALL.to_vec(),
        memory_bytes: 256 << 20,
        cell_ms: 2,
        run_ms: 0,
    };
    let nothing = run(&options, &mut |text| panic!("begun: {text}"))?;
    every_cell_is_listed(&nothing, &Workload::ALL[..7]);
    assert!(nothing.rows.is_empty() && nothing.fragmentation.is_empty());
    let lost = nothing.absent.iter();
    let lost = lost.filter(|absent| absent.reason.contains("the time was up"));
    assert_eq!(lost.count(), 170 + 6 + 1, "cells, fragmentation, answers");
    assert_eq!(nothing.answers, None);
    let answers = nothing.absent.iter();
    let mut answers = answers.filter(|absent| absent.workload == "answers");
    assert_eq!(
        answers.next().map(|absent| absent.contestant),
        Some("firstlight")
    );
    // Wherever it ends, nothing is missing.
    options.workloads.truncate(7);
    for run_ms in [1, 50, 250] {
        options.run_ms = run_ms;
        every_cell_is_listed(&run(&options, &mut |_| {})?, &options.workloads);
    }
    Ok(())
}
