//! Pseudo-random numbers, the same in every run: [`Random`].

/// A xorshift generator (Marsaglia, 2003), of period 2^64 - 1.
///
/// ```
/// use firstlight_figures::random::Random;
/// let (mut one, mut same) = (Random::new(7), Random::new(7));
/// assert_eq!(one.below(1000), same.below(1000));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 32 bits.
    #[inline]
    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// An index of a list of `len`, which is not 0; lists are shorter than 2^32.
    #[inline]
    pub fn below(&mut self, len: usize) -> usize {
        let wide = u64::from(self.bits()) * len as u64;
        usize::try_from(wide >> 32).unwrap_or(0)
    }

    /// Puts `list` into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_shuffle_loses_nothing_and_moves_most() {
        let mut list: Vec<usize> = (0..1000).collect();
        Random::new(3).shuffle(&mut list);
        let still = (0..1000).filter(|at| list[*at] == *at).count();
        assert!(still < 20, "{still} did not move");
        list.sort_unstable();
        assert!(list.into_iter().eq(0..1000));
    }

    #[test]
    fn every_index_comes_and_none_beyond() {
        let mut random = Random::new(0);
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[random.below(10)] += 1;
        }
        assert!(
            seen.iter().all(|count| (50..200).contains(count)),
            "{seen:?}"
        );
    }
}
