//! A boot as rules look at it: [`Case`].
//!
//! Messages that mail programs folded are whole again; each has the time since the line
//! before it, where that is a span at all.

use aho_corasick::AhoCorasick;

use crate::gaps::spans;
use crate::log::{Boot, KernelLog, Line, MemorySource, Span, is_omission, is_prompt};

/// Most bytes of a message put together from folded lines.
const MOST_FOLDED: usize = 1024;
/// Lines behind the head of a stall that still belong to it.
const TRACE_LINES: usize = 120;
/// Stalls that are looked at.
const MOST_STALLS: usize = 100;

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The line it begins in.
    pub(super) line: usize,
    /// When it was printed, where its stamp is a time.
    pub(super) stamp_ns: Option<u64>,
    /// Time since the line before that has a stamp; `None` where that is no span.
    pub(super) since_ns: Option<u64>,
    /// Text in front of it is missing.
    pub(super) torn: bool,
    /// The message.
    pub(super) text: String,
}

impl Entry {
    pub(super) fn starts(&self, start: &str) -> bool {
        self.text.starts_with(start)
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

/// A boot.
pub(super) struct Case<'b> {
    /// What its kernel said of the machine.
    pub(super) log: &'b KernelLog,
    /// Lines as they came, for rules about stamps.
    pub(super) lines: &'b [Line],
    /// Messages in order.
    pub(super) entries: Vec<Entry>,
    /// Indexes of those with a key of some rule.
    marked: Vec<usize>,
    /// Spans that may matter: index of the message before, of the message, length.
    spans: Vec<(usize, usize, u64)>,
    /// Memory of the machine, by the best of what the log shows.
    pub(super) memory_bytes: Option<u64>,
    /// An emulator ran it, whose time is no measure of a machine.
    pub(super) emulated: bool,
}

impl<'b> Case<'b> {
    pub(super) fn new(boot: &'b Boot, keys: &AhoCorasick) -> Self {
        let entries = entries(&boot.lines);
        let marked = entries.iter().enumerate();
        let marked = marked.filter(|(_, entry)| keys.is_match(&entry.text));
        let mut case = Self {
            log: &boot.log,
            lines: &boot.lines,
            marked: marked.map(|(at, _)| at).collect(),
            spans: long_spans(&entries),
            entries,
            memory_bytes: None,
            emulated: false,
        };
        case.memory_bytes = case.memory();
        case.emulated = case.any_of(&["QEMU TCG CPU"]).is_some();
        case
    }

    /// Messages with a key of some rule, in order.
    pub(super) fn marked(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.marked.iter().filter_map(|at| self.entries.get(*at))
    }

    /// The first of these for which `is` holds.
    pub(super) fn first(&self, is: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        self.marked().find(|entry| is(entry))
    }

    /// The message that begins in line `number`.
    pub(super) fn entry_at(&self, number: usize) -> Option<&Entry> {
        let at = self.entries.partition_point(|entry| entry.line < number);
        self.entries.get(at).filter(|entry| entry.line == number)
    }

    /// The first message with one of `parts`.
    pub(super) fn any_of(&self, parts: &[&str]) -> Option<&Entry> {
        self.first(|entry| parts.iter().any(|part| entry.has(part)))
    }

    /// Spans of at least `least_ns`: the message before, the message that ends it, its length.
    /// Emulated time is no measure, and has none.
    pub(super) fn slow(&self, least_ns: u64) -> impl Iterator<Item = (&Entry, &Entry, u64)> {
        let spans = if self.emulated {
            &[]
        } else {
            self.spans.as_slice()
        };
        let spans = spans.iter().filter(move |span| span.2 >= least_ns);
        spans.filter_map(|(from, to, ns)| {
            Some((self.entries.get(*from)?, self.entries.get(*to)?, *ns))
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
    pub(super) fn command_line(&self) -> Option<&Entry> {
        self.first(|entry| entry.starts("Command line:") || entry.starts("Kernel command line:"))
    }

    /// Major and minor version of the kernel.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let release = self.log.release.as_deref()?;
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Stalls the kernel complained about: the head, and the messages that belong to it.
    pub(super) fn stalls(&self) -> impl Iterator<Item = &[Entry]> {
        let heads = self.marked.iter().copied();
        let heads = heads.filter(|at| self.entries.get(*at).is_some_and(is_stall));
        heads.take(MOST_STALLS).filter_map(|at| {
            let rest = self.entries.get(at..)?;
            let mut others = rest.iter().skip(1).take(TRACE_LINES);
            let next = others.position(is_stall);
            rest.get(..next.map_or(TRACE_LINES.min(rest.len()), |next| next + 1))
        })
    }

    /// Whether lines are missing somewhere in the middle.
    pub(super) fn has_holes(&self) -> bool {
        self.entries.iter().any(|entry| entry.torn)
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
        let total = self.marked().find_map(|entry| memory_line(&entry.text));
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

/// Available and all memory of `Memory: 3375148K/33511684K available (...)`, in bytes.
pub(super) fn memory_line(text: &str) -> Option<(u64, u64)> {
    let rest = text.strip_prefix("Memory: ")?;
    let (available, rest) = rest.split_once(['K', 'k'])?;
    let rest = rest.strip_prefix('/')?;
    let (total, _) = rest.split_once(['K', 'k'])?;
    let kib = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1024);
    Some((kib(available)?, kib(total)?))
}

/// The first number behind `key` in `text`.
pub(super) fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// The number in front of `key` in `text`.
pub(super) fn number_before(text: &str, key: &str) -> Option<u64> {
    let (front, _) = text.split_once(key)?;
    let front = front.trim_end();
    let digits = front.bytes().rev().take_while(u8::is_ascii_digit).count();
    front.get(front.len() - digits..)?.parse().ok()
}

/// A size of the command line: `2G`, `512M`, `0x1000`; in bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'x' | 'a'..='f'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let shift = match unit.chars().next().map(|c| c.to_ascii_uppercase()) {
        None => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some('P') => 50,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift)
}

/// Keys of what cases themselves look for; the first few are what the kernel says when
/// nothing goes on.
pub(super) const KEYS: [&str; 10] = [
    "soft lockup - CPU#",
    "self-detected stall",
    "detected stalls on CPU",
    "hard LOCKUP",
    "detected expedited stalls",
    "blocked for more than",
    "QEMU TCG CPU",
    "Memory: ",
    "Command line:",
    "Kernel command line:",
];
const STALLS: usize = 6;

fn is_stall(entry: &Entry) -> bool {
    KEYS.iter().take(STALLS).any(|head| entry.has(head))
}

/// Spans of at least a tenth of a second; what is shorter matters to no rule.
fn long_spans(entries: &[Entry]) -> Vec<(usize, usize, u64)> {
    const LEAST_NS: u64 = 100_000_000;
    let mut before = None;
    let span = |(at, entry): (usize, &Entry)| {
        entry.stamp_ns?;
        let from = before.replace(at)?;
        let ns = entry.since_ns.filter(|ns| *ns >= LEAST_NS)?;
        Some((from, at, ns))
    };
    entries.iter().enumerate().filter_map(span).collect()
}

fn entries(lines: &[Line]) -> Vec<Entry> {
    let stamped = lines.iter().filter(|line| line.stamp_ns.is_some()).count();
    let folds = stamped * 2 > lines.len();
    let mut since = vec![None; lines.len()];
    for (_, to, ns) in spans(lines) {
        if let Some(slot) = since.get_mut(to) {
            *slot = Some(ns);
        }
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(lines.len());
    let mut columns = 0;
    for (line, since_ns) in lines.iter().zip(since) {
        if let Some(before) = entries.last_mut()
            && folds
            && before.stamp_ns.is_some()
            && goes_on(line, columns)
            && before.text.len() + line.text.len() < MOST_FOLDED
        {
            before.text.push(' ');
            before.text.push_str(&line.text);
            columns = line.text.len();
            continue;
        }
        columns = line.text.len() + STAMP_COLUMNS;
        entries.push(Entry {
            line: line.number,
            stamp_ns: line.stamp_ns,
            since_ns,
            torn: line.torn,
            text: line.text.clone(),
        });
    }
    entries
}

/// Columns that a stamp takes.
const STAMP_COLUMNS: usize = 15;
/// Columns after which programs fold, at least.
const FOLD_COLUMNS: usize = 70;

/// Whether `line` is the rest of a line of so many columns: it has no stamp, and its first
/// word would not have fitted there.
fn goes_on(line: &Line, columns: usize) -> bool {
    let word = line.text.split(' ').next().unwrap_or_default();
    line.stamp_ns.is_none()
        && columns + 1 + word.len() >= FOLD_COLUMNS
        && !is_omission(&line.text)
        && !is_prompt(&line.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::boots;

    #[test]
    fn folded_messages_are_whole_again() {
        let boots = boots(
            b"> [1.0000] software IO TLB: mapped [mem \n\
              > 0x0000001df9c00000-0x0000001ff9c00000] (8192MB)\n> [2.0000] b\nother\n[2.1000] c\n",
        );
        let case = Case::new(&boots[0], crate::doctor::rules::keys());
        let texts: Vec<&str> = case.entries.iter().map(|entry| &*entry.text).collect();
        let whole = "software IO TLB: mapped [mem 0x0000001df9c00000-0x0000001ff9c00000] (8192MB)";
        assert_eq!(texts, [whole, "b", "other", "c"]);
        assert_eq!(case.entries[1].since_ns, Some(1_000_000_000));
    }

    #[test]
    fn sizes_and_figures() {
        for (text, bytes) in [
            ("2G", Some(2 << 30)),
            ("512M@64M", Some(512 << 20)),
            ("0x1000", Some(4096)),
            ("nopentium", None),
            ("", None),
            ("99999999999G", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
        assert_eq!(number_after("losing 2048MB of RAM", "losing"), Some(2048));
        let memory = memory_line("Memory: 3375148K/33511684K available (1K kernel code)");
        assert_eq!(memory, Some((3_375_148 << 10, 33_511_684 << 10)));
        assert_eq!(memory_line("Memory: x"), None);
    }
}
