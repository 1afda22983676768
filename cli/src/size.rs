//! Sizes as people write them.

/// A whole number of bytes such as `1536G`, `4TiB` or `65536`.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|end: char| !end.is_ascii_digit());
    let unit = text.get(digits.len()..)?;
    let letter = unit.strip_suffix("iB").unwrap_or(unit).to_ascii_uppercase();
    let shift = match letter.as_str() {
        "" if !unit.is_empty() => return None,
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    decimal(digits)?.checked_mul(1 << shift)
}

/// A whole number without a sign.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    // `parse` would take a sign.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_one_meaning_or_none() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("200M", 200 << 20),
            ("64GiB", 64 << 30),
            ("4t", 4 << 40),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "iB",
            "4iB",
            "4X",
            "1.5T",
            "-4T",
            "+4T",
            "16777216T",
            "4 G",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
