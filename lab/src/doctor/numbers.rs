//! Figures in messages and on command lines.

/// Available and all memory of `Memory: 3375148K/33511684K available (...)`, in bytes.
pub(super) fn memory_line(text: &str) -> Option<(u64, u64)> {
    let rest = text.strip_prefix("Memory: ")?;
    let (available, rest) = rest.split_once(['K', 'k'])?;
    let rest = rest.strip_prefix('/')?;
    let (total, _) = rest.split_once(['K', 'k'])?;
    let kib = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1024);
    Some((kib(available)?, kib(total)?))
}

/// The first number behind `key` in `text`.
pub(super) fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// The number in front of `key` in `text`.
pub(super) fn number_before(text: &str, key: &str) -> Option<u64> {
    let (front, _) = text.split_once(key)?;
    let front = front.trim_end();
    let digits = front.bytes().rev().take_while(u8::is_ascii_digit).count();
    front.get(front.len() - digits..)?.parse().ok()
}

/// A size of the command line: `2G`, `512M`, `0x1000`; in bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'x' | 'a'..='f'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let shift = match unit.chars().next().map(|c| c.to_ascii_uppercase()) {
        None => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some('P') => 50,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_figures() {
        for (text, bytes) in [
            ("2G", Some(2 << 30)),
            ("512M@64M", Some(512 << 20)),
            ("0x1000", Some(4096)),
            ("nopentium", None),
            ("", None),
            ("99999999999G", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
        assert_eq!(number_after("losing 2048MB of RAM", "losing"), Some(2048));
        let memory = memory_line("Memory: 3375148K/33511684K available (1K kernel code)");
        assert_eq!(memory, Some((3_375_148 << 10, 33_511_684 << 10)));
        assert_eq!(memory_line("Memory: x"), None);
    }
}
