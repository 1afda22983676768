//! Lines as they come from a console, each with when the host had it: [`Cutter`].

use std::time::Duration;

/// Bytes of a line that are kept; more than the log reader looks at.
pub const MOST_LINE_BYTES: usize = 8192;

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When the host had its end.
    pub at: Duration,
    /// Its first [`MOST_LINE_BYTES`].
    pub bytes: Vec<u8>,
    /// Bytes behind these.
    pub left_out: u64,
}

/// Puts lines together from bytes, in bounded memory.
///
/// ```
/// use firstlight_lab::console::Cutter;
/// use std::time::Duration;
/// let mut lines = Cutter::default();
/// lines.push(Duration::from_secs(1), b"one\r\ntw", |_| ());
/// let mut seen = Vec::new();
/// lines.push(Duration::from_secs(2), b"o\n", |line| seen.push((line.at.as_secs(), line.bytes)));
/// assert_eq!(seen, [(2, b"two".to_vec())]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cutter {
    begun: Vec<u8>,
    left_out: u64,
}

impl Cutter {
    /// Calls `each` with every line that `bytes`, which came at `at`, complete.
    pub fn push(&mut self, at: Duration, bytes: &[u8], mut each: impl FnMut(Line)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let space = MOST_LINE_BYTES - self.begun.len();
            let kept = text.get(..space).unwrap_or(text);
            self.begun.extend_from_slice(kept);
            let left_out = (text.len() - kept.len()) as u64;
            self.left_out = self.left_out.saturating_add(left_out);
            if ends && let Some(line) = self.finish(at) {
                each(line);
            }
        }
    }

    /// The line that has begun and not ended.
    #[must_use]
    pub fn begun(&self) -> &[u8] {
        &self.begun
    }

    /// That line, as if it ended now; `None` if it is empty.
    pub fn finish(&mut self, at: Duration) -> Option<Line> {
        let mut bytes = std::mem::take(&mut self.begun);
        let left_out = std::mem::take(&mut self.left_out);
        bytes.truncate(bytes.trim_ascii_end().len());
        let line = Line {
            at,
            bytes,
            left_out,
        };
        (!line.bytes.is_empty() || left_out > 0).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_chunks_end_and_endless_ones_are_bounded() {
        let at = Duration::from_secs(1);
        let text = b"a\r\n\n b \xff\x00\nlast";
        for chunk in 1..=text.len() {
            let mut lines = Cutter::default();
            let mut seen = Vec::new();
            for part in text.chunks(chunk) {
                lines.push(at, part, |line| seen.push(line.bytes));
            }
            seen.extend(lines.finish(at).map(|line| line.bytes));
            assert_eq!(seen, [&b"a"[..], b" b \xff\x00", b"last"], "{chunk}");
        }
        let mut lines = Cutter::default();
        for _ in 0..100 {
            lines.push(at, &[b'x'; 1 << 20], |_| unreachable!("it has no end"));
            assert!(lines.begun.capacity() <= 2 * MOST_LINE_BYTES);
        }
        let line = lines.finish(at).unwrap();
        assert_eq!(line.bytes.len(), MOST_LINE_BYTES);
        assert_eq!(line.left_out, (100 << 20) - MOST_LINE_BYTES as u64);
        assert_eq!(lines.finish(at), None);
    }
}
