//! Requests to a device that are alike on PCI and on MMIO: [`Transport`].

use super::pci::Places;
use super::{Registers, VirtioError};

/// Most queues of a device that are used.
pub const MOST_QUEUES: usize = 8;

/// Physical addresses of the parts of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueAddresses {
    /// The table of buffers.
    pub descriptors: u64,
    /// What is sent.
    pub available: u64,
    /// What is answered.
    pub used: u64,
}

/// A device's registers, by their meaning.
pub trait Transport {
    /// The kind of the device: 5 is a balloon.
    fn kind(&self) -> u32;
    /// Its status; 0 after a reset.
    fn status(&self) -> u8;
    /// Changes its status; 0 resets it.
    fn set_status(&mut self, status: u8);
    /// The features it offers.
    fn offered(&mut self) -> u64;
    /// Chooses features.
    fn choose(&mut self, features: u64);
    /// Buffers that a queue can hold; 0: there is no such queue, or it is in use.
    fn capacity(&mut self, queue: u16) -> u16;
    /// Gives a queue its memory.
    ///
    /// # Errors
    /// [`VirtioError::Outside`] if its place for notifications lies outside the registers.
    fn set_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) -> Result<(), VirtioError>;
    /// There is something new in a queue.
    fn notify(&mut self, queue: u16);
    /// A number that changes with the configuration.
    fn generation(&self) -> u32;
    /// A word of the configuration; `None` outside it.
    fn config(&self, at: u32) -> Option<u32>;
    /// Writes a word of the configuration; nothing is written outside it.
    fn set_config(&mut self, at: u32, value: u32);
}

/// Offsets in the common registers of a device on PCI.
mod common {
    pub(super) const OFFERED_SELECT: u32 = 0;
    pub(super) const OFFERED: u32 = 4;
    pub(super) const CHOSEN_SELECT: u32 = 8;
    pub(super) const CHOSEN: u32 = 12;
    pub(super) const STATUS: u32 = 20;
    pub(super) const GENERATION: u32 = 21;
    pub(super) const QUEUE_SELECT: u32 = 22;
    pub(super) const QUEUE_SIZE: u32 = 24;
    pub(super) const QUEUE_ENABLE: u32 = 28;
    pub(super) const QUEUE_NOTIFY: u32 = 30;
    pub(super) const DESCRIPTORS: u32 = 32;
    pub(super) const AVAILABLE: u32 = 40;
    pub(super) const USED: u32 = 48;
    /// Their size.
    pub(super) const BYTES: u64 = 56;
}

/// A device on PCI.
#[derive(Debug)]
pub struct PciTransport<R> {
    kind: u32,
    common: R,
    notify: R,
    multiplier: u32,
    config: Option<R>,
    /// Where each queue is notified.
    notify_at: [u32; MOST_QUEUES],
}

impl<R: Registers> PciTransport<R> {
    /// The device whose registers are at `places`: the common ones, those for notifications
    /// and the configuration.
    ///
    /// # Errors
    /// [`VirtioError::Outside`] if the common ones are too few.
    pub fn new(
        places: &Places,
        common: R,
        notify: R,
        config: Option<R>,
    ) -> Result<Self, VirtioError> {
        common.holds("common registers", 0, common::BYTES)?;
        Ok(Self {
            kind: places.kind,
            common,
            notify,
            multiplier: places.notify_multiplier,
            config,
            notify_at: [u32::MAX; MOST_QUEUES],
        })
    }
}

impl<R: Registers> Transport for PciTransport<R> {
    fn kind(&self) -> u32 {
        self.kind
    }

    fn status(&self) -> u8 {
        self.common.read8(common::STATUS)
    }

    fn set_status(&mut self, status: u8) {
        self.common.write8(common::STATUS, status);
    }

    fn offered(&mut self) -> u64 {
        let [low, high] = [0, 1].map(|half| {
            self.common.write32(common::OFFERED_SELECT, half);
            self.common.read32(common::OFFERED)
        });
        u64::from(high) << 32 | u64::from(low)
    }

    fn choose(&mut self, features: u64) {
        for (half, bits) in (0..).zip(super::registers::halves(features)) {
            self.common.write32(common::CHOSEN_SELECT, half);
            self.common.write32(common::CHOSEN, bits);
        }
    }

    fn capacity(&mut self, queue: u16) -> u16 {
        self.common.write16(common::QUEUE_SELECT, queue);
        match self.common.read16(common::QUEUE_ENABLE) {
            0 => self.common.read16(common::QUEUE_SIZE),
            _ => 0,
        }
    }

    fn set_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) -> Result<(), VirtioError> {
        let common = &mut self.common;
        common.write16(common::QUEUE_SELECT, queue);
        let notify = u64::from(common.read16(common::QUEUE_NOTIFY)) * u64::from(self.multiplier);
        self.notify.holds("place for notifications", notify, 2)?;
        if let Some(slot) = self.notify_at.get_mut(usize::from(queue)) {
            *slot = u32::try_from(notify).unwrap_or(u32::MAX);
        }
        common.write16(common::QUEUE_SIZE, size);
        common.write64(common::DESCRIPTORS, at.descriptors);
        common.write64(common::AVAILABLE, at.available);
        common.write64(common::USED, at.used);
        common.write16(common::QUEUE_ENABLE, 1);
        Ok(())
    }

    fn notify(&mut self, queue: u16) {
        if let Some(at) = self.notify_at.get(usize::from(queue)) {
            self.notify.write16(*at, queue);
        }
    }

    fn generation(&self) -> u32 {
        self.common.read8(common::GENERATION).into()
    }

    fn config(&self, at: u32) -> Option<u32> {
        let config = self.config.as_ref()?;
        config.holds("configuration", at.into(), 4).ok()?;
        Some(config.read32(at))
    }

    fn set_config(&mut self, at: u32, value: u32) {
        if let Some(config) = &mut self.config {
            config.write32(at, value);
        }
    }
}
