//! KCIDB, the database of kernel test results, in its schema 5.3: a build for the kernel of B, a
//! test for each figure of each set-up with its status and its number.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::parts::{path_part, result_of};
use crate::gate::{Group, Judged, Outcome, Verdict};

/// Who says so, in KCIDB's words: an identifier's first part.
const ORIGIN: &str = "firstlight";

/// The verdict as a document for `kcidb-submit`.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let build = build();
    let mut tests: Vec<Value> = Vec::new();
    for (number, group) in verdict.groups.iter().enumerate() {
        tests.extend(of_group(group, number, &build));
    }
    let whole = match verdict.verdict {
        Outcome::Pass => "PASS",
        Outcome::Regressed => "FAIL",
        Outcome::Unclear => "ERROR",
    };
    let why: Vec<&str> = verdict
        .moved
        .iter()
        .chain(&verdict.unclear)
        .map(String::as_str)
        .collect();
    tests.push(json!({
        "id": format!("{build}.verdict"), "build_id": build, "origin": ORIGIN,
        "path": "firstlight.verdict", "status": whole, "comment": why.join("; "),
    }));
    let document = json!({
        "version": {"major": 5, "minor": 3},
        "checkouts": [{"id": build, "origin": ORIGIN}],
        "builds": [{"id": build, "checkout_id": build, "origin": ORIGIN}],
        "tests": tests,
    });
    format!("{document}\n")
}

/// An identifier of this document: those of KCIDB are the whole world's.
fn build() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos());
    let host = rustix::system::uname();
    let host = path_part(&host.nodename().to_string_lossy());
    format!("{ORIGIN}:{host}.{now}.{}", std::process::id())
}

fn of_group(group: &Group, number: usize, build: &str) -> Vec<Value> {
    let environment = json!({"comment": group.name});
    let test = |(at, row): (usize, &Judged)| {
        let path = format!("firstlight.{}.{}", row.kind.name(), path_part(&row.name));
        let status = result_of(group, row);
        json!({
            "id": format!("{build}.{number}.{at}.{path}"), "build_id": build, "origin": ORIGIN,
            "environment": environment, "path": path, "status": status,
            "comment": row.words(),
            "number": {"value": row.b_ns / 1e9, "unit": "s"},
        })
    };
    // A gap's name is two lines of a guest; they explain.
    let decides = group.rows.iter().filter(|row| row.decides);
    let mut tests: Vec<Value> = decides.enumerate().map(test).collect();
    if group.outcome == Outcome::Unclear {
        // A set-up that one side lacks was not run; another ran too little.
        let status = if group.rows.is_empty() {
            "MISS"
        } else {
            "ERROR"
        };
        tests.push(json!({
            "id": format!("{build}.{number}.runs"), "build_id": build, "origin": ORIGIN,
            "environment": environment, "path": "firstlight.runs", "status": status,
            "comment": group.unclear.join("; "),
        }));
    }
    tests
}
