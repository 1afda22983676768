//! A queue: [`Queue`] sends chains of buffers and takes the device's answers.
//!
//! The driver keeps its own copy of everything it needs to know: of the shared memory it reads
//! only the index and the heads of answers, and checks both.

use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

use super::ring::{MOST_BUFFERS, NEXT, NO_INTERRUPT, Ring, WRITE};
use super::{QueueAddresses, VirtioError};

/// `MOST_BUFFERS` in the queue's own numbers.
const SIZE: u16 = 32;
const _: () = assert!(SIZE as usize == MOST_BUFFERS && SIZE.is_power_of_two());

/// A buffer of a chain, by physical address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: u32,
    /// Whether the device writes to it; else it reads.
    pub device_writes: bool,
}

/// A queue whose device has been given its addresses.
#[derive(Debug)]
pub struct Queue<'r> {
    number: u16,
    ring: &'r Ring,
    /// The buffer that follows in the list of free ones, or in its chain.
    next: [u16; MOST_BUFFERS],
    /// Buffers of the chain that begins here; 0: none in flight does.
    chain: [u16; MOST_BUFFERS],
    first_free: u16,
    free: u16,
    sent: u16,
    answered: u16,
    in_flight: u16,
}

impl<'r> Queue<'r> {
    /// The queue `number` in `ring`, which no device uses now.
    pub fn new(number: u16, ring: &'r Ring) -> Self {
        ring.available.flags.store(NO_INTERRUPT, Relaxed);
        ring.available.index.store(0, Relaxed);
        ring.used.index.store(0, Relaxed);
        let mut next = [0; MOST_BUFFERS];
        next.iter_mut()
            .zip(1..)
            .for_each(|(next, after)| *next = after);
        Self {
            number,
            ring,
            next,
            chain: [0; MOST_BUFFERS],
            first_free: 0,
            free: SIZE,
            sent: 0,
            answered: 0,
            in_flight: 0,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Buffers that it holds.
    #[must_use]
    pub const fn size(&self) -> u16 {
        SIZE
    }

    /// Whether the device has chains that it has not answered.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// Where its parts are, if its ring is at the physical address `at`.
    #[must_use]
    pub const fn addresses(at: u64) -> QueueAddresses {
        QueueAddresses {
            descriptors: at + offset_of!(Ring, descriptors) as u64,
            available: at + offset_of!(Ring, available) as u64,
            used: at + offset_of!(Ring, used) as u64,
        }
    }

    /// Sends `buffers` as one chain, which the device may use until it is answered or reset.
    ///
    /// # Errors
    /// [`VirtioError::Full`], also for an empty chain.
    pub fn send(&mut self, buffers: &[Buffer]) -> Result<(), VirtioError> {
        let full = VirtioError::Full { queue: self.number };
        let count = u16::try_from(buffers.len()).map_err(|_| full)?;
        if count == 0 || count > self.free {
            return Err(full);
        }
        let head = self.first_free;
        let mut at = head;
        for (position, buffer) in (1..).zip(buffers) {
            let place = usize::from(at);
            let (Some(descriptor), Some(next)) =
                (self.ring.descriptors.get(place), self.next.get(place))
            else {
                return Err(full);
            };
            let write = if buffer.device_writes { WRITE } else { 0 };
            let more = if position < count { NEXT } else { 0 };
            descriptor.address.store(buffer.address, Relaxed);
            descriptor.bytes.store(buffer.bytes, Relaxed);
            descriptor.flags.store(write | more, Relaxed);
            descriptor.next.store(*next, Relaxed);
            at = *next;
        }
        self.first_free = at;
        self.free -= count;
        self.in_flight += 1;
        if let Some(chain) = self.chain.get_mut(usize::from(head)) {
            *chain = count;
        }
        if let Some(slot) = self.ring.available.heads.get(usize::from(self.sent % SIZE)) {
            slot.store(head, Relaxed);
        }
        self.sent = self.sent.wrapping_add(1);
        // The device that sees the index sees the chain.
        self.ring.available.index.store(self.sent, Release);
        // And the notification comes after both.
        fence(SeqCst);
        Ok(())
    }

    /// The next answer: the bytes that the device says it wrote. `None`: none has come.
    ///
    /// # Errors
    /// [`VirtioError::WrongAnswer`]: the device must be reset.
    pub fn answer(&mut self) -> Result<Option<u32>, VirtioError> {
        // Pairs with the device, which writes the answer first.
        let index = self.ring.used.index.load(Acquire);
        let come = index.wrapping_sub(self.answered);
        if come == 0 {
            return Ok(None);
        }
        let wrong = |seen| VirtioError::WrongAnswer {
            queue: self.number,
            seen,
        };
        if come > self.in_flight {
            return Err(wrong(index.into()));
        }
        let slot = usize::from(self.answered % SIZE);
        let answer = self.ring.used.answers.get(slot);
        let (head, bytes) = answer.map_or((u32::MAX, 0), |answer| {
            (answer.head.load(Relaxed), answer.bytes.load(Relaxed))
        });
        let place = usize::try_from(head).unwrap_or(usize::MAX);
        let count = match self.chain.get_mut(place) {
            Some(count) if *count > 0 => core::mem::take(count),
            _ => return Err(wrong(head)),
        };
        self.release(place, count);
        self.answered = self.answered.wrapping_add(1);
        self.in_flight -= 1;
        Ok(Some(bytes))
    }

    /// Puts the `count` buffers of the chain at `head` back into the list of free ones.
    fn release(&mut self, head: usize, count: u16) {
        let mut last = head;
        for _ in 1..count {
            last = self.next.get(last).map_or(last, |next| usize::from(*next));
        }
        if let Some(next) = self.next.get_mut(last) {
            *next = self.first_free;
        }
        self.first_free = u16::try_from(head).unwrap_or(0);
        self.free += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn buffers(count: usize) -> Vec<Buffer> {
        (0..count as u64)
            .map(|at| Buffer {
                address: at << 21,
                bytes: 1 << 21,
                device_writes: true,
            })
            .collect()
    }

    /// Answers the `number`th answer with `head`.
    fn answer(ring: &Ring, number: u16, head: u32) {
        let slot = &ring.used.answers[usize::from(number % SIZE)];
        slot.head.store(head, Relaxed);
        slot.bytes.store(7, Relaxed);
        ring.used.index.store(number.wrapping_add(1), Release);
    }

    #[test]
    fn chains_go_out_and_come_back_in_any_order() {
        let ring = Ring::new();
        let mut queue = Queue::new(3, &ring);
        let mut number = 0;
        for round in 0..5000_u16 {
            queue.send(&buffers(usize::from(round % 11) + 1)).unwrap();
            queue.send(&buffers(usize::from(round % 7) + 1)).unwrap();
            let heads: Vec<u16> = [2, 1]
                .map(|back| queue.sent.wrapping_sub(back) % SIZE)
                .map(|slot| ring.available.heads[usize::from(slot)].load(Relaxed))
                .into();
            for head in heads.iter().rev() {
                assert!(queue.is_busy());
                answer(&ring, number, u32::from(*head));
                number = number.wrapping_add(1);
                assert_eq!(queue.answer(), Ok(Some(7)));
            }
            assert_eq!(queue.answer(), Ok(None));
            assert_eq!((queue.free, queue.is_busy()), (SIZE, false));
        }
    }

    #[test]
    fn a_chain_is_linked_and_a_full_queue_refuses() {
        let ring = Ring::new();
        let mut queue = Queue::new(3, &ring);
        queue.send(&buffers(MOST_BUFFERS)).unwrap();
        let mut at = usize::from(ring.available.heads[0].load(Relaxed));
        for position in 0..MOST_BUFFERS as u64 {
            let descriptor = &ring.descriptors[at];
            assert_eq!(descriptor.address.load(Relaxed), position << 21);
            let last = position == MOST_BUFFERS as u64 - 1;
            let flags = if last { WRITE } else { WRITE | NEXT };
            assert_eq!(descriptor.flags.load(Relaxed), flags);
            at = usize::from(descriptor.next.load(Relaxed));
        }
        let full = Err(VirtioError::Full { queue: 3 });
        assert_eq!(queue.send(&buffers(1)), full);
        assert_eq!(Queue::new(3, &Ring::new()).send(&[]), full);
        let long = Queue::new(3, &Ring::new()).send(&buffers(MOST_BUFFERS + 1));
        assert_eq!(long, full);
    }

    #[test]
    fn answers_that_were_not_sent_are_errors() {
        let wrong = |seen| Err(VirtioError::WrongAnswer { queue: 3, seen });
        let sent = |ring| {
            let mut queue = Queue::new(3, ring);
            queue.send(&buffers(2)).unwrap();
            queue
        };
        let ring = Ring::new();
        // More answers than chains.
        let mut queue = sent(&ring);
        ring.used.index.store(2, Release);
        assert_eq!(queue.answer(), wrong(2));
        // A buffer that is not the head of a chain, and one that does not exist.
        for head in [1, 5, SIZE.into(), u32::MAX] {
            let mut queue = sent(&ring);
            answer(&ring, 0, head);
            assert_eq!(queue.answer(), wrong(head));
        }
        // One buffer twice.
        let mut queue = sent(&ring);
        queue.send(&buffers(1)).unwrap();
        answer(&ring, 0, 0);
        assert_eq!(queue.answer(), Ok(Some(7)));
        answer(&ring, 1, 0);
        assert_eq!(queue.answer(), wrong(0));
    }
}
