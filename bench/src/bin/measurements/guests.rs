//! Tables of guests, of descriptors and of counted instructions.

use std::fmt::Write;

use serde_json::Value;

use crate::record::Record;

/// A whole number with commas.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The head of a table, its first column words and the others figures.
pub(crate) fn head(columns: &[String]) -> String {
    let lines = "---|".repeat(columns.len());
    format!("| {} |\n|{lines}\n", columns.join(" | "))
}

/// Paths of the engine, and boots of the image.
pub(crate) fn counts(record: &Record) -> Result<String, String> {
    let mut tables = String::new();
    for (lines, what) in record.texts()?.iter().zip(["path", "boot"]) {
        tables += &head(&[what.to_owned(), "instructions".into()]);
        for line in lines.iter().filter(|line| !line.starts_with('#')) {
            let (name, count) = line.split_once(' ').unwrap_or((line, "?"));
            let count = count.parse().map_or(count.to_owned(), whole);
            let _ = writeln!(tables, "| {name} | {count} |");
        }
        tables.push('\n');
    }
    Ok(tables)
}

/// A figure of one side of a comparison.
pub(crate) fn figure<'v>(
    comparison: &'v Value,
    side: usize,
    kind: &str,
    name: &str,
) -> Option<&'v Value> {
    let rows = comparison["rows"].as_array()?;
    let row = rows
        .iter()
        .find(|row| row["kind"] == kind && row["name"] == name)?;
    row.get(["a", "b"].get(side)?)
        .filter(|figure| figure.is_object())
}

/// What a side is, for a heading.
pub(crate) fn side(comparison: &Value, side: usize) -> String {
    let side = &comparison["sides"][side];
    if side["system"] == "linux" {
        let release = side["release"].as_str().unwrap_or("?");
        return format!("Linux {release}");
    }
    let words = side["command_line"].as_str().unwrap_or_default();
    let mode = words
        .split(' ')
        .find_map(|word| word.strip_prefix("descriptors="));
    mode.map_or("ours, none".into(), |mode| format!("ours, {mode}"))
}

/// Instructions of guests, a column each.
pub(crate) fn instructions(record: &Record) -> Result<String, String> {
    const ROWS: [(&str, &str, &str); 7] = [
        (
            "descriptors",
            "before the boot goes on",
            "before the boot goes on",
        ),
        ("descriptors", "at the first touch", "at the first touch"),
        ("descriptors", "deferred", "deferred"),
        (
            "milestone",
            "nodes and zones known",
            "*nodes and zones known*",
        ),
        (
            "milestone",
            "first frame handed out",
            "*first frame handed out*",
        ),
        (
            "milestone",
            "all memory allocatable",
            "*all memory allocatable*",
        ),
        (
            "milestone",
            "every page has its descriptor",
            "*every page has its descriptor*",
        ),
    ];
    let sides: Vec<(&Value, usize)> = record
        .runs
        .iter()
        .flat_map(|run| [(&run.output, 0), (&run.output, 1)])
        .collect();
    let mut columns = vec!["instructions".to_owned()];
    columns.extend(sides.iter().map(|(run, at)| side(run, *at)));
    let mut table = head(&columns);
    let mut row = |label: &str, cell: &dyn Fn(&Value, usize) -> Option<String>| {
        let cells = sides
            .iter()
            .map(|(run, at)| cell(run, *at).unwrap_or_default());
        let _ = writeln!(
            table,
            "| {label} | {} |",
            cells.collect::<Vec<_>>().join(" | ")
        );
    };
    let median = |run: &Value, at, kind: &str, name: &str| {
        figure(run, at, kind, name)?["median_ns"].as_f64()
    };
    for (kind, name, label) in ROWS {
        row(label, &|run, at| median(run, at, kind, name).map(whole));
    }
    row("all descriptors, a page of memory", &|run, at| {
        let pages = run["sides"][at]["pages"].as_f64()?;
        let all = median(run, at, "descriptors", "all of it")?;
        Some(format!("{:.2}", all / pages))
    });
    Ok(table)
}

/// `84.290 ± 12.510 (70.749 .. 96.800)`, in milliseconds.
fn spread(figure: Option<&Value>) -> String {
    let Some(figure) = figure else {
        return "-".into();
    };
    let ms = |key: &str| figure[key].as_f64().unwrap_or(f64::NAN) / 1e6;
    format!(
        "{:.3} ± {:.3} ({:.3} .. {:.3})",
        ms("median_ns"),
        ms("mad_ns"),
        ms("min_ns"),
        ms("max_ns")
    )
}

/// Boots of ours and of Linux on the wall clock, a comparison a row.
pub(crate) fn wall(record: &Record) -> Result<String, String> {
    let columns = [
        "vCPUs",
        "beside",
        "boots each",
        "ours, deferred",
        "Linux, deferred",
        "ours, all memory allocatable",
        "Linux, all memory allocatable",
    ];
    let mut table = head(&columns.map(String::from));
    for run in &record.runs {
        let run = &run.output;
        let own = "deferred, the slowest node's own figure";
        let allocatable = |side| spread(figure(run, side, "milestone", "all memory allocatable"));
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} |",
            run["sides"][0]["machine"]["cpus"],
            side(run, 1),
            run["sides"][0]["runs"],
            spread(figure(run, 0, "descriptors", "deferred")),
            spread(figure(run, 1, "descriptors", own)),
            allocatable(0),
            allocatable(1)
        );
    }
    Ok(table + "\nMilliseconds: median ± MAD (least .. most).\n")
}

/// Descriptors written on the host, beside the ways to fill memory.
pub(crate) fn descriptors(record: &Record) -> Result<String, String> {
    let columns = [
        "bytes",
        "threads",
        "descriptors",
        "fastest, ms",
        "median, ms",
        "GB/s",
        "of the best fill",
    ];
    let mut table = head(&columns.map(String::from));
    for run in &record.runs {
        let rows = run.output["rows"]
            .as_array()
            .ok_or("a sweep without rows")?;
        for row in rows.iter().filter(|row| row["part"] == "deferred") {
            let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
            let (least, bytes) = (number(&row["ms"]["min"]), number(&row["bytes_written"]));
            let best = &row["fraction_of_best_memset"];
            let best = best
                .as_f64()
                .map_or("-".into(), |best| format!("{best:.2}"));
            let _ = writeln!(
                table,
                "| {} | {} | {} | {least:.3} | {:.3} | {:.1} | {best} |",
                row["descriptor_bytes"],
                row["threads"],
                whole(number(&row["pages"])),
                number(&row["ms"]["median"]),
                bytes / least / 1e6,
            );
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(outputs: Vec<Value>) -> Record {
        let runs: Vec<Value> = outputs
            .into_iter()
            .map(|output| json!({"command": "c", "output": output}))
            .collect();
        let record =
            json!({"schema": "", "name": "", "date": "", "commit": "", "host": "", "runs": runs});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn figures_are_where_they_belong() {
        assert_eq!(
            [0.0, 999.0, 1000.0, 1_234_567.0].map(whole),
            ["0", "999", "1,000", "1,234,567"]
        );
        let spread = json!({"median_ns": 2e6, "mad_ns": 0, "min_ns": 1e6, "max_ns": 3e6});
        let run = json!({
            "sides": [
                {"system": "image", "command_line": "x descriptors=lazy", "pages": 1e6, "runs": 3, "machine": {"cpus": 2}},
                {"system": "linux", "release": "6.12", "command_line": "", "pages": null},
            ],
            "rows": [
                {"kind": "descriptors", "name": "deferred", "a": spread, "b": null},
                {"kind": "descriptors", "name": "all of it", "a": spread, "b": spread},
            ],
        });
        let table = instructions(&record(vec![run.clone()])).unwrap();
        assert!(
            table.starts_with("| instructions | ours, lazy | Linux 6.12 |\n|---|---|---|\n"),
            "{table}"
        );
        assert!(table.contains("| deferred | 2,000,000 |  |"), "{table}");
        assert!(
            table.contains("| all descriptors, a page of memory | 2.00 |  |"),
            "{table}"
        );
        let table = wall(&record(vec![run])).unwrap();
        let row = "| 2 | Linux 6.12 | 3 | 2.000 ± 0.000 (1.000 .. 3.000) | - | - | - |";
        assert!(table.contains(row), "{table}");
    }
}
