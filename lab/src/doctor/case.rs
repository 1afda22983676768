//! A boot as rules look at it: [`Case`].

use super::keys::{Keys, Seen};
use super::message::{Entry, Messages};
use super::numbers::memory_line;
use crate::gaps::spans;
use crate::log::{Boot, KernelLog, Line, MemorySource, Span};

/// Lines behind the head of a stall that still belong to it.
const TRACE_LINES: usize = 120;
/// Stalls that are looked at.
const MOST_STALLS: usize = 100;
/// What is shorter matters to no rule.
const LEAST_SPAN_NS: u64 = 100_000_000;

/// A boot.
pub(super) struct Case<'b> {
    /// What its kernel said of the machine.
    pub(super) log: &'b KernelLog,
    /// Lines as they came, for rules about stamps.
    pub(super) lines: &'b [Line<'b>],
    /// Messages in order.
    messages: Messages<'b>,
    /// Where those with a key of some rule stand.
    marked: Vec<usize>,
    /// Which of these has which key first.
    seen: Seen,
    /// Spans that may matter: index of the message before, of the message, length.
    spans: Vec<(usize, usize, u64)>,
    /// Memory of the machine, by the best of what the log shows.
    pub(super) memory_bytes: Option<u64>,
    /// An emulator ran it, whose time is no measure of a machine.
    pub(super) emulated: bool,
}

impl<'b> Case<'b> {
    pub(super) fn new(boot: &'b Boot<'_>, keys: &'static Keys) -> Self {
        let messages = Messages::new(&boot.lines);
        let (mut marked, mut seen) = (Vec::new(), Seen::new(keys));
        for entry in messages.from(0).filter(|entry| keys.is_in(entry.text)) {
            marked.push(entry.at);
            seen.add(entry.at, entry.text);
        }
        let spans = spans(&boot.lines).filter(|span| span.2 >= LEAST_SPAN_NS);
        let mut case = Self {
            log: &boot.log,
            lines: &boot.lines,
            marked,
            seen,
            spans: spans.collect(),
            messages,
            memory_bytes: None,
            emulated: false,
        };
        case.memory_bytes = case.memory();
        case.emulated = case.any_of(&["QEMU TCG CPU"]).is_some()
            || (case.any_of(&["QEMU Virtual CPU"]).is_some()
                && case.any_of(&["Hypervisor detected"]).is_none());
        case
    }

    /// Messages with a key of some rule, in order.
    pub(super) fn marked(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        self.marked.iter().filter_map(|at| self.messages.get(*at))
    }

    /// Messages from the one at `at` on.
    pub(super) fn from(&self, at: usize) -> impl Iterator<Item = Entry<'_>> {
        self.messages.from(at)
    }

    /// The first of these for which `is` holds.
    pub(super) fn first(&self, is: impl Fn(&Entry<'_>) -> bool) -> Option<Entry<'_>> {
        self.marked().find(|entry| is(entry))
    }

    /// The message that begins in line `number`.
    pub(super) fn entry_at(&self, number: usize) -> Option<Entry<'_>> {
        let at = self.lines.partition_point(|line| line.number < number);
        let entry = self.messages.get(at);
        entry.filter(|entry| entry.line == number)
    }

    /// The first message with one of `parts`, which are keys of rules.
    pub(super) fn any_of(&self, parts: &[&str]) -> Option<Entry<'_>> {
        self.messages.get(self.seen.first_of(parts)?)
    }

    /// Spans of at least `least_ns`: the message before, the message that ends it, its length.
    /// Emulated time is no measure, and has none.
    pub(super) fn slow(&self, least_ns: u64) -> impl Iterator<Item = (Entry<'_>, Entry<'_>, u64)> {
        let spans = if self.emulated {
            &[]
        } else {
            self.spans.as_slice()
        };
        let spans = spans.iter().filter(move |span| span.2 >= least_ns);
        spans.filter_map(|(from, to, ns)| {
            Some((self.messages.get(*from)?, self.messages.get(*to)?, *ns))
        })
    }

    /// Words of the command line.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let line = self.log.command_line.as_deref().unwrap_or_default();
        line.split_ascii_whitespace()
    }

    /// The value of the last word `name=value` of the command line.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let values = self.words().filter_map(|word| {
            let (key, value) = word.split_once('=')?;
            (key == name).then_some(value)
        });
        values.last()
    }

    /// The message with the command line.
    pub(super) fn command_line(&self) -> Option<Entry<'_>> {
        self.first(|entry| entry.starts("Command line:") || entry.starts("Kernel command line:"))
    }

    /// Major and minor version of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        version(self.log.release.as_deref()?)
    }

    /// Whether the kernel is older than `release`; also where a log does not say.
    pub(super) fn is_before(&self, release: &str) -> bool {
        self.version()
            .is_none_or(|own| Some(own) < version(release))
    }

    /// Stalls the kernel complained about: the head, and the messages that belong to it.
    pub(super) fn stalls(&self) -> impl Iterator<Item = Vec<Entry<'_>>> {
        let heads = self.marked().filter(is_stall).take(MOST_STALLS);
        heads.map(|head| {
            let trace = self.from(head.at + 1).take(TRACE_LINES);
            let trace = trace.take_while(|entry| !is_stall(entry));
            [head].into_iter().chain(trace).collect()
        })
    }

    /// Whether lines are missing somewhere in the middle.
    pub(super) fn has_holes(&self) -> bool {
        self.lines.iter().any(|line| line.torn)
    }

    /// Ranges of memory, ascending, with their nodes.
    pub(super) fn ranges(&self) -> Vec<(Span, Option<u32>)> {
        let log = self.log;
        let mut ranges: Vec<(Span, Option<u32>)> = if !log.node_ranges.is_empty() {
            let rows = log.node_ranges.iter();
            rows.map(|row| (row.span, Some(row.node))).collect()
        } else if log.srat_memory.iter().any(|row| !row.hotplug) {
            let rows = log.srat_memory.iter().filter(|row| !row.hotplug);
            rows.map(|row| (row.span, Some(row.node))).collect()
        } else {
            let (source, rows) = log.memory_rows();
            let rows = rows
                .iter()
                .filter(|row| row.kind == crate::log::E820Kind::Usable);
            let usable = rows.map(|row| (row.span, None)).collect();
            if source == MemorySource::Nothing {
                Vec::new()
            } else {
                usable
            }
        };
        ranges.sort_by_key(|(span, _)| span.start);
        ranges
    }

    fn memory(&self) -> Option<u64> {
        let total = self.marked().find_map(|entry| memory_line(entry.text));
        if let Some((_, total_bytes)) = total {
            return Some(total_bytes);
        }
        let bytes = |span: &Span| span.range().map_or(0, |range| range.bytes());
        let ranges = self.ranges();
        let sum = ranges
            .iter()
            .map(|(span, _)| bytes(span))
            .fold(0, u64::saturating_add);
        (sum > 0).then_some(sum)
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Keys of what cases themselves look for; the first few are what the kernel says when
/// nothing goes on.
pub(super) const KEYS: [&str; 12] = [
    "soft lockup - CPU#",
    "self-detected stall",
    "detected stalls on CPU",
    "hard LOCKUP",
    "detected expedited stalls",
    "blocked for more than",
    "QEMU TCG CPU",
    "QEMU Virtual CPU",
    "Hypervisor detected",
    "Memory: ",
    "Command line:",
    "Kernel command line:",
];
const STALLS: usize = 6;

fn is_stall(entry: &Entry<'_>) -> bool {
    KEYS.iter().take(STALLS).any(|head| entry.has(head))
}
