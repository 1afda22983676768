//! One bounded step of a worker: [`Worker::step`], and what all workers share: [`Zeroing`].

use super::knobs::Settings;
use super::pace::Pace;
use super::statistics::Counters;
use super::{Decision, Knob, Knobs, Memory, Policy, Seen, Statistics};
use crate::addr::{Order, PAGE_BYTES};
use crate::background::Next;
use crate::background::knobs::KnobError;
use crate::frames::{Borrowed, Content, Cursor, Frames, ZeroedFrames};
use crate::node::{NodeId, ZoneKind};

/// Batches after which a worker reads its node's statistics again; until then it adds up.
const BATCHES_A_COUNT: u32 = 64;
/// Words that a step looks at for a block.
const STEP_WORDS: usize = 512;

/// What the workers of a machine share: knobs, the rate limit, sums.
///
/// A kernel has one of it, and a [`Worker`] in a thread of each node, on that node's CPUs.
#[derive(Debug)]
pub struct Zeroing<'a, 'm, M> {
    frames: &'a Frames<'m>,
    memory: &'a M,
    settings: Settings,
    pace: Pace,
    counters: Counters,
    /// Of all nodes, when it was made.
    start: Sums,
}

/// What all nodes had of zeros up to a moment, in frames.
#[derive(Debug)]
struct Sums {
    zeroed: ZeroedFrames,
    stock: u64,
}

impl Sums {
    fn of(frames: &Frames<'_>) -> Self {
        let sum = || {
            let mut sum = ZeroedFrames::default();
            frames.zones().for_each(|zone| sum += zone.zeroed_frames());
            sum
        };
        // In the order in which frames go, so that beside other calls none seems wasted that is not.
        let made = sum().made;
        let stock = frames.statistics().zero.frames;
        let zeroed = ZeroedFrames { made, ..sum() };
        Self { zeroed, stock }
    }
}

impl<'a, 'm, M: Memory> Zeroing<'a, 'm, M> {
    /// For `frames`, which `memory` writes; switched off until [`Knob::Enabled`] is set.
    pub fn new(frames: &'a Frames<'m>, memory: &'a M) -> Self {
        Self {
            frames,
            memory,
            settings: Settings::new(),
            pace: Pace::new(),
            counters: Counters::default(),
            start: Sums::of(frames),
        }
    }

    /// Changes a knob, also while workers run: their next step has it. Another rate limit holds from
    /// now on: what was zeroed before counts no more.
    ///
    /// # Errors
    /// [`KnobError`]: the knob does not accept the value, and keeps its own.
    pub fn set(&self, knob: Knob, value: u64) -> Result<(), KnobError> {
        let before = self.knobs().bytes_per_second;
        self.settings.set(knob, value)?;
        if knob == Knob::BytesPerSecond && value != before {
            self.pace.forgive();
        }
        Ok(())
    }

    /// The knobs now.
    pub fn knobs(&self) -> Knobs {
        self.settings.get()
    }

    /// What the workers did up to now.
    pub fn statistics(&self) -> Statistics {
        let (start, now) = (&self.start, Sums::of(self.frames));
        let hit = now.zeroed.hit - start.zeroed.hit;
        let made = now.zeroed.made - start.zeroed.made;
        // No less than nothing where calls in flight have counted a part of what they do.
        let wasted = (start.stock + made).saturating_sub(hit + now.stock);
        Statistics {
            hit_bytes: hit * PAGE_BYTES,
            reported_bytes: (now.zeroed.reported - start.zeroed.reported) * PAGE_BYTES,
            missed_bytes: (now.zeroed.missed - start.zeroed.missed) * PAGE_BYTES,
            wasted_bytes: wasted * PAGE_BYTES,
            ..self.counters.get()
        }
    }

    /// A worker for `node`. There may be several for one node, each in a thread of its own; see
    /// [`Step::workers`].
    pub fn worker(&self, node: NodeId) -> Worker<'_, 'm, M> {
        Worker {
            zeroing: self,
            policy: Policy::new(),
            search: Search::new(node),
            seen: Seen::default(),
            batches: 0,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes that it zeroed.
    pub zeroed_bytes: u64,
    /// Bytes of this node that are to be zeroed next.
    pub backlog_bytes: u64,
    /// When to call again.
    pub next: Next,
}

impl Step {
    /// For how many workers of the node there is work, if `idle` of its CPUs have nothing to do.
    pub fn workers(&self, knobs: &Knobs, idle: u32) -> u32 {
        Policy::workers(self.backlog_bytes, knobs.batch_bytes, idle)
    }
}

/// A worker of one node: the state of a thread between its steps.
#[derive(Debug)]
pub struct Worker<'z, 'm, M> {
    zeroing: &'z Zeroing<'z, 'm, M>,
    policy: Policy,
    search: Search,
    /// The last count, with what was zeroed since.
    seen: Seen,
    /// Batches until the next one.
    batches: u32,
}

impl<M: Memory> Worker<'_, '_, M> {
    /// Looks at the node, and zeroes a batch of its free memory if there is demand. `now` is a clock
    /// in nanoseconds that does not go back.
    ///
    /// ```
    /// use firstlight_workers::background::Next;
    /// use firstlight_workers::zeroing::{Memory, Worker};
    ///
    /// /// The thread of a node, at the lowest priority.
    /// fn thread<M: Memory>(mut worker: Worker<'_, '_, M>, now_ns: fn() -> u64, sleep_until: fn(u64)) -> ! {
    ///     loop {
    ///         match worker.step(now_ns).next {
    ///             Next::Now => {} // a kernel lets other threads run here
    ///             Next::At(ns) => sleep_until(ns),
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Cost
    /// It looks at 512 words at most, and hides one block, of [`Knob::BatchBytes`] or the least
    /// order, for as long as zeroing it takes. Once in 64 batches, and after it has waited, it reads
    /// the statistics of its node.
    pub fn step(&mut self, now: impl Fn() -> u64) -> Step {
        let knobs = self.zeroing.knobs();
        let begin_ns = now();
        let seen = self.look(begin_ns);
        match self.policy.look(&knobs, seen) {
            Decision::Wait { until_ns } => {
                if self.policy.is_backing_off() {
                    self.zeroing.counters.add_back_off();
                }
                self.search.restart();
                self.wait(until_ns)
            }
            Decision::Zero { bytes } => {
                let is_limited = knobs.bytes_per_second > 0;
                if is_limited && let Err(paid_ns) = self.zeroing.pace.may_begin(begin_ns) {
                    self.zeroing.counters.add_back_off();
                    // No longer than between two looks: the rate may be another one by then.
                    let look_ns = begin_ns.saturating_add(knobs.delay_ns());
                    return self.wait(paid_ns.min(look_ns));
                }
                let order = order_of(bytes).max(knobs.min_order);
                match self
                    .search
                    .next(self.zeroing.frames, order, knobs.min_order)
                {
                    Found::Block(block) => {
                        let bytes = self.zero(block, begin_ns, now);
                        let rate = || self.zeroing.knobs().bytes_per_second;
                        self.zeroing.pace.charge(begin_ns, bytes, rate);
                        self.did(bytes, Next::Now)
                    }
                    Found::NotYet => self.did(0, Next::Now),
                    Found::Nothing => {
                        let until_ns = self.policy.exhausted(&knobs, begin_ns);
                        self.wait(until_ns)
                    }
                }
            }
        }
    }

    fn wait(&mut self, until_ns: u64) -> Step {
        self.batches = 0;
        self.did(0, Next::At(until_ns))
    }

    fn did(&self, zeroed_bytes: u64, next: Next) -> Step {
        Step {
            zeroed_bytes,
            backlog_bytes: self.policy.backlog_bytes(),
            next,
        }
    }

    /// What the node has now, counted once in a while.
    fn look(&mut self, now_ns: u64) -> Seen {
        self.seen.refills = None;
        if self.batches == 0 {
            self.batches = BATCHES_A_COUNT;
            self.seen = self.count();
        }
        self.batches -= 1;
        self.seen.now_ns = now_ns;
        self.seen
    }

    fn count(&self) -> Seen {
        let frames = self.zeroing.frames;
        let node = self.search.cursor.node();
        let mut seen = Seen::default();
        for zone in ZoneKind::ALL {
            let zone = frames.zone(node, zone);
            let zeroed = zone.zeroed_frames();
            seen.missed_bytes += zeroed.missed * PAGE_BYTES;
            seen.demand_bytes += zeroed.served() * PAGE_BYTES;
            let zone = zone.statistics();
            // Pages of huge frames that are broken up are not zeroed.
            let known = zone.zero.huges + zone.reported.huges;
            let unknown = zone.free_huges.saturating_sub(known) * Order::HUGE.frames();
            seen.stock_bytes += zone.zero.frames * PAGE_BYTES;
            seen.unknown_bytes += unknown * PAGE_BYTES;
        }
        let events = (0..).map_while(|cpu| frames.cpu_events(cpu));
        let refills = events
            .map(|one| u64::from(one.refills) + u64::from(one.flushes) + u64::from(one.misses));
        seen.refills = Some(refills.sum());
        seen
    }

    /// Zeroes a block and gives it back as such; bytes that it zeroed.
    fn zero(&mut self, block: Borrowed<'_, '_>, begin_ns: u64, now: impl Fn() -> u64) -> u64 {
        let range = block.range();
        // SAFETY: it was free and is borrowed: the allocator hands it to no other code, and none uses
        // what is free, as no code frees what is not its own (the contract of `Memory`).
        unsafe { self.zeroing.memory.zero(range) };
        let bytes = range.count() * PAGE_BYTES;
        let counters = &self.zeroing.counters;
        if block.back(Content::Zero).is_ok() {
            self.seen.stock_bytes = self.seen.stock_bytes.saturating_add(bytes);
        } else {
            counters.add_freed_twice(bytes);
        }
        self.seen.unknown_bytes = self.seen.unknown_bytes.saturating_sub(bytes);
        counters.add_batch(bytes, now().saturating_sub(begin_ns));
        bytes
    }
}

/// The largest block of so many bytes at most.
fn order_of(bytes: u64) -> Order {
    let order = (bytes / PAGE_BYTES).checked_ilog2().unwrap_or(0);
    let order = u8::try_from(order).ok().and_then(Order::new);
    order.unwrap_or(Order::GIANT)
}

/// A search through a node for blocks to zero: the largest first, in one round each.
#[derive(Debug)]
struct Search {
    cursor: Cursor,
    /// The largest blocks it looks for, as the knobs had it.
    most: Order,
    /// Those it looks for now; `None`: the largest again.
    order: Option<Order>,
    /// This round began at the first frame and has found nothing.
    is_empty: bool,
}

/// What a part of it found.
enum Found<'f, 'm> {
    Block(Borrowed<'f, 'm>),
    /// There is more to look at.
    NotYet,
    /// No block of any order.
    Nothing,
}

impl Search {
    fn new(node: NodeId) -> Self {
        Self {
            cursor: Cursor::new(node),
            most: Order::GIANT,
            order: None,
            is_empty: true,
        }
    }

    /// The largest blocks come first again: what is free has changed.
    fn restart(&mut self) {
        (self.order, self.is_empty) = (None, false);
    }

    /// The next block, of `most` at most and `least` at least.
    fn next<'f, 'm>(&mut self, frames: &'f Frames<'m>, most: Order, least: Order) -> Found<'f, 'm> {
        if self.most != most {
            (self.most, self.order) = (most, None);
        }
        let order = self.order.unwrap_or(most).clamp(least, most);
        let rounds = self.cursor.rounds();
        let found = frames.borrow_free(&mut self.cursor, order, Content::Unknown, STEP_WORDS);
        if let Some(block) = found {
            self.order = Some(order);
            self.is_empty = false;
            return Found::Block(block);
        }
        let is_empty = self.is_empty;
        if self.cursor.rounds() == rounds {
            return Found::NotYet;
        }
        self.is_empty = true;
        if !is_empty {
            return Found::NotYet;
        }
        let smaller = order.get().checked_sub(1).and_then(Order::new);
        self.order = smaller.filter(|smaller| *smaller >= least);
        match self.order {
            Some(_) => Found::NotYet,
            None => Found::Nothing,
        }
    }
}
