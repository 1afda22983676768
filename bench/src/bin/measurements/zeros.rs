//! Tables of known-zero memory: with and without a stock, beside a worker.

use std::fmt::Write;

use serde_json::Value;

use crate::guests::head;
use crate::record::Record;

/// Bytes that the published launch estimate touches.
const LAUNCH_BYTES: f64 = 300e6;

/// The rows of one kind.
fn rows<'v>(record: &'v Record, what: &'v str) -> impl Iterator<Item = &'v Value> {
    let outputs = record
        .runs
        .iter()
        .filter_map(|run| run.output["rows"].as_array());
    outputs.flatten().filter(move |row| row["what"] == what)
}

fn number(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("no number: {value}"))
}

/// `firstlight bench zero --json`.
pub(crate) fn zero(record: &Record) -> Result<String, String> {
    let mut text = String::new();
    allocate(record, &mut text)?;
    worker(record, &mut text)?;
    stores(record, &mut text)?;
    neighbours(record, &mut text)?;
    Ok(text)
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn allocate(record: &Record, text: &mut String) -> Result<(), String> {
    *text += &head(&columns(&[
        "zeroed blocks",
        "on the spot, ns (least .. most)",
        "from stock, ns (least .. most)",
        "times faster",
        "300 MB touched: on the spot, ms",
        "from stock, ms",
    ]));
    for (order, name) in [(0u32, "4 KiB"), (9, "2 MiB"), (18, "1 GiB")] {
        let of = |stock| {
            rows(record, "allocate").find(|row| row["order"] == order && row["stock"] == stock)
        };
        let (Some(spot), Some(stock)) = (of(false), of(true)) else {
            continue;
        };
        let blocks = (LAUNCH_BYTES / (4096.0 * f64::from(1 << order))).ceil();
        let mut medians = Vec::new();
        let _ = write!(text, "| {name} |");
        for row in [spot, stock] {
            let ns = &row["ns"];
            let median = number(&ns["median"])?;
            let (min, max) = (number(&ns["min"])?, number(&ns["max"])?);
            let _ = write!(text, " {median:.0} ({min:.0} .. {max:.0}) |");
            medians.push(median);
        }
        let _ = write!(text, " {:.0} |", medians[0] / medians[1]);
        for median in medians {
            let _ = write!(text, " {:.3} |", median * blocks / 1e6);
        }
        text.push('\n');
    }
    text.push('\n');
    Ok(())
}

fn worker(record: &Record, text: &mut String) -> Result<(), String> {
    *text += &head(&columns(&[
        "worker, one CPU, GB/s",
        "of the fastest stores past the caches",
    ]));
    for row in rows(record, "worker") {
        let rate = number(&row["bytes_per_second"])? / 1e9;
        let fraction = number(&row["fraction_of_best"])?;
        let _ = writeln!(text, "| {rate:.1} | {fraction:.2} |");
    }
    text.push('\n');
    Ok(())
}

fn stores(record: &Record, text: &mut String) -> Result<(), String> {
    if rows(record, "stores").next().is_none() {
        return Ok(());
    }
    *text += &head(&columns(&[
        "stores, one CPU",
        "GB/s",
        "of the fastest past the caches",
        "past the caches",
    ]));
    for row in rows(record, "stores") {
        let name = row["name"].as_str().unwrap_or("?");
        let rate = number(&row["bytes_per_second"])? / 1e9;
        let fraction = number(&row["fraction_of_best"])?;
        let is_past = row["past_caches"] == true;
        let past = if is_past { "yes" } else { "no" };
        let _ = writeln!(text, "| {name} | {rate:.1} | {fraction:.2} | {past} |");
    }
    text.push('\n');
    Ok(())
}

fn neighbours(record: &Record, text: &mut String) -> Result<(), String> {
    *text += &head(&columns(&[
        "neighbour's working set, KiB",
        "worker",
        "past the caches, %",
        "through them, %",
    ]));
    let all = || rows(record, "neighbour");
    for row in all().filter(|row| row["stores"] == "non-temporal") {
        let bytes = number(&row["working_set_bytes"])?;
        let place = if row["same_cpu"] == true {
            "same CPU"
        } else {
            "other CPU"
        };
        let other = all().find(|other| {
            other["stores"] == "temporal"
                && other["working_set_bytes"] == row["working_set_bytes"]
                && other["same_cpu"] == row["same_cpu"]
        });
        let other = other.ok_or_else(|| format!("no temporal row beside {row}"))?;
        let _ = writeln!(
            text,
            "| {:.0} | {place} | {:+.1} | {:+.1} |",
            bytes / 1024.0,
            number(&row["slowdown_percent"])?,
            number(&other["slowdown_percent"])?,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_where_they_belong() {
        let allocate = |order, stock, ns: f64| {
            json!({"what": "allocate", "order": order, "stock": stock,
                   "ns": {"median": ns, "min": ns - 1.0, "max": ns + 1.0}})
        };
        let neighbour = |stores, percent| {
            json!({"what": "neighbour", "working_set_bytes": 262_144, "same_cpu": true,
                   "stores": stores, "slowdown_percent": percent})
        };
        let output = json!({"schema": "firstlight.bench-zero/1", "rows": [
            allocate(9, false, 20_000.0),
            allocate(9, true, 100.0),
            {"what": "worker", "bytes_per_second": 84_000_000_000u64, "fraction_of_best": 0.95},
            {"what": "stores", "name": "movnti", "past_caches": true,
             "bytes_per_second": 59_000_000_000u64, "fraction_of_best": 0.65},
            neighbour("non-temporal", 1.5),
            neighbour("temporal", 240.0),
        ]});
        let record = json!({"schema": "", "name": "", "date": "", "commit": "", "host": "",
                            "runs": [{"command": "c", "output": output}]});
        let text = zero(&serde_json::from_value(record).unwrap()).unwrap();
        for line in [
            "| 2 MiB | 20000 (19999 .. 20001) | 100 (99 .. 101) | 200 | 2.880 | 0.014 |",
            "| 84.0 | 0.95 |",
            "| movnti | 59.0 | 0.65 | yes |",
            "| 256 | same CPU | +1.5 | +240.0 |",
        ] {
            assert!(
                text.lines().any(|own| own == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
