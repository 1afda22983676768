//! Memory that came while a guest ran, or was to go: [`Hotplugged`].

use serde::Serialize;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hotplugged {
    /// `add` or `remove`.
    pub event: String,
    /// The DIMM's name in the script.
    pub id: Option<String>,
    /// Its time in the script.
    pub at_ms: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// The node.
    pub node: Option<u32>,
    /// The zone.
    pub zone: Option<String>,
    /// Whether it waits offline, in no zone.
    pub offline: bool,
    /// From the event until all of it could be allocated; of `add` only, unless it waits offline.
    pub allocatable_ns: Option<u64>,
    /// From the event until nothing of it was in use; of `remove` only.
    pub gone_ns: Option<u64>,
    /// The guest's instructions until then; on the clock "instructions" only.
    pub instructions: Option<u64>,
    /// From the event until all its descriptors were written.
    pub described_ns: Option<u64>,
    /// Frames free in the guest after it; those of two moments with the same DIMMs are the same.
    pub free_frames: Option<u64>,
    /// Why nothing came of it.
    pub refused: Option<String>,
}
