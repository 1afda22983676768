//! The README's picture, `docs/picture.svg`, from the records: [`drawn`], and in words, [`described`].
//!
//! Two groups of bars, each to a scale of its own: instructions from a kernel's entry until all
//! memory can be allocated, and how long QEMU takes to start.

use std::fmt::Write as _;

use crate::guests::{figure, side, whole};
use crate::record::Record;

/// The guest whose start is shown, as `bench pool` names it.
const GUEST: &str = "8 GiB";

/// A bar: what it is, its length, and the length in words.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    name: String,
    length: f64,
    words: String,
    is_ours: bool,
}

/// Bars to one scale.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    title: &'static str,
    bars: Vec<Bar>,
}

/// The picture, from the records `linux` and `pool`.
pub(crate) fn drawn(linux: &Record, pool: &Record) -> Result<String, String> {
    Ok(svg(&groups(linux, pool)?))
}

/// The picture in words, for those who do not see it.
pub(crate) fn described(linux: &Record, pool: &Record) -> Result<String, String> {
    let mut words = Vec::new();
    for group in groups(linux, pool)? {
        let bars = group.bars.iter();
        let bars: Vec<String> = bars
            .map(|bar| format!("{} {}", bar.name, bar.words))
            .collect();
        words.push(format!("{}: {}", group.title, bars.join("; ")));
    }
    Ok(words.join(". "))
}

fn groups(linux: &Record, pool: &Record) -> Result<[Group; 2], String> {
    Ok([
        Group {
            title: "Instructions from a kernel's entry to all memory allocatable, 16 GiB, 1 CPU",
            bars: boots(linux)?,
        },
        Group {
            title: "A virtual machine of 8 GiB in huge pages, until QEMU answers",
            bars: starts(pool)?,
        },
    ])
}

/// Our boot, without descriptors, and each Linux's.
fn boots(linux: &Record) -> Result<Vec<Bar>, String> {
    let (mut ours, mut others) = (None, Vec::new());
    for run in &linux.runs {
        for at in [0, 1] {
            let name = side(&run.output, at);
            let allocatable = figure(&run.output, at, "milestone", "all memory allocatable");
            let length = allocatable
                .and_then(|figure| figure["median_ns"].as_f64())
                .ok_or_else(|| format!("{}: no time of all memory allocatable", run.command))?;
            if name == "ours, none" {
                ours.get_or_insert(length);
            } else if let Some(release) = name.strip_prefix("Linux ") {
                let version: Vec<&str> = release.split('.').take(2).collect();
                others.push(Bar {
                    name: format!("Linux {}", version.join(".")),
                    length,
                    words: format!("{:.0} million", length / 1e6),
                    is_ours: false,
                });
            }
        }
    }
    let length = ours.ok_or("linux: no boot of ours without descriptors")?;
    let mut bars = vec![Bar {
        name: "Firstlight's image".into(),
        length,
        words: whole(length),
        is_ours: true,
    }];
    bars.append(&mut others);
    Ok(bars)
}

/// A start from the pool, the usual one, and the fastest by several threads.
fn starts(pool: &Record) -> Result<Vec<Bar>, String> {
    let rows: Vec<Vec<String>> = pool
        .texts()?
        .iter()
        .flatten()
        .map(|line| cells(line))
        .collect();
    // The line of the sizes has no name in front.
    let at = rows
        .iter()
        .find_map(|row| row.iter().position(|cell| cell == GUEST))
        .ok_or_else(|| format!("pool: no guest of {GUEST}"))?;
    let starts: Vec<(&str, f64)> = rows
        .iter()
        .filter_map(|row| {
            let median = row.get(at + 1)?.split(' ').next()?;
            Some((row.first()?.as_str(), median.parse().ok()?))
        })
        .collect();
    let others = || {
        let is_other = |name: &str| name.starts_with("prealloc") || name.starts_with("zeroed by");
        starts.iter().filter(move |(name, _)| is_other(name))
    };
    let ours = starts.iter().find(|(name, _)| *name == "the pool");
    let usual = others().find(|(name, _)| *name == "prealloc, 1 thread");
    let parallel = others().filter(|(name, _)| *name != "prealloc, 1 thread");
    let fastest = parallel.min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(ours), Some(usual), Some(fastest)) = (ours, usual, fastest) else {
        return Err(format!(
            "pool: {starts:?} has no pool, or nothing beside it"
        ));
    };
    let bar = |name: String, (_, ms): &(&str, f64), is_ours| Bar {
        name,
        length: *ms,
        words: format!(
            "{} ms",
            if *ms < 100.0 {
                format!("{ms:.1}")
            } else {
                whole(*ms)
            }
        ),
        is_ours,
    };
    Ok(vec![
        bar("from the pool".into(), ours, true),
        bar(usual.0.into(), usual, false),
        bar(
            format!("{}, fastest in parallel", fastest.0),
            fastest,
            false,
        ),
    ])
}

/// Cells of a printed table, two spaces or more apart.
fn cells(line: &str) -> Vec<String> {
    let cells = line.split("  ").map(str::trim);
    let cells = cells.filter(|cell| !cell.is_empty());
    cells.map(String::from).collect()
}

/// Widths and heights in the picture's own units.
const WIDTH: f64 = 860.0;
const NAMES: f64 = 295.0;
const LONGEST: f64 = 440.0;
const ROW: f64 = 26.0;
const TITLE: f64 = 34.0;

const STYLE: &str = "<style>text{font:14px system-ui,sans-serif;fill:#1c2024}.t{font-weight:600}\
rect{fill:#9aa5ad}.o{fill:#228833}\
@media (prefers-color-scheme:dark){text{fill:#e6e9eb}rect{fill:#667078}.o{fill:#66bb6a}}</style>";

fn svg(groups: &[Group]) -> String {
    let mut body = String::new();
    let mut y = 0.0;
    for group in groups {
        y += TITLE;
        let _ = writeln!(
            body,
            "<text class=\"t\" x=\"0\" y=\"{:.0}\">{}</text>",
            y - 12.0,
            group.title
        );
        let most = group.bars.iter().map(|bar| bar.length).fold(0.0, f64::max);
        for bar in &group.bars {
            // A bar that is too short to be seen is a line.
            let width = (bar.length / most.max(f64::MIN_POSITIVE) * LONGEST).max(1.0);
            let class = if bar.is_ours { " class=\"o\"" } else { "" };
            let _ = writeln!(
                body,
                "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\n\
                 <rect{class} x=\"{NAMES}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"18\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                NAMES - 10.0,
                y + 14.0,
                bar.name,
                NAMES + width + 8.0,
                y + 14.0,
                bar.words
            );
            y += ROW;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" width=\"{WIDTH}\" role=\"img\">\n\
         {STYLE}\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Run;
    use serde_json::Value;

    fn record(outputs: Vec<Value>) -> Record {
        let run = |output| Run {
            command: "command".into(),
            output,
        };
        Record {
            schema: String::new(),
            name: String::new(),
            date: String::new(),
            commit: String::new(),
            host: String::new(),
            load: None,
            note: None,
            runs: outputs.into_iter().map(run).collect(),
        }
    }

    fn comparison(words: &str, ns: u64, release: &str, linux_ns: u64) -> Value {
        serde_json::json!({
            "sides": [
                {"system": "image", "command_line": words},
                {"system": "linux", "release": release},
            ],
            "rows": [{
                "kind": "milestone", "name": "all memory allocatable",
                "a": {"median_ns": ns}, "b": {"median_ns": linux_ns},
            }],
        })
    }

    fn records() -> [Record; 2] {
        let beside = record(vec![
            comparison("descriptors=lazy", 7000, "6.1.0-9", 4_000_000),
            comparison("tsc_hz=1", 1000, "6.12.3+x", 2_000_000),
        ]);
        let pool = record(vec![serde_json::json!([
            "firstlight bench pool: QEMU",
            "                        4 GiB             8 GiB",
            "  64 MiB, any memory    9.0 (8.0-9.9)     10.0 (9.0-11.0)",
            "  prealloc, 1 thread    90.0 (8.0-9.9)    400.4 (9.0-501.0)",
            "  prealloc, 2 threads   70.0 (8.0-9.9)    200.0 (9.0-301.0)",
            "  zeroed by 2 CPUs      60.0 (8.0-9.9)    250.0 (9.0-301.0)",
            "  the pool              12.0 (8.0-9.9)    20.0 (9.0-11.0)",
            "    faster by           5.0 times         10.0 times",
        ])]);
        [beside, pool]
    }

    #[test]
    fn bars_are_as_long_as_their_records_say() {
        let [linux, pool] = records();
        let words = described(&linux, &pool).unwrap();
        assert!(
            words.contains("Firstlight's image 1,000; Linux 6.1 4 million; Linux 6.12 2 million"),
            "{words}"
        );
        assert!(
            words.contains("from the pool 20.0 ms; prealloc, 1 thread 400 ms; prealloc, 2 threads, fastest in parallel 200 ms"),
            "{words}"
        );
        let picture = drawn(&linux, &pool).unwrap();
        // 20 and 200 of 400.4; 1,000 of 4 million is too short to be seen.
        for width in [
            "width=\"22.0\"",
            "width=\"219.8\"",
            "width=\"1.0\"",
            "width=\"220.0\"",
        ] {
            assert!(picture.contains(width), "{width} in {picture}");
        }
    }

    #[test]
    fn a_record_without_the_figures_is_an_error() {
        let none = record(vec![serde_json::json!(["nothing"])]);
        let empty = record(Vec::new());
        let [linux, pool] = records();
        for (records, error) in [
            ([&empty, &pool], "no boot of ours"),
            ([&none, &pool], "no time of all memory"),
            ([&linux, &none], "no guest of 8 GiB"),
        ] {
            let [linux, pool] = records;
            assert!(drawn(linux, pool).unwrap_err().contains(error));
        }
    }
}
