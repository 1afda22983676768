//! The workloads of `bench=alloc` on the machine's CPUs: [`Rounds`].
//!
//! Each CPU prepares, waits for the others, and counts the ticks of its own loop. The
//! figure is that of the slowest CPU in the fastest of three rounds.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use firstlight::addr::{Frame, Order};
use firstlight_figures::random::Random;
use firstlight_wire::Event;
use firstlight_workloads::ring::{Ring, alternate};
use firstlight_workloads::work::{Churn, Mixed, empty, fill, pairs};
use firstlight_workloads::{Allocator, Cpu};
use log::{error, info};
use spin::Mutex;

use super::contestants::{Contestant, part};
use crate::arch::cpus::MOST;
use crate::arch::{relax, ticks};
use crate::console::event;
use crate::processors::Processors;

/// Operations that one CPU does for one figure.
const OPERATIONS: usize = 10_000;
/// Rounds of each figure.
const ROUNDS: usize = 3;
/// Blocks that one CPU holds at most in `mixed`.
pub(super) const LIVE: usize = 256;
/// Blocks in the ring from one CPU to another.
pub(super) const RING: usize = 256;
/// One of so many blocks is free in `near-full`.
const ONE_FREE_OF: usize = 100;
/// One of so many of the machine's huge frames is not used: else some contestants would
/// miss those in per-CPU caches.
const KEPT_OF: usize = 8;
/// Stands for no block.
pub(super) const NONE: Frame = Frame::new(u64::MAX);
/// The orders that kernels use most.
const ORDERS: [Order; 2] = [Order::PAGE, Order::HUGE];

/// The lists of the loops.
pub(super) struct Held {
    /// Blocks of one order.
    pub(super) blocks: &'static mut [Frame],
    /// The rest of memory.
    pub(super) rest: &'static mut [(Frame, Order)],
    /// Blocks of `mixed`.
    pub(super) live: &'static mut [Option<(Frame, Order)>],
    /// One for two CPUs.
    pub(super) rings: &'static [Ring<'static>],
}

/// The workloads with all that they need.
pub(super) struct Rounds<'p> {
    processors: &'p mut Processors,
    held: Held,
    /// Huge frames that every contestant uses.
    huge: usize,
    /// CPUs of the figure that is measured.
    threads: usize,
}

/// The operations of CPUs at the same time.
#[derive(Clone, Copy)]
struct Done {
    operations: u64,
    ticks: u64,
}

impl Done {
    /// The faster of the two; none that did nothing.
    fn faster(best: Option<Self>, other: Self) -> Option<Self> {
        let slower = best.is_some_and(|best| best.ticks <= other.ticks);
        if other.operations == 0 || slower {
            best
        } else {
            Some(other)
        }
    }
}

impl<'p> Rounds<'p> {
    /// On the machine that `ours` allocates from.
    pub(super) fn new<A: Allocator>(processors: &'p mut Processors, held: Held, ours: &A) -> Self {
        let there_are = count(ours, Order::HUGE, &mut *held.blocks);
        Self {
            processors,
            held,
            huge: there_are - there_are / KEPT_OF,
            threads: 1,
        }
    }

    /// Blocks of `order` that every contestant uses: those of the machine, as far as they
    /// fit the list.
    fn blocks(&self, order: Order) -> usize {
        match order {
            Order::HUGE => self.huge,
            _ => self.held.blocks.len(),
        }
    }

    /// All workloads with 1, 2, 4, ... CPUs, and with all; whether there was memory
    /// for its lists.
    pub(super) fn all<C: Contestant>(&mut self, contestant: &mut C) -> bool {
        let all = self.processors.started();
        self.threads = 1;
        loop {
            for order in ORDERS {
                if !self.of_order(contestant, order) {
                    error!("bench: no memory for the lists of {}", C::NAME);
                    return false;
                }
            }
            if self.threads >= all {
                return true;
            }
            self.threads = (self.threads * 2).min(all);
        }
    }

    /// The workloads of blocks of `order`; whether there was memory.
    fn of_order<C: Contestant>(&mut self, contestant: &mut C, order: Order) -> bool {
        let Some(allocator) = &contestant.afresh(self.blocks(order), self.threads) else {
            return false;
        };
        let done = self.pairs(allocator, order);
        self.report(C::NAME, "pair", order, done);
        let done = self.bulk(allocator, order);
        self.report(C::NAME, "bulk", order, done);
        let done = self.random_free(allocator, order);
        self.report(C::NAME, "random-free", order, done);
        // A list for each CPU accepts no blocks of another.
        if C::NAME != "lifo" || self.threads == 1 {
            let done = self.cross_cpu(allocator, order);
            self.report(C::NAME, "cross-cpu", order, done);
        }
        // A list neither splits nor merges.
        if order == Order::HUGE && C::NAME == "firstlight" {
            let done = self.mixed(allocator);
            self.report(C::NAME, "mixed", order, done);
        }
        if order == Order::PAGE {
            let done = self.near_full(allocator);
            self.report(C::NAME, "near-full", order, done);
        }
        true
    }

    fn report(&self, contestant: &str, workload: &str, order: Order, done: Option<Done>) {
        let (threads, order) = (self.threads, order.get());
        let Some(Done { operations, ticks }) = done else {
            info!("bench: {contestant}, {workload} of order {order} on {threads} CPUs: no memory");
            return;
        };
        let each = ticks * threads as u64 / operations.max(1);
        info!(
            "bench: {contestant}, {workload} of order {order} on {threads} CPUs: {each} ticks of a CPU"
        );
        event(&Event::Bench {
            contestant,
            workload,
            order,
            threads: threads as u64,
            operations,
            ticks,
        });
    }

    /// One round on the CPUs of the figure; `work` gets their index.
    fn round<A: Allocator>(
        processors: &mut Processors,
        threads: usize,
        allocator: &A,
        ready: impl Fn(usize, &mut A::Cpu<'_>) + Sync,
        timed: impl Fn(usize, &mut A::Cpu<'_>) -> usize + Sync,
    ) -> Done {
        // CPUs may start late: their numbers may have gaps.
        let mut index_of = [u16::MAX; MOST];
        let mut come = 0;
        for ((cpu, _), index) in processors.nodes().take(threads).zip(0..) {
            index_of[cpu] = index;
            come += 1;
        }
        let waiting = AtomicUsize::new(0);
        let (slowest, operations) = (AtomicU64::new(0), AtomicU64::new(0));
        processors.run(&|cpu| index_of[cpu] != u16::MAX, &|cpu| {
            let index = usize::from(index_of[cpu]);
            let mut own = allocator.cpu(index);
            if let Some(own) = &mut own {
                ready(index, own);
            }
            waiting.fetch_add(1, Relaxed);
            while waiting.load(Relaxed) < come {
                relax();
            }
            if let Some(own) = &mut own {
                let begin = ticks();
                let done = timed(index, own);
                slowest.fetch_max(ticks() - begin, Relaxed);
                operations.fetch_add(done as u64, Relaxed);
            }
        });
        Done {
            operations: operations.into_inner(),
            ticks: slowest.into_inner(),
        }
    }

    fn pairs<A: Allocator>(&mut self, allocator: &A, order: Order) -> Option<Done> {
        let mut best = None;
        for _ in 0..ROUNDS {
            let done = Self::round(
                self.processors,
                self.threads,
                allocator,
                |_, cpu| {
                    pairs(cpu, order, 100);
                },
                |_, cpu| pairs(cpu, order, OPERATIONS),
            );
            best = Done::faster(best, done);
        }
        best
    }

    fn bulk<A: Allocator>(&mut self, allocator: &A, order: Order) -> Option<Done> {
        let threads = self.threads;
        let blocks = self.blocks(order);
        let each = part(blocks, threads);
        let mut best = None;
        for _ in 0..ROUNDS {
            let parts = Parts::new(self.held.blocks[..blocks].chunks_exact_mut(each));
            let done = Self::round(
                self.processors,
                threads,
                allocator,
                |_, _| {},
                |_, cpu| {
                    let slots = parts.next().unwrap_or_default();
                    let filled = fill(cpu, order, slots);
                    empty(cpu, order, slots.get(..filled).unwrap_or_default())
                },
            );
            best = Done::faster(best, done);
        }
        best
    }

    /// Fills the list, each CPU a part, and shuffles the whole; how many blocks it has.
    fn take<A: Allocator>(&mut self, allocator: &A, order: Order) -> usize {
        let blocks = self.blocks(order);
        let each = part(blocks, self.threads);
        self.held.blocks.fill(NONE);
        let parts = Parts::new(self.held.blocks[..blocks].chunks_exact_mut(each));
        Self::round(
            self.processors,
            self.threads,
            allocator,
            |_, _| {},
            |_, cpu| fill(cpu, order, parts.next().unwrap_or_default()),
        );
        // Where memory was out, there are gaps.
        let mut taken = 0;
        for at in 0..self.held.blocks.len() {
            if self.held.blocks[at] != NONE {
                self.held.blocks.swap(taken, at);
                taken += 1;
            }
        }
        Random::new(1).shuffle(&mut self.held.blocks[..taken]);
        taken
    }

    fn random_free<A: Allocator>(&mut self, allocator: &A, order: Order) -> Option<Done> {
        let mut best = None;
        for _ in 0..ROUNDS {
            let taken = self.take(allocator, order);
            // The first parts are larger by one, until the remainder is used.
            let each = taken.div_ceil(self.threads).max(1);
            let parts = Parts::new(self.held.blocks[..taken].chunks_mut(each));
            let done = Self::round(
                self.processors,
                self.threads,
                allocator,
                |_, _| {},
                |_, cpu| empty(cpu, order, parts.next().unwrap_or_default()),
            );
            best = Done::faster(best, done);
        }
        best
    }

    fn cross_cpu<A: Allocator>(&mut self, allocator: &A, order: Order) -> Option<Done> {
        let (threads, rings) = (self.threads, self.held.rings);
        let mut best = None;
        for _ in 0..ROUNDS {
            let done = Self::round(
                self.processors,
                threads,
                allocator,
                |_, _| {},
                |index, cpu| {
                    let Some(ring) = rings.get(index / 2) else {
                        return 0;
                    };
                    if index % 2 == 1 {
                        ring.consumer().consume(cpu, order, &relax);
                        // The producer counts the operations.
                        0
                    } else if index + 1 == threads {
                        alternate(ring, cpu, order, OPERATIONS)
                    } else {
                        let mut into = ring.producer();
                        let more = || {
                            relax();
                            true
                        };
                        let done = into.produce(cpu, order, OPERATIONS, &more);
                        into.end(&relax);
                        done
                    }
                },
            );
            best = Done::faster(best, done);
        }
        best
    }

    fn mixed<A: Allocator>(&mut self, allocator: &A) -> Option<Done> {
        let mut best = None;
        for seed in 1..=ROUNDS as u64 {
            let parts = Parts::new(self.held.live.chunks_exact_mut(LIVE));
            let done = Self::round(
                self.processors,
                self.threads,
                allocator,
                |_, _| {},
                |_, cpu| {
                    let mut mixed = Mixed::new(parts.next().unwrap_or_default(), seed);
                    let done = mixed.run(cpu, OPERATIONS);
                    mixed.end(cpu);
                    done
                },
            );
            best = Done::faster(best, done);
        }
        best
    }

    /// All of memory is held except one in a hundred of the list's pages.
    fn near_full<A: Allocator>(&mut self, allocator: &A) -> Option<Done> {
        let order = Order::PAGE;
        let taken = self.take(allocator, order);
        let rest = match allocator.cpu(0) {
            Some(mut cpu) => {
                let rest = hoard(&mut cpu, self.held.rest);
                empty(&mut cpu, order, &self.held.blocks[..taken / ONE_FREE_OF]);
                rest
            }
            None => 0,
        };
        let held = &mut self.held.blocks[taken / ONE_FREE_OF..taken];
        let each = part(held.len(), self.threads);
        let mut best = None;
        for seed in 1..=ROUNDS as u64 {
            let parts = Parts::new(held.chunks_exact_mut(each));
            let done = Self::round(
                self.processors,
                self.threads,
                allocator,
                |_, _| {},
                |_, cpu| match parts.next() {
                    Some(held) => Churn::new(held, seed).run(cpu, order, OPERATIONS),
                    None => 0,
                },
            );
            best = Done::faster(best, done);
        }
        let held = held.iter().filter(|frame| **frame != NONE);
        let held = held.map(|frame| (*frame, order));
        let rest = self.held.rest.iter().take(rest).copied();
        let mut back = held.chain(rest).peekable();
        // A CPU whose list is full leaves the rest to the next.
        for mut cpu in (0..self.processors.started()).map_while(|index| allocator.cpu(index)) {
            while (back.next_if(|&(frame, order)| cpu.free(frame, order))).is_some() {}
        }
        best
    }
}

/// How many blocks of `order` there are, as far as they fit `list`.
fn count<A: Allocator>(allocator: &A, order: Order, list: &mut [Frame]) -> usize {
    let Some(mut cpu) = allocator.cpu(0) else {
        return 0;
    };
    let taken = fill(&mut cpu, order, list);
    empty(&mut cpu, order, &list[..taken])
}

/// Allocates the rest of memory, the largest blocks first, as far as they fit `list`;
/// how many blocks.
fn hoard<C: Cpu>(cpu: &mut C, list: &mut [(Frame, Order)]) -> usize {
    let mut orders = (0..=Order::GIANT.get()).rev().filter_map(Order::new);
    let mut order = orders.next();
    let mut taken = 0;
    for slot in list {
        let block = loop {
            let Some(wanted) = order else {
                return taken;
            };
            match cpu.allocate(wanted) {
                Some(frame) => break (frame, wanted),
                None => order = orders.next(),
            }
        };
        *slot = block;
        taken += 1;
    }
    taken
}

/// Parts of a list, one for each CPU that takes one.
struct Parts<I>(Mutex<I>);

impl<I: Iterator> Parts<I> {
    fn new(parts: I) -> Self {
        Self(Mutex::new(parts))
    }

    fn next(&self) -> Option<I::Item> {
        self.0.lock().next()
    }
}
