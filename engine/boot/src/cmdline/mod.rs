//! The kernel command line, as Linux reads it, for what concerns memory.
//!
//! [`CommandLine`] walks the words in place, without a heap. Three readers sit on
//! it: [`MemoryChange`]s (`mem=`, `memmap=`) change a
//! [`MemoryMap`](crate::map::MemoryMap), and [`CommandLine::layout_policy`]
//! takes `kernelcore=`, `movablecore=` and `movable_node`.
//! [`CommandLine::preserve_place`] reads `preserve=`, [`CommandLine::online_policy`]
//! `memhp_default_state=`. A value without
//! meaning is a [`BadWord`]: reported, never fatal. Other words are skipped and
//! stay available in [`CommandLine::words`].
#![deny(unsafe_code)]

mod memory;
mod number;
mod online;
mod preserve;
mod zones;

use core::ffi::CStr;
use core::fmt;

pub use memory::{CommandNotice, MemoryChange, MemoryChanges};
pub use number::{BadNumber, parse_number, parse_size};

/// A kernel command line.
///
/// ```
/// use firstlight_boot::cmdline::CommandLine;
/// let line = CommandLine::new(b"quiet root=\"/dev/disk one\" movable-node -- mem=1G");
/// let mut words = line.words();
/// assert_eq!(words.next().unwrap().name, b"quiet");
/// assert_eq!(words.next().unwrap().value, Some(&b"/dev/disk one"[..]));
/// assert!(words.next().unwrap().is("movable_node")); // dash and underscore are one
/// assert!(words.next().is_none()); // what follows -- is not the kernel's
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommandLine<'a> {
    text: &'a [u8],
}

impl<'a> CommandLine<'a> {
    /// The command line in `text`, up to its first zero byte.
    pub fn new(text: &'a [u8]) -> Self {
        // Eight bytes at a time.
        let text = CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes);
        Self { text }
    }

    /// All of it, unchanged.
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Its words, up to a lone `--`.
    pub const fn words(&self) -> Words<'a> {
        Words { rest: self.text }
    }
}

impl fmt::Debug for CommandLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.text.escape_ascii())
    }
}

/// One word: `name` or `name=value`, without the quotes around either.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word<'a> {
    /// The whole word as it stands, quotes included.
    pub text: &'a [u8],
    /// Before the first `=`.
    pub name: &'a [u8],
    /// After it; `None` without one.
    pub value: Option<&'a [u8]>,
}

impl Word<'_> {
    /// Whether this is the parameter `name`; `-` and `_` are the same.
    pub fn is(&self, name: &str) -> bool {
        let same =
            |(&a, &b): (&u8, &u8)| a == b || (matches!(a, b'-' | b'_') && matches!(b, b'-' | b'_'));
        self.name.len() == name.len() && self.name.iter().zip(name.as_bytes()).all(same)
    }
}

impl fmt::Debug for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.text.escape_ascii())
    }
}

/// The words of a command line; see [`CommandLine::words`].
#[derive(Clone, Debug)]
pub struct Words<'a> {
    rest: &'a [u8],
}

/// Latin-1's no-break space separates words too.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0)
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let start = self.rest.iter().position(|&byte| !is_space(byte))?;
        let rest = self.rest.get(start..)?;
        let mut quoted = false;
        let ends = |&byte: &u8| {
            // Most bytes are neither.
            if matches!(byte, b'#'..0xa0) {
                return false;
            }
            quoted ^= byte == b'"';
            !quoted && is_space(byte)
        };
        let (text, rest) = rest.split_at(rest.iter().position(ends).unwrap_or(rest.len()));
        self.rest = rest;
        let word = split(text);
        if word.name == b"--" && word.value.is_none() {
            self.rest = &[];
            return None;
        }
        Some(word)
    }
}

/// Splits a word at its first `=` that is not its first byte, and takes quotes
/// off the whole word or off the value.
fn split(text: &[u8]) -> Word<'_> {
    let inner = unquote(text);
    let equals = inner.iter().skip(1).position(|&byte| byte == b'=');
    let (name, value) = match equals {
        Some(at) => (
            inner.get(..=at).unwrap_or(inner),
            inner.get(at + 2..).map(unquote),
        ),
        None => (inner, None),
    };
    Word { text, name, value }
}

/// Without a leading quote, and then without a trailing one.
fn unquote(text: &[u8]) -> &[u8] {
    match text.strip_prefix(b"\"") {
        Some(inner) => inner.strip_suffix(b"\"").unwrap_or(inner),
        None => text,
    }
}

/// Why a word was not taken, or not wholly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It needs a value.
    NoValue,
    /// The number in it.
    Number(BadNumber),
    /// Zero bytes have no meaning here.
    Zero,
    /// Bytes follow that mean nothing; what comes before them counts.
    Trailing,
    /// Bytes follow that mean nothing; the word is left out.
    Form,
    /// More than 100 %.
    Percent,
    /// A place that is no whole pages of memory.
    Place,
}

/// A word whose value has no meaning, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadWord<'a> {
    /// The word as it stands on the command line.
    pub word: &'a [u8],
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for BadWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.word.escape_ascii())?;
        match self.fault {
            Fault::NoValue => f.write_str("a value is missing; ignored"),
            Fault::Number(bad) => write!(f, "{bad}; ignored"),
            Fault::Zero => f.write_str("zero bytes; ignored"),
            Fault::Trailing => f.write_str("what follows the last number means nothing"),
            Fault::Form => f.write_str("what follows the first number means nothing; ignored"),
            Fault::Percent => f.write_str("more than 100 %"),
            Fault::Place => f.write_str("expected whole pages, SIZE@ADDRESS; ignored"),
        }
    }
}

impl core::error::Error for BadWord<'_> {}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    fn words(text: &str) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        CommandLine::new(text.as_bytes())
            .words()
            .map(|word| (word.name, word.value))
    }

    #[test]
    fn words_are_split_as_linux_splits_them() {
        type Split<'a> = &'a [(&'a str, Option<&'a str>)];
        let cases: [(&str, Split<'_>); 11] = [
            ("", &[]),
            ("  a\tb=c \n", &[("a", None), ("b", Some("c"))]),
            ("a=b=c", &[("a", Some("b=c"))]),
            ("a=\"b c\" d", &[("a", Some("b c")), ("d", None)]),
            ("\"a=b c\" d", &[("a", Some("b c")), ("d", None)]),
            ("a=\"b c", &[("a", Some("b c"))]),
            ("a=b\" \"c", &[("a", Some("b\" \"c"))]),
            ("=x ==", &[("=x", None), ("=", Some(""))]),
            ("a= b", &[("a", Some("")), ("b", None)]),
            ("a -- b", &[("a", None)]),
            ("a\0b", &[("a", None)]),
        ];
        for (text, want) in cases {
            let want = want
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.map(str::as_bytes)));
            assert!(words(text).eq(want), "{text:?}");
        }
    }

    #[test]
    fn any_bytes_are_shown_as_one_line_of_text() {
        extern crate std;
        use std::format;
        let line = CommandLine::new(b"a=\"b\" \xff\n\0c");
        assert_eq!(format!("{line:?}"), r#""a=\"b\" \xff\n""#);
        let shown = line.words().map(|word| format!("{word:?}"));
        assert!(shown.eq([r#""a=\"b\"""#, r#""\xff""#]));
    }

    #[test]
    fn dash_and_underscore_are_one() {
        for text in ["movable_node", "movable-node"] {
            assert!(
                CommandLine::new(text.as_bytes())
                    .words()
                    .all(|word| word.is("movable_node"))
            );
        }
        assert!(
            !CommandLine::new(b"movable.node")
                .words()
                .any(|word| word.is("movable_node"))
        );
    }
}
