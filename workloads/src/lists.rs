//! Lists of free blocks, last in first out: [`Lifo`] has one for each CPU and is
//! the floor, the least that any allocator does; [`SpinLifo`] has one for all,
//! behind a spin lock, and is the yardstick.
//!
//! Blocks are all of one order. Nothing is split or merged, and a double free goes
//! unnoticed.

use crate::lock::{Line, Lock};
use crate::{Allocator, Cpu};
use core::ops::DerefMut;
use firstlight::addr::{Frame, Order};
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Free blocks in memory of the caller.
#[derive(Debug)]
pub struct Stack<'s> {
    slots: &'s mut [Frame],
    len: usize,
}

impl<'s> Stack<'s> {
    /// Holds the first `len` of `slots`, or all.
    #[must_use]
    pub fn new(slots: &'s mut [Frame], len: usize) -> Self {
        let len = len.min(slots.len());
        Self { slots, len }
    }

    #[inline]
    fn pop(&mut self) -> Option<Frame> {
        self.len = self.len.checked_sub(1)?;
        self.slots.get(self.len).copied()
    }

    #[inline]
    fn push(&mut self, frame: Frame) -> bool {
        let Some(slot) = self.slots.get_mut(self.len) else {
            return false;
        };
        *slot = frame;
        self.len += 1;
        true
    }
}

/// A list for each CPU: no lock, no second CPU, no check.
#[derive(Debug)]
pub struct Lifo<'a, 's>(&'a [Line<SpinMutex<Stack<'s>>>]);

impl<'a, 's> Lifo<'a, 's> {
    /// CPU `i` gets the list at `i`.
    #[must_use]
    pub fn new(lists: &'a [Line<SpinMutex<Stack<'s>>>]) -> Self {
        Self(lists)
    }
}

/// The data of one CPU: a list of a [`Lifo`], a CPU of [`Ours`](crate::ours::Ours).
#[must_use]
pub fn own<T>(value: T) -> Line<SpinMutex<T>> {
    Line(SpinMutex::new(value))
}

/// One CPU's list, locked once for the whole of its work.
#[derive(Debug)]
pub struct LifoCpu<'l, 's>(SpinMutexGuard<'l, Stack<'s>>);

impl<'s> Allocator for Lifo<'_, 's> {
    type Cpu<'l>
        = LifoCpu<'l, 's>
    where
        Self: 'l;

    fn cpu(&self, index: usize) -> Option<LifoCpu<'_, 's>> {
        Some(LifoCpu(self.0.get(index)?.0.try_lock()?))
    }
}

impl Cpu for LifoCpu<'_, '_> {
    #[inline]
    fn allocate(&mut self, _order: Order) -> Option<Frame> {
        self.0.deref_mut().pop()
    }

    #[inline]
    fn free(&mut self, frame: Frame, _order: Order) -> bool {
        self.0.deref_mut().push(frame)
    }
}

/// One list behind a [`Lock`].
#[derive(Debug)]
pub struct SpinLifo<'s>(Lock<Stack<'s>>);

impl<'s> SpinLifo<'s> {
    /// Over the blocks of `stack`; `give_way` is that of [`Lock::new`].
    #[must_use]
    pub fn new(stack: Stack<'s>, give_way: fn()) -> Self {
        Self(Lock::new(stack, give_way))
    }
}

impl<'s> Allocator for SpinLifo<'s> {
    type Cpu<'l>
        = &'l Self
    where
        Self: 'l;

    fn cpu(&self, _index: usize) -> Option<&Self> {
        Some(self)
    }
}

impl Cpu for &SpinLifo<'_> {
    #[inline]
    fn allocate(&mut self, _order: Order) -> Option<Frame> {
        self.0.lock().pop()
    }

    #[inline]
    fn free(&mut self, frame: Frame, _order: Order) -> bool {
        self.0.lock().push(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn last_in_first_out_until_empty_or_full() {
        let mut slots: Vec<Frame> = (0..3).map(Frame::new).collect();
        let mut stack = Stack::new(&mut slots, 2);
        assert_eq!(stack.pop(), Some(Frame::new(1)));
        assert!(stack.push(Frame::new(7)) && stack.push(Frame::new(8)));
        assert!(!stack.push(Frame::new(9)));
        let rest: Vec<_> = core::iter::from_fn(|| stack.pop())
            .map(Frame::get)
            .collect();
        assert_eq!(rest, [8, 7, 0]);
    }

    #[test]
    fn a_list_has_one_holder() {
        let mut slots = [Frame::new(5)];
        let lists = [own(Stack::new(&mut slots, 1))];
        let lifo = Lifo::new(&lists);
        let mut cpu = lifo.cpu(0).expect("it is free");
        assert!(lifo.cpu(0).is_none() && lifo.cpu(1).is_none());
        assert_eq!(cpu.allocate(Order::PAGE), Some(Frame::new(5)));
    }
}
