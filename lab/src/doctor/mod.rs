//! What a kernel log says about why its boot took so long, or where memory went: [`diagnose`].
//!
//! A [`Finding`] is data: an identifier, the line it is seen in, what it costs, why, and
//! what to do. Each has a rule in a file of `rules/` that looks at a `Case`; the next
//! one is a file and its name in the list there. A healthy log has none.
//!
//! | file | concept |
//! |---|---|
//! | `beside` | two logs: which took longer, in what, and which findings only one has |
//! | `keys` | what rules look for, found in one pass |
//! | `message`, `numbers` | whole messages; figures in them |
//! | `case` | a boot as rules look at it: messages, spans, memory, command line |
//! | `rules/` | one file a finding |
//! | `rule` | what a rule is, and what it finds |

mod beside;
mod case;
mod keys;
mod message;
mod numbers;
mod rule;
mod rules;

pub use beside::{Beside, Loss, Verdict, beside};
use serde::Serialize;

use crate::boot_log;
use crate::file::FileError;
use crate::log::{self, Boot, End, Named};
use crate::record::{Gap, Phase};
use crate::run::{Run, is_record};
use case::Case;
use rule::{Cost, Hit, Rule};

/// Name and version of the form of [`Report`].
pub const SCHEMA: &str = "firstlight.doctor/1";
/// Findings kept of one log, and boots whose times are; hostile logs may repeat themselves.
const MOST_FINDINGS: usize = 1000;
const MOST_BOOTS: usize = 100;
/// Logs whose times are kept.
const MOST_TIMES: usize = 1000;
/// Initcalls and services kept of one boot.
const MOST_STEPS: usize = 10;
/// Remarks kept of one boot.
const MOST_NOTES: usize = 8;

/// What was found in some logs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// One entry a file, in the order given.
    pub logs: Vec<Diagnosis>,
    /// Files that could not be read or hold no kernel line, in the order given.
    pub unread: Vec<Unread>,
    /// Of two logs, one beside the other.
    pub beside: Option<Beside>,
    /// Why two logs cannot stand beside each other.
    pub not_beside: Option<String>,
}

/// A file of which no log could be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unread {
    /// The file.
    pub file: String,
    /// Why, in a sentence.
    pub why: String,
}

/// What was found in one log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The file.
    pub file: String,
    /// Boots in it.
    pub boots: usize,
    /// Lines that a kernel printed for certain; 0 in what is no kernel log.
    pub kernel_lines: usize,
    /// An emulator ran one of them: its time is no measure of a machine.
    pub emulated: bool,
    /// What was found, in the order of the lines: the first 1,000.
    pub findings: Vec<Finding>,
    /// Findings besides these, counted only.
    pub more_findings: usize,
    /// Lines that could not be taken as they stand, the first few of each boot.
    pub notes: Vec<String>,
    /// Where the time of each of the first 100 boots went, of up to 1,000 logs; records have that
    /// as well.
    #[serde(skip)]
    pub times: Vec<Times>,
}

/// Where the time of a boot went.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The boot, from 1.
    pub boot: usize,
    /// The line it begins in.
    pub line: usize,
    /// What was done one after the other.
    pub phases: Vec<Phase>,
    /// The longest spans between two lines.
    pub gaps: Vec<Gap>,
    /// The slowest initcalls that the log names.
    pub initcalls: Vec<Named>,
    /// The slowest services that it names.
    pub services: Vec<Named>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Its name.
    pub id: &'static str,
    /// The boot of the file, from 1.
    pub boot: usize,
    /// The line it is seen in, from 1.
    pub line: usize,
    /// That line, as it stands in the log; the message where that is JSON, or long.
    pub evidence: String,
    /// What it costs in milliseconds, where that is known.
    pub cost_ms: Option<f64>,
    /// `measured` by the log's stamps, or `estimated` from published rates.
    pub cost: &'static str,
    /// What happens and why.
    pub why: String,
    /// What to do.
    pub cure: &'static str,
    /// The kernel since which it does not happen, if that is newer than this one.
    pub fixed_in: Option<&'static str>,
}

/// How often there is a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Its name.
    pub id: &'static str,
    /// How often.
    pub findings: usize,
    /// In how many logs.
    pub logs: usize,
    /// What it costs where it costs most, where that is known.
    pub worst_ms: Option<f64>,
    /// The log of that one, or of the first.
    pub file: String,
    /// Its line.
    pub line: usize,
}

impl Default for Report {
    /// A report of nothing.
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            logs: Vec::new(),
            unread: Vec::new(),
            beside: None,
            not_beside: None,
        }
    }
}

impl Report {
    /// Adds what `text` of `file` says, or why it says nothing.
    pub fn add(&mut self, file: &str, text: Result<Vec<u8>, FileError>) {
        let text = match text {
            // Of a record its log counts.
            Ok(text) if is_record(&text) => match Run::read(&text) {
                Ok(run) => run.log.join("\n").into_bytes(),
                Err(error) => return self.cannot_read(file, format!("{file}: {error}")),
            },
            Ok(text) => text,
            Err(error) => return self.cannot_read(file, error.to_string()),
        };
        let diagnosis = diagnose(file, &text);
        if diagnosis.kernel_lines > 0 {
            self.logs.push(diagnosis);
            // Of many there is no one look at where the time of each went.
            if self.logs.len() > MOST_TIMES {
                self.logs.iter_mut().for_each(|log| log.times = Vec::new());
            }
            return;
        }
        let lines = text.split(|byte| *byte == b'\n').count();
        let why = format!(
            "{file}: no kernel line in {} bytes, {lines} lines: expected what dmesg, a serial line or a journal shows",
            text.len()
        );
        self.cannot_read(file, why);
    }

    /// How often there is which finding, the most expensive first.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        let mut counts: Vec<Count> = Vec::new();
        for log in &self.logs {
            let mut seen: Vec<&str> = Vec::new();
            for finding in &log.findings {
                let at = counts.iter().position(|count| count.id == finding.id);
                let at = at.unwrap_or_else(|| {
                    counts.push(Count::of(log, finding));
                    counts.len() - 1
                });
                if let Some(count) = counts.get_mut(at) {
                    count.add(log, finding, !seen.contains(&finding.id));
                }
                seen.push(finding.id);
            }
        }
        counts.sort_by(|one, other| {
            let cost = |count: &Count| count.worst_ms.unwrap_or(-1.0);
            cost(other)
                .total_cmp(&cost(one))
                .then(other.logs.cmp(&one.logs))
        });
        counts
    }

    fn cannot_read(&mut self, file: &str, why: String) {
        let file = file.to_owned();
        self.unread.push(Unread { file, why });
    }
}

impl Count {
    fn of(log: &Diagnosis, finding: &Finding) -> Self {
        Self {
            id: finding.id,
            findings: 0,
            logs: 0,
            worst_ms: None,
            file: log.file.clone(),
            line: finding.line,
        }
    }

    fn add(&mut self, log: &Diagnosis, finding: &Finding, first_of_log: bool) {
        self.findings += 1;
        self.logs += usize::from(first_of_log);
        if finding.cost_ms > self.worst_ms {
            self.worst_ms = finding.cost_ms;
            self.file.clone_from(&log.file);
            self.line = finding.line;
        }
    }
}

/// The names of all findings there are.
pub fn ids() -> impl Iterator<Item = &'static str> {
    let rules = rules::ALL.iter().map(|rule| rule.id);
    rules.chain([rules::UNEXPLAINED.id])
}

/// Reads the log in `text` and applies every rule to each of its boots.
///
/// ```
/// let log = b"[    0.026875] Normal zone: 89391104 pages, LIFO batch:63\n\
///             [    2.028450] ACPI: PM-Timer IO Port: 0x448\n";
/// let diagnosis = firstlight_lab::doctor::diagnose("boot.log", log);
/// assert_eq!(diagnosis.findings[0].id, "memmap-eager");
/// assert_eq!(diagnosis.findings[0].cost_ms, Some(2001.575));
/// ```
pub fn diagnose(file: &str, text: &[u8]) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        file: file.to_owned(),
        boots: 0,
        kernel_lines: 0,
        emulated: false,
        findings: Vec::new(),
        more_findings: 0,
        notes: Vec::new(),
        times: Vec::new(),
    };
    let mut lines = RawLines::new(text);
    log::each_boot(text, |boot| diagnosis.add(&boot, &mut lines));
    diagnosis
}

impl Diagnosis {
    fn add(&mut self, boot: &Boot<'_>, lines: &mut RawLines<'_>) {
        self.boots += 1;
        let case = Case::new(boot, rules::keys());
        self.emulated |= case.emulated;
        let hits = hits(&case);
        // What a rule knows is a kernel's word, too.
        self.kernel_lines += boot.kernel_lines.max(hits.len());
        for (rule, hit) in hits {
            if self.findings.len() >= MOST_FINDINGS {
                self.more_findings += 1;
                continue;
            }
            let evidence = lines.evidence(
                hit.line,
                case.entry_at(hit.line).map_or("", |entry| entry.text),
            );
            let mut finding = finding(self.boots, rule, hit, evidence);
            finding.fixed_in = finding.fixed_in.filter(|fixed| case.is_before(fixed));
            self.findings.push(finding);
        }
        let problems = &boot.log.problems;
        self.notes
            .extend(problems.iter().take(MOST_NOTES).map(ToString::to_string));
        let more = problems.len().saturating_sub(MOST_NOTES) as u64 + boot.log.more_problems;
        if more > 0 {
            self.notes
                .push(format!("and {more} more lines of this boot"));
        }
        // What the log says of later is not of the boot.
        let lines = boot.lines.get(..End::of_boot(&boot.lines));
        let lines = lines.unwrap_or_default();
        let services = slowest(log::services(lines));
        // What adds up services is a log as well.
        self.kernel_lines += usize::from(!services.is_empty());
        if self.times.len() < MOST_BOOTS {
            let (phases, gaps) = boot_log::times(lines);
            self.times.push(Times {
                boot: self.boots,
                line: boot.lines.first().map_or(1, |line| line.number),
                phases,
                gaps,
                initcalls: slowest(log::initcalls(lines)),
                services,
            });
        }
    }
}

/// The slowest of `steps`.
fn slowest(mut steps: Vec<Named>) -> Vec<Named> {
    steps.sort_by(|one, other| other.ns.cmp(&one.ns).then(one.line.cmp(&other.line)));
    steps.truncate(MOST_STEPS);
    steps
}

/// What all rules find in a boot, in the order of the lines.
fn hits(case: &Case<'_>) -> Vec<(&'static Rule, Hit)> {
    let mut found: Vec<(&'static Rule, Hit)> = Vec::new();
    for rule in rules::ALL {
        found.extend((rule.find)(case).into_iter().map(|hit| (rule, hit)));
    }
    // What no rule explains counts only where none does.
    let explained: Vec<usize> = found.iter().filter_map(|(_, hit)| hit.span_end).collect();
    let rest = (rules::UNEXPLAINED.find)(case).into_iter();
    let rest = rest.filter(|hit| hit.span_end.is_none_or(|end| !explained.contains(&end)));
    found.extend(rest.map(|hit| (&rules::UNEXPLAINED, hit)));
    found.sort_by_key(|(_, hit)| hit.line);
    found
}

/// The lines of a log as they stand there, looked up in their order.
struct RawLines<'t> {
    /// Lines are not messages.
    json: bool,
    rest: &'t [u8],
    number: usize,
    line: &'t [u8],
}

impl<'t> RawLines<'t> {
    /// Most bytes of a line that are shown.
    const MOST_BYTES: usize = 2048;

    fn new(text: &'t [u8]) -> Self {
        Self {
            json: log::is_json(text),
            rest: text,
            number: 0,
            line: b"",
        }
    }

    /// Line `number` without control characters; `message` where a line is more than that.
    fn evidence(&mut self, number: usize, message: &str) -> String {
        while self.number < number && !self.json {
            let end = memchr::memchr(b'\n', self.rest).unwrap_or(self.rest.len());
            self.line = self.rest.get(..end).unwrap_or_default();
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            self.number += 1;
        }
        if !self.json && self.line.len() <= Self::MOST_BYTES {
            return log::clean_text(self.line);
        }
        let message = message.as_bytes();
        log::clean_text(message.get(..Self::MOST_BYTES).unwrap_or(message))
    }
}

fn finding(boot: usize, rule: &'static Rule, hit: Hit, evidence: String) -> Finding {
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let ms = |ns: u64| ns as f64 / 1e6;
    let (cost_ms, cost) = match hit.cost {
        Cost::Measured(ns) => (Some(ms(ns)), "measured"),
        Cost::Estimated(ns) => (Some(ms(ns)), "estimated"),
        Cost::Unknown => (None, "estimated"),
    };
    let (why, cure) = hit.instead.unwrap_or((rule.why, rule.cure));
    Finding {
        id: rule.id,
        boot,
        line: hit.line,
        evidence,
        cost_ms,
        cost,
        why: if hit.detail.is_empty() {
            why.to_owned()
        } else {
            format!("{}: {why}", hit.detail)
        },
        cure,
        fixed_in: rule.fixed_in,
    }
}
