//! Time stamps in brackets, as kernels and the tools that show their logs print them: [`stamp`].
//!
//! | form | printed by |
//! |---|---|
//! | `[    0.033176]`, `[0.033176]` | the kernel |
//! | `[    0.033176@0]` | kernels that add the CPU |
//! | `[    0.033176 <    0.000012>]` | `dmesg -d` |
//! | `[  +0.004528]` | `dmesg --reltime`: since the line before |
//! | `[Mon Nov 21 07:00:00 2026]` | `dmesg -T`: whole seconds of the calendar |
//! | `[Nov21 07:00]` | `dmesg --reltime`, at the first line of a minute |

/// Bytes between the brackets of a stamp, at most.
const MOST_BYTES: usize = 40;

/// What a stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Nanoseconds of the kernel's clock.
    Kernel(u64),
    /// Nanoseconds since the line before.
    Since(u64),
    /// Seconds of the calendar, from a day of no importance.
    Calendar(u64),
    /// A minute begins; the time since the line before is not said.
    Minute,
}

/// The stamp at the start of `text`, and the bytes it takes.
pub(super) fn stamp(text: &str) -> Option<(Stamp, usize)> {
    let inside = text.strip_prefix('[')?;
    let first = inside.bytes().next()?;
    if !matches!(first, b' ' | b'+' | b'0'..=b'9' | b'A'..=b'W') {
        return None;
    }
    let close = inside.bytes().take(MOST_BYTES).position(|b| b == b']')?;
    let inside = inside.get(..close)?.trim();
    let stamp = match inside.as_bytes().first()? {
        b'+' => Stamp::Since(seconds(inside.get(1..)?.trim_start())?),
        b'A'..=b'W' => words(inside)?,
        _ => Stamp::Kernel(seconds(monotonic(inside))?),
    };
    Some((stamp, close + 2))
}

/// Without what some kernels and tools put behind the time.
fn monotonic(inside: &str) -> &str {
    let (time, behind) = inside.split_once(['<', '@']).unwrap_or((inside, ""));
    let known = behind
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b' ' | b'.' | b'>' | b'+'));
    if known { time.trim_end() } else { inside }
}

/// `0.033176`, three to nine digits behind the point, in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || !(3..=9).contains(&fraction.len()) {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let fraction_ns = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction_ns)
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The number of a month, from 0.
pub(super) fn month(text: &str) -> Option<usize> {
    MONTHS.iter().position(|name| *name == text)
}

/// `Mon Nov 21 07:00:00 2026` or `Nov21 07:00`.
fn words(inside: &str) -> Option<Stamp> {
    let mut words = inside.split_ascii_whitespace();
    let first = words.next()?;
    if DAYS.contains(&first) {
        let month = month(words.next()?)?;
        let day: u64 = words.next()?.parse().ok()?;
        let time = clock(words.next()?)?;
        let months = u64::try_from(month).ok()?;
        let days = months.checked_mul(31)?.checked_add(day.min(31))?;
        return Some(Stamp::Calendar(days * 86_400 + time));
    }
    month(first.get(..3)?)?;
    let day = first.get(3..)?;
    let minute = words.next()?;
    let short = day.len() <= 2 && day.bytes().all(|b| b.is_ascii_digit());
    (short && minute.contains(':')).then_some(Stamp::Minute)
}

/// `07:00:00` in seconds; what is behind a point does not count.
pub(super) fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(['.', ',']).next()?.split(':');
    let mut seconds = 0;
    for most in [24, 60, 61] {
        let part: u64 = parts.next()?.parse().ok()?;
        if part >= most {
            return None;
        }
        seconds = seconds * 60 + part;
    }
    parts.next().is_none().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let day = (10 * 31 + 21) * 86_400 + 7 * 3600;
        for (text, expected) in [
            ("[    0.033176] a", Some(Stamp::Kernel(33_176_000))),
            ("[0.5000]", Some(Stamp::Kernel(500_000_000))),
            ("[    1.000001@3] a", Some(Stamp::Kernel(1_000_001_000))),
            (
                "[    0.250000 <    0.000012>]",
                Some(Stamp::Kernel(250_000_000)),
            ),
            ("[  +0.004528]", Some(Stamp::Since(4_528_000))),
            ("[<    0.000012>]", None),
            ("[Mon Nov 21 07:00:00 2026]", Some(Stamp::Calendar(day))),
            ("[Nov21 07:00]", Some(Stamp::Minute)),
            ("[Nov 21 07:00]", None),
            ("[    T0]", None),
            ("[mem 0x1000-0x2000]", None),
            ("[12.34]", None),
            ("[99999999999999999999.000000]", None),
            ("[    0.1234", None),
            ("[Mon Nov 21 25:00:00 2026]", None),
        ] {
            assert_eq!(stamp(text).map(|found| found.0), expected, "{text}");
        }
        assert_eq!(stamp("[0.5000] a").map(|found| found.1), Some(8));
    }
}
