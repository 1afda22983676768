//! Numbers that look random and are the same in every run: [`Random`].

/// A xorshift generator (Marsaglia, 2003), of period 2^64 - 1.
pub(super) struct Random(u64);

impl Random {
    /// A sequence of its own for each `seed`.
    pub(super) fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u16) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let [.., low, high] = (self.0 >> 11).to_be_bytes();
        u16::from_be_bytes([low, high]) % end
    }
}
