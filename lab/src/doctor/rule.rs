//! What a rule is, and what it finds.

use super::case::Case;
use super::message::Entry;

/// A finding and how it is recognised.
pub(super) struct Rule {
    /// The finding's name.
    pub(super) id: &'static str,
    /// What happens and why.
    pub(super) why: &'static str,
    /// What to do.
    pub(super) cure: &'static str,
    /// The kernel since which it does not happen; newer ones are not told so.
    pub(super) fixed_in: Option<&'static str>,
    /// What messages that it looks at contain; others are not shown to it.
    pub(super) keys: &'static [&'static str],
    /// Looks for it.
    pub(super) find: fn(&Case<'_>) -> Vec<Hit>,
}

impl Rule {
    /// Whether it finds something.
    pub(super) fn finds(&self, case: &Case<'_>) -> bool {
        !(self.find)(case).is_empty()
    }
}

/// Where a rule applies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hit {
    /// The line it is seen in.
    pub(super) line: usize,
    /// What it costs.
    pub(super) cost: Cost,
    /// What is special about this log, in a few words.
    pub(super) detail: String,
    /// The line that ends the span it explains, if it explains one.
    pub(super) span_end: Option<usize>,
    /// Why and what to do, where this log says otherwise than the rule.
    pub(super) instead: Option<(&'static str, &'static str)>,
}

/// What a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// Nanoseconds, by the log's stamps or the kernel's own figure.
    Measured(u64),
    /// Nanoseconds, from published rates.
    Estimated(u64),
    /// The log does not say.
    Unknown,
}

impl Hit {
    /// Seen in `entry`, at a cost the log does not say.
    pub(super) fn at(entry: Entry<'_>, detail: impl Into<String>) -> Self {
        Self {
            line: entry.line,
            cost: Cost::Unknown,
            detail: detail.into(),
            span_end: None,
            instead: None,
        }
    }

    /// This finding with a cost.
    pub(super) fn costs(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// For another reason, and with another cure, than the rule's.
    pub(super) fn instead(self, why: &'static str, cure: &'static str) -> Self {
        Self {
            instead: Some((why, cure)),
            ..self
        }
    }

    /// Seen in the span of `ns` between `from` and `entry`.
    pub(super) fn span(from: Entry<'_>, entry: Entry<'_>, ns: u64) -> Self {
        let before: String = from.text.chars().take(80).collect();
        let detail = format!("{} ms pass after \"{before}\"", ns / 1_000_000);
        Self {
            cost: Cost::Measured(ns),
            span_end: Some(entry.line),
            ..Self::at(entry, detail)
        }
    }
}
