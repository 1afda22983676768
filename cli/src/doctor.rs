//! `firstlight doctor`: what kernel logs say about where a boot's time or a machine's
//! memory went; the rules are the [lab's](firstlight_lab::doctor).

use crate::failure::Failure;
use crate::output::{FAINT, GOOD, HEADING, NOTE, Output};
use crate::report::Page;
use crate::report::gaps;
use crate::text::{count, plural};
use clap::Args;
use firstlight_lab::doctor::{Diagnosis, Finding, Report};
use firstlight_lab::file::read;
use std::path::PathBuf;

/// Read kernel logs and say what the time went into, why, and what to do
///
/// Each finding has the line it is seen in, what it costs (measured by the log's
/// stamps, or estimated from published rates), the reason, and the kernel since
/// which it does not happen. A healthy log has none.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Kernel logs of any dialect
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  dmesg > boot.log; firstlight doctor boot.log
  firstlight doctor logs/*.log --json | jq '.logs[].findings[].id'

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let mut report = Report::default();
    for path in &options.logs {
        report.add(&path.display().to_string(), read(path));
    }
    output.print::<_, Failure>(&report, page)?;
    if report.unread.is_empty() {
        return Ok(());
    }
    let why: Vec<&str> = report.unread.iter().map(|file| &*file.why).collect();
    Err(Failure::Unread(why.join("\n")))
}

fn page(report: &Report) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight doctor");
    for log in &report.logs {
        one(&mut page, log);
        gaps::gaps(&mut page, &log.gaps, 3);
        page.line("");
    }
    page.text
}

fn one(page: &mut Page, log: &Diagnosis) {
    let boots = plural(log.boots as u64, "boot");
    if log.findings.is_empty() {
        page.line(format!(
            "{HEADING}{}{HEADING:#}: {boots}, {GOOD}nothing found{GOOD:#}",
            log.file
        ));
        return;
    }
    let findings = plural(log.findings.len() as u64, "finding");
    page.line(format!(
        "{HEADING}{}{HEADING:#}: {boots}, {findings}",
        log.file
    ));
    for finding in &log.findings {
        page.line(format!(
            "\n  {NOTE}{}{NOTE:#}  {}",
            finding.id,
            cost(finding)
        ));
        page.line(format!(
            "    {FAINT}line {}: {}{FAINT:#}",
            finding.line,
            finding.evidence.trim()
        ));
        page.line(format!("    why   {}", finding.why));
        page.line(format!("    cure  {}", finding.cure));
        if let Some(version) = finding.fixed_in {
            page.line(format!("    fixed in Linux {version}"));
        }
    }
}

fn cost(finding: &Finding) -> String {
    match finding.cost_ms {
        Some(ms) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a figure to print, above zero"
            )]
            let whole = ms.round() as u64;
            format!("{} ms, {}", count(whole), finding.cost)
        }
        None => "at a cost that the log does not show".to_owned(),
    }
}
