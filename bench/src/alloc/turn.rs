//! One turn of one contestant: its rounds of the task, on all workers.
//!
//! A round's figure is the CPU time of all threads in the loops of
//! [`firstlight_workloads`], divided by their operations.

use super::cell::Cell;
use super::contestant::Visitor;
use super::task::{Task, Workload};
use super::workers::{Limit, Part, Workers};
use firstlight::addr::{Frame, Order};
use firstlight_figures::random::Random;
use firstlight_workloads::Allocator;
use firstlight_workloads::ring::{Ring, alternate};
use firstlight_workloads::work::{BURST, Churn, Mixed, empty, fill, pairs};
use std::cell::Cell as Count;
use std::error::Error;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Operations of one thread in one round.
const PAIRS: usize = 400_000;
const BULK: usize = 1 << 18;
const CROSS: usize = 100_000;
const MIXED: usize = 100_000;
const CHURN: usize = 100_000;
/// Blocks that one thread of `mixed` holds at most.
const LIVE: usize = 1024;
/// Frames in the ring from one thread to another.
const RING: usize = 1024;
/// Readings of a ring after which a thread yields the CPU.
const PATIENCE: u32 = 256;

/// Memory of the loops, touched before anything is timed.
#[derive(Debug)]
pub(super) struct Buffers {
    frames: Vec<Frame>,
    live: Vec<Option<(Frame, Order)>>,
    ring: Vec<AtomicU64>,
}

impl Buffers {
    /// For `blocks` blocks, held by at most `threads` threads.
    pub(super) fn new(blocks: usize, threads: usize) -> Self {
        let held = (Frame::new(1), Order::PAGE);
        let mut this = Self {
            frames: vec![Frame::new(1); blocks],
            live: vec![Some(held); LIVE * threads],
            ring: (0..RING * threads.div_ceil(2))
                .map(|_| AtomicU64::new(1))
                .collect(),
        };
        this.live.fill(None);
        this
    }
}

/// A turn.
pub(super) struct Turn<'t> {
    pub(super) cell: &'t mut Cell,
    pub(super) buffers: &'t mut Buffers,
    pub(super) workers: Workers<'t>,
    pub(super) limit: Limit,
    /// The machine's blocks of the task's order.
    pub(super) blocks: usize,
}

impl Visitor for Turn<'_> {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        match self.cell.task.workload {
            Workload::Pair => self.pairs(allocator)?,
            Workload::Bulk => self.bulk(allocator)?,
            Workload::RandomFree => self.random_free(allocator, touched)?,
            Workload::CrossCpu => self.cross_cpu(allocator)?,
            Workload::Mixed => self.mixed(allocator)?,
            Workload::NearFull => self.near_full(allocator)?,
            Workload::Fragmentation | Workload::Answers => {}
        }
        self.cell.touched_bytes = self.cell.touched_bytes.max(touched());
        Ok(())
    }
}

/// Slices of equal length, one for each thread; the remainder is left out.
fn parts<T>(list: &mut [T], threads: usize) -> Vec<Mutex<&mut [T]>> {
    let each = (list.len() / threads.max(1)).max(1);
    list.chunks_exact_mut(each)
        .take(threads)
        .map(Mutex::new)
        .collect()
}

/// A thread's own part, which no other thread locks.
fn own<'l, T>(list: &'l [Mutex<T>], index: usize) -> Option<MutexGuard<'l, T>> {
    let mutex = list.get(index)?;
    Some(mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Turn<'_> {
    fn task(&self) -> Task {
        self.cell.task
    }

    /// One round: each thread gets ready, passes the gate, and is timed.
    fn round<A: Allocator>(
        &self,
        allocator: &A,
        ready: impl Fn(usize, &mut A::Cpu<'_>) + Sync,
        timed: impl Fn(usize, &mut A::Cpu<'_>) -> usize + Sync,
    ) -> Result<Part, Box<dyn Error>> {
        let parts = self.workers.run(|index, gate| {
            let cpu = allocator.cpu(index);
            let Some(mut cpu) = cpu else {
                gate.pass();
                return Part::default();
            };
            ready(index, &mut cpu);
            gate.pass();
            Part::of(|| timed(index, &mut cpu))
        })?;
        Ok(Part::sum(parts.into_iter()))
    }

    fn pairs<A: Allocator>(&mut self, allocator: &A) -> Result<(), Box<dyn Error>> {
        let (Task { order, threads, .. }, limit) = (self.task(), self.limit);
        for _ in 0..3 {
            let part = self.round(
                allocator,
                |_, cpu| {
                    limit
                        .part(4)
                        .pace()
                        .run(1_000, |some| pairs(cpu, order, some.len()));
                },
                |_, cpu| {
                    limit
                        .pace()
                        .run(PAIRS, |some| pairs(cpu, order, some.len()))
                },
            )?;
            if !self.cell.add(part, PAIRS * threads) {
                break;
            }
        }
        Ok(())
    }

    fn bulk<A: Allocator>(&mut self, allocator: &A) -> Result<(), Box<dyn Error>> {
        let (Task { order, threads, .. }, limit) = (self.task(), self.limit);
        // Fewer than there are: contestants keep some for tables and caches.
        let each = BULK.min(self.blocks / threads * 7 / 8);
        let mut frames = std::mem::take(&mut self.buffers.frames);
        let total = (each * threads).min(frames.len());
        for round in 0..4 {
            let slots = parts(&mut frames[..total], threads);
            let half = limit.part(2);
            let parts = self.workers.run(|index, gate| {
                let cpu = allocator.cpu(index).zip(own(&slots, index));
                let Some((mut cpu, mut slots)) = cpu else {
                    gate.pass();
                    return (Part::default(), Part::default());
                };
                gate.pass();
                let len = slots.len();
                let filled = Part::of(|| {
                    half.pace()
                        .run(len, |some| fill(&mut cpu, order, &mut slots[some]))
                });
                let freed = Part::of(|| {
                    let all = filled.operations;
                    limit
                        .pace()
                        .run(all, |some| empty(&mut cpu, order, &slots[some]))
                });
                (filled, freed)
            })?;
            let filled = Part::sum(parts.iter().map(|part| part.0));
            let freed = Part::sum(parts.iter().map(|part| part.1));
            if !self
                .cell
                .add_bulk(filled, freed, each * threads, round == 0)
            {
                break;
            }
        }
        self.buffers.frames = frames;
        Ok(())
    }

    /// Allocates all of memory, the same number of blocks for each thread, and shuffles
    /// them; how many blocks.
    fn take_all<A: Allocator>(&mut self, allocator: &A) -> usize {
        let (Task { order, threads, .. }, limit) = (self.task(), self.limit.part(2));
        let each = self.blocks.div_ceil(threads);
        let mut taken = 0;
        for index in 0..threads {
            let end = (taken + each).min(self.buffers.frames.len());
            let slots = &mut self.buffers.frames[taken..end];
            if let Some(mut cpu) = allocator.cpu(index) {
                let pace = limit.pace();
                taken += pace.run(slots.len(), |some| fill(&mut cpu, order, &mut slots[some]));
            }
        }
        if limit.is_over() {
            self.cell.cut();
        }
        Random::new(1).shuffle(&mut self.buffers.frames[..taken]);
        taken
    }

    fn random_free<A: Allocator>(
        &mut self,
        allocator: &A,
        touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let taken = self.take_all(allocator);
        let (Task { order, threads, .. }, limit) = (self.task(), self.limit);
        let mut frames = std::mem::take(&mut self.buffers.frames);
        let mut whole = Part::default();
        // In two halves: memory is most fragmented between them.
        for half in frames[..taken].chunks_mut((taken / 2).max(1)).take(2) {
            let slots = parts(half, threads);
            let part = self.round(
                allocator,
                |_, _| {},
                |index, cpu| {
                    let frames = own(&slots, index);
                    let frames: &[Frame] = frames.as_ref().map_or(&[], |frames| frames);
                    limit
                        .pace()
                        .run(frames.len(), |some| empty(cpu, order, &frames[some]))
                },
            )?;
            whole = Part::sum([whole, part].into_iter());
            self.cell.touched_bytes = self.cell.touched_bytes.max(touched());
        }
        self.buffers.frames = frames;
        // Halves and parts leave a remainder.
        self.cell.add(whole, taken.saturating_sub(2 * threads + 1));
        Ok(())
    }

    fn near_full<A: Allocator>(&mut self, allocator: &A) -> Result<(), Box<dyn Error>> {
        let taken = self.take_all(allocator);
        let (task, limit) = (self.task(), self.limit);
        let order = task.order;
        let burst = self.workers.part_of(BURST);
        let mut frames = std::mem::take(&mut self.buffers.frames);
        let free = taken * usize::from(task.free_per_mille) / 1000;
        let (freed, held) = frames[..taken].split_at_mut(free);
        if let Some(mut cpu) = allocator.cpu(0) {
            let pace = limit.part(2).pace();
            let done = pace.run(free, |some| empty(&mut cpu, order, &freed[some]));
            if done < free {
                self.cell.cut();
            }
        }
        let churns: Vec<_> = parts(held, task.threads).into_iter().zip(7..).collect();
        let churns: Vec<_> = churns
            .into_iter()
            .filter_map(|(part, seed)| {
                part.into_inner()
                    .ok()
                    .map(|held| Churn::new(held, seed).in_bursts(burst))
            })
            .map(Mutex::new)
            .collect();
        for _ in 0..2 {
            let part = self.round(
                allocator,
                |_, _| {},
                |index, cpu| {
                    let mut churn = own(&churns, index);
                    limit.pace().run(CHURN, |some: Range<usize>| {
                        let churn = churn.as_deref_mut();
                        churn.map_or(0, |churn| churn.run(cpu, order, some.len()))
                    })
                },
            )?;
            if !self.cell.add(part, CHURN * task.threads) {
                break;
            }
        }
        let refused = churns
            .into_iter()
            .filter_map(|churn| churn.into_inner().ok());
        self.cell.refused += refused.map(|churn| churn.refused()).sum::<u64>();
        self.buffers.frames = frames;
        Ok(())
    }

    fn mixed<A: Allocator>(&mut self, allocator: &A) -> Result<(), Box<dyn Error>> {
        let (threads, limit) = (self.task().threads, self.limit);
        let mut live = std::mem::take(&mut self.buffers.live);
        live.fill(None);
        let mixes: Vec<_> = live
            .chunks_exact_mut(LIVE)
            .zip(11..)
            .map(|(slots, seed)| Mutex::new(Mixed::new(slots, seed)))
            .collect();
        let run = |index, cpu: &mut A::Cpu<'_>, count, limit: Limit| {
            let mut mix = own(&mixes, index);
            limit.pace().run(count, |some: Range<usize>| {
                let mix = mix.as_deref_mut();
                mix.map_or(0, |mix| mix.run(cpu, some.len()))
            })
        };
        for _ in 0..2 {
            let part = self.round(
                allocator,
                |index, cpu| {
                    run(index, cpu, 4 * LIVE, limit.part(4));
                },
                |index, cpu| run(index, cpu, MIXED, limit),
            )?;
            if !self.cell.add(part, MIXED * threads) {
                break;
            }
        }
        let refused = mixes.into_iter().filter_map(|mix| mix.into_inner().ok());
        self.cell.refused += refused.map(|mix| mix.refused()).sum::<u64>();
        self.buffers.live = live;
        Ok(())
    }

    fn cross_cpu<A: Allocator>(&mut self, allocator: &A) -> Result<(), Box<dyn Error>> {
        let (Task { order, threads, .. }, limit) = (self.task(), self.limit);
        for _ in 0..2 {
            let rings: Vec<_> = self
                .buffers
                .ring
                .chunks_exact(RING)
                .map(Ring::new)
                .collect();
            let part = self.round(
                allocator,
                |_, _| {},
                |index, cpu| {
                    let Some(ring) = rings.get(index / 2) else {
                        return 0;
                    };
                    let pace = limit.pace();
                    let waits = Count::new(0u32);
                    let more = || {
                        std::hint::spin_loop();
                        waits.set(waits.get() + 1);
                        if !waits.get().is_multiple_of(PATIENCE) {
                            return true;
                        }
                        std::thread::yield_now();
                        !limit.is_over()
                    };
                    // The producer always ends the ring.
                    let wait = || {
                        more();
                    };
                    if index % 2 == 1 {
                        ring.consumer().consume(cpu, order, &wait);
                        // The producer counts the operations.
                        0
                    } else if index + 1 == threads {
                        pace.run(CROSS, |some| alternate(ring, cpu, order, some.len()))
                    } else {
                        let mut into = ring.producer();
                        let done =
                            pace.run(CROSS, |some| into.produce(cpu, order, some.len(), &more));
                        into.end(&wait);
                        done
                    }
                },
            )?;
            if !self.cell.add(part, CROSS * threads.div_ceil(2)) {
                break;
            }
        }
        Ok(())
    }
}

/// The ring alone, with as many threads.
pub(super) struct Idle;

impl Allocator for Idle {
    type Cpu<'a> = firstlight_workloads::ring::Nothing;

    fn cpu(&self, _index: usize) -> Option<Self::Cpu<'_>> {
        Some(Self::Cpu::default())
    }
}
