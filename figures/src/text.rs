//! Numbers for people.

use std::format;
use std::string::{String, ToString};

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `639 KiB`, `15.6 MiB`, `4 TiB`: the largest unit that leaves at least one,
/// with a decimal where the number is not whole.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let unit = (0..UNITS.len())
        .rev()
        .find(|unit| bytes >> (10 * unit) > 0)
        .unwrap_or(0);
    let whole = bytes >> (10 * unit);
    if whole << (10 * unit) == bytes {
        return format!("{whole} {}", UNITS[unit]);
    }
    let half = (1 << (10 * unit)) / 2;
    let mut tenths = (u128::from(bytes) * 10 + half) >> (10 * unit);
    // 2^64 bytes are 16 EiB: past the largest unit nothing rounds up.
    let rounds_up = tenths >= 10_240;
    let unit = if rounds_up { unit + 1 } else { unit };
    tenths = if rounds_up { 10 } else { tenths };
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `6,291,199`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds as microseconds, `1,234.5`.
#[must_use]
pub fn microseconds(ns: u64) -> String {
    let tenths = ns.saturating_add(50) / 100;
    format!("{}.{}", count(tenths / 10), tenths % 10)
}

/// Nanoseconds as milliseconds, `1,234.568`.
#[must_use]
pub fn milliseconds(ns: u64) -> String {
    let us = ns.saturating_add(500) / 1000;
    format!("{}.{:03}", count(us / 1000), us % 1000)
}

/// `1 node`, `2 nodes`.
#[must_use]
pub fn plural(number: u64, word: &str) -> String {
    format!(
        "{} {word}{}",
        count(number),
        if number == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_exact_or_rounded_to_a_tenth() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (654_336, "639 KiB"),
            (15 << 20 | 640 << 10, "15.6 MiB"),
            ((1 << 40) - 1, "1.0 TiB"),
            (4 << 40, "4 TiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (number, text) in table {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn numbers_are_grouped_and_ranges_folded() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(6_291_199), "6,291,199");
        assert_eq!(microseconds(1_234_549), "1,234.5");
        assert_eq!(microseconds(u64::MAX), "18,446,744,073,709,551.6");
        assert_eq!(plural(1, "node"), "1 node");
        assert_eq!(plural(2, "CPU"), "2 CPUs");
    }
}
