//! What the times of a record count from: [`TimeBase`].

use serde::{Deserialize, Serialize};

/// Where zero is, and what lies before the clock.
///
/// Times of records that count from [`From::Clock`] can stand beside each other only where
/// the clock begins at the same line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeBase {
    /// Where zero is.
    pub from: From,
    /// The first line with a time, numbers taken out; of a kernel's log only.
    #[serde(default)]
    pub begins_at: Option<String>,
    /// Phases that begin before the clock: how long they took is not known.
    #[serde(default)]
    pub unclocked: Vec<String>,
}

/// Where zero is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// The start of the machine, or of the process.
    #[default]
    PowerOn,
    /// Where a kernel's own clock begins.
    Clock,
    /// The host's clock at the first line it heard of a real machine's boot, or at the restart before
    /// it. The whole boot counts from the kernel's entry: firmware's begin is not always heard.
    HostClock,
}
