//! Comma separated values, for spreadsheets.

use std::fmt::Write;

use crate::report::Report;

/// One line a run and phase.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::from("setup,clock,memory_bytes,run,phase,start_ns,end_ns\n");
    for setup in &report.setups {
        let memory = setup
            .memory_bytes
            .map_or(String::new(), |bytes| bytes.to_string());
        for run in &setup.runs {
            for phase in &run.phases {
                let _ = writeln!(
                    text,
                    "{},{},{memory},{},{},{},{}",
                    cell(&setup.name),
                    cell(&setup.clock),
                    cell(&run.file),
                    cell(&phase.name),
                    phase.start_ns,
                    phase.end_ns
                );
            }
        }
    }
    text
}

/// A cell of CSV; what a spreadsheet would take for a formula is text.
fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']);
    if formula || text.contains([',', '"', '\n', '\r']) {
        let quote = if formula { "\"'" } else { "\"" };
        format!("{quote}{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
