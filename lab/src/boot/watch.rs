//! Somebody who looks on while a guest runs: [`Watch`], and the [`Lines`] shown.

use crate::log::clean_text;

/// Most bytes of a line that are shown.
const MOST_LINE_BYTES: usize = 4096;

/// Looks on while a guest runs. All of it may be left out.
pub trait Watch {
    /// What is being done now.
    fn stage(&mut self, _text: &str) {}
    /// The guest's log has another line; without control characters.
    fn line(&mut self, _line: &str) {}
    /// Some time has passed.
    fn tick(&mut self) {}
}

/// Nobody looks on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Puts lines together from bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Calls `each` with every line that `bytes` completes.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = MOST_LINE_BYTES.saturating_sub(self.begun.len());
            self.begun
                .extend_from_slice(text.get(..room).unwrap_or(text));
            if ends {
                self.finish(&mut each);
            }
        }
    }

    /// The line that has begun and not ended, without control characters.
    pub(super) fn begun(&self) -> String {
        clean_text(&self.begun)
    }

    /// Calls `each` with what is left of a line, if anything is.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&str)) {
        let text = clean_text(&self.begun);
        let text = text.trim_end();
        if !text.is_empty() {
            each(text);
        }
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_without_control_characters() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for bytes in [&b"\x1b[2Ja"[..], b"b\r\n\r\nsecond ", b"line\n", b"rest"] {
            lines.push(bytes, |line| seen.push(line.to_owned()));
        }
        assert_eq!(seen, ["ab", "second line"]);
        lines.finish(|line| seen.push(line.to_owned()));
        assert_eq!(seen[2..], ["rest"]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut lines = Lines::default();
        let mut lengths = Vec::new();
        lines.push(&vec![b'x'; 1 << 20], |_| {});
        lines.push(b"\n", |line| lengths.push(line.len()));
        assert_eq!(lengths, [MOST_LINE_BYTES]);
    }
}
