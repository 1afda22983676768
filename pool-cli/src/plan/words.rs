//! What options say: times, rates, sizes by their share, lifetimes, a goal.

use super::trace::{SECOND, seconds};
use firstlight_figures::random::Random;
use firstlight_figures::size;
use std::fmt;
use std::str::FromStr;

/// Units of time.
const UNITS: [(&str, u64); 5] = [
    ("ms", SECOND / 1000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3600 * SECOND),
    ("d", 24 * 3600 * SECOND),
];

/// A time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) u64);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|end: char| end.is_ascii_alphabetic());
        let unit = UNITS
            .iter()
            .find(|unit| Some(unit.0) == text.get(digits.len()..));
        let ns = seconds(digits).zip(unit).and_then(|(parts, (_, unit))| {
            let ns = u128::from(parts) * u128::from(*unit) / u128::from(SECOND);
            u64::try_from(ns).ok()
        });
        // A century: sums of a few are below 2^64.
        let ns = ns.filter(|ns| *ns < 1_000_000_000 * SECOND);
        ns.map(Self)
            .ok_or_else(|| format!("{text:?} is no time: expected 100ms, 1.5s, 10m, 1h or 1d"))
    }
}

/// Events a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate(pub(super) f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(number, unit)| {
            let number = size::decimal(number).filter(|number| *number > 0)?;
            let unit = UNITS.iter().find(|one| one.0 == unit)?;
            Some(number as f64 * SECOND as f64 / unit.1 as f64)
        });
        parts
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no rate: expected 1000/h, 5/m or 2/s"))
    }
}

/// A size, and how many in all starts have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) bytes: u64,
    pub(super) weight: u32,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bytes, weight) = text.split_once(':').unwrap_or((text, "1"));
        let bytes = size::parse(bytes).map_err(|error| error.to_string())?;
        match weight.parse() {
            Ok(weight @ 1..=1_000_000) if bytes > 0 => Ok(Self { bytes, weight }),
            _ => Err(format!(
                "{text:?}: expected a size and its share, such as 8G or 2G:3, neither of them 0"
            )),
        }
    }
}

/// How long virtual machines live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetimes {
    /// All of them so long.
    Fixed(Time),
    /// So long in the mean, exponentially distributed.
    Exponential(Time),
}

impl FromStr for Lifetimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fixed:") {
            Some(time) => time.parse().map(Self::Fixed),
            None => text.parse().map(Self::Exponential),
        }
    }
}

/// A number from 0 to 1, not 0.
fn part(random: &mut Random) -> f64 {
    (f64::from(random.bits()) + 1.0) / 4_294_967_296.0
}

/// So long in the mean, exponentially distributed.
pub(super) fn exponential(random: &mut Random, mean_ns: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "23 means at most, and not negative"
    )]
    let ns = (-part(random).ln() * mean_ns) as u64;
    // Beyond all that is played.
    ns.min(1 << 62)
}

impl Lifetimes {
    pub(super) fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed(time) => time.0,
            Self::Exponential(mean) => exponential(random, mean.0 as f64),
        }
    }
}

/// What a stock is to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// So many in a hundred starts wait at most so long.
    Wait(u32, Time),
    /// So many percent of starts find a clean slab.
    Hits(f64),
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let goal = match text.split_once('=') {
            Some(("p50", time)) => time.parse().ok().map(|time| Self::Wait(50, time)),
            Some(("p99", time)) => time.parse().ok().map(|time| Self::Wait(99, time)),
            Some(("hits", share)) => {
                let number = share.strip_suffix('%').and_then(seconds);
                let percent = number.map(|parts| parts as f64 / SECOND as f64);
                percent.filter(|percent| *percent <= 100.0).map(Self::Hits)
            }
            _ => None,
        };
        goal.ok_or_else(|| format!("{text:?} is no goal: expected p99=100ms, p50=1s or hits=99.5%"))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(percent, time) => {
                write!(f, "p{percent}={}ms", time.0 as f64 / 1e6)
            }
            Self::Hits(percent) => write!(f, "hits={percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_options_say() {
        for (text, ns) in [
            ("100ms", Some(SECOND / 10)),
            ("0s", Some(0)),
            ("1.5m", Some(90 * SECOND)),
            ("1d", Some(86_400 * SECOND)),
            ("1", None),
            ("s", None),
            ("-1s", None),
            ("1 s", None),
            ("999999999d", None),
            ("1\u{e9}", None),
        ] {
            assert_eq!(text.parse::<Time>().ok().map(|time| time.0), ns, "{text}");
        }
        for (text, rate) in [
            ("7200/h", Some(2.0)),
            ("0/h", None),
            ("5", None),
            ("5/y", None),
        ] {
            assert_eq!(text.parse::<Rate>().ok().map(|rate| rate.0), rate, "{text}");
        }
        let share = |bytes, weight| Some(Share { bytes, weight });
        for (text, expected) in [
            ("8G", share(8 << 30, 1)),
            ("2G:3", share(2 << 30, 3)),
            ("0", None),
            ("2G:0", None),
            ("2G:-1", None),
        ] {
            assert_eq!(text.parse::<Share>().ok(), expected, "{text}");
        }
        for (text, goal) in [
            ("p99=100ms", Some(Goal::Wait(99, Time(SECOND / 10)))),
            ("hits=99.5%", Some(Goal::Hits(99.5))),
            ("hits=101%", None),
            ("hits=99", None),
            ("p98=1s", None),
        ] {
            assert_eq!(text.parse::<Goal>().ok(), goal, "{text}");
            assert!(goal.is_none_or(|goal| goal.to_string() == text));
        }
    }
}
