//! `firstlight doctor`: what kernel logs say about where a boot's time or a machine's
//! memory went; the rules are the [lab's](firstlight_lab::doctor).

mod record;
mod render;

use crate::failure::Failure;
use crate::output::Output;
use crate::text::plural;
use clap::Args;
use firstlight_lab::doctor::{self, Report, beside};
use firstlight_lab::file::{FileError, read, read_from};
use firstlight_lab::records;
use firstlight_lab::run::{Run, is_record};
use std::io;
use std::path::{Path, PathBuf};

/// Read kernel logs and say what the time went into, why, and what to do
///
/// Each finding has the line it is seen in, what it costs (measured by the log's
/// stamps, or estimated from published rates), the reason, and the kernel since
/// which it does not happen. A healthy log has none. Two logs stand beside each other: which
/// boot is slower, in what, and which findings only one has. Of three and more, or a folder,
/// findings are counted, those that cost most first.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Kernel logs of any dialect, packed or not; folders of *.log, *.txt and *.dmesg; - is
    /// standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Show all findings, phases and gaps of every log
    #[arg(long)]
    full: bool,
    /// Exit with 12 if a log has this finding, or any
    #[arg(long, value_name = "FINDING", value_parser = finding)]
    fail_on: Vec<String>,
    /// Show the log's record instead: machine, milestones, phases, gaps; for compare, gate, report
    /// and history
    #[arg(long, conflicts_with = "fail_on")]
    record: bool,
    /// Whose record, where the log has several boots
    #[arg(long, value_name = "N", requires = "record", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    boot: u32,
}

const EXAMPLES: &str = "\
Examples:
  dmesg | firstlight doctor -
  firstlight doctor good.log bad.log
  journalctl -k -b -1 -o json | firstlight doctor -
  firstlight doctor logs/ --fail-on memory-lost-mtrr --fail-on tsc-unstable
  firstlight doctor logs/*.log --json | jq '.logs[].findings[].id'
  firstlight doctor journal.txt --record --boot 2 --json > old.json

Exit codes: see firstlight --help";

const ANY: &str = "any";

fn finding(text: &str) -> Result<String, String> {
    if text == ANY || doctor::ids().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    let ids: Vec<&str> = doctor::ids().chain([ANY]).collect();
    Err(format!(
        "no such finding; expected one of {}",
        ids.join(", ")
    ))
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    if options.record {
        let [log] = options.logs.as_slice() else {
            let count = options.logs.len();
            let text = format!("--record of {count} logs; expected one");
            return Err(Failure::Usage(text));
        };
        let content = content(log).map_err(|error| Failure::Io(error.to_string()))?;
        let name = log.display().to_string();
        return record::print(&name, &content, options.boot, options.full, output);
    }
    if let [a, b] = options.logs.as_slice()
        && !a.is_dir()
        && !b.is_dir()
    {
        let report = two([a, b].map(|path| (path.as_path(), content(path))));
        output.print::<_, Failure>(&report, |report| render::two(report, options.full))?;
        return verdict(&report, &options.fail_on);
    }
    let mut report = Report::default();
    let mut folders = false;
    for path in &options.logs {
        if path.is_dir() {
            folders = true;
            let files = records::logs(path).map_err(|error| Failure::records(&error))?;
            for file in files {
                add(&mut report, &file);
            }
        } else {
            add(&mut report, path);
        }
    }
    let many = folders || options.logs.len() > 2;
    output.print::<_, Failure>(&report, |report| render::page(report, many, options.full))?;
    verdict(&report, &options.fail_on)
}

fn add(report: &mut Report, path: &Path) {
    report.add(&path.display().to_string(), content(path));
}

fn content(path: &Path) -> Result<Vec<u8>, FileError> {
    if path.as_os_str() == "-" {
        read_from(io::stdin().lock(), path)
    } else {
        read(path)
    }
}

/// Two logs, and one beside the other where both have times.
pub(crate) fn two(logs: [(&Path, Result<Vec<u8>, FileError>); 2]) -> Report {
    let mut report = Report::default();
    let runs = logs.map(|(path, content)| {
        let name = path.display().to_string();
        let run = match &content {
            Ok(content) => Run::of_file(&name, content).map_err(|error| match error {
                error if is_record(content) => format!("{name}: {error}"),
                _ => format!(
                    "{name}: the stamps of its first boot do not say how long anything took"
                ),
            }),
            Err(_) => Err(format!("{name} was not read")),
        };
        report.add(&name, content);
        run
    });
    match (&runs, report.logs.as_slice()) {
        ([Ok(a), Ok(b)], [one, other]) => match beside((one, a), (other, b)) {
            Ok(beside) => report.beside = Some(beside),
            Err(unlike) => report.not_beside = Some(unlike.to_string()),
        },
        (runs, _) => {
            let why = runs.iter().filter_map(|run| run.as_ref().err());
            let mut why: Vec<&str> = why.map(String::as_str).collect();
            if why.is_empty() {
                why.extend(report.unread.iter().map(|file| &*file.why));
            }
            report.not_beside = Some(why.join("; "));
        }
    }
    report
}

fn verdict(report: &Report, fail_on: &[String]) -> Result<(), Failure> {
    if !report.unread.is_empty() {
        let why: Vec<&str> = report.unread.iter().map(|file| &*file.why).collect();
        return Err(Failure::Unread(why.join("\n")));
    }
    let findings = report.logs.iter().flat_map(|log| &log.findings);
    let named = |id: &str| fail_on.iter().any(|name| name == ANY || name == id);
    let found = findings.filter(|finding| named(finding.id)).count() as u64;
    if found == 0 {
        return Ok(());
    }
    let names = fail_on.join(", ");
    Err(Failure::Found(format!(
        "{} of --fail-on {names}",
        plural(found, "finding")
    )))
}
