//! Sizes as QEMU reads them: with fractions and hexadecimal numbers, and a unit
//! that follows the option where none is written.

/// One MiB: what a number without a unit counts after `-m`.
pub(super) const MIB: u64 = 1 << 20;

/// Reads `8G`, `1.5g`, `0x1000`, `4096`; a number without a unit counts `unit`.
pub(super) fn parse(text: &str, unit: u64) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size, expected for example 8G or 512M");
    let large = || format!("{text:?} is more than can be addressed");
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => unit,
        "b" | "B" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => MIB,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        "p" | "P" => 1 << 50,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // Nine places are more than any command line has, and leave room in 128 bits.
    let plain = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| large())?;
    let places = u32::try_from(fraction.len()).map_err(|_| wrong())?;
    let part: u64 = fraction.parse().unwrap_or(0);
    let part = u128::from(part) * u128::from(unit) / 10_u128.pow(places);
    let bytes = u128::from(whole) * u128::from(unit) + part;
    u64::try_from(bytes).map_err(|_| large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_qemu_reads_them() {
        let table = [
            ("8G", 1, Ok(8 << 30)),
            ("8192", MIB, Ok(8 << 30)),
            ("8192", 1, Ok(8192)),
            ("1.5g", MIB, Ok(3 << 29)),
            ("0.25T", 1, Ok(1 << 38)),
            ("0x200000", 1, Ok(2 << 20)),
            ("1b", MIB, Ok(1)),
            ("16777215T", 1, Ok(16_777_215 << 40)),
            ("16777216T", 1, Err("more than can be addressed")),
            ("99999999999999999999", 1, Err("more than can be addressed")),
            ("", 1, Err("is no size")),
            ("G", 1, Err("is no size")),
            ("8Gi", 1, Err("is no size")),
            ("-8G", 1, Err("is no size")),
            ("8,G", 1, Err("is no size")),
            ("1.0000000001G", 1, Err("is no size")),
            ("0x", 1, Err("is no size")),
            ("8é", 1, Err("is no size")),
        ];
        for (text, unit, expected) in table {
            match (parse(text, unit), expected) {
                (Ok(seen), Ok(expected)) => assert_eq!(seen, expected, "{text}"),
                (Err(seen), Err(expected)) => assert!(seen.contains(expected), "{text}: {seen}"),
                (seen, _) => panic!("{text}: {seen:?}"),
            }
        }
    }
}
