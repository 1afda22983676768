//! A driver for virtio's memory balloon: [`Balloon`].
//!
//! The host sets a target, and the driver gives it so many pages ([`Balloon::inflate`]) or
//! takes them back ([`Balloon::deflate`]); it shows the host how memory is used
//! ([`Statistics`]), and reports free memory, which the host may drop until it is touched
//! again ([`Balloon::report`]). Choosing the pages is the caller's part.

mod memory;

pub use memory::SharedMemory;

use core::sync::atomic::Ordering::Relaxed;

use crate::virtio::{Buffer, Device, MOST_BUFFERS, Patience, Queue, Transport, VirtioError};
use memory::MOST_PAGES;

/// The number of this kind of device.
pub const KIND: u32 = 5;
/// Most ranges of one report.
pub const MOST_RANGES: usize = MOST_BUFFERS;

/// Features of the device.
mod feature {
    pub(super) const TELL_HOST: u64 = 1 << 0;
    pub(super) const STATISTICS: u64 = 1 << 1;
    pub(super) const FREE_PAGE_HINT: u64 = 1 << 3;
    pub(super) const REPORTING: u64 = 1 << 5;
}

/// Offsets in its configuration.
mod config {
    pub(super) const TARGET: u32 = 0;
    pub(super) const ACTUAL: u32 = 4;
}

/// How memory is used, for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Free memory.
    pub free_bytes: u64,
    /// All memory.
    pub total_bytes: u64,
    /// Memory that could be allocated.
    pub available_bytes: u64,
}

/// Most of a range in one buffer.
const MOST_BYTES: u32 = 1 << 31;

/// A range of free memory to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRange {
    /// Its physical address.
    pub address: u64,
    /// Its size: also one above the 32 bits of a device's buffer, a giant frame of pages of 64 KiB.
    pub bytes: u64,
}

/// The device and its queues.
#[derive(Debug)]
pub struct Balloon<'s, T> {
    device: Device<T>,
    shared: &'s SharedMemory,
    /// The shared memory's physical address.
    at: u64,
    inflate: Queue<'s>,
    deflate: Queue<'s>,
    statistics: Option<Queue<'s>>,
    reporting: Option<Queue<'s>>,
    pages: u32,
}

impl<'s, T: Transport> Balloon<'s, T> {
    /// The balloon behind `transport`, empty. `shared` is at the physical address `at` and used
    /// by no other device.
    ///
    /// # Errors
    /// [`VirtioError`]; a device without reporting is none: [`Balloon::reports`].
    pub fn new(
        transport: T,
        patience: Patience,
        shared: &'s SharedMemory,
        at: u64,
    ) -> Result<Self, VirtioError> {
        let wanted = feature::TELL_HOST | feature::STATISTICS | feature::REPORTING;
        let mut device = Device::negotiate(transport, patience, KIND, 0, wanted)?;
        let offered = device.offered();
        let features = device.features();
        // Optional queues come in this order, those that the device does not offer left out.
        let optional = [
            feature::STATISTICS,
            feature::FREE_PAGE_HINT,
            feature::REPORTING,
        ];
        let mut number = 2;
        let mut numbers = optional.map(|feature| {
            let own = (offered & feature != 0).then_some(number);
            number += u16::from(own.is_some());
            own.filter(|_| features & feature != 0)
        });
        let reporting = numbers[2].take();
        let statistics = numbers[0].take();
        let mut queue = |number, ring: usize| {
            let place = at + (ring * 4096) as u64;
            device.queue(number, &shared.rings[ring], place)
        };
        let inflate = queue(0, 0)?;
        let deflate = queue(1, 1)?;
        let statistics = statistics.map(|number| queue(number, 2)).transpose()?;
        let reporting = reporting.map(|number| queue(number, 3)).transpose()?;
        device.start();
        device.set_config(config::ACTUAL, 0);
        Ok(Self {
            device,
            shared,
            at,
            inflate,
            deflate,
            statistics,
            reporting,
            pages: 0,
        })
    }

    /// Whether the device takes reports of free memory.
    #[must_use]
    pub const fn reports(&self) -> bool {
        self.reporting.is_some()
    }

    /// Pages of 4 KiB that the host wants to have.
    ///
    /// # Errors
    /// [`VirtioError`].
    pub fn target(&mut self) -> Result<u32, VirtioError> {
        self.device.check()?;
        let [target] = self.device.config([config::TARGET])?;
        Ok(target)
    }

    /// Pages of 4 KiB that the host has.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Gives the host `count` pages from the page number `first` on.
    ///
    /// # Errors
    /// [`VirtioError`]: the host may have some of them, until the device is reset.
    pub fn inflate(&mut self, first: u64, count: u32) -> Result<(), VirtioError> {
        self.pass(true, first, count)
    }

    /// Takes back `count` pages from the page number `first` on; they can be used when this
    /// returns.
    ///
    /// # Errors
    /// [`VirtioError`]; the pages can be used if the device was reset.
    pub fn deflate(&mut self, first: u64, count: u32) -> Result<(), VirtioError> {
        self.pass(false, first, count)
    }

    fn pass(&mut self, inflate: bool, first: u64, count: u32) -> Result<(), VirtioError> {
        let mut numbers = first..first + u64::from(count);
        while !numbers.is_empty() {
            let mut bytes = 0;
            for (slot, number) in self.shared.pages.iter().zip(&mut numbers) {
                // Of 44 bits and less in the machines there are; the device's are 32.
                slot.store(u32::try_from(number).unwrap_or(u32::MAX).to_le(), Relaxed);
                bytes += 4;
            }
            let buffer = Buffer {
                address: self.at + SharedMemory::PAGES,
                bytes,
                device_writes: false,
            };
            let queue = match inflate {
                true => &mut self.inflate,
                false => &mut self.deflate,
            };
            self.device.exchange(queue, &[buffer])?;
            let pages = bytes / 4;
            self.pages = match inflate {
                true => self.pages.saturating_add(pages),
                false => self.pages.saturating_sub(pages),
            };
            self.device.set_config(config::ACTUAL, self.pages);
        }
        Ok(())
    }

    /// Reports free memory, [`MOST_RANGES`] buffers at a time. When this returns, the host has
    /// done with them; they may be zero now, or as they were.
    ///
    /// # Errors
    /// [`VirtioError`]; [`VirtioError::NotOffered`] without [`Balloon::reports`]. The ranges
    /// can be used after each but [`VirtioError::Unreleased`].
    pub fn report(
        &mut self,
        ranges: impl IntoIterator<Item = FreeRange>,
    ) -> Result<(), VirtioError> {
        let Some(queue) = &mut self.reporting else {
            let features = feature::REPORTING;
            return Err(VirtioError::NotOffered { features });
        };
        let none = Buffer {
            address: 0,
            bytes: 0,
            device_writes: true,
        };
        let (mut buffers, mut count) = ([none; MOST_RANGES], 0);
        for FreeRange { address, bytes } in ranges {
            let mut at = 0;
            while at < bytes {
                let bytes =
                    u32::try_from(bytes - at).map_or(MOST_BYTES, |left| left.min(MOST_BYTES));
                buffers[count] = Buffer {
                    address: address + at,
                    bytes,
                    ..none
                };
                at += u64::from(bytes);
                count += 1;
                if count == MOST_RANGES {
                    self.device.exchange(queue, &buffers)?;
                    count = 0;
                }
            }
        }
        if count > 0 {
            self.device.exchange(queue, &buffers[..count])?;
        }
        Ok(())
    }

    /// Shows the host how memory is used, if it wants to know: it keeps what it is shown until
    /// it wants to know again. Whether it was shown now.
    ///
    /// # Errors
    /// [`VirtioError`].
    pub fn show(&mut self, statistics: Statistics) -> Result<bool, VirtioError> {
        let Some(queue) = &mut self.statistics else {
            return Ok(false);
        };
        if queue.is_busy() && !self.device.answer(queue)? {
            return Ok(false);
        }
        let bytes = self.shared.write(statistics);
        let buffer = Buffer {
            address: self.at + SharedMemory::STATISTICS,
            bytes,
            device_writes: false,
        };
        self.device.send(queue, &[buffer])?;
        Ok(true)
    }

    /// Whether a device that did not complete a reset has done so.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.device.is_released()
    }
}

const _: () = assert!(MOST_PAGES * 4 == 4096);

#[cfg(test)]
mod tests;
