//! Devices on MMIO: the word of a command line that names one, [`Named`], and its registers,
//! [`MmioTransport`].

use firstlight::cmdline::{parse_number, parse_size};

use super::{QueueAddresses, Registers, Transport, VirtioError};

/// What the first register reads: "virt".
const MAGIC: u32 = 0x7472_6976;
/// The version of modern registers.
const MODERN: u32 = 2;

/// Offsets of the registers.
mod at {
    pub(super) const MAGIC: u32 = 0x00;
    pub(super) const VERSION: u32 = 0x04;
    pub(super) const KIND: u32 = 0x08;
    pub(super) const OFFERED: u32 = 0x10;
    pub(super) const OFFERED_SELECT: u32 = 0x14;
    pub(super) const CHOSEN: u32 = 0x20;
    pub(super) const CHOSEN_SELECT: u32 = 0x24;
    pub(super) const QUEUE_SELECT: u32 = 0x30;
    pub(super) const QUEUE_CAPACITY: u32 = 0x34;
    pub(super) const QUEUE_SIZE: u32 = 0x38;
    pub(super) const QUEUE_READY: u32 = 0x44;
    pub(super) const NOTIFY: u32 = 0x50;
    pub(super) const STATUS: u32 = 0x70;
    pub(super) const DESCRIPTORS: u32 = 0x80;
    pub(super) const AVAILABLE: u32 = 0x90;
    pub(super) const USED: u32 = 0xa0;
    pub(super) const GENERATION: u32 = 0xfc;
    pub(super) const CONFIG: u32 = 0x100;
}

/// A device that the command line names, in Linux's form:
/// `virtio_mmio.device=512@0xfeb00000:5`, size, address and interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Where its registers are.
    pub address: u64,
    /// Their size.
    pub bytes: u32,
}

impl Named {
    /// The word's name.
    pub const WORD: &str = "virtio_mmio.device";

    /// The value of the word; `None` if it has another form, or the registers are smaller
    /// than those of a device, or do not end below 4 GiB.
    ///
    /// ```
    /// use firstlight_image::virtio::mmio::Named;
    /// let named = Named::parse(b"512@0xfeb00000:5").unwrap();
    /// assert_eq!((named.address, named.bytes), (0xfeb0_0000, 512));
    /// assert_eq!(Named::parse(b"512@"), None);
    /// ```
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (bytes, rest) = parse_size(value).ok()?;
        let (address, rest) = parse_number(rest.strip_prefix(b"@")?).ok()?;
        let interrupt = rest.strip_prefix(b":").unwrap_or_default();
        // The interrupt, and perhaps a number after it, are not used.
        let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
        if !(rest.is_empty() || (!interrupt.is_empty() && interrupt.iter().all(digits))) {
            return None;
        }
        let end = address.checked_add(bytes)?;
        let fits = bytes >= u64::from(at::CONFIG) && end <= 1 << 32;
        let aligned = address.is_multiple_of(4);
        (fits && aligned).then_some(Self {
            address,
            bytes: u32::try_from(bytes).ok()?,
        })
    }
}

/// A device on MMIO.
#[derive(Debug)]
pub struct MmioTransport<R> {
    registers: R,
}

impl<R: Registers> MmioTransport<R> {
    /// The device behind `registers`.
    ///
    /// # Errors
    /// [`VirtioError`] if there is none, or an old one.
    pub fn new(registers: R) -> Result<Self, VirtioError> {
        registers.holds("registers", 0, at::CONFIG.into())?;
        let seen = registers.read32(at::MAGIC);
        if seen != MAGIC {
            return Err(VirtioError::NoDevice { seen });
        }
        let version = registers.read32(at::VERSION);
        if version != MODERN {
            return Err(VirtioError::Legacy { version });
        }
        Ok(Self { registers })
    }
}

impl<R: Registers> Transport for MmioTransport<R> {
    fn kind(&self) -> u32 {
        self.registers.read32(at::KIND)
    }

    fn status(&self) -> u8 {
        self.registers.read32(at::STATUS).to_le_bytes()[0]
    }

    fn set_status(&mut self, status: u8) {
        self.registers.write32(at::STATUS, status.into());
    }

    fn offered(&mut self) -> u64 {
        let [low, high] = [0, 1].map(|half| {
            self.registers.write32(at::OFFERED_SELECT, half);
            self.registers.read32(at::OFFERED)
        });
        u64::from(high) << 32 | u64::from(low)
    }

    fn choose(&mut self, features: u64) {
        for (half, bits) in (0..).zip(super::registers::halves(features)) {
            self.registers.write32(at::CHOSEN_SELECT, half);
            self.registers.write32(at::CHOSEN, bits);
        }
    }

    fn capacity(&mut self, queue: u16) -> u16 {
        self.registers.write32(at::QUEUE_SELECT, queue.into());
        if self.registers.read32(at::QUEUE_READY) != 0 {
            return 0;
        }
        u16::try_from(self.registers.read32(at::QUEUE_CAPACITY)).unwrap_or(u16::MAX)
    }

    fn set_queue(&mut self, queue: u16, size: u16, at: QueueAddresses) -> Result<(), VirtioError> {
        let registers = &mut self.registers;
        registers.write32(at::QUEUE_SELECT, queue.into());
        registers.write32(at::QUEUE_SIZE, size.into());
        registers.write64(at::DESCRIPTORS, at.descriptors);
        registers.write64(at::AVAILABLE, at.available);
        registers.write64(at::USED, at.used);
        registers.write32(at::QUEUE_READY, 1);
        Ok(())
    }

    fn notify(&mut self, queue: u16) {
        self.registers.write32(at::NOTIFY, queue.into());
    }

    fn generation(&self) -> u32 {
        self.registers.read32(at::GENERATION)
    }

    fn config(&self, at: u32) -> Option<u32> {
        let at = at.checked_add(at::CONFIG)?;
        self.registers.holds("configuration", at.into(), 4).ok()?;
        Some(self.registers.read32(at))
    }

    fn set_config(&mut self, at: u32, value: u32) {
        if let Some(at) = at.checked_add(at::CONFIG) {
            self.registers.write32(at, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Bytes;
    use super::*;
    extern crate std;

    #[test]
    fn a_word_that_names_no_device_is_refused() {
        for word in [
            &b""[..],
            b"512",
            b"512@",
            b"@0xfeb00000",
            b"512@0xfeb00000:",
            b"512@0xfeb00000:a",
            b"512@0xfeb00000x",
            b"255@0xfeb00000:5",
            b"512@0xfeb00001:5",
            b"512@0xffffff00:5",
            b"512@0xffffffffffffffff:5",
            b"4G@0:5",
        ] {
            assert_eq!(Named::parse(word), None, "{}", word.escape_ascii());
        }
        let named = Named {
            address: 0xd000_0000,
            bytes: 4096,
        };
        assert_eq!(Named::parse(b"4K@0xd0000000:5:0"), Some(named));
        assert_eq!(Named::parse(b"4K@0xd0000000"), Some(named));
    }

    #[test]
    fn what_is_no_modern_device_is_refused() {
        let error = |bytes: Bytes| MmioTransport::new(bytes).unwrap_err();
        assert!(matches!(error(Bytes::new(64)), VirtioError::Outside { .. }));
        let mut bytes = Bytes::new(512);
        bytes.write32(0, 0xffff_ffff);
        let seen = 0xffff_ffff;
        assert_eq!(error(bytes.clone()), VirtioError::NoDevice { seen });
        bytes.write32(at::MAGIC, MAGIC);
        bytes.write32(at::VERSION, 1);
        assert_eq!(error(bytes.clone()), VirtioError::Legacy { version: 1 });
        bytes.write32(at::VERSION, 2);
        bytes.write32(at::CONFIG + 4, 7);
        let mut device = MmioTransport::new(bytes).unwrap();
        assert_eq!((device.config(4), device.config(256)), (Some(7), None));
        assert_eq!(device.config(u32::MAX), None);
        device.set_config(u32::MAX, 1);
    }
}
