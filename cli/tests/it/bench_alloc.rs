//! `firstlight bench alloc` as it is called.

use crate::common::schema;
use serde_json::Value;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["bench", "alloc"])
        .args(arguments)
        .output()
        .unwrap()
}

/// A machine that is soon full, and hardly any time.
const SMALL: [&str; 4] = ["--memory", "128M", "--cell-ms", "3"];

fn record(arguments: &[&str]) -> Value {
    let output = bench(&[&SMALL[..], arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    schema::document(&output.stdout)
}

const LOOPS: &str = "pair,bulk,random-free,cross-cpu,mixed,near-full,fragmentation";

#[test]
fn rows_have_the_fields_of_the_schema() {
    let record = record(&["--threads", "1,2,2", "--workload", LOOPS]);
    assert_eq!(record["schema"], "firstlight.bench-alloc/1");
    assert_eq!(record["clock"], "thread-cpu");
    let rows = record["rows"].as_array().unwrap();
    for row in rows {
        for key in ["median", "min", "max"] {
            assert!(row["ns_per_op"][key].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(row["order"].is_u64() && row["threads"].is_u64());
        assert!(row["cut_short"].is_boolean());
        assert!(row["metadata_bytes_per_frame"].is_f64());
    }
    let ours = |workload: &str| {
        let mine = rows
            .iter()
            .filter(|row| row["contestant"] == "firstlight" && row["workload"] == workload);
        mine.collect::<Vec<_>>()
    };
    for (workload, count) in [
        ("pair", 4),
        ("bulk", 4),
        ("random-free", 4),
        ("cross-cpu", 4),
        ("mixed", 2),
        ("near-full", 4),
    ] {
        assert_eq!(ours(workload).len(), count, "{workload}");
    }
    assert!(
        ours("bulk")
            .iter()
            .all(|row| row["cold_ns_per_op"].is_object())
    );
    assert!(
        ours("near-full")
            .iter()
            .all(|row| row["full_percent"].as_f64().unwrap() >= 99.0)
    );
    // There was no time for so many, and it says so.
    assert!(ours("pair").iter().all(|row| row["cut_short"] == true));
    let fragmentation = record["fragmentation"].as_array().unwrap();
    let ours = fragmentation
        .iter()
        .find(|row| row["contestant"] == "firstlight");
    assert!(ours.unwrap()["huge_at_best"].as_u64().unwrap() > 0);
    assert_eq!(record["answers"], Value::Null);
}

#[test]
fn answers_have_requests_beside_1_8_and_32_threads() {
    let record = record(&["--workload", "answers"]);
    let answers = &record["answers"];
    assert_eq!(answers["checkerboard"].as_array().unwrap().len(), 8);
    assert_eq!(answers["full"].as_array().unwrap().len(), 3);
    assert!(answers["fullness"]["full_99_ns"].as_f64().unwrap() > 0.0);
    let rows = answers["under_churn"].as_array().unwrap();
    let threads = rows
        .iter()
        .map(|row| row["churn_threads"].as_u64().unwrap());
    assert_eq!(threads.collect::<Vec<_>>(), [1, 8, 32]);
    for row in rows {
        assert_eq!((&row["order"], &row["churn_order"]), (&9.into(), &3.into()));
        for key in ["max_ns", "max_wall_ns", "requests"] {
            assert!(row[key].as_u64().unwrap() > 0, "{key}: {row}");
        }
        assert_eq!(row["refused"], true);
        assert!(row["cut_short"].is_boolean());
    }
    // Without time there are none.
    let none = bench(&["--workload", "answers", "--run-ms", "1", "--json"]);
    let none = schema::document(&none.stdout);
    assert_eq!(none["answers"], Value::Null);
}

#[test]
fn contestants_and_workloads_can_be_chosen() {
    let record = record(&[
        "--contestant",
        "free-list,lifo",
        "--workload",
        "mixed,pair",
        "--threads",
        "1",
    ]);
    let rows = record["rows"].as_array().unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["workload"].as_str().unwrap(),
                row["contestant"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("mixed", "free-list"),
            ("pair", "free-list"),
            ("pair", "lifo"),
            ("pair", "free-list"),
            ("pair", "lifo")
        ]
    );
    assert_eq!(record["absent"][0]["contestant"], "lifo");
    assert_eq!(record["absent"][0]["workload"], "mixed");
}

#[test]
fn a_person_gets_a_table_for_each_workload() {
    let output = bench(&[&SMALL[..], &["--workload", "pair,cross-cpu,fragmentation"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "128 MiB of memory",
        "  pair ",
        "order 9, 1 thr",
        "  spin-lifo ",
        "1.00 x",
        "the ring alone",
        "giant left",
        "> ran out of time (3 ms a cell, 220 s in all)",
        "- lifo has no figure for fragmentation: a list neither splits nor merges",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn a_run_out_of_time_says_what_it_has_no_figure_for() {
    // To make all contestants once takes longer.
    let output = bench(&[&SMALL[..], &["--run-ms", "1"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "- buddy-alloc has no figure for near-full: nothing was done before the time was up",
        "- lifo has no figure for mixed: a list neither splits nor merges blocks",
        "- firstlight has no figure for fragmentation: nothing was done",
        "- firstlight has no figure for answers: nothing was done",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let record = record(&["--run-ms", "7", "--workload", "pair"]);
    assert_eq!(
        (&record["run_ms"], &record["cell_ms"]),
        (&7.into(), &3.into())
    );
}

#[test]
fn the_help_lists_the_workloads_before_the_options_of_output() {
    let text = String::from_utf8(bench(&["--help"]).stdout).unwrap();
    let options: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next())
        .collect();
    let expected = "workload contestant threads memory cell-ms run-ms json color";
    assert_eq!(options.join(" "), expected, "{text}");
    let (_, workloads) = text.split_once("\nWorkloads").unwrap();
    for workload in [LOOPS, "answers"].join(",").split(',') {
        let line = format!("\n  {workload} ");
        assert!(workloads.contains(&line), "{workload} in {text}");
    }
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    for (arguments, part) in [
        (["--threads", "0"], "0 is not in 1..=256"),
        (
            ["--threads", "1,,2"],
            "cannot parse integer from empty string",
        ),
        (["--threads", "two"], "invalid digit"),
        (["--threads", "-1"], "unexpected argument"),
        (["--threads", "257"], "257 is not in 1..=256"),
        (
            ["--contestant", "slab"],
            "expected one of firstlight, spin-lifo",
        ),
        (["--workload", "paint"], "expected one of pair, bulk"),
        (["--memory", "1M"], "expected a size from 128M to 256G"),
        (["--cell-ms", "2001"], "2001 is not in 1..=2000"),
        (["--run-ms", "0"], "0 is not in 1..=86400000"),
    ] {
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{part:?} in {text}");
    }
}
