//! A device's memory: [`Registers`].

use super::VirtioError;

/// Registers of a device. Offsets are in bytes and aligned to the width; what lies outside
/// reads as all ones, as on a bus where nothing answers, and is not written.
pub trait Registers {
    /// Their size.
    fn bytes(&self) -> u32;
    /// Reads a byte.
    fn read8(&self, at: u32) -> u8;
    /// Reads two bytes.
    fn read16(&self, at: u32) -> u16;
    /// Reads four bytes.
    fn read32(&self, at: u32) -> u32;
    /// Writes a byte.
    fn write8(&mut self, at: u32, value: u8);
    /// Writes two bytes.
    fn write16(&mut self, at: u32, value: u16);
    /// Writes four bytes.
    fn write32(&mut self, at: u32, value: u32);

    /// Writes an address of a queue's memory as two halves, which every device takes.
    fn write64(&mut self, at: u32, value: u64) {
        let [low, high] = halves(value);
        self.write32(at, low);
        self.write32(at + 4, high);
    }

    /// Checks that `bytes` from `offset` on lie within.
    ///
    /// # Errors
    /// [`VirtioError::Outside`].
    fn holds(&self, what: &'static str, offset: u64, bytes: u64) -> Result<(), VirtioError> {
        let limit = u64::from(self.bytes());
        match offset.checked_add(bytes) {
            Some(end) if end <= limit => Ok(()),
            _ => Err(VirtioError::Outside {
                what,
                offset,
                bytes,
                limit,
            }),
        }
    }
}

/// Low and high half.
pub(super) const fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}
