//! What mail programs, loggers and tools put in front of a kernel's message: [`strip`].
//!
//! | form | put there by |
//! |---|---|
//! | `> > ` | answers by mail |
//! | `<6>` | the kernel, for loggers |
//! | `kern  :info  : ` | `dmesg -x` |
//! | `[    T0]`, `[   C16]`, `[]` | the kernel: caller; no stamp |
//! | `<CPU:0>`, `[0:  swapper/0:    1]`, `.(0)[0:swapper/0]` | kernels of phones: the CPU and its task |
//! | `host kernel: `, behind a date | system logs, journals |
//! | `[2026-11-21 07:00:00.123] ` | recorders of serial lines |
//! | `(d1) ` | Xen, for its first guest |
//!
//! A date is a stamp as well ([`super::stamp`]).

use super::stamp::{self, Stamp, month};

/// A message without what stood in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bare<'t> {
    /// The message.
    pub(super) text: &'t str,
    /// A logger's stamp is damaged: text in front of the message is lost.
    pub(super) torn: bool,
    /// What stood in front of it says that a kernel printed it.
    pub(super) kernel: bool,
    /// The date that stood in front of it.
    pub(super) stamp: Option<Stamp>,
}

/// Takes everything off that is not the kernel's message.
pub(super) fn strip(text: &str) -> Bare<'_> {
    let mut bare = Bare {
        text: text.trim_start(),
        torn: false,
        kernel: false,
        stamp: None,
    };
    // A recorder in front of a logger in front of the kernel.
    for _ in 0..4 {
        let Some(first) = bare.text.bytes().next() else {
            break;
        };
        let before = bare.text.len();
        bare.take(first);
        if bare.text.len() == before {
            break;
        }
    }
    bare
}

impl Bare<'_> {
    /// Takes off one of each thing that may stand in front of a message with this first byte.
    fn take(&mut self, first: u8) {
        self.text = unquoted(self.text);
        let quoted = self.text.len();
        self.text = without_processor(without_priority(self.text));
        self.text = without_facility(self.text);
        self.kernel |= self.text.len() < quoted;
        self.without_brackets();
        if first.is_ascii_digit() || first.is_ascii_uppercase() {
            self.without_date();
        }
        if let Some(logged) = without_logger(self.text) {
            self.torn |= !logged.whole;
            self.kernel |= logged.kernel;
            self.text = logged.text;
        }
        let text = self.text;
        self.text = text.strip_prefix("(d1) ").unwrap_or(text).trim_start();
    }

    /// Caller, a stamp that is empty, the clock of a recorder.
    fn without_brackets(&mut self) {
        let inside = self.text.strip_prefix('[').and_then(|t| t.split_once(']'));
        let Some((inside, rest)) = inside else { return };
        let stamp = stamp::recorder(inside);
        if inside.trim().is_empty() || is_caller(inside.trim()) || stamp.is_some() {
            self.stamp = self.stamp.or(stamp);
            self.text = rest.trim_start();
        }
    }

    /// A date and a time.
    fn without_date(&mut self) {
        let Some((stamp, rest)) = stamp::dated(self.text) else {
            return;
        };
        // Of all that write dates, only `dmesg` writes them like this.
        let date = self.text.split(' ').next().unwrap_or_default();
        self.kernel |= date.contains('T') && date.contains(',');
        self.stamp = self.stamp.or(Some(stamp));
        self.text = rest;
    }
}

/// `T1`, `C16`, `0:      swapper/0:    1`.
fn is_caller(word: &str) -> bool {
    let digits = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    if let Some(id) = word.strip_prefix(['T', 'C']) {
        return digits(id);
    }
    word.split_once(':').is_some_and(|(cpu, task)| {
        let named = task
            .trim_start()
            .starts_with(|c: char| c.is_ascii_lowercase());
        digits(cpu) && cpu.len() <= 3 && named
    })
}

/// `<CPU:0>`, or `.(0)[0:swapper/0]`.
fn without_processor(text: &str) -> &str {
    let digits = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    if let Some((id, rest)) = text.strip_prefix("<CPU:").and_then(|t| t.split_once('>')) {
        return if digits(id) { rest.trim_start() } else { text };
    }
    let inside = text
        .strip_prefix(['.', '-'])
        .and_then(|t| t.strip_prefix('('));
    match inside.and_then(|t| t.split_once(")[")) {
        Some((id, rest)) if digits(id) => match rest.split_once(']') {
            Some((task, rest)) if is_caller(task) => rest.trim_start(),
            _ => text,
        },
        _ => text,
    }
}

/// Without the marks of quoted mail.
pub(super) fn unquoted(text: &str) -> &str {
    let mut text = text;
    while let Some(rest) = text.strip_prefix('>') {
        text = rest.trim_start();
    }
    text
}

fn without_priority(text: &str) -> &str {
    match text.strip_prefix('<').and_then(|t| t.split_once('>')) {
        Some((level, rest))
            if (1..=3).contains(&level.len()) && level.bytes().all(|b| b.is_ascii_digit()) =>
        {
            rest.trim_start()
        }
        _ => text,
    }
}

/// `kern  :info  : `.
fn without_facility(text: &str) -> &str {
    const FACILITIES: [&str; 6] = ["kern", "user", "daemon", "auth", "syslog", "local0"];
    const LEVELS: [&str; 8] = [
        "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug",
    ];
    if !FACILITIES.iter().any(|facility| text.starts_with(facility)) {
        return text;
    }
    let mut parts = text.splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(facility), Some(level), Some(rest))
            if FACILITIES.contains(&facility.trim()) && LEVELS.contains(&level.trim()) =>
        {
            rest.trim_start()
        }
        _ => text,
    }
}

/// What stands behind a logger's words.
struct Logged<'t> {
    text: &'t str,
    /// All of what a logger puts there was there.
    whole: bool,
    /// The kernel spoke.
    kernel: bool,
}

/// `host kernel: `.
fn without_logger(text: &str) -> Option<Logged<'_>> {
    let mut words = text.splitn(3, ' ');
    let host = words.next()?;
    let tag = words.next()?;
    let is_kernel = tag == "kernel:";
    let is_systemd = tag.starts_with("systemd") && tag.ends_with(':');
    if host.is_empty() || host.len() > 80 || host.ends_with(':') || !(is_kernel || is_systemd) {
        return None;
    }
    // Torn: what is left of a month runs into what is left of a host.
    let whole = host.get(..3).and_then(month).is_none();
    Some(Logged {
        text: if is_kernel {
            words.next().unwrap_or_default()
        } else {
            // Which part of systemd spoke is part of the message.
            text.get(host.len() + 1..)?
        },
        whole,
        kernel: is_kernel,
    })
}

/// Whether `text` stands for lines that were left out.
pub(crate) fn is_omission(text: &str) -> bool {
    let bare = text.trim_matches(|c: char| c.is_whitespace() || "[]<>()-=*".contains(c));
    let dots = !text.is_empty()
        && text.contains(['.', '…'])
        && text
            .chars()
            .all(|c| matches!(c, '.' | '…' | '[' | ']' | ' ' | '<' | '>' | '(' | ')'));
    dots || (text.len() < 40
        && [
            "snip", "snipped", "cut", "omitted", "skip", "skipped", "trimmed",
        ]
        .iter()
        .any(|word| bare.eq_ignore_ascii_case(word)))
}

/// Whether `text` is a command that shows only some lines of a log.
pub(super) fn is_filter(text: &str) -> bool {
    let shows = text.contains("dmesg") || text.contains("journalctl") || text.contains("/var/log");
    shows
        && [" grep ", " egrep ", "|grep", " awk ", " sed "]
            .iter()
            .any(|word| text.contains(word))
}

/// Where a command begins that was typed behind a prompt, at the latest.
const MOST_PROMPT_BYTES: usize = 120;

/// Whether `text` is a shell's prompt with a command that shows a log.
pub(crate) fn is_prompt(text: &str) -> bool {
    let mut begin = text.bytes().take(MOST_PROMPT_BYTES);
    let Some(prompt) = begin.position(|byte| matches!(byte, b'$' | b'#')) else {
        return false;
    };
    let command = text.find("dmesg").or_else(|| text.find("journalctl"));
    command.is_some_and(|command| prompt < command && command < MOST_PROMPT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_front_comes_off() {
        for (text, expected, torn) in [
            ("Linux version 6.1", "Linux version 6.1", false),
            ("> > ASPM,", "ASPM,", false),
            ("<6>a", "a", false),
            ("kern  :warn  : a: b", "a: b", false),
            ("[    T0] a", "a", false),
            ("[   C16]  a", "a", false),
            ("[] a", "a", false),
            ("[2026-11-21 07:00:00.123] a", "a", false),
            ("[07:00:00.123] a", "a", false),
            ("Nov 21 07:00:00 host kernel: a", "a", false),
            ("Nov  1 07:00:00.123456 host kernel: a", "a", false),
            (
                "2026-11-21T07:00:00.123456+01:00 host kernel: a",
                "a",
                false,
            ),
            ("2026-11-21T07:00:00,123456+01:00 a", "a", false),
            ("2026-11-21 07:00:00 a", "a", false),
            ("host kernel: a", "a", false),
            ("Augf98 kernel: a", "a", true),
            (
                "Nov 21 07:00:00 host systemd[1]: Reached target x",
                "systemd[1]: Reached target x",
                false,
            ),
            ("systemd[1]: Started x", "systemd[1]: Started x", false),
            ("(d1) a", "a", false),
            ("<CPU:0> a", "a", false),
            ("<0>.(0)[0:swapper/0]a", "a", false),
            ("-(3)[211:kworker/3:1]a", "a", false),
            ("[0:      swapper/0:    1] a", "a", false),
            ("[8086:1237] type 00", "[8086:1237] type 00", false),
            ("Sat 2026-11-21 07:00:00 UTC host kernel: a", "a", false),
            ("1795244400.123456 host kernel: a", "a", false),
            (
                "Booting paravirtualized kernel: x",
                "Booting paravirtualized kernel: x",
                false,
            ),
            (
                "[mem 0x1000-0x2000] available",
                "[mem 0x1000-0x2000] available",
                false,
            ),
            ("2026", "2026", false),
            ("é", "é", false),
        ] {
            let bare = strip(text);
            assert_eq!((bare.text, bare.torn), (expected, torn), "{text}");
        }
    }

    #[test]
    fn what_was_left_out_is_seen() {
        for text in [
            "...",
            "[...]",
            "[ ... ]",
            "<snip>",
            "[snip]",
            "-- cut --",
            "…",
        ] {
            assert!(is_omission(text), "{text}");
        }
        for text in ["", "[]", "..TIMER: vector", "Cut", "a ..."] {
            assert_eq!(is_omission(text), text == "Cut", "{text}");
        }
        assert!(is_filter("root@h:~# dmesg | grep -i sev"));
        assert!(!is_filter("dmesg"));
        assert!(is_prompt("root@h:~# dmesg") && !is_prompt("dmesg"));
    }
}
