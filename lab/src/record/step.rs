//! A step that a log names with its time: [`Step`].

use serde::{Deserialize, Serialize};

/// Steps of a kind that a record keeps: the slowest. Its log has all.
pub const MOST_STEPS: usize = 20;

/// An initcall of a kernel, or a service that systemd starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub ns: u64,
    /// The line of the log that says so, from 1.
    pub line: usize,
}
