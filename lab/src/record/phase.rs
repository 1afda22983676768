//! A named span of a run.

use serde::Serialize;
use std::borrow::Cow;

/// A word that is either ours or a guest's.
pub type Word = Cow<'static, str>;

/// A step and when it was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    /// What was done.
    pub name: Word,
    /// When it began.
    pub start_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
}
