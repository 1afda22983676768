//! Zeroing with stores that go past the caches, and looking whether all is zero.
//!
//! Memory that is zeroed for another process would only push useful lines out of
//! the caches, and a store that writes a whole line past them need not read it
//! first. `x86.rs` has the stores; other processors use their `memset`.

#[cfg(target_arch = "x86_64")]
mod x86;

/// Writes zeros over the slice, past the caches where the processor can.
///
/// ```
/// let mut bytes = vec![0xa5; 100_000];
/// firstlight_pool::os::zero::zero(&mut bytes[3..99_999]);
/// assert_eq!(firstlight_pool::os::zero::first_nonzero(&bytes[3..]), Some(99_996));
/// ```
pub fn zero(bytes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    x86::zero(bytes);
    #[cfg(not(target_arch = "x86_64"))]
    bytes.fill(0);
}

/// Where the first byte that is not zero stands.
#[must_use]
pub fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    // Blocks that are tested as a whole, so that the compiler may use its widest registers.
    const BLOCK_BYTES: usize = 4096;
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if block.iter().fold(0, |all, byte| all | byte) != 0 {
            let at = block.iter().position(|byte| *byte != 0)?;
            return Some(index * BLOCK_BYTES + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_exactly_what_it_was_given() {
        for start in [0, 1, 15, 16, 63, 64, 65] {
            for length in [0, 1, 15, 16, 63, 64, 65, 127, 128, 4095, 4096, 70_001] {
                let mut bytes = vec![0xff; 80_000];
                zero(&mut bytes[start..start + length]);
                let kept = bytes[..start].iter().chain(&bytes[start + length..]);
                assert!(kept.clone().all(|byte| *byte == 0xff), "{start} {length}");
                assert_eq!(first_nonzero(&bytes[start..start + length]), None);
            }
        }
    }

    #[test]
    fn finds_the_first_byte_wherever_it_is() {
        let mut bytes = vec![0; 10_000];
        assert_eq!(first_nonzero(&bytes), None);
        for at in [9_999, 8_192, 8_191, 4_096, 4_095, 17, 0] {
            bytes[at] = 1;
            assert_eq!(first_nonzero(&bytes), Some(at));
        }
    }
}
