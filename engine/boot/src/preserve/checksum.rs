//! CRC-32C (Castagnoli), four bytes at a time with tables that the compiler computes.
//!
//! It finds every change of one to three bits and every burst of up to 32 in any table that fits
//! a machine. Own code: the engine depends on no crate, and this is all of it.
#![deny(unsafe_code)]

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What a byte does to the checksum, with as many bytes behind it as the table has number.
const BYTES: [[u32; 256]; 4] = {
    let mut tables = [[0; 256]; 4];
    let (mut at, mut byte) = (0, 0);
    while at < 256 {
        let mut value = byte;
        let mut bit = 0;
        while bit < 8 {
            let mask = 0u32.wrapping_sub(value & 1);
            value = value >> 1 ^ POLYNOMIAL & mask;
            bit += 1;
        }
        tables[0][at] = value;
        at += 1;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 4 {
        let mut at = 0;
        while at < 256 {
            let before = tables[behind - 1][at];
            tables[behind][at] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            at += 1;
        }
        behind += 1;
    }
    tables
};

/// CRC-32C of a range's content: a checksum for [`Draft::finish_with`](super::Draft::finish_with) and
/// [`Preserved::check_content`](super::Preserved::check_content) that needs no instructions of its own; a processor's are
/// several times as fast.
pub fn checksum(bytes: &[u8]) -> u64 {
    crc32c([bytes]).into()
}

/// The checksum of some parts, one after the other.
pub(super) fn crc32c<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u32 {
    let byte = |value: u32, shift: u32| (value >> shift & 0xff) as usize;
    !parts.into_iter().fold(!0, |crc, part| {
        let (words, rest) = part.as_chunks::<4>();
        let crc = words.iter().fold(crc, |crc, word| {
            let all = crc ^ u32::from_le_bytes(*word);
            BYTES[3][byte(all, 0)]
                ^ BYTES[2][byte(all, 8)]
                ^ BYTES[1][byte(all, 16)]
                ^ BYTES[0][byte(all, 24)]
        });
        rest.iter().fold(crc, |crc, one| {
            crc >> 8 ^ BYTES[0][byte(crc ^ u32::from(*one), 0)]
        })
    })
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    /// Vectors of RFC 3720, appendix B.4, and the usual one.
    #[test]
    fn it_is_crc_32c() {
        let mut ascending = [0; 32];
        ascending
            .iter_mut()
            .zip(0..)
            .for_each(|(byte, at)| *byte = at);
        for (bytes, want) in [
            (&b""[..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ] {
            assert_eq!(crc32c([bytes]), want);
            let (one, other) = bytes.split_at(bytes.len() / 3);
            assert_eq!(crc32c([one, other]), want);
        }
    }
}
