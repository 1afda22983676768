//! What a kernel log says about why its boot took so long, or where memory went: [`diagnose`].
//!
//! A [`Finding`] is data: an identifier, the line it is seen in, what it costs, why, and
//! what to do. Each has a rule in a file of `rules/` that looks at a `Case`; the next
//! one is a file and its name in the list there. A healthy log has none.
//!
//! | file | concept |
//! |---|---|
//! | `case` | a boot as rules look at it: whole messages, spans, memory, command line |
//! | `rules/` | one file a finding |
//! | `rule` | what a rule is, and what it finds |

mod case;
mod rule;
mod rules;

use serde::Serialize;

use crate::boot::linux;
use crate::file::FileError;
use crate::gaps::Gap;
use crate::log;
use case::Case;
use rule::{Cost, Hit, Rule};

/// Name and version of the form of [`Report`].
pub const SCHEMA: &str = "firstlight.doctor/1";
/// Findings kept of one log; hostile logs may repeat themselves.
const MOST_FINDINGS: usize = 200;

/// What was found in some logs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// One entry a file, in the order given.
    pub logs: Vec<Diagnosis>,
    /// Files that could not be read or hold no kernel line, in the order given.
    pub unread: Vec<Unread>,
}

/// A file of which no log could be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The file.
    pub file: String,
    /// Why, in a sentence.
    pub why: String,
}

/// What was found in one log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The file.
    pub file: String,
    /// Boots in it.
    pub boots: usize,
    /// Lines that a kernel printed for certain; 0 in what is no kernel log.
    pub kernel_lines: usize,
    /// What was found, in the order of the lines.
    pub findings: Vec<Finding>,
    /// The longest spans between two lines of each boot; records have them as well.
    #[serde(skip)]
    pub gaps: Vec<Gap>,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub id: &'static str,
    /// The line it is seen in, from 1.
    pub line: usize,
    /// That line, as it stands in the log.
    pub evidence: String,
    /// What it costs in milliseconds, where that is known.
    pub cost_ms: Option<f64>,
    /// `measured` by the log's stamps, or `estimated` from published rates.
    pub cost: &'static str,
    /// What happens and why.
    pub why: String,
    /// What to do.
    pub cure: &'static str,
    /// The kernel since which it does not happen.
    pub fixed_in: Option<&'static str>,
}

impl Default for Report {
    /// A report of nothing.
    fn default() -> Self {
        Self {
            schema: SCHEMA,
            logs: Vec::new(),
            unread: Vec::new(),
        }
    }
}

impl Report {
    /// Adds what `text` of `file` says, or why it says nothing.
    pub fn add(&mut self, file: &str, text: Result<Vec<u8>, FileError>) {
        let text = match text {
            Ok(text) => text,
            Err(error) => return self.cannot_read(file, error.to_string()),
        };
        let diagnosis = diagnose(file, &text);
        if diagnosis.kernel_lines > 0 {
            self.logs.push(diagnosis);
            return;
        }
        let lines = text.split(|byte| *byte == b'\n').count();
        let why = format!(
            "{file}: no kernel line in {} bytes, {lines} lines: expected what dmesg, a serial line or a journal shows",
            text.len()
        );
        self.cannot_read(file, why);
    }

    fn cannot_read(&mut self, file: &str, why: String) {
        let file = file.to_owned();
        self.unread.push(Unread { file, why });
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
    let boots = log::boots(text);
    let mut hits: Vec<(&'static Rule, Hit)> = Vec::new();
    let mut gaps = Vec::new();
    let mut kernel_lines = 0;
    for boot in &boots {
        kernel_lines += boot.kernel_lines;
        let case = Case::new(boot, rules::keys());
        let mut found: Vec<(&'static Rule, Hit)> = Vec::new();
        for rule in rules::ALL {
            found.extend((rule.find)(&case).into_iter().map(|hit| (rule, hit)));
        }
        // What no rule explains counts only where none does.
        let explained: Vec<usize> = found.iter().filter_map(|(_, hit)| hit.span_end).collect();
        let rest = (rules::UNEXPLAINED.find)(&case).into_iter();
        let rest = rest.filter(|hit| hit.span_end.is_none_or(|end| !explained.contains(&end)));
        found.extend(rest.map(|hit| (&rules::UNEXPLAINED, hit)));
        hits.extend(found);
        gaps.extend(linux::gaps(boot));
    }
    hits.sort_by_key(|(_, hit)| hit.line);
    // What a rule knows is a kernel's word, too.
    kernel_lines = kernel_lines.max(hits.len());
    hits.truncate(MOST_FINDINGS);
    // In the order of their lines, so that one pass finds the evidence of all.
    let (mut rest, mut next) = (text.split(|byte| *byte == b'\n'), 1);
    let mut evidence = String::new();
    let findings = hits.into_iter().map(|(rule, hit)| {
        if hit.line >= next {
            evidence = raw_line(rest.nth(hit.line - next));
            next = hit.line + 1;
        }
        finding(rule, hit, evidence.clone())
    });
    Diagnosis {
        file: file.to_owned(),
        boots: boots.len(),
        kernel_lines,
        findings: findings.collect(),
        gaps,
    }
}

fn finding(rule: &'static Rule, hit: Hit, evidence: String) -> Finding {
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let ms = |ns: u64| ns as f64 / 1e6;
    let (cost_ms, cost) = match hit.cost {
        Cost::Measured(ns) => (Some(ms(ns)), "measured"),
        Cost::Estimated(ns) => (Some(ms(ns)), "estimated"),
        Cost::Unknown => (None, "estimated"),
    };
    Finding {
        id: rule.id,
        line: hit.line,
        evidence,
        cost_ms,
        cost,
        why: if hit.detail.is_empty() {
            rule.why.to_owned()
        } else {
            format!("{}: {}", hit.detail, rule.why)
        },
        cure: rule.cure,
        fixed_in: rule.fixed_in,
    }
}

/// A line without control characters and not longer than a page.
fn raw_line(raw: Option<&[u8]>) -> String {
    const MOST_BYTES: usize = 2048;
    let raw = raw.unwrap_or_default();
    log::clean_text(raw.get(..MOST_BYTES).unwrap_or(raw))
}
