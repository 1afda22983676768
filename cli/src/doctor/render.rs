//! What the doctor found, for a person.

use crate::output::{FAINT, GOOD, HEADING, NOTE};
use crate::report::{Page, gaps, share};
use crate::text::{self, count, fold, head, milliseconds, plural};
use firstlight_lab::doctor::{Beside, Count, Diagnosis, Finding, Loss, Report, Times, Verdict};
use firstlight_lab::log::Named;

/// Logs that are named one by one.
const MOST_LOGS: usize = 50;
/// Remarks that are shown.
const MOST_NOTES: usize = 5;

/// Logs one after the other; of `many` the counts, and each with `full` only.
pub(super) fn page(report: &Report, many: bool, full: bool) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight doctor");
    if many {
        counts(&mut page, report);
    }
    if !many || full {
        for log in &report.logs {
            one(&mut page, log, full);
        }
    } else {
        list(&mut page, &report.logs);
    }
    page.text
}

/// One log beside the other.
pub(super) fn two(report: &Report, full: bool) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight doctor");
    let Some(beside) = &report.beside else {
        if let Some(why) = &report.not_beside {
            page.line(format!(
                "  {NOTE}note:{NOTE:#} the two cannot stand beside each other: {why}"
            ));
        }
        for log in &report.logs {
            one(&mut page, log, full);
        }
        return page.text;
    };
    for (name, log) in ["A", "B"].into_iter().zip(&report.logs) {
        page.line(format!("  {name}  {}", log.file));
    }
    page.line(format!("\n  {}", total(beside)));
    for note in &beside.notes {
        page.line(format!("  {NOTE}note:{NOTE:#} {note}"));
    }
    losses(&mut page, beside, full);
    for ((name, ids), log) in ["A", "B"].into_iter().zip(&beside.only).zip(&report.logs) {
        if ids.is_empty() {
            continue;
        }
        page.section(&format!("Only {name}"), "");
        let findings = log.findings.iter();
        for each in findings.filter(|each| ids.contains(&each.id)) {
            finding(&mut page, each, log.boots > 1);
        }
    }
    if full {
        for log in &report.logs {
            one(&mut page, log, full);
        }
    } else {
        page.line(format!(
            "\n  {FAINT}--full shows all findings, phases and gaps{FAINT:#}"
        ));
    }
    page.text
}

/// The whole of both boots in a sentence.
fn total(beside: &Beside) -> String {
    let verdict = match beside.verdict {
        Verdict::Slower => format!("{NOTE}B is slower{NOTE:#}"),
        Verdict::Faster => format!("{GOOD}B is faster{GOOD:#}"),
        Verdict::Alike => {
            format!("{GOOD}no difference{GOOD:#} of 5 % or more, which one boot of each can show")
        }
        Verdict::Unclear => {
            let why = beside.unclear.as_deref();
            return format!("{NOTE}unclear{NOTE:#}: {}", why.unwrap_or_default());
        }
    };
    let [Some(a), Some(b)] = beside.total_ns else {
        return verdict;
    };
    let (from, to) = (beside.from.as_deref(), beside.to.as_deref());
    #[expect(clippy::cast_precision_loss, reason = "a share to print")]
    let percent = (b as f64 / a.max(1) as f64 - 1.0) * 100.0;
    format!(
        "{verdict}: total {} -> {} ms, {percent:+.1} %\n  {FAINT}from \"{}\" to \"{}\"{FAINT:#}",
        milliseconds(a),
        milliseconds(b),
        from.unwrap_or_default(),
        to.unwrap_or_default()
    )
}

/// A loss's name, where it is as short as those of phases.
fn inline(loss: &Loss) -> Option<&str> {
    const MOST_CHARS: usize = 32;
    (loss.name.chars().count() <= MOST_CHARS).then_some(loss.name.as_str())
}

/// What became slower.
fn losses(page: &mut Page, beside: &Beside, full: bool) {
    const SHOWN: usize = 10;
    if !beside.slower.is_empty() {
        page.section("Slower in B", "milliseconds, the largest loss first");
        let (shown, hidden) = fold(&beside.slower, if full { usize::MAX } else { SHOWN });
        let mut rows = vec![head(["", "", "A", "B", "loss"])];
        rows.extend(shown.iter().map(|loss| {
            vec![
                loss.kind.name().to_owned(),
                inline(loss).unwrap_or_default().to_owned(),
                loss.a_ns.map_or("-".into(), milliseconds),
                milliseconds(loss.b_ns),
                milliseconds(loss.ns()),
            ]
        }));
        let lines = text::table("<<>>>", &rows);
        // A name that is long is below its figures.
        let names = std::iter::once(None).chain(shown.iter().map(Some));
        for (line, loss) in lines.into_iter().zip(names) {
            page.line(line);
            if let Some(loss) = loss.filter(|loss| inline(loss).is_none()) {
                page.styled(FAINT, &format!("    {}", loss.name));
            }
        }
        page.more(hidden);
    }
    if beside.verdict == Verdict::Faster {
        page.line(format!(
            "  {FAINT}to see in what B is faster, name it first{FAINT:#}"
        ));
    }
    if beside.gained_ns > 0 {
        let gained = milliseconds(beside.gained_ns);
        page.line(format!(
            "  {FAINT}gaps that are shorter in B gain {gained} ms{FAINT:#}"
        ));
    }
}

/// How often there is which finding.
fn counts(page: &mut Page, report: &Report) {
    let boots = report.logs.iter().map(|log| log.boots as u64).sum();
    let logs = plural(report.logs.len() as u64, "log");
    page.line(format!("  {logs}, {}", plural(boots, "boot")));
    let unread = report.unread.len() as u64;
    if unread > 0 {
        page.line(format!(
            "  {NOTE}{} could not be read{NOTE:#}",
            plural(unread, "file")
        ));
    }
    let all = report.counts();
    if all.is_empty() {
        page.line(format!("  {GOOD}nothing found{GOOD:#}"));
        return;
    }
    page.section("Findings", "the most expensive first");
    let mut rows = vec![head(["", "findings", "logs", "worst", ""])];
    rows.extend(all.iter().map(|count: &Count| {
        vec![
            count.id.to_owned(),
            count.findings.to_string(),
            count.logs.to_string(),
            count.worst_ms.map_or("-".into(), whole_ms),
            format!("{}:{}", count.file, count.line),
        ]
    }));
    page.table("<>>><", &rows);
}

/// Each log and the names of its findings.
fn list(page: &mut Page, logs: &[Diagnosis]) {
    page.section("Logs", "");
    let (shown, hidden) = fold(logs, MOST_LOGS);
    for log in shown {
        let mut ids: Vec<&str> = log.findings.iter().map(|finding| finding.id).collect();
        ids.dedup();
        let found = match ids.len() {
            0 => format!("{GOOD}nothing found{GOOD:#}"),
            _ => ids.join(", "),
        };
        page.line(format!("  {}: {found}", log.file));
    }
    page.more(hidden);
}

fn one(page: &mut Page, log: &Diagnosis, full: bool) {
    let boots = plural(log.boots as u64, "boot");
    let found = match log.findings.len() + log.more_findings {
        0 => format!("{GOOD}nothing found{GOOD:#}"),
        found => plural(found as u64, "finding"),
    };
    page.line(format!(
        "{HEADING}{}{HEADING:#}: {boots}, {found}",
        log.file
    ));
    for each in &log.findings {
        finding(page, each, log.boots > 1);
    }
    if log.more_findings > 0 {
        let more = plural(log.more_findings as u64, "finding");
        page.line(format!("\n  {NOTE}and {more} more, only counted{NOTE:#}"));
    }
    let (shown, hidden) = fold(&log.notes, if full { usize::MAX } else { MOST_NOTES });
    for note in shown {
        page.line(format!("  {NOTE}note:{NOTE:#} {note}"));
    }
    page.more(hidden);
    let (shown, hidden) = fold(&log.times, if full { usize::MAX } else { 1 });
    for boot in shown {
        times(page, boot, log.boots > 1, full);
    }
    if hidden > 0 {
        let hidden = plural(hidden as u64, "boot");
        page.line(format!(
            "\n  {FAINT}... phases and gaps of {hidden} more (--full){FAINT:#}"
        ));
    }
    page.line("");
}

fn finding(page: &mut Page, finding: &Finding, several: bool) {
    let boot = if several {
        format!(", boot {}", finding.boot)
    } else {
        String::new()
    };
    page.line(format!(
        "\n  {NOTE}{}{NOTE:#}  {}{boot}",
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

/// Where the time of a boot went.
fn times(page: &mut Page, boot: &Times, several: bool, full: bool) {
    if several {
        page.line(format!("\n  boot {}, from line {}", boot.boot, boot.line));
    }
    if !boot.phases.is_empty() {
        page.section("Phases", "milliseconds by the log's own clock");
        let took =
            |phase: &firstlight_lab::record::Phase| phase.end_ns.saturating_sub(phase.start_ns);
        let all_ns = boot.phases.iter().map(took).fold(0, u64::saturating_add);
        let row =
            |name: &str, ns: u64| vec![name.to_owned(), milliseconds(ns), share::share(ns, all_ns)];
        let phases = boot.phases.iter();
        let mut rows: Vec<Vec<String>> =
            phases.map(|phase| row(&phase.name, took(phase))).collect();
        rows.push(row("all", all_ns));
        page.table("<>>", &rows);
    }
    steps(page, "Initcalls", &boot.initcalls);
    steps(page, "Services", &boot.services);
    let most = if full { usize::MAX } else { 3 };
    gaps::gaps(page, &boot.gaps, "milliseconds", most);
}

/// Initcalls or services, the slowest first.
fn steps(page: &mut Page, name: &str, steps: &[Named]) {
    if steps.is_empty() {
        return;
    }
    page.section(name, "milliseconds, the slowest first");
    let row = |step: &Named| {
        let line = format!("line {}", step.line);
        vec![step.name.clone(), milliseconds(step.ns), line]
    };
    let rows: Vec<Vec<String>> = steps.iter().map(row).collect();
    page.table("<><", &rows);
}

fn cost(finding: &Finding) -> String {
    match finding.cost_ms {
        Some(ms) => format!("{}, {}", whole_ms(ms), finding.cost),
        None => "at a cost that the log does not show".to_owned(),
    }
}

fn whole_ms(ms: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a figure to print, above zero"
    )]
    let whole = ms.round() as u64;
    format!("{} ms", count(whole))
}
