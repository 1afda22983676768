//! Steps that a log names with their time: initcalls ([`initcalls`]) and services ([`services`]).
//!
//! | line | printed by |
//! |---|---|
//! | `initcall jent_mod_init+0x0/0x2c returned 0 after 132000 usecs` | Linux with `initcall_debug` |
//! | `systemd[1]: Starting NAME...`, then `Started NAME.` or `Finished NAME.` | systemd: the time between |
//! | `12.345s foo.service` | `systemd-analyze blame` |
//! | `└─foo.service @1.234s +567ms` | `systemd-analyze critical-chain` |

use std::collections::BTreeMap;

use super::line::Line;

/// A step and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Nanoseconds.
    pub ns: u64,
    /// When it had ended, where the line has a time.
    pub end_ns: Option<u64>,
    /// The line that says so.
    pub line: usize,
}

/// Initcalls, in the order in which they returned.
///
/// ```
/// use firstlight_lab::log::{initcalls, lines};
/// let log = lines(b"[1.500000] initcall jent_mod_init+0x0/0x2c returned 0 after 132000 usecs\n");
/// let calls = initcalls(&log);
/// assert_eq!((&*calls[0].name, calls[0].ns), ("jent_mod_init", 132_000_000));
/// ```
#[must_use]
pub fn initcalls(lines: &[Line<'_>]) -> Vec<Named> {
    let call = |line: &Line<'_>| {
        let rest = line.text.strip_prefix("initcall ")?;
        let (name, rest) = rest.split_once(['+', ' '])?;
        let (_, after) = rest.split_once(" after ")?;
        let micros: u64 = after.strip_suffix(" usecs")?.trim().parse().ok()?;
        named(line, name, micros.checked_mul(1000)?)
    };
    lines.iter().filter_map(call).collect()
}

/// Services, in the order of the lines that name their time.
#[must_use]
pub fn services(lines: &[Line<'_>]) -> Vec<Named> {
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    let mut services = Vec::new();
    for line in lines {
        let text = &*line.text;
        if let Some(said) = text.strip_prefix("systemd[1]: ") {
            if let (Some(name), Some(ns)) = (said.strip_prefix("Starting "), line.stamp_ns) {
                begun.insert(unit(name), ns);
            }
            let ended = ["Started ", "Finished "];
            let name = ended
                .iter()
                .find_map(|word| said.strip_prefix(word))
                .map(unit);
            let begin = name.and_then(|name| begun.remove(name));
            let ns = begin.and_then(|begin| line.stamp_ns?.checked_sub(begin));
            services.extend(name.zip(ns).and_then(|(name, ns)| named(line, name, ns)));
            continue;
        }
        services.extend(analyzed(text).and_then(|(name, ns)| named(line, name, ns)));
    }
    services
}

fn named(line: &Line<'_>, name: &str, ns: u64) -> Option<Named> {
    let named = Named {
        name: name.to_owned(),
        ns,
        end_ns: line.stamp_ns,
        line: line.number,
    };
    (!name.is_empty()).then_some(named)
}

/// A unit as systemd names it, without the dots behind it.
fn unit(text: &str) -> &str {
    text.trim_end_matches('.').trim_end_matches('…')
}

/// A line of `systemd-analyze`.
fn analyzed(text: &str) -> Option<(&str, u64)> {
    const UNITS: [&str; 10] = [
        ".service",
        ".mount",
        ".socket",
        ".device",
        ".target",
        ".swap",
        ".timer",
        ".path",
        ".slice",
        ".automount",
    ];
    let is_unit = |word: &str| UNITS.iter().any(|unit| word.ends_with(unit));
    // Most lines of a log end otherwise.
    if is_unit(text) {
        let (time, name) = text.rsplit_once(' ')?;
        return Some((name, duration(time)?));
    }
    let (front, time) = text.ends_with('s').then(|| text.rsplit_once(" +"))??;
    let (name, _) = front.split_once(" @")?;
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    is_unit(name).then(|| Some((name, duration(time)?)))?
}

/// `1min 2.345s`, `980ms`, in nanoseconds.
pub(crate) fn duration(text: &str) -> Option<u64> {
    let mut ns: u64 = 0;
    let mut any = false;
    for word in text.split_ascii_whitespace() {
        let at = word.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = word.split_at(at);
        let unit_ns: u64 = match unit {
            "h" => 3_600_000_000_000,
            "min" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: u64 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().ok()?
        };
        let power = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let whole_ns = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
        let fraction_ns = u128::from(digits) * u128::from(unit_ns) / u128::from(power);
        ns = ns
            .checked_add(whole_ns)?
            .checked_add(u64::try_from(fraction_ns).ok()?)?;
        any = true;
    }
    any.then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines;

    fn of(found: Vec<Named>) -> Vec<(String, u64, usize)> {
        let each = found
            .into_iter()
            .map(|named| (named.name, named.ns / 1000, named.line));
        each.collect()
    }

    #[test]
    fn initcalls_of_kernel_and_modules_have_their_names() {
        let log = "[1.0000] calling  a_init+0x0/0x10 @ 1\n[1.1000] initcall a_init+0x0/0x10 returned 0 after 99 usecs\n\
                   [2.0000] initcall b_init+0x0/0xff [b] returned -19 after 7 usecs\ninitcall c returned\n";
        assert_eq!(
            of(initcalls(&lines(log.as_bytes()))),
            [("a_init".into(), 99, 2), ("b_init".into(), 7, 3)]
        );
    }

    #[test]
    fn services_are_read_from_lines_and_from_what_adds_them_up() {
        let log = "[1.000000] systemd[1]: Starting a.service - A...\n[1.5000] systemd[1]: Starting B...\n\
                   [3.000000] systemd[1]: Finished a.service - A.\n[3.000000] systemd[1]: Started C.\n\
                   1min 2.5s d.service\n   980ms dev-sda1.device\n\
                   └─e.service @1.234s +567ms\n  └─f.target @1s\nno unit here\n";
        assert_eq!(
            of(services(&lines(log.as_bytes()))),
            [
                ("a.service - A".into(), 2_000_000, 3),
                ("d.service".into(), 62_500_000, 5),
                ("dev-sda1.device".into(), 980_000, 6),
                ("e.service".into(), 567_000, 7),
            ]
        );
    }

    #[test]
    fn durations_are_as_systemd_writes_them() {
        for (text, ns) in [
            ("1min 2.345s", Some(62_345_000_000)),
            ("980ms", Some(980_000_000)),
            ("1h 1min", Some(3_660_000_000_000)),
            ("", None),
            ("5", None),
            ("1.2.3s", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(duration(text), ns, "{text}");
        }
    }
}
