//! Time stamps, as kernels and the tools that show their logs print them: [`stamp`] reads those in
//! brackets, [`dated`] those of the calendar without.
//!
//! | form | printed by |
//! |---|---|
//! | `[    0.033176]`, `[0.033176]` | the kernel |
//! | `[    0.033176@0]`, `[    0.033176,0]`, `[    0.033176s]` | kernels of phones and boards |
//! | `[    0.033176 <    0.000012>]` | `dmesg -d` |
//! | `[  +0.004528]` | `dmesg --reltime`: since the line before |
//! | `[<    0.004528>]` | `dmesg --time-format=delta`: likewise |
//! | `[0.033176 0.004528]` | `grabserial`: since it was started, and since the line before |
//! | `[Mon Nov 21 07:00:00 2026]` | `dmesg -T`: whole seconds of the calendar |
//! | `[Nov21 07:00]` | `dmesg --reltime`, at the first line of a minute |
//! | `2026-11-21T07:00:00,123456+01:00` | `dmesg --time-format=iso`, `journalctl -o short-iso-precise` |
//! | `Nov 21 07:00:00.123456` | `journalctl -o short-precise`, system logs |
//! | `Sat 2026-11-21 07:00:00 UTC` | `journalctl -o short-full` |
//! | `1795244400.123456` | `journalctl -o short-unix` |

/// Bytes between the brackets of a stamp, at most.
const MOST_BYTES: usize = 64;
const SECOND_NS: u64 = 1_000_000_000;
/// Seconds from which on a number in front of a message is a date.
const UNIX_SECONDS: u64 = 1 << 29;

/// What a stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Nanoseconds of the kernel's clock.
    Kernel(u64),
    /// Nanoseconds since the line before.
    Since(u64),
    /// Nanoseconds of whoever recorded the line, from a moment of no importance.
    Host(u64),
    /// Whole seconds of the calendar, in nanoseconds.
    Second(u64),
    /// A minute begins; the time since the line before is not said.
    Minute,
}

/// The stamp at the start of `text`, and the bytes it takes.
pub(super) fn stamp(text: &str) -> Option<(Stamp, usize)> {
    let inside = text.strip_prefix('[')?;
    let first = inside.bytes().next()?;
    if !matches!(first, b' ' | b'+' | b'<' | b'0'..=b'9' | b'A'..=b'W') {
        return None;
    }
    let close = inside.bytes().take(MOST_BYTES).position(|b| b == b']')?;
    let inside = inside.get(..close)?.trim();
    let stamp = match inside.as_bytes().first()? {
        b'+' => Stamp::Since(seconds(inside.get(1..)?.trim_start())?),
        b'<' => Stamp::Since(seconds(inside.get(1..)?.strip_suffix('>')?.trim())?),
        b'A'..=b'W' => words(inside)?,
        _ => recorded(inside).or_else(|| monotonic(inside).map(Stamp::Kernel))?,
    };
    Some((stamp, close + 2))
}

/// Two times, as `grabserial` prints them.
fn recorded(inside: &str) -> Option<Stamp> {
    let (since_start, since_line) = inside.split_once(' ')?;
    seconds(since_line.trim_start())?;
    Some(Stamp::Host(seconds(since_start)?))
}

/// A kernel's own stamp, whatever some kernels and tools put behind the time.
fn monotonic(inside: &str) -> Option<u64> {
    // The CPU behind it says that a short fraction is one.
    if let Some((time, cpu)) = inside.split_once(',') {
        let (whole, fraction) = time.split_once('.')?;
        cpu.parse::<u16>().ok()?;
        return with_fraction(whole, fraction);
    }
    let (time, behind) = inside.split_once(['<', '@']).unwrap_or((inside, ""));
    let known = behind
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b' ' | b'.' | b'>' | b'+'));
    let time = if known { time.trim_end() } else { inside };
    seconds(time.strip_suffix('s').unwrap_or(time))
}

/// `0.033176`, three to nine digits behind the point, in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    with_fraction(whole, fraction).filter(|_| fraction.len() >= 3)
}

fn with_fraction(whole: &str, fraction: &str) -> Option<u64> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let fraction_ns = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    let whole_ns = whole.parse::<u64>().ok()?.checked_mul(SECOND_NS)?;
    whole_ns.checked_add(fraction_ns)
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// For dates without a year; a leap year, so that none is refused.
const SOME_YEAR: u64 = 1972;

/// The number of a month, from 1.
pub(super) fn month(text: &str) -> Option<u64> {
    let at = MONTHS.iter().position(|name| *name == text)?;
    u64::try_from(at + 1).ok()
}

/// `Mon Nov 21 07:00:00 2026`, `Nov21 07:00`, or either with the time since the line before.
fn words(inside: &str) -> Option<Stamp> {
    let mut words = inside.split_ascii_whitespace();
    let first = words.next()?;
    if DAYS.contains(&first) {
        if let Some((_, since)) = inside.split_once('<') {
            return Some(Stamp::Since(seconds(since.strip_suffix('>')?.trim())?));
        }
        let month = month(words.next()?)?;
        let day = words.next()?.parse().ok()?;
        let time = Time::read(words.next()?)?;
        let year = words
            .next()
            .map_or(Some(SOME_YEAR), |year| year.parse().ok());
        return time.on(days(year?, month, day)?);
    }
    month(first.get(..3)?)?;
    let day = first.get(3..)?;
    let minute = words.next()?;
    let short = day.len() <= 2 && day.bytes().all(|b| b.is_ascii_digit());
    (short && minute.contains(':')).then_some(Stamp::Minute)
}

/// The clock of a recorder of serial lines, between brackets: `2026-11-21 07:00:00.123`,
/// `07:00:00.123`, `07:00:00.123456 0.000012`.
pub(super) fn recorder(inside: &str) -> Option<Stamp> {
    let inside = inside.trim();
    if let Some((date, time)) = inside.split_once([' ', 'T'])
        && let Some(day) = date_days(date)
    {
        return Time::read(time)?.on(day);
    }
    let (time, since) = inside.split_once(' ').unwrap_or((inside, ""));
    let known = since.is_empty() || seconds(since.trim()).is_some();
    Time::read(time).filter(|_| known)?.on(0)
}

/// A date and a time of the calendar at the start of `text`, and what follows.
pub(super) fn dated(text: &str) -> Option<(Stamp, &str)> {
    let (first, rest) = text.split_once(' ')?;
    let rest = rest.trim_start();
    let byte = *first.as_bytes().first()?;
    if byte.is_ascii_digit() {
        if let Some((date, time)) = first.split_once('T') {
            return Some((Time::read(time)?.on(date_days(date)?)?, rest));
        }
        if let Some(day) = date_days(first) {
            let (time, rest) = rest.split_once(' ')?;
            return Some((Time::read(time)?.on(day)?, rest));
        }
        let unix = seconds(first).filter(|ns| *ns >= UNIX_SECONDS * SECOND_NS)?;
        return Some((Stamp::Host(unix), rest));
    }
    if !byte.is_ascii_uppercase() || first.len() != 3 {
        return None;
    }
    let (second, rest) = rest.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(' ')?;
    if DAYS.contains(&first) {
        let stamp = Time::read(time)?.on(date_days(second)?)?;
        // The time zone.
        return Some((stamp, rest.split_once(' ')?.1));
    }
    let day = days(SOME_YEAR, month(first)?, second.parse().ok()?)?;
    Some((Time::read(time)?.on(day)?, rest))
}

/// The days of `2026-11-21`.
fn date_days(date: &str) -> Option<u64> {
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if year.len() != 4 || parts.next().is_some() {
        return None;
    }
    days(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
}

/// Days from the first of March 1968 to a day of the calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..2200).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March end in what is sometimes a day longer.
    let (year, month) = if month < 3 {
        (year - 1969, month + 9)
    } else {
        (year - 1968, month - 3)
    };
    let lost = u64::from(year >= 132);
    Some(year * 365 + year / 4 - lost + (month * 153 + 2) / 5 + day - 1)
}

/// A time of day.
#[derive(Clone, Copy, Debug)]
struct Time {
    ns: u64,
    /// It has a fraction.
    fine: bool,
    /// Seconds that its zone is ahead.
    ahead: i64,
}

impl Time {
    /// `07:00:00`, `07:00:00.123456`, `07:00:00,123456+01:00`.
    fn read(text: &str) -> Option<Self> {
        let second = clock(text.get(..8)?)?;
        let rest = text.get(8..)?;
        let (fraction, zone) = match rest.strip_prefix(['.', ',']) {
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit());
                rest.split_at(end.unwrap_or(rest.len()))
            }
            None => ("0", rest),
        };
        Some(Self {
            ns: with_fraction(&second.to_string(), fraction)?,
            fine: rest.starts_with(['.', ',']),
            ahead: zone_seconds(zone)?,
        })
    }

    /// This time of a day.
    fn on(self, day: u64) -> Option<Stamp> {
        // A day in hand, so that no zone reaches below zero.
        let second = (day + 1)
            .checked_mul(86_400)?
            .checked_add_signed(-self.ahead)?;
        let ns = second.checked_mul(SECOND_NS)?.checked_add(self.ns)?;
        Some(if self.fine {
            Stamp::Host(ns)
        } else {
            Stamp::Second(ns)
        })
    }
}

/// `+01:00`, `-0800`, `Z` or nothing.
fn zone_seconds(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first() {
        None => return Some(0),
        Some(b'Z') if zone.len() == 1 => return Some(0),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let digits: i64 = zone.get(1..)?.replace(':', "").parse().ok()?;
    let (hours, minutes) = (digits / 100, digits % 100);
    ((0..24).contains(&hours) && (0..60).contains(&minutes))
        .then_some(sign * (hours * 3600 + minutes * 60))
}

/// `07:00:00` in seconds.
fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
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

    /// 07:00:00 of 21 November 2026, as [`Time::on`] counts.
    const SEVEN: u64 = ((21_449 + 1) * 86_400 + 7 * 3600) * SECOND_NS;

    #[test]
    fn every_form_in_brackets_is_read() {
        for (text, expected) in [
            ("[    0.033176] a", Some(Stamp::Kernel(33_176_000))),
            ("[0.5000]", Some(Stamp::Kernel(500_000_000))),
            ("[    1.000001@3] a", Some(Stamp::Kernel(1_000_001_000))),
            ("[    1.000001,3] a", Some(Stamp::Kernel(1_000_001_000))),
            ("[1.0,0] a", Some(Stamp::Kernel(1_000_000_000))),
            ("[    1.000001s] a", Some(Stamp::Kernel(1_000_001_000))),
            (
                "[    0.250000 <    0.000012>]",
                Some(Stamp::Kernel(250_000_000)),
            ),
            ("[  +0.004528]", Some(Stamp::Since(4_528_000))),
            ("[<    0.000012>]", Some(Stamp::Since(12_000))),
            ("[12.500000 0.000012] a", Some(Stamp::Host(12_500_000_000))),
            ("[Sat Nov 21 07:00:00 2026]", Some(Stamp::Second(SEVEN))),
            (
                "[Sat Nov 21 07:00:00 2026 <    0.000012>]",
                Some(Stamp::Since(12_000)),
            ),
            ("[Nov21 07:00]", Some(Stamp::Minute)),
            ("[Nov 21 07:00]", None),
            ("[    T0]", None),
            ("[mem 0x1000-0x2000]", None),
            ("[12.34]", None),
            ("[0.5, 1.25]", None),
            ("[99999999999999999999.000000]", None),
            ("[    0.1234", None),
            ("[<    0.000012]", None),
            ("[Sat Nov 21 25:00:00 2026]", None),
        ] {
            assert_eq!(stamp(text).map(|found| found.0), expected, "{text}");
        }
        assert_eq!(stamp("[0.5000] a").map(|found| found.1), Some(8));
    }

    #[test]
    fn the_calendar_is_read_to_the_microsecond() {
        let micro = Some(Stamp::Host(SEVEN + 123_456_000));
        let second = Some(Stamp::Second(SEVEN));
        for (text, expected) in [
            ("2026-11-21T08:00:00,123456+01:00 a", micro),
            ("2026-11-21T08:00:00.123456+0100 a", micro),
            ("2026-11-20T23:00:00.123456-08:00 a", micro),
            ("2026-11-21T07:00:00.123456Z a", micro),
            ("2026-11-21T07:00:00+0000 a", second),
            ("2026-11-21 07:00:00 a", second),
            ("Sat 2026-11-21 07:00:00 UTC a", second),
            ("Nov 21 07:00:00", None),
            ("Nov 41 07:00:00 a", None),
            ("2026-11-21T07:60:00 a", None),
            ("2026-13-21T07:00:00 a", None),
            ("12.500000 a", None),
            ("Now it is time", None),
        ] {
            let found = dated(text);
            assert_eq!(found.map(|found| found.0), expected, "{text}");
            assert!(found.is_none_or(|found| found.1 == "a"), "{text}");
        }
        let unix = dated("1795244400.123456 a").map(|found| found.0);
        assert_eq!(unix, Some(Stamp::Host(1_795_244_400_123_456_000)));
        let difference = |one, other| {
            let ns = |text| match dated(text) {
                Some((Stamp::Host(ns) | Stamp::Second(ns), _)) => ns,
                other => panic!("{text}: {other:?}"),
            };
            ns(other) - ns(one)
        };
        assert_eq!(
            difference("Feb 28 23:59:59.5 a", "Mar  1 00:00:00.500001 a"),
            86_401_000_001_000
        );
        assert_eq!(
            difference("2026-12-31T23:59:59Z a", "2027-01-01T00:00:00Z a"),
            SECOND_NS
        );
    }

    #[test]
    fn the_clocks_of_recorders_are_read() {
        for (text, expected) in [
            (
                "2026-11-21 07:00:00.5",
                Some(Stamp::Host(SEVEN + 500_000_000)),
            ),
            ("2026-11-21T07:00:00", Some(Stamp::Second(SEVEN))),
            ("00:00:01.5", Some(Stamp::Host(86_401_500_000_000))),
            ("00:00:01.5 0.000012", Some(Stamp::Host(86_401_500_000_000))),
            ("00:00", None),
            ("mem 0x1000", None),
            ("é", None),
        ] {
            assert_eq!(recorder(text), expected, "{text}");
        }
    }
}
