//! `firstlight bench zero` as it is called.

use crate::common::schema;
use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["bench", "zero"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn rows_are_those_of_the_schema() {
    let output = bench(&["--memory", "160M", "--working-sets", "16M", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let record = schema::document(&output.stdout);
    assert_eq!(record["schema"], "firstlight.bench-zero/1");
    let rows = record["rows"].as_array().unwrap();
    let of = |what: &'static str| rows.iter().filter(move |row| row["what"] == what);
    // No memory for blocks of 1 GiB.
    let blocks: Vec<_> = of("allocate")
        .map(|row| (&row["order"], &row["stock"]))
        .collect();
    let expected = [(0, false), (0, true), (9, false), (9, true)];
    for (block, (order, stock)) in blocks.iter().zip(expected) {
        assert_eq!(
            (block.0, block.1),
            (&Value::from(order), &Value::from(stock))
        );
    }
    assert_eq!(blocks.len(), expected.len());
    for row in of("allocate") {
        let ns = |key| row["ns"][key].as_f64().unwrap();
        assert!(
            0.0 < ns("min") && ns("min") <= ns("median") && ns("median") <= ns("max"),
            "{row}"
        );
    }
    let worker: Vec<_> = of("worker").collect();
    assert_eq!(worker.len(), 1);
    assert!(worker[0]["bytes_per_second"].as_u64().unwrap() > 0);
    assert!(worker[0]["fraction_of_best"].as_f64().unwrap() > 0.0);
    // The widest stores are what the worker has; a kernel without vector registers has others.
    let stores: Vec<_> = of("stores").collect();
    let best = stores.iter().filter(|row| row["past_caches"] == true);
    let best = best.map(|row| row["fraction_of_best"].as_f64().unwrap());
    assert_eq!(best.fold(0.0, f64::max), 1.0);
    assert!(stores.iter().any(|row| row["name"] == "plain"));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(of("neighbour").count(), 2 * cpus.min(2));
    for row in of("neighbour") {
        assert_eq!(row["working_set_bytes"], 16 << 20, "{row}");
        assert!(row["same_cpu"].is_boolean(), "{row}");
        assert!(["non-temporal", "temporal"].contains(&row["stores"].as_str().unwrap()));
        assert!(row["slowdown_percent"].is_f64(), "{row}");
    }
}

#[test]
fn bad_sizes_are_refused_and_absurd_ones_too() {
    for size in ["63M", "2T", "65M", "-1", "big"] {
        let output = bench(&["--memory", size]);
        assert_eq!(output.status.code(), Some(2), "{size}: {output:?}");
    }
    for size in ["4000", "2G", "0", "4M,x"] {
        let output = bench(&["--working-sets", size]);
        assert_eq!(output.status.code(), Some(2), "{size}: {output:?}");
    }
    let output = bench(&["--memory", "1T"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("a smaller --memory needs less"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn help_has_examples() {
    let text = String::from_utf8(bench(&["--help"]).stdout).unwrap();
    assert!(text.contains("firstlight bench zero --json"), "{text}");
    assert!(text.contains("300 MB first touched"), "{text}");
}
