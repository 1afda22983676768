//! Values of the configuration: sizes such as `8G`, lists of CPUs such as `0-3`.

use crate::os::cpus;
use firstlight_figures::size;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written as `"512M"`, `"8G"`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    /// As every size of the commands: [`firstlight_figures::size`].
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = size::parse(text).map_err(|error| error.to_string())?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    /// In the largest unit that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let unit = units
            .iter()
            .find(|(shift, _)| self.0 > 0 && self.0.trailing_zeros() >= *shift);
        match unit {
            Some((shift, letter)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"512M\" or \"8G\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                let bytes = u64::try_from(bytes);
                bytes
                    .map(Size)
                    .map_err(|_| E::custom("a size is not negative"))
            }
        }
        source.deserialize_any(Words)
    }
}

/// CPUs, as a list such as `"0-3,8"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let cpus = cpus::parse(&text).filter(|cpus| !cpus.is_empty());
        let wrong = || D::Error::custom(format!("{text:?} is no list of CPUs such as \"0-3,8\""));
        cpus.map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("3K", 3 << 10),
            ("512M", 512 << 20),
            ("8g", 8 << 30),
            ("64GiB", 64 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }
        for text in ["", "G", "-1", "0x10", "1.5G", "8GB", "99999P"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(6 << 30).to_string(), "6G");
        assert_eq!(Size((6 << 30) + 1).to_string(), "6442450945");
    }
}
