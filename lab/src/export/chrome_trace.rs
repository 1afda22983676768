//! For `chrome://tracing` and Perfetto.

use serde_json::{Value, json};

use crate::log;
use crate::report::Report;

/// One process a run; phases, gaps and initcalls beside them.
pub(super) fn report(report: &Report) -> String {
    let mut events: Vec<Value> = Vec::new();
    let runs = report
        .setups
        .iter()
        .flat_map(|setup| setup.runs.iter().map(move |run| (setup, run)));
    for (process, (setup, run)) in runs.enumerate() {
        let name = format!("{}: {}", setup.name, run.file);
        events.push(
            json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}),
        );
        #[expect(clippy::cast_precision_loss, reason = "the form wants microseconds")]
        let us = |ns: u64| ns as f64 / 1000.0;
        for phase in &run.phases {
            events.push(json!({
                "name": phase.name, "cat": "phase", "ph": "X", "pid": process, "tid": 0,
                "ts": us(phase.start_ns), "dur": us(phase.ns()),
            }));
        }
        for call in log::initcalls(&run.lines()) {
            let begin_ns = call.end_ns.and_then(|end| end.checked_sub(call.ns));
            events.extend(begin_ns.map(|begin_ns| {
                json!({
                    "name": call.name, "cat": "initcall", "ph": "X", "pid": process, "tid": 2,
                    "ts": us(begin_ns), "dur": us(call.ns),
                })
            }));
        }
        for gap in &run.gaps {
            events.push(json!({
                "name": gap.after.text, "cat": "gap", "ph": "X", "pid": process, "tid": 1,
                "ts": us(gap.before.stamp_ns), "dur": us(gap.ns),
            }));
        }
    }
    let mut text = json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string();
    text.push('\n');
    text
}
