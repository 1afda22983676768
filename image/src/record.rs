//! Log lines kept in memory: [`Lines`].
//!
//! A serial port takes more time than bringing up the memory, so lines are kept, each
//! with its tick, and sent when there is time.

use core::fmt::{self, Write};

/// Bytes before a line: its ticks and its length.
const HEAD: usize = 10;
/// Longest line kept whole.
pub const LINE_BYTES: usize = 1024;

/// Lines of text with their time stamps, in the order they were written.
///
/// ```
/// use firstlight_image::record::Lines;
/// let mut lines = Lines::<256>::new();
/// lines.push(7, format_args!("{} nodes", 2));
/// lines.push(9, format_args!("ready"));
/// let mut seen = Vec::new();
/// lines.take(|ticks, text| seen.push((ticks, text.to_owned())));
/// assert_eq!(seen, [(7, "2 nodes".to_owned()), (9, "ready".to_owned())]);
/// ```
#[derive(Debug)]
pub struct Lines<const BYTES: usize> {
    bytes: [u8; BYTES],
    used: usize,
    lost: u64,
}

impl<const BYTES: usize> Default for Lines<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const BYTES: usize> Lines<BYTES> {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            bytes: [0; BYTES],
            used: 0,
            lost: 0,
        }
    }

    /// Forgets all lines and how many were lost.
    pub const fn clear(&mut self) {
        (self.used, self.lost) = (0, 0);
    }

    /// Keeps a line; the end of one that does not fit is cut, and a line without any
    /// space is counted.
    pub fn push(&mut self, ticks: u64, text: fmt::Arguments<'_>) {
        let space = self.bytes.get_mut(self.used..).unwrap_or_default();
        let Some((head, space)) = space.split_first_chunk_mut::<HEAD>() else {
            self.lost += 1;
            return;
        };
        let most = space.len().min(LINE_BYTES);
        let mut line = Cut {
            bytes: space.get_mut(..most).unwrap_or_default(),
            len: 0,
        };
        // It never fails: a long text is cut.
        let _ = line.write_fmt(text);
        let len = u16::try_from(line.len).unwrap_or(u16::MAX);
        let (stamp, length) = head.split_at_mut(8);
        stamp.copy_from_slice(&ticks.to_le_bytes());
        length.copy_from_slice(&len.to_le_bytes());
        self.used += HEAD + usize::from(len);
    }

    /// Passes all lines to `show` in order of time, those of one tick in the order they
    /// were written, and removes them.
    pub fn take(&mut self, mut show: impl FnMut(u64, &str)) {
        // There is no memory to sort in: each line is searched.
        let mut last = None;
        while let Some((key, text)) = self
            .iter()
            .filter(|(key, _)| Some(*key) > last)
            .min_by_key(|(key, _)| *key)
        {
            // Not in `iter`: that would read all the text once for every line.
            let text = core::str::from_utf8(text).unwrap_or("(a line that is no text)");
            show(key.0, text);
            last = Some(key);
        }
        self.used = 0;
    }

    /// Each line with its ticks and its place.
    fn iter(&self) -> impl Iterator<Item = ((u64, usize), &[u8])> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let place = at;
            let (head, rest) = self.bytes.get(at..self.used)?.split_first_chunk::<HEAD>()?;
            let [stamp @ .., l0, l1] = *head;
            let len = usize::from(u16::from_le_bytes([l0, l1]));
            at += HEAD + len;
            Some(((u64::from_le_bytes(stamp), place), rest.get(..len)?))
        })
    }

    /// Lines without any space.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

/// Text of bounded length; the end of a longer one is left off, between characters.
#[derive(Debug)]
pub struct Cut<'b> {
    bytes: &'b mut [u8],
    len: usize,
}

impl<'b> Cut<'b> {
    /// `text`, as much of it as fits `bytes`.
    pub fn text(bytes: &'b mut [u8], text: fmt::Arguments<'_>) -> &'b str {
        let mut cut = Self { bytes, len: 0 };
        let _ = cut.write_fmt(text);
        let Self { bytes, len } = cut;
        core::str::from_utf8(bytes.get(..len).unwrap_or_default()).unwrap_or_default()
    }
}

impl Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let space = self.bytes.get_mut(self.len..).unwrap_or_default();
        let mut len = space.len().min(text.len());
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        if let (Some(to), Some(from)) = (space.get_mut(..len), text.as_bytes().get(..len)) {
            to.copy_from_slice(from);
            self.len += len;
        }
        // Nothing may follow a cut.
        if len < text.len() {
            self.bytes = core::mem::take(&mut self.bytes).split_at_mut(self.len).0;
        }
        Ok(())
    }
}

/// Bytes with control characters escaped, safe for a terminal.
#[derive(Debug)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn taken<const N: usize>(lines: &mut Lines<N>) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        lines.take(|ticks, text| seen.push((ticks, text.to_string())));
        seen
    }

    #[test]
    fn lines_come_back_once_and_by_their_time() {
        let mut lines = Lines::<128>::new();
        for (number, ticks) in [50, 10, 50, 0, 10].into_iter().enumerate() {
            lines.push(ticks, format_args!("line {number}"));
        }
        let seen = taken(&mut lines)
            .into_iter()
            .map(|(ticks, text)| std::format!("{ticks} {text}"));
        let expected = [
            "0 line 3",
            "10 line 1",
            "10 line 4",
            "50 line 0",
            "50 line 2",
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        assert!(taken(&mut lines).is_empty());
        lines.push(99, format_args!(""));
        assert_eq!(taken(&mut lines), [(99, String::new())]);
    }

    #[test]
    fn a_full_record_cuts_then_counts() {
        let mut lines = Lines::<32>::new();
        lines.push(1, format_args!("0123456789"));
        lines.push(2, format_args!("{}", "äöü"));
        lines.push(3, format_args!("gone"));
        assert_eq!(lines.lost(), 1);
        let seen = taken(&mut lines);
        assert_eq!(seen, [(1, "0123456789".to_string()), (2, "ä".to_string())]);
        lines.clear();
        assert_eq!(lines.lost(), 0);
        assert!(taken(&mut lines).is_empty());
    }

    #[test]
    fn nothing_follows_a_cut() {
        // Two writes: the compiler would make one of literals.
        let [first, second] = ["abcäö", "z"];
        let mut bytes = [0; 4];
        assert_eq!(
            Cut::text(&mut bytes, format_args!("{first}{second}")),
            "abc"
        );
    }
}
