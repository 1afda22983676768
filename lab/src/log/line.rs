//! From the bytes of a log to its messages.
//!
//! A serial line carries more than the kernel's words: escape codes, carriage
//! returns, bytes that are no text, a boot loader's remains in front of a stamp,
//! two messages on one line because a newline was lost. [`messages`] takes all of
//! that off and hands out one [`Line`] a message. What stamps look like is in
//! [`super::stamp`], what stands in front of messages in [`super::prefix`].

use super::prefix::{self, Bare};
use super::problem::LogProblem;
use super::stamp::{Stamp, stamp};

/// Bytes of a message that are looked at; kernels print at most about a thousand.
const MESSAGE_BYTES: usize = 4096;

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number in the log, from 1.
    pub number: usize,
    /// Time since the kernel's clock began; in a log that only has the time between lines
    /// or the calendar's, since its first line.
    pub stamp_ns: Option<u64>,
    /// The stamp is the calendar's, in whole seconds.
    pub coarse: bool,
    /// Text in front of it is lost or was left out: the time since the line before is
    /// not what passed between two messages.
    pub torn: bool,
    /// Its stamp, or what stands in front of it, is a kernel's.
    pub kernel: bool,
    /// The message, without leading white space.
    pub text: String,
}

/// All messages of `log`, whatever they speak of.
///
/// ```
/// let lines = firstlight_lab::log::lines(b"firmware\n[    0.500] one\r\n[    0.700] two\n");
/// assert_eq!(lines[0].stamp_ns, None);
/// assert_eq!((lines[2].stamp_ns, lines[2].text.as_str()), (Some(700_000_000), "two"));
/// ```
pub fn lines(log: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    messages(log, &mut Vec::new(), |line, _| {
        lines.push(line);
        true
    });
    lines
}

/// Calls `each` with every message of `log`, in order, until it says stop.
pub(super) fn messages(
    log: &[u8],
    problems: &mut Vec<LogProblem>,
    mut each: impl FnMut(Line, &mut Vec<LogProblem>) -> bool,
) {
    let mut reader = Reader::default();
    for (index, raw) in log.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let text = clean(raw);
        // Comments are not the kernel's.
        if text.starts_with('#') {
            reader.remark(&text);
            continue;
        }
        for piece in text.split('\r') {
            let went_on = split_at_stamps(piece, |stamp, message| {
                let Some(line) = reader.line(number, stamp, message, problems) else {
                    return true;
                };
                each(line, problems)
            });
            if !went_on {
                return;
            }
        }
    }
}

/// What has been seen of a log so far.
#[derive(Default)]
struct Reader {
    /// The sum of the times between lines, where a log has these.
    since_ns: u64,
    /// The kernel's own stamps were seen, so that the calendar's say nothing new.
    has_kernel: bool,
    /// The calendar's first stamp.
    first_second: Option<u64>,
    /// The next line does not follow the one before.
    torn: bool,
    /// A command left lines out between all that follow.
    filtered: bool,
}

impl Reader {
    /// A line that is none of the kernel's.
    fn remark(&mut self, text: &str) {
        if prefix::is_filter(text) || prefix::is_prompt(text) {
            self.filtered = prefix::is_filter(text);
            self.torn = true;
        }
    }

    fn line(
        &mut self,
        number: usize,
        stamp: Option<Stamp>,
        message: &str,
        problems: &mut Vec<LogProblem>,
    ) -> Option<Line> {
        let Bare { text, torn, kernel } = prefix::strip(message);
        let stamped = match stamp {
            Some(Stamp::Kernel(_) | Stamp::Since(_)) => true,
            // Web servers have such stamps, too, with a level in brackets behind them.
            Some(Stamp::Calendar(_)) => !text.starts_with('['),
            _ => false,
        };
        let text = text.trim_end();
        self.torn |= torn;
        let (stamp_ns, coarse) = self.clock(stamp);
        if text.is_empty() {
            return None;
        }
        let kept = start_of(text);
        if kept.len() < text.len() {
            let all = text.len();
            let what = format!("{all} bytes long, the first {MESSAGE_BYTES} were read");
            problems.push(LogProblem::new(number, what, kept));
        }
        if stamp_ns.is_none() {
            self.remark(kept);
            self.torn |= prefix::is_omission(kept);
        }
        // A line without a time hands on what is known to the next that has one.
        let torn = self.torn || self.filtered;
        self.torn &= stamp_ns.is_none();
        Some(Line {
            number,
            stamp_ns,
            coarse,
            torn,
            kernel: kernel || stamped,
            text: kept.to_owned(),
        })
    }

    fn clock(&mut self, stamp: Option<Stamp>) -> (Option<u64>, bool) {
        match stamp {
            None => (None, false),
            Some(Stamp::Kernel(ns)) => {
                self.has_kernel = true;
                (Some(ns), false)
            }
            Some(Stamp::Since(ns)) => {
                self.since_ns = self.since_ns.saturating_add(ns);
                (Some(self.since_ns), false)
            }
            Some(Stamp::Minute) => {
                self.torn = true;
                (None, false)
            }
            Some(Stamp::Calendar(_)) if self.has_kernel => (None, false),
            Some(Stamp::Calendar(second)) => {
                let first = *self.first_second.get_or_insert(second);
                let ns = second.checked_sub(first);
                (ns.and_then(|s| s.checked_mul(1_000_000_000)), true)
            }
        }
    }
}

/// As much of `message` as is looked at.
fn start_of(message: &str) -> &str {
    // The last boundary between characters is at most three bytes below.
    let ends = (0..=MESSAGE_BYTES.min(message.len())).rev();
    ends.take(4)
        .find_map(|end| message.get(..end))
        .unwrap_or_default()
}

/// Text without escape sequences and control characters; tabs and carriage returns stay.
fn clean(raw: &[u8]) -> String {
    let mut kept = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            0x1b => match bytes.next() {
                // Control sequence: parameters, then one final byte.
                Some(b'[') => while bytes.next().is_some_and(|b| !(0x40..=0x7e).contains(&b)) {},
                // Operating system command: up to a bell or the start of the next escape.
                Some(b']') => {
                    while bytes.peek().is_some_and(|&b| b != 0x07 && b != 0x1b) {
                        bytes.next();
                    }
                }
                _ => {}
            },
            b'\t' | b'\r' => kept.push(byte),
            0..0x20 | 0x7f => {}
            _ => kept.push(byte),
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// What may be shown on a terminal: no escape sequence, no control character.
pub(crate) fn clean_text(raw: &[u8]) -> String {
    let text = clean(raw);
    text.replace('\t', " ")
        .replace(|c: char| c.is_control(), "")
}

/// Calls `each` with the messages of a line and their stamps, until it says stop; text in
/// front of the first stamp is one too. Xen's own lines have a clock of its own.
fn split_at_stamps(text: &str, mut each: impl FnMut(Option<Stamp>, &str) -> bool) -> bool {
    if text.starts_with("(XEN)") {
        return each(None, text);
    }
    let mut current = None;
    let mut start = 0;
    let mut at = 0;
    while let Some(offset) = text[at..].find('[') {
        let open = at + offset;
        if let Some((stamp, after)) = stamp(&text[open..]) {
            if !each(current, &text[start..open]) {
                return false;
            }
            current = Some(stamp);
            start = open + after;
            at = start;
        } else {
            at = open + 1;
        }
    }
    each(current, &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &[u8]) -> (Vec<Line>, Vec<LogProblem>) {
        let mut problems = Vec::new();
        let mut lines = Vec::new();
        messages(log, &mut problems, |line, _| {
            lines.push(line);
            true
        });
        (lines, problems)
    }

    #[test]
    fn stamps_of_every_kind_come_off() {
        let log = b"[    0.000000] a\n[0.033176] b\n[] c\nd\n[    1.5000][    T0] e\n\
            [Mon Nov 21 07:00:00 2026] f\n<6>[    2.000001] g\n\
            Nov 21 07:00:00 host kernel: h\n[99999999999999999999.000000] i\n";
        let (lines, problems) = all(log);
        let seen: Vec<_> = lines
            .iter()
            .map(|line| (line.stamp_ns, line.text.as_str()))
            .collect();
        let expected = [
            (Some(0), "a"),
            (Some(33_176_000), "b"),
            (None, "c"),
            (None, "d"),
            (Some(1_500_000_000), "e"),
            (None, "f"),
            (Some(2_000_001_000), "g"),
            (None, "h"),
            (None, "[99999999999999999999.000000] i"),
        ];
        assert_eq!(seen, expected);
        assert!(problems.is_empty());
    }

    #[test]
    fn noise_around_and_between_messages_does_not_hide_them() {
        let log = b"\x1bc\x1b[?7l\x1b[2J[    0.1000] Linux\x00 \xff\r\nhalf[    0.2000] x\r[    0.3000] y";
        let (lines, _) = all(log);
        let texts: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.text.as_str()))
            .collect();
        assert_eq!(
            texts,
            [(1, "Linux \u{fffd}"), (2, "half"), (2, "x"), (2, "y")]
        );
    }

    #[test]
    fn an_endless_line_is_cut_and_said_so() {
        let mut log = "é[".repeat(500_000).into_bytes();
        log.extend_from_slice(b"\n[    0.1000] after");
        let (lines, problems) = all(&log);
        assert_eq!(lines.last().map(|line| line.text.as_str()), Some("after"));
        assert_eq!((problems.len(), problems[0].line), (1, 1));
        // A line that only seems endless, because its newlines were lost, is all read.
        let (lines, problems) = all("[    0.1000] message".repeat(100_000).as_bytes());
        assert_eq!((lines.len(), problems.len()), (100_000, 0));
    }
}
