//! A result in firmware's variables: the image writes it in parts before it resets the machine,
//! the loader joins them when it is started again.
//!
//! A part is a head of 16 bytes and text. The head has the part's number, how many there are,
//! the bytes of the whole text and its checksum, so that parts of two runs are not mixed. The
//! first part is written last and deleted first: without it there is no result.

use core::fmt;

/// Whose variables they are, as a GUID in memory: 5f1ae7a2-6c0b-4f3e-9d55-1a0e8b6f2c71.
pub const VENDOR: [u8; 16] = [
    0xa2, 0xe7, 0x1a, 0x5f, 0x0b, 0x6c, 0x3e, 0x4f, 0x9d, 0x55, 0x1a, 0x0e, 0x8b, 0x6f, 0x2c, 0x71,
];
/// Most bytes of a variable; firmware that refuses so many is not known.
pub const PART_BYTES: usize = 1024;
/// End of the note in a result whose other events are not all there.
pub const DID_NOT_FIT: &str = "events did not fit firmware's variables";
/// Most parts.
pub const MOST_PARTS: u8 = 8;
/// Most bytes of a result.
pub const RESULT_BYTES: usize = MOST_PARTS as usize * TEXT_BYTES;

const MAGIC: [u8; 4] = *b"FLR1";
const HEAD_BYTES: usize = 16;
const TEXT_BYTES: usize = PART_BYTES - HEAD_BYTES;

/// The name of part `number` as firmware wants it: 16 bits a character, with a NUL.
///
/// ```
/// use firstlight_wire::parts::name;
/// assert_eq!(String::from_utf16(&name(3)).unwrap(), "Firstlight3\0");
/// ```
#[must_use]
pub fn name(number: u8) -> [u16; 12] {
    let mut name = [0; 12];
    let letters = b"Firstlight".iter().copied().chain([b'0' + number % 10]);
    for (slot, letter) in name.iter_mut().zip(letters) {
        *slot = letter.into();
    }
    name
}

/// How many parts `text` has, if it is not too long.
#[must_use]
pub fn count(text: &[u8]) -> Option<u8> {
    let count = u8::try_from(text.len().div_ceil(TEXT_BYTES)).ok()?;
    (1..=MOST_PARTS).contains(&count).then_some(count)
}

/// Part `number` of `text`, in `buffer`; `None` if there is no such part.
pub fn part<'b>(text: &[u8], number: u8, buffer: &'b mut [u8; PART_BYTES]) -> Option<&'b [u8]> {
    let count = count(text)?;
    let own = text.chunks(TEXT_BYTES).nth(number.into())?;
    let (head, rest) = buffer.split_at_mut(HEAD_BYTES);
    let bytes = u32::try_from(text.len()).ok()?;
    let fields = [
        MAGIC,
        [number, count, 0, 0],
        bytes.to_le_bytes(),
        checksum(text).to_le_bytes(),
    ];
    head.copy_from_slice(fields.as_flattened());
    rest.get_mut(..own.len())?.copy_from_slice(own);
    buffer.get(..HEAD_BYTES + own.len())
}

/// A part that firmware refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<E> {
    /// Its number.
    pub number: u8,
    /// How many there are.
    pub count: u8,
    /// Its bytes.
    pub bytes: usize,
    /// Firmware's status.
    pub why: E,
}

impl<E: fmt::LowerHex> fmt::Display for Refused<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            count,
            bytes,
            why,
        } = self;
        write!(
            f,
            "firmware refuses variable {number} of {count}, {bytes} bytes: status {why:#x}"
        )
    }
}

impl<E: fmt::LowerHex + fmt::Debug> core::error::Error for Refused<E> {}

/// Leaves `text` in variables, which `set` sets; empty content deletes one. Returns how many.
///
/// ```
/// use firstlight_wire::parts::{Refused, store};
/// let full = store(b"a result", |_, part| if part.is_empty() { Ok(()) } else { Err(9) });
/// assert_eq!(full, Err(Refused { number: 0, count: 1, bytes: 24, why: 9 }));
/// ```
///
/// # Errors
/// [`Refused`]: the parts before it are deleted, for other software may need the space.
pub fn store<E>(
    text: &[u8],
    mut set: impl FnMut(u8, &[u8]) -> Result<(), E>,
) -> Result<u8, Refused<E>> {
    let mut buffer = [0; PART_BYTES];
    let count = count(text).unwrap_or_default();
    for number in (0..count).rev() {
        let part = part(text, number, &mut buffer).unwrap_or_default();
        if let Err(why) = set(number, part) {
            let bytes = part.len();
            for number in 0..MOST_PARTS {
                let _ = set(number, &[]);
            }
            return Err(Refused {
                number,
                count,
                bytes,
                why,
            });
        }
    }
    Ok(count)
}

/// FNV-1a.
fn checksum(text: &[u8]) -> u32 {
    text.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// Why there is no result although there is a first part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartsError {
    /// No such part, or one that is no part of this result.
    Part {
        /// Its number.
        number: u8,
        /// How many there should be.
        count: u8,
    },
    /// The text is not the one that was written.
    Checksum {
        /// That of what was read.
        seen: u32,
        /// That of what was written.
        expected: u32,
    },
}

impl fmt::Display for PartsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { number, count } => write!(
                f,
                "the last run's result is not whole: variable Firstlight{number} of {count} is missing or damaged"
            ),
            Self::Checksum { seen, expected } => write!(
                f,
                "the last run's result is damaged: checksum {seen:#010x}, expected {expected:#010x}"
            ),
        }
    }
}

impl core::error::Error for PartsError {}

/// Joins the parts that `read` finds; `None` if there is no first one. `read` puts the
/// variable of a number into the buffer and returns its length; one that is missing or too long
/// is `None`.
///
/// ```
/// use firstlight_wire::parts::{RESULT_BYTES, join, part};
/// let text = [b'x'; 3000];
/// let mut whole = [0; RESULT_BYTES];
/// let joined = join(|number, buffer| Some(part(&text, number, buffer)?.len()), &mut whole);
/// assert_eq!(joined, Ok(Some(&text[..])));
/// ```
///
/// # Errors
/// [`PartsError`] if there is a first part and no whole result.
pub fn join(
    mut read: impl FnMut(u8, &mut [u8; PART_BYTES]) -> Option<usize>,
    whole: &mut [u8; RESULT_BYTES],
) -> Result<Option<&[u8]>, PartsError> {
    let mut buffer = [0; PART_BYTES];
    let Some(length) = read(0, &mut buffer) else {
        return Ok(None);
    };
    let first = Part::parse(&buffer, length).filter(|part| part.number == 0);
    let Some(Part {
        count,
        bytes,
        checksum: expected,
        ..
    }) = first
    else {
        return Err(PartsError::Part {
            number: 0,
            count: MOST_PARTS,
        });
    };
    for number in 0..count {
        let wrong = PartsError::Part { number, count };
        let length = read(number, &mut buffer).ok_or(wrong)?;
        let part = Part::parse(&buffer, length).ok_or(wrong)?;
        let start = usize::from(number) * TEXT_BYTES;
        let same = (part.number, part.count, part.bytes, part.checksum)
            == (number, count, bytes, expected);
        let place = whole
            .get_mut(start..bytes)
            .and_then(|rest| rest.get_mut(..part.text.len()))
            .filter(|_| same && part.text.len() == TEXT_BYTES.min(bytes - start))
            .ok_or(wrong)?;
        place.copy_from_slice(part.text);
    }
    let text = whole.get(..bytes).unwrap_or_default();
    match checksum(text) {
        seen if seen == expected => Ok(Some(text)),
        seen => Err(PartsError::Checksum { seen, expected }),
    }
}

/// A part as it is in a variable.
struct Part<'b> {
    number: u8,
    count: u8,
    bytes: usize,
    checksum: u32,
    text: &'b [u8],
}

impl<'b> Part<'b> {
    fn parse(buffer: &'b [u8; PART_BYTES], length: usize) -> Option<Self> {
        let (head, text) = buffer.get(..length)?.split_first_chunk::<HEAD_BYTES>()?;
        let [magic, [number, count, ..], bytes, checksum] = *head.as_chunks::<4>().0 else {
            return None;
        };
        let bytes = usize::try_from(u32::from_le_bytes(bytes)).ok()?;
        let fits = bytes.div_ceil(TEXT_BYTES) == usize::from(count);
        (magic == MAGIC && (1..=MOST_PARTS).contains(&count) && fits).then_some(Self {
            number,
            count,
            bytes,
            checksum: u32::from_le_bytes(checksum),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    fn parts(text: &[u8]) -> Vec<Vec<u8>> {
        (0..MOST_PARTS)
            .filter_map(|number| Some(part(text, number, &mut [0; PART_BYTES])?.to_vec()))
            .collect()
    }

    fn joined(parts: &[Vec<u8>]) -> Result<Option<Vec<u8>>, PartsError> {
        let mut whole = [0; RESULT_BYTES];
        let read = |number: u8, buffer: &mut [u8; PART_BYTES]| {
            let part = parts.get(usize::from(number))?;
            buffer.get_mut(..part.len())?.copy_from_slice(part);
            Some(part.len())
        };
        join(read, &mut whole).map(|text| text.map(<[u8]>::to_vec))
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect()
    }

    #[test]
    fn every_length_comes_back() {
        for bytes in [1, 2, TEXT_BYTES, TEXT_BYTES + 1, 5000, RESULT_BYTES] {
            let text = text(bytes);
            let parts = parts(&text);
            assert_eq!(Some(parts.len()), count(&text).map(usize::from));
            assert!(parts.iter().all(|part| part.len() <= PART_BYTES));
            assert_eq!(joined(&parts), Ok(Some(text)), "{bytes}");
        }
        assert_eq!(count(&[]), None);
        assert_eq!(parts(&text(RESULT_BYTES + 1)), Vec::<Vec<u8>>::new());
        assert_eq!(joined(&[]), Ok(None));
    }

    #[test]
    fn firmware_may_refuse_at_any_call() {
        use std::collections::BTreeMap;
        const OUT_OF_RESOURCES: u64 = 1 << 63 | 9;
        let (earlier, new) = (text(4000), text(2500));
        // Of the calls, `from..to` are refused: the last may be never.
        for from in 0..12 {
            for to in [from + 1, usize::MAX] {
                for before in [&earlier[..], &[]] {
                    let numbers = 0..MOST_PARTS;
                    let before: BTreeMap<_, _> = numbers.zip(parts(before)).collect();
                    let mut variables = before.clone();
                    let mut calls = 0..;
                    let stored = store(&new, |number, part| {
                        if (from..to).contains(&calls.next().unwrap_or_default()) {
                            return Err(OUT_OF_RESOURCES);
                        }
                        match part {
                            [] => variables.remove(&number),
                            _ => variables.insert(number, part.to_vec()),
                        };
                        Ok(())
                    });
                    let mut whole = [0; RESULT_BYTES];
                    let read = |number: u8, buffer: &mut [u8; PART_BYTES]| {
                        let part = variables.get(&number)?;
                        buffer[..part.len()].copy_from_slice(part);
                        Some(part.len())
                    };
                    let joined = join(read, &mut whole);
                    if from >= 3 {
                        assert_eq!((stored, joined), (Ok(3), Ok(Some(&new[..]))));
                        continue;
                    }
                    let refused = stored.unwrap_err();
                    let number = u8::try_from(2 - from).unwrap();
                    assert_eq!((refused.number, refused.count), (number, 3));
                    assert!(refused.to_string().ends_with("status 0x8000000000000009"));
                    if to == from + 1 {
                        assert!(variables.is_empty(), "space that others may need");
                    }
                    // None, all of the earlier one, or noticed: never a mixture.
                    match joined {
                        Ok(None) => assert!(to == from + 1 || before.is_empty()),
                        Ok(Some(text)) => assert_eq!(text, earlier),
                        Err(_) => assert_ne!(variables, before),
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_that_is_lost_changed_or_of_another_run_is_noticed() {
        let good = parts(&text(2500));
        assert!(matches!(
            joined(&good[..2]),
            Err(PartsError::Part {
                number: 2,
                count: 3
            })
        ));
        let other = parts(&text(2501));
        let mixed = [good[0].clone(), other[1].clone(), good[2].clone()];
        assert!(matches!(
            joined(&mixed),
            Err(PartsError::Part { number: 1, .. })
        ));
        let swapped = [good[0].clone(), good[2].clone(), good[1].clone()];
        assert!(joined(&swapped).is_err());
        for (part, bytes) in good.iter().enumerate() {
            for at in 0..bytes.len() {
                let mut damaged = good.clone();
                damaged[part][at] ^= 1;
                // Two bytes of the head are not used.
                let unused = (6..8).contains(&at);
                assert_eq!(joined(&damaged).is_err(), !unused, "part {part}, byte {at}");
            }
            let mut short = good.clone();
            short[part].pop();
            assert!(joined(&short).is_err());
        }
    }
}
