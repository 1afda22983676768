//! The driver of a virtio memory device: [`MemDevice`] plugs and unplugs blocks of the region that the
//! device has, and [`Resizable`] follows the size that the host wants.
//!
//! | file | contents |
//! |---|---|
//! | `config` | [`Config`], what the device says of its region and sizes, checked |
//! | `follow` | [`Resizable`]: which blocks are plugged into the [`Memory`] of a kernel, and which go |
//! | `error` | [`MemError`] |
//!
//! Memory that is not plugged is never touched, as the feature `UNPLUGGED_INACCESSIBLE` demands.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use firstlight::addr::PhysRange;

use crate::virtio::{Buffer, Device, Patience, Queue, Ring, Transport};

mod config;
mod error;
mod follow;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigFault};
pub use error::{MemError, Refusal};
pub use follow::{Fault, Memory, Resizable, Unit};

/// The number of this kind of device.
pub const KIND: u32 = 24;

/// Features.
mod feature {
    /// The configuration says which node the memory is of.
    pub(super) const NODE: u64 = 1 << 0;
    /// Memory that is not plugged must not even be read.
    pub(super) const UNPLUGGED_INACCESSIBLE: u64 = 1 << 1;
}

/// What is requested of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Blocks become memory.
    Plug,
    /// Blocks are memory no more.
    Unplug,
    /// No block is memory any more.
    UnplugAll,
    /// Whether blocks are memory.
    State,
}

impl Request {
    const fn number(self) -> u64 {
        match self {
            Self::Plug => 0,
            Self::Unplug => 1,
            Self::UnplugAll => 2,
            Self::State => 3,
        }
    }
}

/// Which blocks of a range are memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All.
    Plugged,
    /// None.
    Unplugged,
    /// Some.
    Mixed,
}

/// What driver and device share: the queue's ring, a request and its answer. It begins on a page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SharedMemory {
    ring: Ring,
    /// Kind, address, blocks.
    request: [AtomicU64; 3],
    /// Kind, and the state.
    answer: [AtomicU64; 2],
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedMemory {
    const REQUEST: u64 = offset_of!(Self, request) as u64;
    const ANSWER: u64 = offset_of!(Self, answer) as u64;
    /// An answer without a state, and with one.
    const ANSWERED: [u32; 2] = [8, 10];

    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ring: Ring::new(),
            request: [const { AtomicU64::new(0) }; 3],
            answer: [const { AtomicU64::new(0) }; 2],
        }
    }
}

/// The device and its queue.
#[derive(Debug)]
pub struct MemDevice<'s, T> {
    device: Device<T>,
    queue: Queue<'s>,
    shared: &'s SharedMemory,
    /// The shared memory's physical address.
    at: u64,
}

impl<'s, T: Transport> MemDevice<'s, T> {
    /// The device behind `transport`. `shared` is at the physical address `at` and used by no other
    /// device.
    ///
    /// # Errors
    /// [`MemError::Device`].
    pub fn new(
        transport: T,
        patience: Patience,
        shared: &'s SharedMemory,
        at: u64,
    ) -> Result<Self, MemError> {
        let wanted = feature::NODE | feature::UNPLUGGED_INACCESSIBLE;
        let mut device = Device::negotiate(transport, patience, KIND, 0, wanted)?;
        let queue = device.queue(0, &shared.ring, at)?;
        device.start();
        Ok(Self {
            device,
            queue,
            shared,
            at,
        })
    }

    /// Its region and sizes as they are now.
    ///
    /// # Errors
    /// [`MemError::Device`], or [`MemError::Config`] if they contradict each other.
    pub fn config(&mut self) -> Result<Config, MemError> {
        self.device.check()?;
        let has_node = self.device.features() & feature::NODE != 0;
        let words = self.device.config(Config::WORDS).or_else(|error| {
            // It is of no use any more.
            self.device.reset()?;
            Err(error)
        });
        let config = Config::of(words?, has_node);
        config.check()?;
        Ok(config)
    }

    /// Plugs the blocks of `bytes` each in `range`: they are memory when this returns, of any content.
    ///
    /// # Errors
    /// [`MemError`]; none of them is then, unless [`MemDevice::state`] says so.
    pub fn plug(&mut self, range: PhysRange, bytes: u64) -> Result<(), MemError> {
        self.request(Request::Plug, range, bytes).map(|_| ())
    }

    /// Unplugs blocks, whose content is lost.
    ///
    /// # Errors
    /// [`MemError`]; all of them are memory then, unless [`MemDevice::state`] says otherwise.
    pub fn unplug(&mut self, range: PhysRange, bytes: u64) -> Result<(), MemError> {
        self.request(Request::Unplug, range, bytes).map(|_| ())
    }

    /// Unplugs all blocks of the device.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn unplug_all(&mut self) -> Result<(), MemError> {
        let request = self.request(Request::UnplugAll, PhysRange::EMPTY, 1);
        request.map(|_| ())
    }

    /// Whether the blocks in `range` are memory.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn state(&mut self, range: PhysRange, bytes: u64) -> Result<State, MemError> {
        let seen = self.request(Request::State, range, bytes)?;
        match seen {
            0 => Ok(State::Plugged),
            1 => Ok(State::Unplugged),
            2 => Ok(State::Mixed),
            _ => Err(MemError::NoState { range, seen }),
        }
    }

    /// Most blocks of one request.
    pub const MOST_BLOCKS: u64 = u16::MAX as u64;

    /// The state of an answer that says yes.
    fn request(
        &mut self,
        request: Request,
        range: PhysRange,
        block_bytes: u64,
    ) -> Result<u16, MemError> {
        let blocks = range.bytes() / block_bytes;
        let words = [request.number(), range.start().get(), blocks];
        for (slot, word) in self.shared.request.iter().zip(words) {
            slot.store(word.to_le(), Relaxed);
        }
        // What is not written is no answer.
        for slot in &self.shared.answer {
            slot.store(u64::MAX, Relaxed);
        }
        let buffer = |at, bytes, device_writes| Buffer {
            address: self.at + at,
            bytes,
            device_writes,
        };
        let buffers = [
            buffer(SharedMemory::REQUEST, 24, false),
            buffer(SharedMemory::ANSWER, 16, true),
        ];
        let bytes = self.device.exchange(&mut self.queue, &buffers)?;
        let [kind, state] = [0, 1].map(|at: usize| {
            let word = u64::from_le(self.shared.answer[at].load(Relaxed));
            let [low, high, ..] = word.to_le_bytes();
            u16::from_le_bytes([low, high])
        });
        let expected = SharedMemory::ANSWERED[usize::from(request == Request::State)];
        let refusal = match kind {
            0 if bytes >= expected => return Ok(state),
            1 => Refusal::Nack,
            2 => Refusal::Busy,
            3 => Refusal::Error,
            _ => {
                return Err(MemError::WrongAnswer {
                    request,
                    kind,
                    bytes,
                    expected,
                });
            }
        };
        Err(MemError::Refused {
            request,
            range,
            refusal,
        })
    }
}
