//! What is wrong with a configuration, and on which line.

use firstlight_figures::advice::Advised;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Shows as `FILE, line N: what is wrong`, then the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let error = Advised(error);
        Self(format!("cannot read {}: {error}", path.display()))
    }

    /// An error at the bytes `span` of `text`.
    pub(crate) fn at(path: &Path, text: &str, span: Option<Range<usize>>, what: &str) -> Self {
        let path = path.display();
        let Some(span) = span else {
            return Self(format!("{path}: {what}"));
        };
        // A span may end, or even begin, behind the last byte.
        let before = text.get(..span.start).unwrap_or(text);
        let number = before.matches('\n').count() + 1;
        let line = text.lines().nth(number - 1).unwrap_or_default();
        Self(format!(
            "{path}, line {number}: {what}\n  {number} | {line}"
        ))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConfigError {}
