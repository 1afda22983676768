//! A span between two lines of a log: [`Gap`].

use serde::{Deserialize, Serialize};

/// A span between two consecutive lines that have a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// How long it took; at least so long where stamps are the calendar's.
    pub ns: u64,
    /// The line it begins with.
    pub before: Said,
    /// The line it ends with.
    pub after: Said,
    /// The phase most of it lies in.
    pub phase: Option<String>,
}

/// A line of a log and when it was printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Said {
    /// Its number, from 1.
    pub line: usize,
    /// When it was printed.
    pub stamp_ns: u64,
    /// The message.
    pub text: String,
}
