//! Stacks and microseconds, for flame graphs.

use std::fmt::Write;

use crate::log::{self, Named};
use crate::report::Report;
use crate::run::Span;

/// Median microseconds of each phase below its set-up; of a Linux that names its initcalls, those
/// of the first run below the phase in which they returned, whose own time is the rest.
pub(super) fn report(report: &Report) -> String {
    let frame = |name: &str| name.replace([';', '\n'], ",");
    let mut text = String::new();
    for setup in &report.setups {
        let first = setup.runs.first();
        let calls = first.map_or(Vec::new(), |run| log::initcalls(&run.lines()));
        let spans = first.map_or(&[][..], |run| run.phases.as_slice());
        for phase in &setup.phases {
            let stack = format!("{};{}", frame(&setup.name), frame(&phase.name));
            let mut own_us = phase.took.median_ns / 1000.0;
            for call in calls.iter().filter(|call| is_in(call, &phase.name, spans)) {
                #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
                let us = call.ns as f64 / 1000.0;
                own_us -= us;
                let _ = writeln!(text, "{stack};{} {us:.0}", frame(&call.name));
            }
            let _ = writeln!(text, "{stack} {:.0}", own_us.max(0.0));
        }
    }
    text
}

/// Whether `call` returned in a phase of this name.
fn is_in(call: &Named, name: &str, phases: &[Span]) -> bool {
    let inside = |phase: &&Span| {
        let end = |ns: u64| phase.start_ns < ns && ns <= phase.end_ns;
        call.end_ns.is_some_and(end)
    };
    phases
        .iter()
        .find(inside)
        .is_some_and(|phase| phase.name == name)
}
