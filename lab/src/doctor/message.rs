//! Messages of a boot as rules look at them: [`Entry`], out of [`Messages`].
//!
//! What mail programs folded is whole again. All but these few lie in the log itself.

use crate::log::{Line, is_omission, is_prompt};

/// Most bytes of a message put together from folded lines.
const MOST_FOLDED: usize = 1024;
/// Columns that a stamp takes.
const STAMP_COLUMNS: usize = 15;
/// Columns after which programs fold, at least.
const FOLD_COLUMNS: usize = 70;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'b> {
    /// Where it stands among the lines of its boot.
    pub(super) at: usize,
    /// The line of the log that it begins in.
    pub(super) line: usize,
    /// When it was printed, where its stamp is a time.
    pub(super) stamp_ns: Option<u64>,
    /// The message.
    pub(super) text: &'b str,
}

impl Entry<'_> {
    pub(super) fn starts(&self, start: &str) -> bool {
        self.text.starts_with(start)
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

/// The messages of a boot.
pub(super) struct Messages<'b> {
    /// The lines of the boot.
    pub(super) lines: &'b [Line<'b>],
    /// What was put together, by the index of its first line, ascending.
    folded: Vec<(usize, String)>,
    /// Indexes of lines that go on with the message before, ascending.
    inner: Vec<usize>,
}

impl<'b> Messages<'b> {
    pub(super) fn new(lines: &'b [Line<'b>]) -> Self {
        let mut messages = Self {
            lines,
            folded: Vec::new(),
            inner: Vec::new(),
        };
        let stamped = lines.iter().filter(|line| line.stamp_ns.is_some()).count();
        if stamped * 2 > lines.len() {
            messages.unfold();
        }
        messages
    }

    fn unfold(&mut self) {
        let (mut begin, mut columns) = (0, 0);
        let lines = self.lines;
        for (at, line) in lines.iter().enumerate() {
            let first = lines.get(begin);
            let goes_on = at > 0
                && first.is_some_and(|first| first.stamp_ns.is_some())
                && goes_on(line, columns);
            if let (true, Some(first)) = (goes_on, first) {
                if self.folded.last().is_none_or(|last| last.0 != begin) {
                    self.folded.push((begin, first.text.to_string()));
                }
                if let Some((_, whole)) = self.folded.last_mut()
                    && whole.len() + line.text.len() < MOST_FOLDED
                {
                    whole.push(' ');
                    whole.push_str(&line.text);
                    self.inner.push(at);
                    columns = line.text.len();
                    continue;
                }
            }
            (begin, columns) = (at, line.text.len() + STAMP_COLUMNS);
        }
    }

    /// The message that begins with line `at` of the boot.
    pub(super) fn get(&self, at: usize) -> Option<Entry<'_>> {
        let line = self.lines.get(at)?;
        if self.inner.binary_search(&at).is_ok() {
            return None;
        }
        let folded = self.folded.binary_search_by_key(&at, |folded| folded.0);
        let folded = folded.ok().and_then(|at| self.folded.get(at));
        Some(Entry {
            at,
            line: line.number,
            stamp_ns: line.stamp_ns,
            text: folded.map_or(&*line.text, |folded| &folded.1),
        })
    }

    /// Messages from line `at` of the boot on.
    pub(super) fn from(&self, at: usize) -> impl Iterator<Item = Entry<'_>> {
        (at..self.lines.len()).filter_map(|at| self.get(at))
    }
}

/// Whether `line` is the rest of a line of so many columns: it has no stamp, and its first
/// word would not have fitted there.
fn goes_on(line: &Line<'_>, columns: usize) -> bool {
    let word = line.text.split(' ').next().unwrap_or_default();
    line.stamp_ns.is_none()
        && columns + 1 + word.len() >= FOLD_COLUMNS
        && !is_omission(&line.text)
        && !is_prompt(&line.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines;

    #[test]
    fn folded_messages_are_whole_again() {
        let lines = lines(
            b"> [1.0000] software IO TLB: mapped [mem \n\
              > 0x0000001df9c00000-0x0000001ff9c00000] (8192MB)\n> [2.0000] b\nother\n[2.1000] c\n",
        );
        let messages = Messages::new(&lines);
        let texts: Vec<&str> = messages.from(0).map(|entry| entry.text).collect();
        let whole = "software IO TLB: mapped [mem 0x0000001df9c00000-0x0000001ff9c00000] (8192MB)";
        assert_eq!(texts, [whole, "b", "other", "c"]);
        assert_eq!(messages.get(1), None);
    }
}
