//! What a log said that could not be taken as it stands: [`LogProblem`].

use std::fmt;

/// Longest piece of a line a problem quotes, in characters.
const QUOTE_CHARS: usize = 120;

/// A line that was recognised but not understood, or understood but absurd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProblem {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what was done about it.
    pub what: String,
    /// The line, or the start of a long one.
    pub text: String,
}

impl LogProblem {
    pub(super) fn new(line: usize, what: impl fmt::Display, text: &str) -> Self {
        Self {
            line,
            what: what.to_string(),
            text: text.chars().take(QUOTE_CHARS).collect(),
        }
    }
}

impl fmt::Display for LogProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {:?}", self.line, self.what, self.text)
    }
}

/// Why a row could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Something else was expected here.
    Expected(&'static str),
    /// A number with more bits than its place has.
    TooLarge { digits: String, bits: u32 },
    /// A range that ends before it starts.
    Backwards { start: u64, last: u64 },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(what) => write!(f, "expected {what}; row left out"),
            Self::TooLarge { digits, bits } => {
                let shown: String = digits.chars().take(40).collect();
                write!(f, "{shown} has more than {bits} bits; row left out")
            }
            Self::Backwards { start, last } => {
                write!(
                    f,
                    "the range ends at {last:#x}, before its start {start:#x}; row left out"
                )
            }
        }
    }
}
