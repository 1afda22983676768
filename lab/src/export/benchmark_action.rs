//! For github-action-benchmark, as its tool `customSmallerIsBetter` takes it.

use serde_json::{Value, json};

use super::series::figures;
use crate::report::Report;

/// An entry a figure of each set-up: median milliseconds, and the median distance from it.
pub(super) fn report(report: &Report) -> String {
    let entries = figures(report).into_iter().map(|figure| {
        json!({
            "name": format!("{}: {}", figure.setup.name, figure.name),
            "unit": "ms",
            "value": figure.took.median_ns / 1e6,
            "range": format!("± {:.3}", figure.took.mad_ns / 1e6),
            "extra": format!("{} runs, {} clock", figure.took.runs, figure.setup.clock),
        })
    });
    format!("{}\n", Value::Array(entries.collect()))
}
