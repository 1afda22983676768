//! Huge and giant frames left by long-lived blocks: [`Lifetimes`].
//!
//! Memory fills to 60 percent with blocks of orders 0 to 3. Seven of ten are movable,
//! and allocated as such; of the others every fifteenth stays to the end. Then as many
//! blocks again are freed and allocated at random. At the end all short-lived and all
//! movable blocks are freed, and huge and giant frames are allocated from the rest.
//!
//! No allocator knows which unmovable blocks will stay. When they are most they fill a number of huge frames, some 284
//! blocks each: one becomes free again with a chance of (14/15)^284, or 3e-9. What is left at best is all others.

use super::contestant::{Contestant, Visitor};
use super::ground::Ground;
use super::record::Fragmentation;
use super::workers::Limit;
use firstlight::addr::{Frame, Order};
use firstlight_figures::random::Random;
use firstlight_workloads::{Allocator, Cpu, Mobility};
use std::error::Error;

/// Percent of memory that is filled.
const FILLED_PERCENT: u64 = 60;
/// One of so many unmovable blocks stays.
const ONE_STAYS_OF: usize = 15;
/// Of a hundred blocks, how many are of order 0, 1, 2 and 3.
const ORDERS: [usize; 4] = [70, 15, 10, 5];

/// Blocks with random lifetimes.
pub(super) struct Lifetimes {
    limit: Limit,
    target_frames: u64,
    random: Random,
    short: Vec<(Frame, Order, Mobility)>,
    long: Vec<(Frame, Order)>,
    held_frames: u64,
    unmovable_frames: u64,
    /// The most of these at a time.
    unmovable_peak: u64,
    cut_short: bool,
    found: [u64; 2],
    at_start: [u64; 2],
}

/// Frames of all of `blocks`.
fn frames(blocks: &[(Frame, Order)]) -> u64 {
    blocks.iter().map(|(_, order)| order.frames()).sum()
}

impl Lifetimes {
    pub(super) fn new(ground: &Ground, budget_ns: u64) -> Self {
        Self {
            limit: Limit::new(budget_ns),
            target_frames: ground.frames * FILLED_PERCENT / 100,
            random: Random::new(21),
            short: Vec::new(),
            long: Vec::new(),
            held_frames: 0,
            unmovable_frames: 0,
            unmovable_peak: 0,
            cut_short: false,
            found: [0; 2],
            at_start: [0; 2],
        }
    }

    /// Frames of the blocks that stay.
    pub(super) fn long_frames(&self) -> u64 {
        frames(&self.long)
    }

    /// Frames of all blocks.
    pub(super) fn held_frames(&self) -> u64 {
        self.held_frames
    }

    /// Whether time was up before the end.
    pub(super) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The blocks that stay.
    pub(super) fn long(&self) -> &[(Frame, Order)] {
        &self.long
    }

    /// The result.
    pub(super) fn row(&self, contestant: Contestant) -> Fragmentation {
        let [huge, giant] = self.at_start;
        let huge_at_best = huge.saturating_sub(self.unmovable_peak / Order::HUGE.frames());
        let giants_of_huge = huge_at_best * Order::HUGE.frames() / Order::GIANT.frames();
        Fragmentation {
            contestant: contestant.name(),
            long_lived_frames: self.long_frames(),
            huge_frames: self.found[0],
            huge_at_best,
            giant_frames: self.found[1],
            giant_at_best: giant.min(giants_of_huge),
            cut_short: self.cut_short,
        }
    }

    fn order(&mut self) -> Order {
        let mut left = self.random.below(100);
        for (order, percent) in (0..).zip(ORDERS) {
            if left < percent {
                return Order::new(order).unwrap_or(Order::PAGE);
            }
            left -= percent;
        }
        Order::PAGE
    }

    /// One more block; whether there was one.
    fn come<C: Cpu>(&mut self, cpu: &mut C) -> bool {
        let order = self.order();
        let mobility = if self.random.below(10) < 7 {
            Mobility::Movable
        } else {
            Mobility::Unmovable
        };
        let stays = mobility == Mobility::Unmovable && self.random.below(ONE_STAYS_OF) == 0;
        let Some(frame) = cpu.allocate_for(order, mobility) else {
            return false;
        };
        self.held_frames += order.frames();
        if mobility == Mobility::Unmovable {
            self.unmovable_frames += order.frames();
            self.unmovable_peak = self.unmovable_peak.max(self.unmovable_frames);
        }
        if stays {
            self.long.push((frame, order));
        } else {
            self.short.push((frame, order, mobility));
        }
        true
    }

    /// A short-lived block goes.
    fn go<C: Cpu>(&mut self, cpu: &mut C) {
        if self.short.is_empty() {
            return;
        }
        let at = self.random.below(self.short.len());
        let (frame, order, mobility) = self.short.swap_remove(at);
        self.held_frames -= order.frames();
        if mobility == Mobility::Unmovable {
            self.unmovable_frames -= order.frames();
        }
        cpu.free(frame, order);
    }

    /// Fills memory, lets blocks come and go.
    pub(super) fn live<C: Cpu>(&mut self, cpu: &mut C) {
        let pace = self.limit.pace();
        let most = usize::try_from(self.target_frames).unwrap_or(usize::MAX);
        let mut full = false;
        pace.run(most, |some| {
            let len = some.len();
            let done = some.take_while(|_| {
                full = self.held_frames >= self.target_frames || !self.come(cpu);
                !full
            });
            done.count().min(len)
        });
        let again = self.short.len();
        let done = pace.run(again, |some| {
            for _ in some.clone() {
                self.go(cpu);
                while self.held_frames < self.target_frames && self.come(cpu) {}
            }
            some.len()
        });
        self.cut_short = !full || done < again;
        cpu.drain();
    }

    /// Frees all but those that stay.
    pub(super) fn end<C: Cpu>(&mut self, cpu: &mut C) {
        let short = std::mem::take(&mut self.short);
        // Without this the rest means nothing, so it has no limit but its own.
        let pace = Limit::new(1_000_000_000).pace();
        let freed = pace.run(short.len(), |some| {
            let blocks = short.get(some.clone()).unwrap_or_default();
            for (frame, order, _) in blocks {
                cpu.free(*frame, *order);
            }
            some.len()
        });
        self.cut_short |= freed < short.len();
        cpu.drain();
    }
}

/// How many blocks of `order` there are: allocates all and frees them.
fn count<C: Cpu>(cpu: &mut C, order: Order) -> u64 {
    let taken: Vec<Frame> = std::iter::from_fn(|| cpu.allocate(order)).collect();
    for frame in &taken {
        cpu.free(*frame, order);
    }
    cpu.drain();
    taken.len() as u64
}

impl Visitor for Lifetimes {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        _touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut cpu = allocator.cpu(0).ok_or("no handle for the first CPU")?;
        self.at_start = [Order::HUGE, Order::GIANT].map(|order| count(&mut cpu, order));
        self.live(&mut cpu);
        self.end(&mut cpu);
        self.found = [Order::HUGE, Order::GIANT].map(|order| count(&mut cpu, order));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Need;
    use super::*;

    /// Of 12 that can be left, each mobility begins at its own end of memory.
    #[test]
    fn long_lived_blocks_leave_ten_giant_frames_of_16_gib() {
        let ground = Ground::new(16 << 30).unwrap();
        let mut lifetimes = Lifetimes::new(&ground, 600_000_000_000);
        let (order, threads) = (Order::HUGE, 1);
        let need = Need { order, threads };
        let ours = Contestant::Firstlight;
        ours.show(&ground, need, &mut lifetimes).unwrap();
        let row = lifetimes.row(ours);
        assert_eq!(lifetimes.unmovable_peak / Order::HUGE.frames(), 1528);
        assert!(!row.cut_short && row.giant_at_best == 12, "{row:?}");
        assert!(row.giant_frames >= 10, "{row:?}");
        assert!(row.huge_frames + 8 >= row.huge_at_best, "{row:?}");
    }
}
