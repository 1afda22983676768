//! From the CPU that allocates to the one that frees: [`Ring`], bounded, with one
//! producer and one consumer. Each reads the other's counter only when its last
//! reading leaves it nothing to do.

use crate::Cpu;
use crate::lock::Line;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use firstlight::addr::{Frame, Order};

/// Marks the end.
const END: u64 = u64::MAX;
/// Requests of a producer when memory is out: the consumer may free some.
const TRIES: usize = 1 << 16;

/// A bounded queue of frames, in memory of the caller.
#[derive(Debug)]
pub struct Ring<'s> {
    slots: &'s [AtomicU64],
    /// Frames put in so far; the producer stores it Release, after the slot.
    put: Line<AtomicUsize>,
    /// Frames taken out so far; the consumer stores it Release, after the slot.
    taken: Line<AtomicUsize>,
}

impl<'s> Ring<'s> {
    /// Holds as many frames as there are slots, rounded down to a power of two.
    #[must_use]
    pub fn new(slots: &'s [AtomicU64]) -> Self {
        let len = slots.len().checked_ilog2().map_or(0, |log| 1 << log);
        Self {
            slots: slots.get(..len).unwrap_or_default(),
            put: Line(AtomicUsize::new(0)),
            taken: Line(AtomicUsize::new(0)),
        }
    }

    /// The end that puts in; there must be one at a time.
    #[must_use]
    pub fn producer(&self) -> Producer<'_> {
        Producer {
            ring: self,
            put: self.put.0.load(Ordering::Relaxed),
            taken: self.taken.0.load(Ordering::Acquire),
        }
    }

    /// The end that takes out; there must be one at a time.
    #[must_use]
    pub fn consumer(&self) -> Consumer<'_> {
        Consumer {
            ring: self,
            taken: self.taken.0.load(Ordering::Relaxed),
            put: self.put.0.load(Ordering::Acquire),
        }
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<&AtomicU64> {
        // A power of two: no division.
        self.slots.get(at & self.slots.len().wrapping_sub(1))
    }
}

/// The end of a [`Ring`] where frames go in.
#[derive(Debug)]
pub struct Producer<'r> {
    ring: &'r Ring<'r>,
    put: usize,
    taken: usize,
}

impl Producer<'_> {
    #[inline]
    fn put(&mut self, word: u64) -> bool {
        let len = self.ring.slots.len();
        if self.put - self.taken == len {
            self.taken = self.ring.taken.0.load(Ordering::Acquire);
            if self.put - self.taken == len {
                return false;
            }
        }
        let Some(slot) = self.ring.slot(self.put) else {
            return false;
        };
        slot.store(word, Ordering::Relaxed);
        self.put += 1;
        self.ring.put.0.store(self.put, Ordering::Release);
        true
    }

    /// Allocates up to `count` blocks and puts them in; how many. While the ring is full
    /// or memory is out it calls `wait`, which returns whether there is still time.
    #[inline]
    pub fn produce<C: Cpu>(
        &mut self,
        cpu: &mut C,
        order: Order,
        count: usize,
        wait: &impl Fn() -> bool,
    ) -> usize {
        for done in 0..count {
            let mut requests = (0..TRIES)
                .take_while(|again| *again == 0 || wait())
                .map(|_| cpu.allocate(order));
            let Some(frame) = requests.find_map(|frame| frame) else {
                return done;
            };
            while !self.put(frame.get()) {
                if !wait() {
                    cpu.free(frame, order);
                    return done;
                }
            }
        }
        count
    }

    /// Puts in the end; the consumer stops there.
    pub fn end(&mut self, wait: &impl Fn()) {
        while !self.put(END) {
            wait();
        }
    }
}

/// The end of a [`Ring`] where frames come out.
#[derive(Debug)]
pub struct Consumer<'r> {
    ring: &'r Ring<'r>,
    taken: usize,
    put: usize,
}

impl Consumer<'_> {
    #[inline]
    fn take(&mut self) -> Option<u64> {
        if self.taken == self.put {
            self.put = self.ring.put.0.load(Ordering::Acquire);
            if self.taken == self.put {
                return None;
            }
        }
        let word = self.ring.slot(self.taken)?.load(Ordering::Relaxed);
        self.taken += 1;
        self.ring.taken.0.store(self.taken, Ordering::Release);
        Some(word)
    }

    /// Takes blocks out and frees them until the producer's end, calling `wait` while
    /// there are none; how many were freed.
    #[inline]
    pub fn consume<C: Cpu>(&mut self, cpu: &mut C, order: Order, wait: &impl Fn()) -> usize {
        let mut freed = 0;
        loop {
            match self.take() {
                None => wait(),
                Some(END) => return freed,
                Some(number) => freed += usize::from(cpu.free(Frame::new(number), order)),
            }
        }
    }

    /// Frees all blocks in the ring; how many.
    #[inline]
    fn consume_all<C: Cpu>(&mut self, cpu: &mut C, order: Order) -> usize {
        let mut freed = 0;
        while let Some(number) = self.take() {
            freed += usize::from(cpu.free(Frame::new(number), order));
        }
        freed
    }
}

/// Both ends on one CPU: fills the ring, empties it, and so on, for `count` blocks.
#[inline]
pub fn alternate<C: Cpu>(ring: &Ring<'_>, cpu: &mut C, order: Order, count: usize) -> usize {
    let (mut into, mut out) = (ring.producer(), ring.consumer());
    let mut done = 0;
    while done < count {
        let portion = (count - done).min(ring.slots.len());
        for _ in 0..portion {
            let Some(frame) = cpu.allocate(order) else {
                break;
            };
            into.put(frame.get());
        }
        let freed = out.consume_all(cpu, order);
        done += freed;
        // Memory may be there once all is freed; without any this is the end.
        if freed == 0 {
            break;
        }
    }
    done
}

/// Allocates ascending numbers and accepts any: the cost of the ring itself.
#[derive(Debug, Default)]
pub struct Nothing(u64);

impl Cpu for Nothing {
    #[inline]
    fn allocate(&mut self, _order: Order) -> Option<Frame> {
        self.0 += 1;
        Some(Frame::new(self.0))
    }

    #[inline]
    fn free(&mut self, frame: Frame, _order: Order) -> bool {
        core::hint::black_box(frame).get() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::thread;
    use std::vec::Vec;

    /// Records the frames it frees.
    #[derive(Default)]
    struct Recorded(Nothing, Vec<u64>);

    impl Cpu for Recorded {
        fn allocate(&mut self, order: Order) -> Option<Frame> {
            self.0.allocate(order)
        }

        fn free(&mut self, frame: Frame, _order: Order) -> bool {
            self.1.push(frame.get());
            true
        }
    }

    fn slots(len: usize) -> Vec<AtomicU64> {
        (0..len).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn all_come_out_in_order() {
        for (len, holds) in [(1, 1), (2, 2), (7, 4), (64, 64)] {
            let slots = slots(len);
            let ring = Ring::new(&slots);
            // Both ends of one that holds nothing would wait forever.
            assert_eq!(ring.slots.len(), holds);
            let mut recorded = Recorded::default();
            let wait = thread::yield_now;
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut into = ring.producer();
                    for portion in [300, 0, 200] {
                        let mut cpu = Nothing(if portion == 200 { 300 } else { 0 });
                        let more = || {
                            wait();
                            true
                        };
                        assert_eq!(into.produce(&mut cpu, Order::PAGE, portion, &more), portion);
                    }
                    into.end(&wait);
                });
                assert_eq!(
                    ring.consumer().consume(&mut recorded, Order::PAGE, &wait),
                    500
                );
            });
            assert!(recorded.1.into_iter().eq(1..=500), "{len} slots");
        }
    }

    /// Has so many blocks left.
    struct Few(usize);

    impl Cpu for Few {
        fn allocate(&mut self, _order: Order) -> Option<Frame> {
            self.0 = self.0.checked_sub(1)?;
            Some(Frame::new(1))
        }

        fn free(&mut self, _frame: Frame, _order: Order) -> bool {
            self.0 += 1;
            true
        }
    }

    #[test]
    fn memory_that_is_out_is_requested_again() {
        let slots = slots(8);
        let ring = Ring::new(&slots);
        assert_eq!(alternate(&ring, &mut Few(3), Order::PAGE, 20), 20);
        assert_eq!(alternate(&ring, &mut Few(0), Order::PAGE, 20), 0);
        let mut into = ring.producer();
        assert_eq!(into.produce(&mut Few(5), Order::PAGE, 8, &|| true), 5);
    }

    #[test]
    fn without_time_a_producer_stops_waiting_and_keeps_nothing() {
        let waits = Cell::new(0);
        let thrice = || {
            waits.set(waits.get() + 1);
            waits.get() % 3 != 0
        };
        let slots = slots(4);
        let ring = Ring::new(&slots);
        let mut into = ring.producer();
        // No memory: the third wait is the last.
        assert_eq!(into.produce(&mut Few(0), Order::PAGE, 9, &thrice), 0);
        assert_eq!(waits.get(), 3);
        // The ring is full: the block for the fifth slot is freed.
        let mut few = Few(9);
        assert_eq!(into.produce(&mut few, Order::PAGE, 9, &thrice), 4);
        assert_eq!((waits.get(), few.0), (6, 5));
    }

    #[test]
    fn one_cpu_alternates() {
        let slots = slots(8);
        let mut recorded = Recorded::default();
        assert_eq!(
            alternate(&Ring::new(&slots), &mut recorded, Order::PAGE, 21),
            21
        );
        assert!(recorded.1.into_iter().eq(1..=21));
    }
}
