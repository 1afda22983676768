//! The table of guests whose free memory goes back to the host.

use std::fmt::Write;

use serde_json::Value;

use crate::guests::{head, whole};
use crate::record::Record;

/// A boot a row.
pub(crate) fn render(record: &Record) -> Result<String, String> {
    let columns = [
        "clock",
        "reports",
        "a pass reports at most",
        "freed, GiB",
        "passes",
        "back at the host, %",
        "QEMU's memory, peak, GiB",
        "after, GiB",
        "guest instructions a GiB",
    ];
    let mut table = head(&columns.map(String::from));
    for run in &record.runs {
        let balloon = &run.output["balloon"];
        if !balloon.is_object() {
            return Err(format!("{}: no balloon in its record", run.command));
        }
        let on = balloon["reporting"] == true;
        let only = |text: String| if on { text } else { "-".into() };
        let instructions = balloon["instructions_per_gib"].as_f64();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            run.output["clock"].as_str().unwrap_or("?"),
            if on { "on" } else { "off" },
            only(budget(balloon)),
            gib(&balloon["freed_bytes"]),
            only(balloon["passes"].to_string()),
            balloon["returned_percent"],
            gib(&balloon["host_peak_bytes"]),
            gib(&balloon["host_after_bytes"]),
            instructions.map_or("-".into(), whole),
        );
    }
    Ok(table)
}

fn gib(bytes: &Value) -> String {
    bytes.as_f64().map_or("?".into(), |bytes| {
        format!("{:.2}", bytes / f64::from(1 << 30))
    })
}

/// What a pass reports.
fn budget(balloon: &Value) -> String {
    let knobs = balloon["knobs"].as_array().into_iter().flatten();
    let budget = knobs
        .filter(|knob| knob["name"] == "reporting.budget_one_in")
        .find_map(|knob| knob["value"].as_u64());
    match budget {
        Some(0) => "all".into(),
        Some(part) => format!("1/{part} of what is free"),
        None => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_boot_is_a_row() {
        let balloon = json!({
            "reporting": true, "freed_bytes": 8_u64 << 30, "passes": 16, "returned_percent": 99.5,
            "host_peak_bytes": 9_u64 << 30, "host_after_bytes": 1 << 29,
            "instructions_per_gib": 40_000,
            "knobs": [{"name": "reporting.budget_one_in", "value": 16}],
        });
        let run = |balloon: &Value| json!({"command": "c", "output": {"clock": "wall", "balloon": balloon}});
        let record = |runs: Vec<Value>| -> Record {
            let record = json!({"schema": "", "name": "", "date": "", "commit": "", "host": "", "runs": runs});
            serde_json::from_value(record).unwrap()
        };
        let mut off = balloon.clone();
        off["reporting"] = json!(false);
        off["instructions_per_gib"] = Value::Null;
        let table = render(&record(vec![run(&balloon), run(&off)])).unwrap();
        let row = "| wall | on | 1/16 of what is free | 8.00 | 16 | 99.5 | 9.00 | 0.50 | 40,000 |";
        assert!(table.contains(row), "{table}");
        let row = "| wall | off | - | 8.00 | - | 99.5 | 9.00 | 0.50 | - |";
        assert!(table.contains(row), "{table}");
        assert!(render(&record(vec![run(&Value::Null)])).is_err());
    }
}
