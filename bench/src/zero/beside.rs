//! How much slower a neighbour is beside a worker: on the same CPU, where both take turns, and on
//! another one.
//!
//! On the same CPU the worker zeroes a batch before each pass of the neighbour, and only the pass is
//! timed: what is measured is what the worker's stores push out of the caches, at the highest rate
//! of turns there can be.

use super::ground::{eager, forget};
use super::neighbour::Neighbour;
use super::record::{Row, Stores};
use firstlight::background::Next;
use firstlight::frames::Frames;
use firstlight::node::NodeId;
use firstlight::zeroing::MappedMemory;
use firstlight_figures::spread::median;
use firstlight_host::clock::Clock;
use firstlight_host::threads::on_cpus;
use std::error::Error;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds, alone and beside the worker in turns.
const ROUNDS: usize = 5;
/// Bytes that are read in a round, as far as passes are not too few or too many.
const ROUND_BYTES: usize = 64 << 20;
/// Longest wait for the other thread.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// What the other thread is to do, and what it does.
const REST: u8 = 0;
const WORK: u8 = 1;
const STOP: u8 = 2;

/// The rows of all working sets (bytes), stores, and one CPU or two, as far as there are two.
pub(super) fn neighbours(
    working_sets: &[usize],
    frames: &Frames<'_>,
    memories: [(Stores, MappedMemory); 2],
    cpus: &[u32],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for &bytes in working_sets {
        for same_cpu in [true, false] {
            let Some(cpus) = cpus.get(..if same_cpu { 1 } else { 2 }) else {
                continue;
            };
            for (stores, memory) in memories {
                progress(&format!("a neighbour that reads {} KiB", bytes >> 10));
                let signals = Signals::default();
                let outcomes = on_cpus(cpus, |index, _| match (index, same_cpu) {
                    (0, true) => in_turns(frames, &memory, bytes).map(Some),
                    (0, false) => signals.measure(bytes).map(Some),
                    _ => signals.work(frames, &memory).map(|()| None),
                })?;
                for outcome in outcomes {
                    rows.extend(outcome.value?.map(|slowdown_percent| Row::Neighbour {
                        working_set_bytes: bytes as u64,
                        same_cpu,
                        stores,
                        slowdown_percent,
                    }));
                }
            }
        }
    }
    Ok(rows)
}

/// A worker that never runs out of work.
fn work<'a>(
    frames: &'a Frames<'_>,
    memory: &'a MappedMemory,
    each: impl FnOnce(&mut dyn FnMut() -> Result<(), String>) -> Result<(), String>,
) -> Result<(), String> {
    let (zeroing, clock) = (eager(frames, memory).map_err(text)?, Clock::start());
    let mut worker = zeroing.worker(NodeId(0));
    each(&mut || {
        if worker.step(|| clock.now_ns()).next == Next::Now {
            return Ok(());
        }
        forget(frames).map_err(text)
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// How many passes of a working set make up a round.
fn passes(bytes: usize) -> usize {
    (ROUND_BYTES / bytes).clamp(4, 100)
}

/// The worker's batch, then the neighbour's pass.
fn in_turns(frames: &Frames<'_>, memory: &MappedMemory, bytes: usize) -> Result<f64, String> {
    let mut neighbour = Neighbour::new(bytes).map_err(text)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    work(frames, memory, |step| {
        neighbour.pass();
        // In turns, so that what else the machine does slows both.
        for _ in 0..ROUNDS * passes(bytes) {
            alone.push(neighbour.pass());
            step()?;
            beside.push(neighbour.pass());
        }
        Ok(())
    })?;
    Ok(slowdown_percent(alone, beside))
}

/// What the thread of the neighbour and the thread of the worker say to each other.
#[derive(Default)]
struct Signals {
    /// What the worker is to do.
    wanted: AtomicU8,
    /// What it does.
    done: AtomicU8,
}

impl Signals {
    /// The thread of the worker.
    fn work(&self, frames: &Frames<'_>, memory: &MappedMemory) -> Result<(), String> {
        work(frames, memory, |step| {
            loop {
                let wanted = self.wanted.load(Ordering::Acquire);
                match wanted {
                    STOP => return Ok(()),
                    WORK => step()?,
                    // Asleep: a CPU that spins may share its core with the neighbour's.
                    _ => thread::sleep(Duration::from_micros(20)),
                }
                self.done.store(wanted, Ordering::Release);
            }
        })
    }

    /// The thread of the neighbour.
    fn measure(&self, bytes: usize) -> Result<f64, String> {
        let measured = self.rounds(bytes);
        self.wanted.store(STOP, Ordering::Release);
        measured
    }

    fn rounds(&self, bytes: usize) -> Result<f64, String> {
        let mut neighbour = Neighbour::new(bytes).map_err(text)?;
        let mut figures = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (wanted, figures) in [REST, WORK].into_iter().zip(&mut figures) {
                self.request(wanted)?;
                neighbour.pass();
                figures.extend((0..passes(bytes)).map(|_| neighbour.pass()));
            }
        }
        let [alone, beside] = figures;
        Ok(slowdown_percent(alone, beside))
    }

    /// Waits until the worker does it.
    fn request(&self, wanted: u8) -> Result<(), String> {
        self.wanted.store(wanted, Ordering::Release);
        let begin = Instant::now();
        // Also when it did so before: what counts is what it does after the request.
        self.done.store(STOP, Ordering::Release);
        while self.done.load(Ordering::Acquire) != wanted {
            if begin.elapsed() > MOST_WAIT {
                return Err("the worker's thread did not start".into());
            }
            thread::yield_now();
        }
        Ok(())
    }
}

/// How much longer the median pass takes, to a tenth of a percent.
fn slowdown_percent(mut alone: Vec<f64>, mut beside: Vec<f64>) -> f64 {
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    let ratio = beside.unwrap_or(0.0) / alone.unwrap_or(1.0);
    ((ratio - 1.0) * 1000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_downs_are_of_medians() {
        let slower = slowdown_percent(vec![10.0, 11.0, 900.0], vec![12.1, 1.0, 99.0]);
        assert_eq!(slower, 10.0);
        assert_eq!(slowdown_percent(vec![2.0], vec![1.0]), -50.0);
    }
}
