//! For a terminal.

use std::fmt::Write;

use crate::report::Report;

/// A table.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    for setup in &report.setups {
        let _ = writeln!(
            text,
            "{} ({} clock, runs: {})",
            setup.name,
            setup.clock,
            setup.files.len()
        );
        if let Some(total) = &setup.total {
            let _ = writeln!(
                text,
                "  {:<28} {:>14.3} ± {:.3} ms",
                "all",
                total.median_ns / 1e6,
                total.mad_ns / 1e6
            );
        }
        for phase in &setup.phases {
            let (median, mad) = (phase.took.median_ns / 1e6, phase.took.mad_ns / 1e6);
            let _ = writeln!(text, "  {:<28} {median:>14.3} ± {mad:.3} ms", phase.name);
        }
        for found in &setup.findings {
            let _ = writeln!(
                text,
                "  found: {} ({})",
                found.finding.id,
                found.finding.evidence.trim()
            );
        }
    }
    for boot in &report.failed {
        let _ = writeln!(text, "failed: {}: {}", boot.file, boot.message);
    }
    for file in &report.left_out {
        let _ = writeln!(text, "left out: {}: {}", file.file, file.why);
    }
    for fit in &report.fits {
        let _ = writeln!(
            text,
            "{} over memory: {:.4} ms a GiB, r2 {:.3} ({})",
            fit.phase, fit.ms_per_gib, fit.r2, fit.family
        );
    }
    for sweep in &report.sweeps {
        text.push('\n');
        text.push_str(&sweep.table());
    }
    for cpus in &report.cpus {
        text.push('\n');
        text.push_str(&cpus.table(report.beside.as_ref()));
    }
    text
}
