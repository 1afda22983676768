//! From the bytes of a log to its messages.
//!
//! A serial line carries more than the kernel's words: escape codes, carriage
//! returns, bytes that are no text, a boot loader's remains in front of a stamp,
//! two messages on one line because a newline was lost. [`messages`] takes all of
//! that off and hands out one [`Line`] a message. What stamps look like is in
//! [`super::stamp`], what stands in front of messages in [`super::prefix`].

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

use super::json;
use super::prefix;
use super::problem::LogProblem;
use super::stamp::{Stamp, stamp};

/// Bytes of a message that are looked at; kernels print at most about a thousand.
const MESSAGE_BYTES: usize = 4096;

/// One message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// Line number in the log, from 1.
    pub number: usize,
    /// Time since the kernel's clock began; in a log that only has the time between lines
    /// or another clock's, since its first line.
    pub stamp_ns: Option<u64>,
    /// The stamp is the calendar's, in whole seconds.
    pub coarse: bool,
    /// Text in front of it is lost or was left out: the time since the line before is
    /// not what passed between two messages.
    pub torn: bool,
    /// Its stamp, or what stands in front of it, is a kernel's.
    pub kernel: bool,
    /// The message, without leading white space.
    pub text: Cow<'t, str>,
}

impl Line<'_> {
    /// A line that outlives its log.
    #[must_use]
    pub fn into_owned(self) -> Line<'static> {
        Line {
            number: self.number,
            stamp_ns: self.stamp_ns,
            coarse: self.coarse,
            torn: self.torn,
            kernel: self.kernel,
            text: Cow::Owned(self.text.into_owned()),
        }
    }
}

/// All messages of `log`, whatever they speak of.
///
/// ```
/// let lines = firstlight_lab::log::lines(b"firmware\n[    0.500] one\r\n[    0.700] two\n");
/// assert_eq!(lines[0].stamp_ns, None);
/// assert_eq!((lines[2].stamp_ns, &*lines[2].text), (Some(700_000_000), "two"));
/// ```
pub fn lines(log: &[u8]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    messages(log, &mut Vec::new(), |line, _| {
        lines.push(line);
        true
    });
    lines
}

/// What is called with each message; whether the next one is wanted.
trait Each<'t>: FnMut(Line<'t>, &mut Vec<LogProblem>) -> bool {}
impl<'t, F: FnMut(Line<'t>, &mut Vec<LogProblem>) -> bool> Each<'t> for F {}

/// Calls `each` with every message of `log`, in order, until it says stop.
pub(super) fn messages<'t>(
    log: &'t [u8],
    problems: &mut Vec<LogProblem>,
    mut each: impl FnMut(Line<'t>, &mut Vec<LogProblem>) -> bool,
) {
    let mut reader = Reader::default();
    if json::begins(log) {
        reader.json(log, problems, &mut each);
        return;
    }
    let (mut start, mut number) = (0, 0);
    for end in memchr_iter(b'\n', log).chain([log.len()]) {
        number += 1;
        let raw = log.get(start..end).unwrap_or_default();
        start = end + 1;
        if !reader.raw(number, raw, problems, &mut each) {
            return;
        }
    }
}

/// What has been seen of a log so far.
#[derive(Default)]
struct Reader {
    /// The sum of the times between lines, where a log has these.
    since_ns: u64,
    /// The kernel's own stamps were seen, so that others say nothing new.
    has_kernel: bool,
    /// The first stamp of another clock.
    first_ns: Option<u64>,
    /// The next line does not follow the one before.
    torn: bool,
    /// A command left lines out between all that follow.
    filtered: bool,
    /// The line before came from `/dev/kmsg`, which says more of a message in lines of their own.
    kmsg: bool,
    /// Bytes that are zero were seen and said.
    has_zeros: bool,
}

impl Reader {
    /// The messages of a log in JSON.
    fn json<'t>(
        &mut self,
        log: &'t [u8],
        problems: &mut Vec<LogProblem>,
        each: &mut impl Each<'t>,
    ) {
        for message in json::Messages::new(log) {
            let kernel = message.kernel;
            let mut hand_on = |text: &str, stamp| {
                let line = self.line(message.number, stamp, text, problems);
                line.map(|line| Line { kernel, ..line }.into_owned())
            };
            let lines: Vec<Line<'_>> = match message.text {
                Cow::Borrowed(text) if !text.contains(|c: char| c.is_control()) => {
                    let line = self.line(message.number, message.stamp, text, problems);
                    line.map(|line| Line { kernel, ..line })
                        .into_iter()
                        .collect()
                }
                text => {
                    let texts = text.split('\n').map(|text| clean(text.as_bytes()));
                    texts
                        .filter_map(|text| hand_on(&text, message.stamp))
                        .collect()
                }
            };
            for line in lines {
                if !each(line, problems) {
                    return;
                }
            }
        }
    }

    /// The messages of a line; whether the next one is wanted.
    fn raw<'t>(
        &mut self,
        number: usize,
        raw: &'t [u8],
        problems: &mut Vec<LogProblem>,
        each: &mut impl Each<'t>,
    ) -> bool {
        if !self.has_zeros && memchr(0, raw).is_some() {
            self.has_zeros = true;
            let what = "bytes that are zero are left out, here and wherever they come again";
            problems.push(LogProblem::new(number, what, &clean(raw)));
        }
        match clean(raw) {
            Cow::Borrowed(text) => self.pieces(number, text, problems, each),
            Cow::Owned(text) => self.pieces(number, &text, problems, &mut |line: Line<'_>,
                                                                           problems: &mut Vec<
                LogProblem,
            >| {
                each(line.into_owned(), problems)
            }),
        }
    }

    fn pieces<'t>(
        &mut self,
        number: usize,
        text: &'t str,
        problems: &mut Vec<LogProblem>,
        each: &mut impl Each<'t>,
    ) -> bool {
        // Comments are not the kernel's.
        if text.starts_with('#') {
            self.remark(text);
            return true;
        }
        let more = std::mem::take(&mut self.kmsg) && text.starts_with(' ');
        if more || kmsg(text).is_some() {
            self.kmsg = true;
        }
        if more {
            return true;
        }
        let mut pieces = text.split('\r');
        pieces.all(|piece| {
            split_at_stamps(piece, |stamp, message| {
                match self.line(number, stamp, message, problems) {
                    Some(line) => each(line, problems),
                    None => true,
                }
            })
        })
    }

    /// A line that is none of the kernel's.
    fn remark(&mut self, text: &str) {
        if prefix::is_filter(text) || prefix::is_prompt(text) {
            self.filtered = prefix::is_filter(text);
            self.torn = true;
        }
    }

    fn line<'t>(
        &mut self,
        number: usize,
        stamp: Option<Stamp>,
        message: &'t str,
        problems: &mut Vec<LogProblem>,
    ) -> Option<Line<'t>> {
        let bare = prefix::strip(message);
        let stamped = match stamp {
            Some(Stamp::Kernel(_) | Stamp::Since(_)) => true,
            // Web servers have such stamps, too, with a level in brackets behind them.
            Some(Stamp::Host(_) | Stamp::Second(_)) => !bare.text.starts_with('['),
            _ => false,
        };
        let text = bare.text.trim_end();
        self.torn |= bare.torn;
        let (stamp_ns, coarse) = self.clock(stamp.or(bare.stamp));
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
            kernel: bare.kernel || stamped,
            text: Cow::Borrowed(kept),
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
            Some(Stamp::Host(_) | Stamp::Second(_)) if self.has_kernel => (None, false),
            Some(Stamp::Host(ns)) => {
                let first = *self.first_ns.get_or_insert(ns);
                (ns.checked_sub(first), false)
            }
            Some(Stamp::Second(ns)) => {
                let first = *self.first_ns.get_or_insert(ns);
                (ns.checked_sub(first), true)
            }
        }
    }
}

/// What a line of `/dev/kmsg` says, and when: `6,339,5140900,-;text`, by a netconsole with
/// the kernel's release in front.
fn kmsg(text: &str) -> Option<(Stamp, &str)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (head, message) = text.split_once(';')?;
    let mut fields = head.split(',');
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut priority = fields.next()?;
    if priority.contains('.') {
        priority = fields.next()?;
    }
    let sequence = fields.next()?;
    let micros = fields.next().filter(|text| digits(text))?;
    fields.next()?;
    let stamp = Stamp::Kernel(micros.parse::<u64>().ok()?.checked_mul(1000)?);
    (digits(priority) && digits(sequence)).then_some((stamp, message))
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
fn clean(raw: &[u8]) -> Cow<'_, str> {
    let dirty = |byte: u8| (byte < 0x20 && byte != b'\t' && byte != b'\r') || byte == 0x7f;
    // Without an early end, so that many bytes are looked at in one step.
    if !raw.iter().fold(false, |any, byte| any | dirty(*byte)) {
        return str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    }
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
            byte if dirty(byte) => {}
            byte => kept.push(byte),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&kept).into_owned())
}

/// What may be shown on a terminal: no escape sequence, no control character.
pub(crate) fn clean_text(raw: &[u8]) -> String {
    let text = clean(raw);
    text.replace('\t', " ")
        .replace(|c: char| c.is_control(), "")
}

/// Calls `each` with the messages of a line and their stamps, until it says stop; text in
/// front of the first stamp is one too. Xen's own lines have a clock of its own.
fn split_at_stamps<'t>(
    text: &'t str,
    mut each: impl FnMut(Option<Stamp>, &'t str) -> bool,
) -> bool {
    if text.starts_with("(XEN)") {
        return each(None, text);
    }
    if let Some((stamp, message)) = kmsg(text) {
        return each(Some(stamp), message);
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

    fn all(log: &[u8]) -> (Vec<Line<'_>>, Vec<LogProblem>) {
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
            .map(|line| (line.stamp_ns, &*line.text))
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
            .map(|line| (line.number, &*line.text))
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
        assert_eq!(lines.last().map(|line| &*line.text), Some("after"));
        assert_eq!((problems.len(), problems[0].line), (1, 1));
        // A line that only seems endless, because its newlines were lost, is all read.
        let log = "[    0.1000] message".repeat(100_000);
        let (lines, problems) = all(log.as_bytes());
        assert_eq!((lines.len(), problems.len()), (100_000, 0));
    }
}
