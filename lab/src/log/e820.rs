//! The firmware's memory map as kernels print it: [`E820Row`].
//!
//! | form | since |
//! |---|---|
//! | `BIOS-e820: 0000000000000000 - 000000000009fc00 (usable)` | before 3.5; the end is outside |
//! | `BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff] usable` | 3.5 |
//! | `BIOS-e820: [mem 0x0000000000000000-0x000000000009fbff]  System RAM` | the rework of 2025, with `[gap ...]` rows |

use super::kernel_log::KernelLog;
use super::kernel_rows::{E820Change, E820Kind, E820Row};
use super::line::Line;
use super::problem::{Bad, LogProblem};
use super::rows::Scan;

/// Who printed a row.
#[derive(Clone, Copy)]
enum Source {
    Firmware,
    User,
    SetupData,
    Modified,
}

const SOURCES: [(&str, Source); 9] = [
    ("BIOS-e820:", Source::Firmware),
    ("BIOS-e801:", Source::Firmware),
    ("BIOS-88:", Source::Firmware),
    ("Xen:", Source::Firmware),
    ("user:", Source::User),
    ("reserve setup_data:", Source::SetupData),
    ("extended:", Source::SetupData),
    ("modified:", Source::Modified),
    ("modified physical RAM map:", Source::Modified),
];

/// Reads `line` if it is a row or a change of the map.
pub(super) fn read(line: &Line<'_>, log: &mut KernelLog) -> bool {
    let mut scan = Scan::new(&line.text);
    if scan.eat("e820: update") || scan.eat("e820: remove") {
        let removed = line.text.starts_with("e820: remove");
        if !scan.remainder().starts_with('[') {
            return false;
        }
        match change(&mut scan, removed, line.number) {
            Ok(change) => log.e820_changes.push(change),
            Err(bad) => log
                .problems
                .push(LogProblem::new(line.number, bad, &line.text)),
        }
        return true;
    }
    let Some(&(_, source)) = SOURCES.iter().find(|(prefix, _)| scan.eat(prefix)) else {
        return false;
    };
    let firmware = matches!(source, Source::Firmware);
    let shaped = scan
        .remainder()
        .starts_with(|c: char| c == '[' || c.is_ascii_hexdigit());
    if !shaped || scan.eat("[gap") {
        // Some other message of the same subsystem, or a hole spelled out.
        return shaped || firmware;
    }
    match row(&mut scan, line, log) {
        Ok(row) => match source {
            Source::Firmware => log.e820.push(row),
            Source::User => log.user_map.push(row),
            Source::SetupData => log.setup_data.push(row),
            Source::Modified => log.modified_map.push(row),
        },
        // "user: 12 tasks" and the like are somebody else's lines.
        Err(_) if !firmware && !line.text.contains("[mem") => return false,
        Err(bad) => log
            .problems
            .push(LogProblem::new(line.number, bad, &line.text)),
    }
    true
}

fn row(scan: &mut Scan<'_>, line: &Line<'_>, log: &mut KernelLog) -> Result<E820Row, Bad> {
    let bracketed = scan.remainder().starts_with('[');
    let span = if bracketed {
        scan.bracketed()?
    } else {
        scan.exclusive()?
    };
    let known = kind(scan.remainder());
    if known.is_none() {
        let what = "no kind this reader knows; taken as reserved";
        log.problems
            .push(LogProblem::new(line.number, what, &line.text));
    }
    log.note_absurd(span, line);
    Ok(E820Row {
        span,
        kind: known.unwrap_or(E820Kind::Reserved),
        line: line.number,
    })
}

fn change(scan: &mut Scan<'_>, removed: bool, line: usize) -> Result<E820Change, Bad> {
    let span = scan.bracketed()?;
    let words = scan.remainder();
    let unknown = Bad::Expected("a kind this reader knows");
    if removed {
        // A removal of whatever lies there names no kind.
        let from = if words.is_empty() {
            Some(E820Kind::Usable)
        } else {
            kind(words)
        };
        return Ok(E820Change {
            span,
            from: from.ok_or(unknown)?,
            to: None,
            line,
        });
    }
    let (from, to) = words.split_once("==>").ok_or(Bad::Expected("==>"))?;
    match (kind(from.trim()), kind(to.trim())) {
        (Some(from), Some(to)) => Ok(E820Change {
            span,
            from,
            to: Some(to),
            line,
        }),
        _ => Err(unknown),
    }
}

/// The kind that `words` name, in the wording of any age.
fn kind(words: &str) -> Option<E820Kind> {
    let words = words
        .trim()
        .trim_start_matches('(')
        .trim_end_matches(')')
        .trim();
    Some(match words {
        "usable" | "System RAM" | "RAM" => E820Kind::Usable,
        "reserved" | "device reserved" | "Reserved" => E820Kind::Reserved,
        "ACPI data" | "ACPI Tables" => E820Kind::AcpiData,
        "ACPI NVS" | "ACPI Non-volatile Storage" => E820Kind::AcpiNvs,
        "unusable" | "Unusable memory" => E820Kind::Unusable,
        "soft reserved" | "Soft Reserved" | "soft-reserved" => E820Kind::SoftReserved,
        _ if words.starts_with("persistent") || words == "Persistent Memory" => {
            E820Kind::Persistent
        }
        _ => {
            let number = words
                .strip_prefix("unknown type")
                .or(words.strip_prefix("type"))?;
            match number.trim_start_matches([':', ' ']).parse().ok()? {
                1 => E820Kind::Usable,
                2 => E820Kind::Reserved,
                3 => E820Kind::AcpiData,
                4 => E820Kind::AcpiNvs,
                5 => E820Kind::Unusable,
                7 | 12 => E820Kind::Persistent,
                other => E820Kind::Type(other),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_every_age() {
        let table = [
            ("usable", Some(E820Kind::Usable)),
            ("(usable)", Some(E820Kind::Usable)),
            ("System RAM", Some(E820Kind::Usable)),
            ("device reserved", Some(E820Kind::Reserved)),
            ("(ACPI NVS)", Some(E820Kind::AcpiNvs)),
            ("persistent (type 12)", Some(E820Kind::Persistent)),
            ("soft reserved", Some(E820Kind::SoftReserved)),
            ("type 20", Some(E820Kind::Type(20))),
            ("type 99999999999", None),
            ("usabel", None),
            ("", None),
        ];
        for (words, expected) in table {
            assert_eq!(kind(words), expected, "{words:?}");
        }
    }
}
