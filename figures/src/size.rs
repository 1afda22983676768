//! Sizes as people write them: [`parse`].
//!
//! A whole decimal number, alone for bytes or with K, M, G, T, P or E for powers
//! of 1,024, in either case and with or without `iB`. Grammars of other programs
//! are not this one: a kernel's command line knows hexadecimal numbers, QEMU's
//! knows fractions.

use core::fmt;
use std::string::String;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSize {
    /// The text.
    pub seen: String,
}

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no size: expected a whole number such as 65536, 512M or 64GiB, below 16E",
            self.seen
        )
    }
}

impl std::error::Error for BadSize {}

/// Bytes of a size.
///
/// ```
/// use firstlight_figures::size::parse;
/// assert_eq!(parse("64GiB"), Ok(64 << 30));
/// assert_eq!(parse("64g"), parse("65536M"));
/// assert!(parse("1.5T").is_err());
/// ```
///
/// # Errors
/// [`BadSize`] for anything else, and from 2^64 bytes on.
pub fn parse(text: &str) -> Result<u64, BadSize> {
    bytes(text).ok_or_else(|| BadSize { seen: text.into() })
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|end: char| !end.is_ascii_digit());
    let unit = text.get(digits.len()..)?;
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if !unit.is_empty() => return None,
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        "E" | "e" => 60,
        _ => return None,
    };
    decimal(digits)?.checked_mul(1 << shift)
}

/// A whole number without a sign or leading zeros, which elsewhere mean octal.
///
/// ```
/// use firstlight_figures::size::decimal;
/// assert_eq!(decimal("4096"), Some(4096));
/// assert_eq!([decimal("+1"), decimal("010"), decimal("")], [None; 3]);
/// ```
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
    // `str::parse` accepts a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    (digits && !leading_zero)
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn a_size_has_one_meaning_or_none() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("3K", 3 << 10),
            ("200M", 200 << 20),
            ("8g", 8 << 30),
            ("64GiB", 64 << 30),
            ("64giB", 64 << 30),
            ("4t", 4 << 40),
            ("7P", 7 << 50),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_and_quoted() {
        for text in [
            "",
            "G",
            "iB",
            "4iB",
            "4X",
            "4B",
            "4GB",
            "4KK",
            "1.5T",
            "-4T",
            "+4T",
            "0x10",
            "010",
            "00",
            "16E",
            "16777216T",
            "99999P",
            "4 G",
            " 4G",
            "4G ",
            "٤G",
            "18446744073709551616",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?} is no size")));
        }
    }
}
