//! Stacks and microseconds, for flame graphs.

use std::fmt::Write;

use crate::report::Report;

/// Median microseconds of each phase below its set-up.
pub(super) fn report(report: &Report) -> String {
    let frame = |name: &str| name.replace([';', '\n'], ",");
    let mut text = String::new();
    for setup in &report.setups {
        for phase in &setup.phases {
            let us = phase.took.median_ns / 1000.0;
            let _ = writeln!(
                text,
                "{};{} {us:.0}",
                frame(&setup.name),
                frame(&phase.name)
            );
        }
    }
    text
}
