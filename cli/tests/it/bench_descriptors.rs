//! `firstlight bench descriptors` as it is called.

use crate::common::schema;
use std::process::{Command, Output};

fn descriptors(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["bench", "descriptors"])
        .args(arguments)
        .output()
        .unwrap()
}

const SMALL: [&str; 4] = ["--shape", "memory=1G,nodes=2", "--runs", "2"];

#[test]
fn a_record_has_a_row_for_each_node_part_and_number_of_threads() {
    for bytes in [8, 64] {
        let size = bytes.to_string();
        let more = ["--descriptor-bytes", &size, "--threads", "1,2", "--json"];
        let output = descriptors(&[&SMALL[..], &more].concat());
        assert!(output.status.success(), "{output:?}");
        let record = schema::document(&output.stdout);
        assert_eq!(record["schema"], "firstlight.sweep/1");
        assert_eq!(record["clock"], "wall");
        let rows = record["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2 + 2);
        for row in rows {
            assert_eq!(row["where"], "host");
            assert_eq!(row["descriptor_bytes"], bytes);
            let written = row["pages"].as_u64().unwrap() * bytes;
            assert_eq!(row["bytes_written"], written);
            let ms = |key: &str| row["ms"][key].as_f64().unwrap();
            assert!(ms("min") > 0.0 && ms("min") <= ms("median") && ms("median") <= ms("max"));
            let deferred = row["part"] == "deferred";
            assert_eq!(row["node"].is_u64(), deferred);
            assert_eq!(row["fraction_of_best_memset"].is_f64(), deferred);
        }
        // All memory but the first page and the hole of 97 pages below 1 MiB.
        let whole = rows.iter().find(|row| row["part"] == "whole").unwrap();
        assert_eq!(whole["pages"], (1 << 18) - 98);
    }
}

#[test]
fn the_table_says_speed_up_and_time() {
    let output = descriptors(&[&SMALL[..], &["--threads", "1,2", "--padata"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["64 bytes on this host", "(2)", "deferred", "all ", " %"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    for (arguments, part) in [
        (["--threads", "0"], "expected at least 1"),
        (["--runs", "0"], "expected at least 1"),
        (
            ["--descriptor-bytes", "7"],
            "expected one of [8, 16, 32, 64]",
        ),
        (["--shape", "memory=2P"], "smaller machine"),
    ] {
        let output = descriptors(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(part), "{part:?} in {text}");
    }
    let output = descriptors(&["--shape", "memory=nothing"]);
    assert_eq!(output.status.code(), Some(2));
}
