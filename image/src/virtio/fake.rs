//! Devices for tests: registers that are bytes, functions on PCI, and a transport with a
//! device behind it that can answer, keep silent, lie and reset.

extern crate std;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::vec;
use std::vec::Vec;

use super::pci::{ConfigSpace, Function};
use super::ring::{MOST_BUFFERS, NEXT, Ring, WRITE};
use super::{Buffer, Patience, QueueAddresses, Registers, Transport, VERSION_1, VirtioError};

/// Registers that keep what is written.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    fn read<const N: usize>(&self, at: u32) -> [u8; N] {
        let bytes = self.0.get(at as usize..).unwrap_or_default();
        bytes.first_chunk().copied().unwrap_or([0xff; N])
    }

    fn write<const N: usize>(&mut self, at: u32, value: [u8; N]) {
        let bytes = self.0.get_mut(at as usize..).unwrap_or_default();
        if let Some(place) = bytes.first_chunk_mut() {
            *place = value;
        }
    }
}

impl Registers for Bytes {
    fn bytes(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap()
    }
    fn read8(&self, at: u32) -> u8 {
        u8::from_le_bytes(self.read(at))
    }
    fn read16(&self, at: u32) -> u16 {
        u16::from_le_bytes(self.read(at))
    }
    fn read32(&self, at: u32) -> u32 {
        u32::from_le_bytes(self.read(at))
    }
    fn write8(&mut self, at: u32, value: u8) {
        self.write(at, value.to_le_bytes());
    }
    fn write16(&mut self, at: u32, value: u16) {
        self.write(at, value.to_le_bytes());
    }
    fn write32(&mut self, at: u32, value: u32) {
        self.write(at, value.to_le_bytes());
    }
}

/// Functions on PCI, each with 256 bytes and one BAR, which begins at `BAR`.
#[derive(Default)]
pub(crate) struct PciFunctions(HashMap<(u8, u8, u8), [u8; 256]>);

impl PciFunctions {
    /// Where a balloon's first capability is.
    pub(crate) const COMMON: u8 = 0x40;
    /// Its BAR, of 64 bits: its register and its size.
    const BAR: usize = 0x20;
    const BAR_BYTES: u64 = 0x4000;

    pub(crate) fn add(&mut self, at: Function, id: u32, header: u8) {
        let mut bytes = [0; 256];
        bytes[..4].copy_from_slice(&id.to_le_bytes());
        bytes[0x0e] = header;
        self.0.insert((at.bus, at.device, at.function), bytes);
    }

    pub(crate) fn add_bridge(&mut self, bus: u8, device: u8, behind: u8) {
        let at = Function {
            bus,
            device,
            function: 0,
        };
        self.add(at, 0x0001_8086, 1);
        self.poke(at, 0x19, behind);
    }

    /// As QEMU's: BAR 4, four capabilities.
    pub(crate) fn add_balloon(&mut self, at: Function) {
        self.add(at, 0x1045_1af4, 0);
        self.poke(at, 0x06, 1 << 4);
        self.poke(at, 0x34, Self::COMMON);
        for (place, byte) in (Self::BAR..).zip(0x8_fe00_000c_u64.to_le_bytes()) {
            self.poke(at, place, byte);
        }
        let parts = [(1, 0), (2, 0x3000_u32), (3, 0x1000), (4, 0x2000)];
        let mut place = usize::from(Self::COMMON);
        for (part, offset) in parts {
            let length: u8 = if part == 2 { 20 } else { 16 };
            let next = if part == 4 {
                0
            } else {
                place + usize::from(length)
            };
            let head = [9, u8::try_from(next).unwrap(), length, part, 4, 0, 0, 0];
            let tail = [offset.to_le_bytes(), 0x1000_u32.to_le_bytes(), [4, 0, 0, 0]];
            let bytes = head.into_iter().chain(tail.into_iter().flatten());
            for (byte, at_byte) in bytes.take(length.into()).zip(place..) {
                self.poke(at, at_byte, byte);
            }
            place = next;
        }
    }

    pub(crate) fn poke(&mut self, at: Function, place: usize, value: u8) {
        self.0.get_mut(&(at.bus, at.device, at.function)).unwrap()[place] = value;
    }
}

impl ConfigSpace for PciFunctions {
    fn read(&self, function: Function, at: u8) -> u32 {
        let key = (function.bus, function.device, function.function);
        let bytes = self
            .0
            .get(&key)
            .map_or(&[][..], |bytes| &bytes[at.into()..]);
        u32::from_le_bytes(bytes.first_chunk().copied().unwrap_or([0xff; 4]))
    }

    fn write(&mut self, function: Function, at: u8, value: u32) {
        let key = (function.bus, function.device, function.function);
        let Some(bytes) = self.0.get_mut(&key) else {
            return;
        };
        let place = usize::from(at);
        // The low bits of a BAR say what it is, those below its size are zero.
        let bar = Self::BAR_BYTES.wrapping_neg();
        let [low, high] = super::registers::halves(bar);
        let (mask, fixed) = match place {
            Self::BAR => (low, u32::from(bytes[place] & 0xf)),
            0x24 => (high, 0),
            0x04 => (0xffff, u32::from(bytes[6]) << 16),
            _ => (0, 0),
        };
        let value = (value & mask) | fixed;
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// How a device behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Manner {
    /// It answers at once.
    #[default]
    Answers,
    /// It never answers.
    Silent,
    /// It never answers, and does not complete a reset.
    Dead,
    /// It asks for a reset instead of an answer.
    NeedsReset,
    /// Another party resets it before it answers.
    Vanishes,
    /// It answers what it was not sent.
    Lies,
    /// Its configuration changes whenever it is read.
    Changes,
}

/// What the test sees of a device.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) manner: Manner,
    pub(crate) status: u8,
    pub(crate) offered: u64,
    pub(crate) chosen: u64,
    pub(crate) refuses_features: bool,
    pub(crate) capacity: u16,
    pub(crate) kind: u32,
    pub(crate) config: [u32; 16],
    generation: u32,
    /// Bytes that it says it wrote to a chain.
    pub(crate) written: u32,
    /// Chains as they came, with their queue.
    pub(crate) chains: Vec<(u16, Vec<Buffer>)>,
    /// Resets so far.
    pub(crate) resets: usize,
    /// Queues it was given.
    pub(crate) queues: Vec<u16>,
    /// Queues whose chains it keeps until it is told to answer.
    pub(crate) keeps: Vec<u16>,
    kept: Vec<(u16, u16)>,
    taken: HashMap<u16, u16>,
    answered: HashMap<u16, u16>,
}

/// The device's end, with the rings of its queues by number.
#[derive(Clone)]
pub(crate) struct Fake<'r> {
    pub(crate) seen: Rc<RefCell<Seen>>,
    rings: Vec<&'r Ring>,
}

impl<'r> Fake<'r> {
    /// A balloon with these features and rings.
    pub(crate) fn new(offered: u64, rings: Vec<&'r Ring>) -> Self {
        let seen = Seen {
            offered: offered | VERSION_1,
            capacity: 128,
            kind: 5,
            ..Seen::default()
        };
        Self {
            seen: Rc::new(RefCell::new(seen)),
            rings,
        }
    }

    /// Answers the chains that it kept.
    pub(crate) fn answer_kept(&self) {
        let kept = core::mem::take(&mut self.seen.borrow_mut().kept);
        for (queue, head) in kept {
            self.answer(queue, head.into());
        }
    }

    fn answer(&self, queue: u16, head: u32) {
        let mut seen = self.seen.borrow_mut();
        let written = seen.written;
        let ring = self.rings[usize::from(queue)];
        let number = seen.answered.entry(queue).or_default();
        let slot = &ring.used.answers[usize::from(*number) % MOST_BUFFERS];
        slot.head.store(head, Relaxed);
        slot.bytes.store(written, Relaxed);
        *number = number.wrapping_add(1);
        ring.used.index.store(*number, Release);
    }
}

impl Transport for Fake<'_> {
    fn kind(&self) -> u32 {
        self.seen.borrow().kind
    }

    fn status(&self) -> u8 {
        self.seen.borrow().status
    }

    fn set_status(&mut self, status: u8) {
        let mut seen = self.seen.borrow_mut();
        if status == 0 {
            seen.resets += 1;
            if seen.manner == Manner::Dead && seen.resets > 1 {
                return;
            }
            seen.taken.clear();
            seen.answered.clear();
            seen.kept.clear();
            seen.queues.clear();
        }
        const FEATURES_OK: u8 = 8;
        seen.status = match seen.refuses_features {
            true => status & !FEATURES_OK,
            false => status,
        };
    }

    fn offered(&mut self) -> u64 {
        self.seen.borrow().offered
    }

    fn choose(&mut self, features: u64) {
        self.seen.borrow_mut().chosen = features;
    }

    fn capacity(&mut self, queue: u16) -> u16 {
        let seen = self.seen.borrow();
        match usize::from(queue) < self.rings.len() && !seen.queues.contains(&queue) {
            true => seen.capacity,
            false => 0,
        }
    }

    fn set_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) -> Result<(), VirtioError> {
        assert_eq!(usize::from(size), MOST_BUFFERS);
        assert!(at.descriptors < at.available && at.available < at.used);
        self.seen.borrow_mut().queues.push(queue);
        Ok(())
    }

    fn notify(&mut self, queue: u16) {
        let ring = self.rings[usize::from(queue)];
        loop {
            let mut seen = self.seen.borrow_mut();
            let taken = seen.taken.entry(queue).or_default();
            if *taken == ring.available.index.load(Acquire) {
                return;
            }
            let slot = usize::from(*taken) % MOST_BUFFERS;
            let head = ring.available.heads[slot].load(Relaxed);
            *taken = taken.wrapping_add(1);
            let mut chain = Vec::new();
            let mut at = head;
            loop {
                let descriptor = &ring.descriptors[usize::from(at)];
                let flags = descriptor.flags.load(Relaxed);
                chain.push(Buffer {
                    address: descriptor.address.load(Relaxed),
                    bytes: descriptor.bytes.load(Relaxed),
                    device_writes: flags & WRITE != 0,
                });
                if flags & NEXT == 0 {
                    break;
                }
                at = descriptor.next.load(Relaxed);
            }
            seen.chains.push((queue, chain));
            if seen.keeps.contains(&queue) {
                seen.kept.push((queue, head));
                continue;
            }
            let manner = seen.manner;
            if manner == Manner::NeedsReset {
                seen.status |= 64;
            }
            if manner == Manner::Vanishes {
                seen.status = 0;
            }
            drop(seen);
            match manner {
                Manner::Answers | Manner::Changes => self.answer(queue, head.into()),
                Manner::Lies => self.answer(queue, 77),
                Manner::Silent | Manner::Dead | Manner::NeedsReset | Manner::Vanishes => {}
            }
        }
    }

    fn generation(&self) -> u32 {
        let mut seen = self.seen.borrow_mut();
        seen.generation += u32::from(seen.manner == Manner::Changes);
        seen.generation
    }

    fn config(&self, at: u32) -> Option<u32> {
        self.seen.borrow().config.get(at as usize / 4).copied()
    }

    fn set_config(&mut self, at: u32, value: u32) {
        self.seen.borrow_mut().config[at as usize / 4] = value;
    }
}

/// A clock that moves by a microsecond when it is read.
pub(crate) fn patience() -> Patience {
    use std::sync::atomic::AtomicU64;
    static NOW: AtomicU64 = AtomicU64::new(0);
    Patience {
        now_ns: || NOW.fetch_add(1000, Relaxed),
        relax: || {},
        longest_ns: 1_000_000,
    }
}
