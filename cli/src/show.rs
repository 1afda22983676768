//! `firstlight report`: a folder of records as one page, or in another form; what is shown
//! is the [lab's](firstlight_lab::report).

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueEnum};
use firstlight_lab::export::{self, Format};
use firstlight_lab::published::{self, Machine};
use firstlight_lab::records;
use firstlight_lab::report::Report;
use firstlight_lab::sweep;
use std::fs;
use std::path::{Path, PathBuf};

/// Show a folder of records: summary, time lines, sizes, threads, runs, gaps, findings
///
/// Takes run records, sweeps (`firstlight.sweep/1`) and kernel logs. The page needs no
/// network and no script; it follows the reader's light or dark setting and prints.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A folder of records, or one file
    dir: PathBuf,
    /// In which form
    #[arg(long, value_enum, default_value_t = Form::Html)]
    format: Form,
    /// What the page is called
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// A published machine to stand beside boots with more and more CPUs: skylake, broadwell,
    /// haswell-128g, zen-64g, ...
    #[arg(long, value_name = "NAME", value_parser = published::machine)]
    beside: Option<Machine>,
    /// Where to, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Html,
    Table,
    Csv,
    ChromeTrace,
    Folded,
    Junit,
    Markdown,
    BenchmarkAction,
    Bencher,
    Influx,
}

const EXAMPLES: &str = "\
Examples:
  firstlight report runs/ -o report.html
  firstlight report runs/ --format table --beside skylake
  firstlight report runs/ --format chrome-trace -o trace.json   for Perfetto
  firstlight report runs/ --format folded | flamegraph.pl > boot.svg
  firstlight report runs/ --json | jq .fits

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let sweeps = records::documents(&options.dir, sweep::SCHEMA);
    let sweeps: Vec<sweep::Record> = sweeps.map_err(|error| Failure::records(&error))?;
    let folder = match records::read(&options.dir) {
        Err(records::Unreadable::Nothing(_) | records::Unreadable::NoRecord(..))
            if !sweeps.is_empty() =>
        {
            records::Folder::default()
        }
        folder => folder.map_err(|error| Failure::records(&error))?,
    };
    let mut report = Report::of(folder, sweeps);
    if let Some(title) = &options.title {
        report.title.clone_from(title);
    }
    report.beside.clone_from(&options.beside);
    let page = options.output.as_deref();
    report.folder = page.map(|page| page.parent().unwrap_or(Path::new("")).to_owned());
    let format = match options.format {
        Form::Html => Format::Html,
        Form::Table => Format::Table,
        Form::Csv => Format::Csv,
        Form::ChromeTrace => Format::ChromeTrace,
        Form::Folded => Format::Folded,
        Form::Junit => Format::Junit,
        Form::Markdown => Format::Markdown,
        Form::BenchmarkAction => Format::BenchmarkAction,
        Form::Bencher => Format::Bencher,
        Form::Influx => Format::Influx,
    };
    let text = export::report(&report, format);
    let text = text.map_err(|error| Failure::Io(error.to_string()))?;
    match &options.output {
        Some(path) => fs::write(path, text).map_err(|error| {
            Failure::Io(format!(
                "cannot write {}: {error}; --output names another",
                path.display()
            ))
        }),
        None => output.print(&report, |_| text),
    }
}
