//! Bencher's metric format: benchmarks by name, with the measure `latency` in nanoseconds.

use serde_json::{Map, Value, json};

use super::series::figures;
use crate::report::Report;

/// The median of each figure, between its least and most.
pub(super) fn report(report: &Report) -> String {
    let mut benchmarks = Map::new();
    for figure in figures(report) {
        let name = format!("{}: {}", figure.setup.name, figure.name);
        let took = figure.took;
        let value = json!({"latency": {
            "value": took.median_ns, "lower_value": took.min_ns, "upper_value": took.max_ns,
        }});
        benchmarks.insert(name, value);
    }
    format!("{}\n", Value::Object(benchmarks))
}
