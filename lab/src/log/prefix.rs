//! What mail programs, loggers and tools put in front of a kernel's message: [`strip`].
//!
//! | form | put there by |
//! |---|---|
//! | `> > ` | answers by mail |
//! | `<6>` | the kernel, for loggers |
//! | `kern  :info  : ` | `dmesg -x` |
//! | `[    T0]`, `[   C16]`, `[]` | the kernel: caller; no stamp |
//! | `Nov 21 07:00:00 host kernel: ` | system logs |
//! | `2026-11-21T07:00:00.123456+01:00 host kernel: ` | journals, newer system logs, `dmesg --time-format iso` |
//! | `[2026-11-21 07:00:00.123] ` | recorders of serial lines |
//! | `(d1) ` | Xen, for its first guest |

use super::stamp::{clock, month};

/// A message without what stood in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bare<'t> {
    /// The message.
    pub(super) text: &'t str,
    /// A logger's stamp is damaged: text in front of the message is lost.
    pub(super) torn: bool,
    /// What stood in front of it says that a kernel printed it.
    pub(super) kernel: bool,
}

/// Takes everything off that is not the kernel's message.
pub(super) fn strip(text: &str) -> Bare<'_> {
    let mut text = text.trim_start();
    let (mut torn, mut kernel) = (false, false);
    // A recorder in front of a logger in front of the kernel.
    for _ in 0..4 {
        let before = text.len();
        text = unquoted(text);
        let quoted = text.len();
        text = without_priority(text);
        text = without_facility(text);
        kernel |= text.len() < quoted;
        text = without_brackets(text);
        text = without_date(text);
        if let Some(logged) = without_logger(text) {
            torn |= !logged.whole;
            kernel |= logged.kernel;
            text = logged.text;
        }
        text = text.strip_prefix("(d1) ").unwrap_or(text).trim_start();
        if text.len() == before {
            break;
        }
    }
    Bare { text, torn, kernel }
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

/// Caller, a stamp that is empty, the clock of a recorder.
fn without_brackets(text: &str) -> &str {
    let Some((inside, rest)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) else {
        return text;
    };
    let word = inside.trim();
    let caller = word
        .strip_prefix(['T', 'C'])
        .is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()));
    let recorder = word.len() <= 40
        && (word.split([' ', 'T']).next_back().and_then(clock).is_some()
            || calendar(word).is_some());
    if word.is_empty() || caller || recorder {
        rest.trim_start()
    } else {
        text
    }
}

/// `Mon Nov 21 07:00:00 2026`.
fn calendar(word: &str) -> Option<()> {
    let mut words = word.split_ascii_whitespace();
    let day = words.next()?;
    month(words.next()?)?;
    let _: u8 = words.next()?.parse().ok()?;
    clock(words.next()?)?;
    (day.len() == 3).then_some(())
}

/// `2026-11-21T07:00:00,123456+01:00 ` or `Nov 21 07:00:00 `, where a logger's name follows or nothing.
fn without_date(text: &str) -> &str {
    let Some((first, rest)) = text.split_once(' ') else {
        return text;
    };
    let digits = first
        .get(..4)
        .is_some_and(|year| year.bytes().all(|b| b.is_ascii_digit()));
    if digits && first.len() <= 40 {
        if let Some((date, time)) = first.split_once('T')
            && date.len() == 10
            && time.get(..8).and_then(clock).is_some()
        {
            return rest.trim_start();
        }
        if first.len() == 10 && first.matches('-').count() == 2 {
            return match rest.split_once(' ') {
                Some((time, rest)) if clock(time).is_some() => rest.trim_start(),
                _ => text,
            };
        }
    }
    if month(first).is_none() {
        return text;
    }
    let rest = rest.trim_start();
    let Some((day, rest)) = rest.split_once(' ') else {
        return text;
    };
    let Some((time, rest)) = rest.split_once(' ') else {
        return text;
    };
    if day.parse::<u8>().is_ok() && clock(time).is_some() {
        rest.trim_start()
    } else {
        text
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
    let whole = month(host.get(..3)?).is_none();
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

/// Whether `text` is a shell's prompt with a command that shows a log.
pub(crate) fn is_prompt(text: &str) -> bool {
    let command = text.find("dmesg").or_else(|| text.find("journalctl"));
    let prompt = text.find(['$', '#']);
    matches!((prompt, command), (Some(prompt), Some(command)) if prompt < command && command < 120)
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
            ("[Mon Nov 21 07:00:00 2026] a", "a", false),
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
