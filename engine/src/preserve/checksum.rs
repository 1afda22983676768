//! CRC-32C (Castagnoli), byte by byte with a table that the compiler computes.
//!
//! It finds every change of one to three bits and every burst of up to 32 in any table that fits
//! a machine. Own code: the engine depends on no crate, and this is all of it.
#![deny(unsafe_code)]

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const BYTES: [u32; 256] = {
    let mut table = [0; 256];
    let (mut at, mut byte) = (0, 0);
    while at < table.len() {
        let mut value = byte;
        let mut bit = 0;
        while bit < 8 {
            let mask = 0u32.wrapping_sub(value & 1);
            value = value >> 1 ^ POLYNOMIAL & mask;
            bit += 1;
        }
        table[at] = value;
        at += 1;
        byte += 1;
    }
    table
};

/// The checksum of some parts, one after the other.
pub(super) fn crc32c<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(!0, |crc, byte| {
        crc >> 8 ^ BYTES[((crc ^ u32::from(*byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
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
