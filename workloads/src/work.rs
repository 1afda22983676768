//! The loops. Each returns how many operations it did; fewer than requested mean that
//! the allocator refused.
//!
//! An operation of [`pairs`], [`Mixed`] and [`Churn`] is a block allocated and a
//! block freed; of [`fill`] a block allocated, of [`empty`] a block freed.

use crate::Cpu;
use core::hint::black_box;
use firstlight::addr::{Frame, Order};
use firstlight_figures::random::Random;

/// Allocates a block and frees it at once, `count` times.
#[inline]
pub fn pairs<C: Cpu>(cpu: &mut C, order: Order, count: usize) -> usize {
    for done in 0..count {
        let Some(frame) = cpu.allocate(order) else {
            return done;
        };
        // Without it the compiler removes the pair of a list.
        if !cpu.free(black_box(frame), order) {
            return done;
        }
    }
    count
}

/// Allocates a block for each of `slots`.
#[inline]
pub fn fill<C: Cpu>(cpu: &mut C, order: Order, slots: &mut [Frame]) -> usize {
    let count = slots.len();
    for (done, slot) in slots.iter_mut().enumerate() {
        match cpu.allocate(order) {
            Some(frame) => *slot = frame,
            None => return done,
        }
    }
    count
}

/// Frees all of `frames`, in their order.
#[inline]
pub fn empty<C: Cpu>(cpu: &mut C, order: Order, frames: &[Frame]) -> usize {
    for (done, frame) in frames.iter().enumerate() {
        if !cpu.free(*frame, order) {
            return done;
        }
    }
    frames.len()
}

/// How often, of 64 times, [`Mixed`] requests each order from 0 on: mostly pages, few
/// blocks in between, some huge frames.
pub const MIX: [u8; 10] = [32, 9, 7, 5, 3, 2, 1, 1, 1, 3];

/// The order that stands for 6 random bits.
#[must_use]
pub fn mixed_order(bits: u32) -> Order {
    let mut left = (bits % 64) as u8;
    let order = (0..).zip(MIX).find_map(|(order, times)| {
        let hit = left < times;
        left = left.saturating_sub(times);
        hit.then_some(order)
    });
    order.and_then(Order::new).unwrap_or(Order::PAGE)
}

/// Orders 0 to 9 with random lifetimes: a step picks a random slot and frees its
/// block, or allocates one for it.
#[derive(Debug)]
pub struct Mixed<'s> {
    slots: &'s mut [Option<(Frame, Order)>],
    orders: [Order; 64],
    random: Random,
    /// Blocks allocated or freed; two of these are an operation.
    steps: u64,
    refused: u64,
}

impl<'s> Mixed<'s> {
    /// With empty `slots`.
    #[must_use]
    pub fn new(slots: &'s mut [Option<(Frame, Order)>], seed: u64) -> Self {
        let mut orders = [Order::PAGE; 64];
        for (bits, order) in (0..).zip(&mut orders) {
            *order = mixed_order(bits);
        }
        Self {
            slots,
            orders,
            random: Random::new(seed),
            steps: 0,
            refused: 0,
        }
    }

    /// `count` operations.
    #[inline]
    pub fn run<C: Cpu>(&mut self, cpu: &mut C, count: usize) -> usize {
        for _ in 0..count * 2 {
            let at = self.random.below(self.slots.len());
            let Some(slot) = self.slots.get_mut(at) else {
                return 0;
            };
            if let Some((frame, order)) = slot.take() {
                self.steps += u64::from(cpu.free(frame, order));
            } else {
                let order = self.orders[(self.random.bits() % 64) as usize];
                *slot = cpu.allocate(order).map(|frame| (frame, order));
                self.steps += u64::from(slot.is_some());
                self.refused += u64::from(slot.is_none());
            }
        }
        count
    }

    /// Frees the blocks of all slots.
    pub fn end<C: Cpu>(&mut self, cpu: &mut C) {
        for (frame, order) in self.slots.iter_mut().filter_map(Option::take) {
            cpu.free(frame, order);
        }
    }

    /// Requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Most blocks that [`Churn`] frees before it allocates as many.
pub const BURST: usize = 256;

/// Memory that stays equally full: frees up to [`BURST`] blocks in random places, or
/// fewer, allocates as many, and so on.
#[derive(Debug)]
pub struct Churn<'s> {
    /// The held blocks, in random order; [`NONE`] where a request was refused.
    held: &'s mut [Frame],
    at: usize,
    random: Random,
    most: usize,
    refused: u64,
}

/// Stands for no block: no machine has this frame.
const NONE: Frame = Frame::new(u64::MAX);

impl<'s> Churn<'s> {
    /// Over held blocks, at least one, best in random order.
    #[must_use]
    pub fn new(held: &'s mut [Frame], seed: u64) -> Self {
        Self {
            held,
            at: 0,
            random: Random::new(seed),
            most: BURST,
            refused: 0,
        }
    }

    /// Frees at most so many before it allocates as many; 1 at least.
    #[must_use]
    pub fn in_bursts(self, most: usize) -> Self {
        let most = most.clamp(1, BURST);
        Self { most, ..self }
    }

    /// At least `count` operations; a burst is finished.
    #[inline]
    pub fn run<C: Cpu>(&mut self, cpu: &mut C, order: Order, count: usize) -> usize {
        let mut done = 0;
        while done < count {
            let left = self.held.len() - self.at;
            let burst = (self.random.below(self.most) + 1).min(left);
            let Some(held) = self.held.get_mut(self.at..self.at + burst) else {
                return done;
            };
            for frame in held.iter() {
                if *frame != NONE {
                    cpu.free(*frame, order);
                }
            }
            for slot in held {
                *slot = cpu.allocate(order).unwrap_or(NONE);
                self.refused += u64::from(*slot == NONE);
            }
            done += burst;
            self.at += burst;
            if self.at == self.held.len() {
                self.at = 0;
            }
        }
        done.min(count)
    }

    /// Requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    /// Allocates ascending numbers, at most `limit` at a time.
    struct Model {
        live: BTreeSet<(u64, u8)>,
        next: u64,
        limit: usize,
        calls: [usize; 2],
    }

    impl Model {
        fn new(limit: usize) -> Self {
            Self {
                live: BTreeSet::new(),
                next: 0,
                limit,
                calls: [0; 2],
            }
        }
    }

    impl Cpu for Model {
        fn allocate(&mut self, order: Order) -> Option<Frame> {
            if self.live.len() == self.limit {
                return None;
            }
            self.next += 1;
            self.calls[0] += 1;
            self.live.insert((self.next, order.get()));
            Some(Frame::new(self.next))
        }

        fn free(&mut self, frame: Frame, order: Order) -> bool {
            self.calls[1] += 1;
            assert!(self.live.remove(&(frame.get(), order.get())), "freed twice");
            true
        }
    }

    #[test]
    fn pairs_and_bulk_do_as_many_as_they_say() {
        let mut model = Model::new(10);
        assert_eq!(pairs(&mut model, Order::HUGE, 7), 7);
        assert_eq!(model.calls, [7, 7]);
        let mut slots = vec![NONE; 12];
        assert_eq!(fill(&mut model, Order::PAGE, &mut slots), 10);
        assert_eq!(pairs(&mut model, Order::PAGE, 7), 0);
        assert_eq!(empty(&mut model, Order::PAGE, &slots[..10]), 10);
        assert!(model.live.is_empty());
    }

    #[test]
    fn orders_come_as_often_as_the_mix_says() {
        assert_eq!(MIX.iter().sum::<u8>(), 64);
        for (order, times) in (0..).zip(MIX) {
            let order = Order::new(order).expect("below 10");
            let seen = (0..64).filter(|bits| mixed_order(*bits) == order).count();
            assert_eq!(seen, usize::from(times));
        }
    }

    #[test]
    fn mixed_frees_what_it_allocates() {
        let mut model = Model::new(40);
        let mut slots = [None; 64];
        let mut mixed = Mixed::new(&mut slots, 1);
        assert_eq!(mixed.run(&mut model, 5_000), 5_000);
        assert!(mixed.refused() > 0);
        assert_eq!(mixed.steps, (model.calls[0] + model.calls[1]) as u64);
        assert_eq!(mixed.steps + mixed.refused(), 10_000);
        let orders: BTreeSet<u8> = model.live.iter().map(|(_, order)| *order).collect();
        assert!(orders.len() > 4, "{orders:?}");
        mixed.end(&mut model);
        assert!(model.live.is_empty());
    }

    #[test]
    fn churn_keeps_memory_as_full_as_it_was() {
        let mut model = Model::new(1_000);
        let mut held = vec![NONE; 999];
        assert_eq!(fill(&mut model, Order::PAGE, &mut held), 999);
        let mut churn = Churn::new(&mut held, 5);
        assert_eq!(churn.run(&mut model, Order::PAGE, 3_000), 3_000);
        assert_eq!((model.live.len(), churn.refused()), (999, 0));
        // A refused block is requested again.
        model.limit = 900;
        churn.run(&mut model, Order::PAGE, 3_000);
        assert!(churn.refused() > 0);
        assert_eq!(model.live.len(), 900);
        let held: Vec<_> = held.iter().filter(|frame| **frame != NONE).collect();
        assert_eq!(held.len(), 900);
    }

    #[test]
    fn churn_in_small_bursts_is_soon_over() {
        let mut model = Model::new(1_000);
        let mut held = vec![NONE; 999];
        fill(&mut model, Order::PAGE, &mut held);
        for most in [0, 1, 3] {
            let before = model.calls[1];
            Churn::new(&mut held, 5)
                .in_bursts(most)
                .run(&mut model, Order::PAGE, 100);
            let freed = model.calls[1] - before;
            assert!((100..103).contains(&freed), "{freed} in bursts of {most}");
        }
    }
}
