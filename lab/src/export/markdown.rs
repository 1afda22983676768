//! Tables for a document, a merge request, the summary of a job.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use crate::gate::{Group, State, Verdict};
use crate::report::Report;

/// A row a figure of each set-up.
pub(super) fn report(report: &Report) -> String {
    let mut table = table(
        &["set-up", "clock", "runs", "figure", "median ms", "MAD"],
        4,
    );
    for setup in &report.setups {
        let total = setup.total.iter().map(|total| ("total", total));
        let phases = setup.phases.iter().map(|phase| (&*phase.name, &phase.took));
        for (name, took) in total.chain(phases) {
            table.add_row([
                safe(&setup.name),
                setup.clock.clone(),
                setup.files.len().to_string(),
                safe(name),
                format!("{:.3}", took.median_ns / 1e6),
                format!("{:.3}", took.mad_ns / 1e6),
            ]);
        }
    }
    format!("{table}\n")
}

/// The outcome, why it is no pass, and a table of what moved on each set-up.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let mut text = format!("### Boot time: {}\n\n", verdict.verdict.name());
    // Writing to a string does not fail.
    for moved in &verdict.moved {
        let _ = writeln!(text, "- slower: {}", safe(moved));
    }
    for why in &verdict.unclear {
        let _ = writeln!(text, "- unclear: {}", safe(why));
    }
    for group in &verdict.groups {
        let _ = writeln!(text, "\n**{}**, {}\n", safe(&group.name), runs(group));
        if !group.rows.is_empty() {
            let _ = writeln!(text, "{}", moved(group));
        }
    }
    text
}

fn runs(group: &Group) -> String {
    let [a, b] = group.runs;
    format!("{}, {a} and {b} runs", group.outcome.name())
}

/// The whole boot, and what has moved.
fn moved(group: &Group) -> Table {
    let mut table = table(&["figure", "A ms", "B ms", "change", ""], 1);
    let total = |name: &str| name == crate::compare::TOTAL;
    let rows = group.rows.iter();
    for row in rows.filter(|row| row.state != State::Same || total(&row.name)) {
        let change = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        table.add_row([
            safe(&row.title()),
            format!("{:.3}", row.a_ns / 1e6),
            format!("{:.3}", row.b_ns / 1e6),
            row.ratio.map_or("new".into(), change),
            row.state.words().to_owned(),
        ]);
    }
    table
}

/// A table whose columns from `numbers` on are set to the right.
fn table(head: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(head.to_vec());
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Text that is no markup: a guest's lines are in some names.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '\\' => {
                safe.push('\\');
                safe.push(c);
            }
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
