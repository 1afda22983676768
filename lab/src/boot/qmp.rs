//! QEMU's machine protocol: JSON, a line each way, [`Qmp`].

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::log::clean_text;

/// Longest line that is read.
const MOST_BYTES: u64 = 1 << 20;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most events that come before an answer.
const MOST_EVENTS: usize = 1000;
/// The balloon's place in QEMU's tree.
const BALLOON: &str = "/machine/peripheral/balloon0";

/// A connection to QEMU.
#[derive(Debug)]
pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    /// Events that came before an answer, oldest first.
    events: VecDeque<Value>,
    /// The begin of a line whose rest has not come.
    begun: Vec<u8>,
}

impl Qmp {
    /// The other end of `stream` is QEMU's.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut this = Self {
            reader: BufReader::new(stream),
            events: VecDeque::new(),
            begun: Vec::new(),
        };
        let greeting = this.line()?;
        if greeting.get("QMP").is_none() {
            return Err(io::Error::other("QEMU's greeting is missing"));
        }
        this.execute(&json!({"execute": "qmp_capabilities"}))?;
        Ok(this)
    }

    /// Bytes that the guest has, as the balloon says.
    pub(super) fn guest_bytes(&mut self) -> io::Result<u64> {
        let answer = self.execute(&json!({"execute": "query-balloon"}))?;
        answer
            .get("actual")
            .and_then(Value::as_u64)
            .ok_or_else(|| io::Error::other("query-balloon has no number \"actual\""))
    }

    /// Bytes that the guest should have.
    pub(super) fn set_guest_bytes(&mut self, bytes: u64) -> io::Result<()> {
        let command = json!({"execute": "balloon", "arguments": {"value": bytes}});
        self.execute(&command).map(drop)
    }

    /// What the guest said last of its memory; `None` before it said anything.
    pub(super) fn statistics(&mut self) -> io::Result<Option<Value>> {
        let property = json!({"path": BALLOON, "property": "guest-stats"});
        let answer = self.execute(&json!({"execute": "qom-get", "arguments": property}))?;
        let updated = answer.get("last-update").and_then(Value::as_u64);
        Ok(answer
            .get("stats")
            .filter(|_| updated.unwrap_or(0) > 0)
            .cloned())
    }

    fn execute(&mut self, command: &Value) -> io::Result<Value> {
        self.command(command)?
            .map_err(|error| io::Error::other(format!("QEMU refused {command}: {error}")))
    }

    /// What QEMU says to a command; the inner error is its refusal, in its words.
    pub(super) fn command(&mut self, command: &Value) -> io::Result<Result<Value, String>> {
        let mut text = command.to_string();
        text.push('\n');
        self.reader.get_mut().write_all(text.as_bytes())?;
        for _ in 0..MOST_EVENTS {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(Ok(value.take()));
            }
            if let Some(error) = answer.get("error") {
                let words = error.get("desc").and_then(Value::as_str);
                let words = words.map_or_else(|| error.to_string(), str::to_owned);
                return Ok(Err(clean_text(words.as_bytes())));
            }
            // An event; the answer comes after it.
            if self.events.len() >= MOST_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(answer);
        }
        Err(io::Error::other("QEMU sends events and no answer"))
    }

    /// The next event, if one comes within `patience`.
    pub(super) fn event(&mut self, patience: Duration) -> io::Result<Option<Value>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        let stream = self.reader.get_ref();
        stream.set_read_timeout(Some(patience))?;
        let line = self.line();
        self.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
        match line {
            Ok(event) => Ok(Some(event)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn line(&mut self) -> io::Result<Value> {
        let most = MOST_BYTES.saturating_sub(self.begun.len() as u64);
        let mut limited = (&mut self.reader).take(most);
        // What was read before an error stays.
        limited.read_until(b'\n', &mut self.begun)?;
        let line = std::mem::take(&mut self.begun);
        if !line.ends_with(b"\n") {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(
                kind,
                "QEMU closed its protocol, or its line has no end",
            ));
        }
        serde_json::from_slice(&line).map_err(io::Error::other)
    }
}

/// Whether QEMU has closed its end; with what was sent unread, the kernel says that it was reset.
pub(super) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Whether nothing came in time.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const GREETING: &str = "{\"QMP\":{}}\n{\"return\":{}}\n";

    /// What comes of `ask` if QEMU says `lines`.
    fn answered<A>(lines: &str, ask: impl FnOnce(&mut Qmp) -> io::Result<A>) -> io::Result<A> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                theirs.write_all(lines.as_bytes()).unwrap();
                theirs.shutdown(std::net::Shutdown::Write).unwrap();
                // Until this end is closed, its questions have a reader.
                let _ = theirs.read_to_end(&mut Vec::new());
            });
            ask(&mut Qmp::new(ours)?)
        })
    }

    #[test]
    fn answers_are_read_past_events() {
        let text = format!("{GREETING}{{\"event\":\"STOP\"}}\n{{\"return\":{{\"actual\":7}}}}\n");
        assert_eq!(answered(&text, Qmp::guest_bytes).unwrap(), 7);
        let text = format!("{GREETING}{{\"return\":{{\"stats\":{{}},\"last-update\":0}}}}\n");
        assert_eq!(answered(&text, Qmp::statistics).unwrap(), None);
    }

    #[test]
    fn nonsense_is_an_error() {
        for (text, words) in [
            (String::new(), "closed"),
            ("{}\n".into(), "greeting"),
            ("rubbish\n".into(), "expected value"),
            (
                format!("{GREETING}{{\"error\":{{\"class\":\"x\"}}}}\n"),
                "refused",
            ),
            (format!("{GREETING}{{\"return\":{{}}}}\n"), "actual"),
            (format!("{GREETING}{{\"return\":"), "no end"),
            (
                format!("{GREETING}{}", "{}\n".repeat(MOST_EVENTS)),
                "no answer",
            ),
        ] {
            let error = answered(&text, Qmp::guest_bytes).unwrap_err().to_string();
            assert!(error.contains(words), "{words:?}: {error}");
        }
    }
}
