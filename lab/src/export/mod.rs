//! Reports and verdicts in the forms that other programs read: one file a form.
//!
//! | file | form | of |
//! |---|---|---|
//! | `table`, `csv`, `markdown` | for people | reports; verdicts as `markdown` |
//! | `chrome_trace`, `folded` | for Perfetto, for flame graphs | reports |
//! | `junit` | JUnit, as GitLab, Jenkins and others show it | both |
//! | `ktap`, `kcidb`, `github` | KTAP; KCIDB 5.3; annotations of a job on GitHub | verdicts |
//! | `benchmark_action`, `bencher`, `influx` | github-action-benchmark, Bencher, InfluxDB | reports, by `series` |

mod bencher;
mod benchmark_action;
mod chrome_trace;
mod csv;
mod folded;
mod github;
mod influx;
mod junit;
mod kcidb;
mod ktap;
mod markdown;
mod parts;
mod series;
mod table;

use crate::gate::Verdict;
use crate::report::Report;
pub use parts::Unwritable;

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
    /// For github-action-benchmark.
    BenchmarkAction,
    /// For Bencher.
    Bencher,
    /// For InfluxDB.
    Influx,
}

/// A form of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictFormat {
    /// One case a figure, for continuous integration.
    Junit,
    /// For a merge request, or the summary of a job.
    Markdown,
    /// The kernel's Test Anything Protocol.
    Ktap,
    /// KCIDB's schema 5.3.
    Kcidb,
    /// Annotations of a job on GitHub.
    Github,
}

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
        Format::BenchmarkAction => benchmark_action::report(report),
        Format::Bencher => bencher::report(report),
        Format::Influx => influx::report(report),
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
        VerdictFormat::Ktap => Ok(ktap::verdict(verdict)),
        VerdictFormat::Kcidb => Ok(kcidb::verdict(verdict)),
        VerdictFormat::Github => Ok(github::verdict(verdict)),
    }
}
