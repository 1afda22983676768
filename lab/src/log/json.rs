//! Logs in JSON: what `dmesg -J` and `journalctl -o json` print.
//!
//! | key | printed by | meaning |
//! |---|---|---|
//! | `msg`, `time` | `dmesg` | message; seconds of the kernel's clock |
//! | `MESSAGE` | `journalctl` | message; an array of bytes where it is no UTF-8 |
//! | `_SOURCE_MONOTONIC_TIMESTAMP`, `__MONOTONIC_TIMESTAMP` | `journalctl` | microseconds of that clock |
//! | `_TRANSPORT`, `SYSLOG_IDENTIFIER`, `_PID` | `journalctl` | `kernel`, or the program |
//! | `_BOOT_ID` | `journalctl` | another one is another boot |

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr_iter, memmem};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::stamp::Stamp;

/// Bytes within which a log in JSON names a key.
const HEAD_BYTES: usize = 4096;

/// Whether `log` is one.
pub(crate) fn begins(log: &[u8]) -> bool {
    let head = log.get(..HEAD_BYTES).unwrap_or(log);
    let text = head.trim_ascii_start();
    let object =
        text.starts_with(b"{") || text.starts_with(b"\x1e{") || text.starts_with(b"data: {");
    let keys: [&[u8]; 3] = [b"\"dmesg\"", b"\"__CURSOR\"", b"\"MESSAGE\""];
    object && keys.iter().any(|key| memmem::find(head, key).is_some())
}

/// One message of such a log.
pub(super) struct Message<'t> {
    /// The line it stands in, from 1; of several messages in a line each counts as one.
    pub(super) number: usize,
    /// When it was printed.
    pub(super) stamp: Option<Stamp>,
    /// A kernel printed it.
    pub(super) kernel: bool,
    /// What it says, with the program in front if it is none of the kernel's.
    pub(super) text: Cow<'t, str>,
}

/// The messages of a log, in order; text between them is passed over.
pub(super) struct Messages<'t> {
    log: &'t [u8],
    at: usize,
    /// Line breaks before this offset, and the offset.
    counted: (usize, usize),
    /// The number of the last message.
    number: usize,
    boot: Option<Cow<'t, str>>,
    /// Waits behind the mark of another boot.
    next: Option<Message<'t>>,
}

impl<'t> Messages<'t> {
    pub(super) fn new(log: &'t [u8]) -> Self {
        // The messages of `dmesg` are in an array.
        let array = memmem::find(log, b"\"dmesg\"").filter(|at| *at < HEAD_BYTES);
        let open = array.and_then(|at| Some(at + memchr(b'[', log.get(at..)?)?));
        Self {
            log,
            at: open.unwrap_or(0),
            counted: (0, 0),
            number: 0,
            boot: None,
            next: None,
        }
    }

    /// The number of the line that `offset` is in; of several messages in a line each counts
    /// as one.
    fn line(&mut self, offset: usize) -> usize {
        let (breaks, from) = self.counted;
        // Offsets only grow.
        let between = self.log.get(from..offset).unwrap_or_default();
        self.counted = (
            breaks + memchr_iter(b'\n', between).count(),
            offset.max(from),
        );
        self.number = (self.counted.0 + 1).max(self.number + 1);
        self.number
    }

    /// The next object with a message, and where it begins.
    fn entry(&mut self) -> Option<(usize, Entry<'t>)> {
        loop {
            let rest = self.log.get(self.at..)?;
            let begin = self.at + memchr(b'{', rest)?;
            let text = self.log.get(begin..)?;
            let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Entry<'t>>();
            match values.next() {
                Some(Ok(entry)) => {
                    self.at = begin + values.byte_offset().max(1);
                    if entry.message.0.is_some() {
                        return Some((begin, entry));
                    }
                }
                _ => self.at = begin + 1,
            }
        }
    }
}

impl<'t> Iterator for Messages<'t> {
    type Item = Message<'t>;

    fn next(&mut self) -> Option<Message<'t>> {
        if let Some(message) = self.next.take() {
            return Some(message);
        }
        let (begin, mut entry) = self.entry()?;
        let boot = entry.boot.0.take();
        let message = entry.message(begin, self)?;
        let another = boot.is_some() && self.boot.is_some() && boot != self.boot;
        self.boot = boot.or_else(|| self.boot.take());
        if !another {
            return Some(message);
        }
        let mark = Message {
            number: message.number,
            stamp: None,
            kernel: false,
            text: "-- Reboot --".into(),
        };
        self.next = Some(message);
        Some(mark)
    }
}

#[derive(Deserialize)]
struct Entry<'t> {
    #[serde(borrow, default, rename = "MESSAGE", alias = "msg")]
    message: Text<'t>,
    #[serde(default)]
    time: Option<f64>,
    #[serde(borrow, default, rename = "_SOURCE_MONOTONIC_TIMESTAMP")]
    source_us: Text<'t>,
    #[serde(borrow, default, rename = "__MONOTONIC_TIMESTAMP")]
    journal_us: Text<'t>,
    #[serde(borrow, default, rename = "_TRANSPORT")]
    transport: Text<'t>,
    #[serde(borrow, default, rename = "SYSLOG_IDENTIFIER")]
    program: Text<'t>,
    #[serde(borrow, default, rename = "_PID")]
    process: Text<'t>,
    #[serde(borrow, default, rename = "_BOOT_ID")]
    boot: Text<'t>,
}

impl<'t> Entry<'t> {
    fn message(self, begin: usize, messages: &mut Messages<'t>) -> Option<Message<'t>> {
        let text = self.message.0?;
        // Where it was not unescaped it lies in the log.
        let inside = match &text {
            Cow::Borrowed(text) => {
                (text.as_ptr() as usize).checked_sub(messages.log.as_ptr() as usize)
            }
            Cow::Owned(_) => None,
        };
        let micros = self.source_us.0.or(self.journal_us.0);
        let micros = micros.and_then(|us| us.parse::<u64>().ok()?.checked_mul(1000));
        let kernel = self.time.is_some() || self.transport.0.as_deref() == Some("kernel");
        let text = match (&self.program.0, self.process.0.as_deref()) {
            (Some(program), process) if !kernel => {
                let process = process.map_or(String::new(), |id| format!("[{id}]"));
                format!("{program}{process}: {text}").into()
            }
            _ => text,
        };
        Some(Message {
            number: messages.line(inside.unwrap_or(begin)),
            stamp: self
                .time
                .and_then(nanoseconds)
                .or(micros)
                .map(Stamp::Kernel),
            kernel,
            text,
        })
    }
}

/// Seconds with six digits behind the point.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within bounds that were checked"
)]
fn nanoseconds(seconds: f64) -> Option<u64> {
    (0.0..1e9)
        .contains(&seconds)
        .then(|| (seconds * 1e6).round() as u64 * 1000)
}

/// A value as text: strings, numbers, arrays of bytes; of several the first.
#[derive(Default)]
struct Text<'t>(Option<Cow<'t, str>>);

impl<'de: 't, 't> Deserialize<'de> for Text<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number.to_string().into()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut bytes = Vec::new();
        while let Some(value) = list.next_element::<Text<'de>>()? {
            let byte = value.0.as_deref().and_then(|text| text.parse::<u8>().ok());
            match (byte, value.0) {
                (Some(byte), _) => bytes.push(byte),
                (None, Some(first)) if bytes.is_empty() => {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(Some(first));
                }
                _ => {}
            }
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned().into()))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &str) -> Vec<(usize, Option<Stamp>, bool, String)> {
        assert!(begins(log.as_bytes()), "{log}");
        let messages = Messages::new(log.as_bytes());
        let all = messages.map(|m| (m.number, m.stamp, m.kernel, m.text.into_owned()));
        all.collect()
    }

    #[test]
    fn what_dmesg_prints_is_read_line_by_line_or_in_one() {
        let log = "{\n   \"dmesg\": [\n      {\n         \"pri\": 5,\n         \"time\":     0.000000,\n\
                   \x20        \"msg\": \"Linux version 6.1\"\n      },{\n         \"pri\": 6,\n\
                   \x20        \"time\":     1.500001,\n         \"caller\": \"T1\",\n         \"msg\": \"say \\\"a\\\"\"\n      }\n   ]\n}\n";
        let stamp = |ns| Some(Stamp::Kernel(ns));
        assert_eq!(
            all(log),
            [
                (6, stamp(0), true, "Linux version 6.1".into()),
                (7, stamp(1_500_001_000), true, "say \"a\"".into())
            ]
        );
        let one = all(&log.replace(['\n', ' '], ""));
        assert_eq!((one.len(), one[0].0, one[1].0), (2, 1, 2));
    }

    #[test]
    fn journals_name_programs_boots_and_bytes() {
        let log = concat!(
            r#"{"__CURSOR":"a","_BOOT_ID":"1","_TRANSPORT":"kernel","_SOURCE_MONOTONIC_TIMESTAMP":"7","MESSAGE":"a"}"#,
            "\n",
            r#"{"_BOOT_ID":"1","_TRANSPORT":"journal","SYSLOG_IDENTIFIER":"systemd","_PID":"1","__MONOTONIC_TIMESTAMP":"9","MESSAGE":[104,105]}"#,
            "\n",
            r#"{"_BOOT_ID":"2","_TRANSPORT":"kernel","MESSAGE":null}"#,
            "\n{half\n",
            r#"{"_BOOT_ID":"2","_TRANSPORT":["kernel","x"],"MESSAGE":"b","other":{"c":[1]}}"#,
        );
        assert_eq!(
            all(log),
            [
                (1, Some(Stamp::Kernel(7000)), true, "a".into()),
                (2, Some(Stamp::Kernel(9000)), false, "systemd[1]: hi".into()),
                (5, None, false, "-- Reboot --".into()),
                (5, None, true, "b".into()),
            ]
        );
    }

    #[test]
    fn other_json_is_none() {
        for text in [
            "",
            "{",
            "{\"schema\": \"firstlight.run/1\"}",
            "[1]",
            "\"MESSAGE\"",
        ] {
            assert!(!begins(text.as_bytes()), "{text}");
        }
    }
}
