//! Numbers as Linux's command line writes them: `64`, `0x40`, `0100`, `4G`.

use core::fmt;

/// Why there is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadNumber {
    /// No digit where a number should start.
    Missing,
    /// 2^64 or more.
    TooLarge,
}

impl fmt::Display for BadNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a number is missing",
            Self::TooLarge => "a number does not fit in 64 bits",
        })
    }
}

/// Reads a number off the front of `text` (hexadecimal after `0x`, octal after
/// `0`, else decimal) and returns what follows it.
///
/// # Errors
/// [`BadNumber`] without a digit or from 2^64 on. Linux lets the latter wrap.
pub fn parse_number(text: &[u8]) -> Result<(u64, &[u8]), BadNumber> {
    let (radix, digits) = match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => {
            (16, digits)
        }
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let len = digits
        .iter()
        .position(|byte| digit(byte).is_none())
        .unwrap_or(digits.len());
    if len == 0 {
        return Err(BadNumber::Missing);
    }
    let (digits, rest) = digits.split_at(len);
    let value = digits
        .iter()
        .filter_map(digit)
        .try_fold(0u64, |value, digit| {
            value.checked_mul(radix.into())?.checked_add(digit.into())
        });
    Ok((value.ok_or(BadNumber::TooLarge)?, rest))
}

/// Reads a number with an optional suffix K, M, G, T, P or E (powers of 1,024,
/// either case) and returns what follows.
///
/// ```
/// use firstlight_boot::cmdline::parse_size;
/// assert_eq!(parse_size(b"4G!12G"), Ok((4 << 30, &b"!12G"[..])));
/// assert_eq!(parse_size(b"0x100k"), Ok((256 << 10, &b""[..])));
/// assert!(parse_size(b"16E").is_err());
/// ```
///
/// # Errors
/// [`BadNumber`] without a digit or from 2^64 on.
pub fn parse_size(text: &[u8]) -> Result<(u64, &[u8]), BadNumber> {
    let (value, rest) = parse_number(text)?;
    let shift = match rest.first().map(u8::to_ascii_uppercase) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        Some(b'P') => 50,
        Some(b'E') => 60,
        _ => return Ok((value, rest)),
    };
    let bytes = value.checked_mul(1 << shift).ok_or(BadNumber::TooLarge)?;
    Ok((bytes, rest.get(1..).unwrap_or_default()))
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_linux_reads_them() {
        for (text, want) in [
            ("0", Ok((0, ""))),
            ("64", Ok((64, ""))),
            ("0x1F@", Ok((31, "@"))),
            ("0X1fg", Ok((31 << 30, ""))),
            ("0xg", Ok((0, "xg"))),
            ("010M", Ok((8 << 20, ""))),
            ("08", Ok((0, "8"))),
            ("7t,", Ok((7 << 40, ","))),
            ("15E", Ok((15 << 60, ""))),
            ("16E", Err(BadNumber::TooLarge)),
            ("18446744073709551615", Ok((u64::MAX, ""))),
            ("18446744073709551616", Err(BadNumber::TooLarge)),
            ("0x1ffffffffffffffff", Err(BadNumber::TooLarge)),
            ("", Err(BadNumber::Missing)),
            ("G", Err(BadNumber::Missing)),
            ("-1", Err(BadNumber::Missing)),
            (" 1", Err(BadNumber::Missing)),
        ] {
            let want = want.map(|(value, rest)| (value, rest.as_bytes()));
            assert_eq!(parse_size(text.as_bytes()), want, "{text:?}");
        }
    }
}
