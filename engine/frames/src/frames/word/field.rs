//! Fields of a word: [`Field`].

/// Bits in a row of a word, a number that changes with the others in one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    at: u32,
    width: u32,
}

impl Field {
    /// `width` bits from bit `at` on; with a width of 0 always 0.
    pub(crate) const fn new(at: u32, width: u32) -> Self {
        assert!(at + width <= u64::BITS && width < u32::BITS);
        Self { at, width }
    }

    /// The field that follows, and so has no bit of this one.
    pub(crate) const fn then(self, width: u32) -> Self {
        Self::new(self.at + self.width, width)
    }

    /// The largest number that fits.
    pub(crate) const fn most(self) -> u32 {
        (1 << self.width) - 1
    }

    /// Its bits.
    pub(crate) const fn mask(self) -> u64 {
        self.of(self.most())
    }

    /// A number, which must fit, in its place; where nothing is kept, nothing.
    pub(crate) const fn of(self, number: u32) -> u64 {
        debug_assert!(number <= self.most() || self.width == 0);
        if self.width == 0 {
            0
        } else {
            (number as u64) << self.at
        }
    }

    /// The number in a word.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to the field's width"
    )]
    pub(crate) const fn get(self, word: u64) -> u32 {
        (word >> self.at) as u32 & self.most()
    }

    /// A word with another number, which must fit.
    pub(crate) const fn set(self, word: u64, number: u32) -> u64 {
        word & !self.mask() | self.of(number)
    }
}
