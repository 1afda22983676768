//! The parts of the UEFI loader that need no firmware, and so are tested anywhere: the image's
//! file ([`elf`], on aarch64 [`flat`]), where the image can be placed ([`place`]), what is refused ([`confidential`]),
//! the words of `cmdline.txt` ([`words()`]), the last run's result ([`result`]). The rest is the program in `main.rs`.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod confidential;
pub mod elf;
pub mod flat;
pub mod place;
pub mod result;

use alloc::vec::Vec;

/// Most bytes of a command line; the image reads no longer one.
pub const MOST_WORDS_BYTES: usize = 4096;

/// The words of a `cmdline.txt`: lines become one, `#` begins a comment, and what is no
/// printable ASCII (a byte order mark, for one) is left out.
///
/// ```
/// use firstlight_image_uefi::words;
/// let file = b"\xef\xbb\xbfselftest  # checks the allocator\r\n mem=4G\r\n";
/// assert_eq!(words(file), b"selftest mem=4G");
/// ```
#[must_use]
pub fn words(file: &[u8]) -> Vec<u8> {
    let lines = file.split(|byte| matches!(byte, b'\r' | b'\n'));
    let mut all = Vec::new();
    for line in lines {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        for word in line.split(u8::is_ascii_whitespace) {
            let word = word.iter().copied().filter(u8::is_ascii_graphic);
            let before = all.len();
            all.extend(word);
            if all.len() > before {
                all.push(b' ');
            }
        }
    }
    all.pop();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_file_becomes_printable_words() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"", b""),
            (b"\r\n# nothing\n", b""),
            (b"a\tb\nc", b"a b c"),
            (b"a\0b \x1b[2J", b"ab [2J"),
            (&[0xff; 64], b""),
            (b"one#two three\nfour", b"one four"),
        ];
        for (file, expected) in cases {
            assert_eq!(words(file), expected, "{file:?}");
        }
    }
}
