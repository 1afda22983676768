//! `firstlight history`: records over time, and where figures changed for good; the series
//! are the [lab's](firstlight_lab::history).

use crate::failure::Failure;
use crate::output::{FAINT, GOOD, HEADING, NOTE, Output};
use crate::report::Page;
use crate::text::plural;
use clap::Args;
use firstlight_lab::history::{History, append};
use firstlight_lab::records;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Keep records over time and find where figures changed for good
///
/// DIR holds JSON lines (history.jsonl) and any other records. With --add a record is put
/// at the end first. Change points are the same for the same records.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The folder of the history
    dir: PathBuf,
    /// A record, a folder of records or a log to put at the end
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,
    /// What the added records are called, such as a release or a commit
    #[arg(long, value_name = "TEXT", requires = "add")]
    label: Option<String>,
    /// Show every figure, also those that never changed
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight boot --clock instructions --json > now.json
  firstlight history runs/ --add now.json --label $(git rev-parse --short HEAD)
  firstlight history runs/
  firstlight history runs/ --json | jq '.series[].changes'

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let unreadable = |error| Failure::records(&error);
    if let Some(path) = &options.add {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        for (path, value) in records::values(path).map_err(unreadable)? {
            let file = path.file_stem();
            let file = file.map(|name| name.to_string_lossy().into_owned());
            let label = options.label.clone().or(file).unwrap_or_default();
            append(&options.dir, &value, &label, now).map_err(|error| {
                Failure::Io(format!(
                    "cannot write below {}: {error}; expected a folder of yours",
                    options.dir.display()
                ))
            })?;
        }
    }
    let folder = records::read(&options.dir).map_err(unreadable)?;
    let history = History::of(&folder);
    output.print(&history, |history| report(history, options.full))
}

fn report(history: &History, full: bool) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight history");
    for file in &history.left_out {
        page.line(format!(
            "  {NOTE}left out:{NOTE:#} {}: {}",
            file.file, file.why
        ));
    }
    for boot in &history.failed {
        page.line(format!(
            "  {NOTE}does not boot:{NOTE:#} {}: {} ({})",
            boot.cell, boot.message, boot.file
        ));
    }
    let steady = match history.failed.is_empty() {
        true => "no change",
        false => "no change among boots that went well",
    };
    let shown = history
        .series
        .iter()
        .filter(|series| full || !series.changes.is_empty() || series.figure == "total");
    for series in shown {
        page.section(
            &series.figure,
            &format!(
                "{}, {} clock, {}",
                series.setup,
                series.clock,
                plural(series.ms.len() as u64, "record")
            ),
        );
        page.text.push_str(&series.plot());
        for change in &series.changes {
            let style = if change.percent > 0.0 { NOTE } else { GOOD };
            page.line(format!(
                "  {style}{:+.1} %{style:#} at {}: {:.3} -> {:.3} ms",
                change.percent, change.label, change.before_ms, change.after_ms
            ));
        }
        if series.changes.is_empty() {
            page.line(format!("  {FAINT}{steady}{FAINT:#}"));
        }
    }
    page.text
}
