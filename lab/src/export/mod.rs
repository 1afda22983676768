//! Reports and verdicts in the forms that other programs read: one file a form.
//!
//! | file | form | of |
//! |---|---|---|
//! | `table`, `csv`, `markdown` | for people | reports; verdicts as `markdown` |
//! | `chrome_trace`, `folded` | for Perfetto, for flame graphs | reports |
//! | `junit` | for continuous integration | both |

mod chrome_trace;
mod csv;
mod folded;
mod junit;
mod markdown;
mod table;

use std::fmt;

use crate::gate::Verdict;
use crate::report::Report;

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One page, [`Report::html`].
    Html,
    /// For a terminal.
    Table,
    /// One line a run and phase.
    Csv,
    /// For `chrome://tracing` and Perfetto: one process a run.
    ChromeTrace,
    /// Stacks and microseconds, for flame graphs.
    Folded,
    /// One case a run, for continuous integration.
    Junit,
    /// For a document.
    Markdown,
}

/// A form of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictFormat {
    /// One case a figure, for continuous integration.
    Junit,
    /// For a merge request, or the summary of a job.
    Markdown,
}

/// Text that a form cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritable(String);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the document cannot be written: {}", self.0)
    }
}

impl std::error::Error for Unwritable {}

/// The report in this form.
///
/// # Errors
/// [`Unwritable`].
pub fn report(report: &Report, format: Format) -> Result<String, Unwritable> {
    Ok(match format {
        Format::Html => report.html(),
        Format::Table => table::report(report),
        Format::Csv => csv::report(report),
        Format::ChromeTrace => chrome_trace::report(report),
        Format::Folded => folded::report(report),
        Format::Junit => junit::report(report)?,
        Format::Markdown => markdown::report(report),
    })
}

/// The verdict in this form.
///
/// # Errors
/// [`Unwritable`].
pub fn verdict(verdict: &Verdict, format: VerdictFormat) -> Result<String, Unwritable> {
    match format {
        VerdictFormat::Junit => junit::verdict(verdict),
        VerdictFormat::Markdown => Ok(markdown::verdict(verdict)),
    }
}
