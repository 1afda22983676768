//! A restart of the guest without firmware: [`Restart`].

use serde::Serialize;

use super::{Milestones, Phase};

/// Memory that one kernel handed over to the next, and how long guests had to wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Restart {
    /// Bytes that were handed over.
    pub preserved_bytes: u64,
    /// Ranges of these in the table.
    pub ranges: u64,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// CPUs that the old kernel stopped.
    pub stopped_cpus: u64,
    /// Why the next kernel refused the table, if it did: its memory came up as after a cold start.
    pub refused: Option<String>,
    /// Bytes that guests took over.
    pub guest_bytes: u64,
    /// Of these, bytes that were read and compared.
    pub checked_bytes: u64,
    /// Pages with other content than before.
    pub wrong_pages: u64,
    /// Bytes that no owner took and that were freed.
    pub released_bytes: u64,
    /// Bytes of the rest that were allocated and written before the check.
    pub other_bytes: u64,
    /// From the old kernel's last instruction until guests' memory could be used; `None` if
    /// they have none, or the frequency of the clock is not known.
    pub pause_ns: Option<u64>,
    /// Likewise, in instructions; on the clock "instructions" only.
    pub pause_instructions: Option<u64>,
    /// Instructions from the new kernel's first until all memory could be allocated.
    pub ready_instructions: Option<u64>,
    /// Instructions that the kernel before took for that, which firmware had started.
    pub cold_ready_instructions: Option<u64>,
    /// Frames that were free before guests had memory, and once all of it was freed.
    pub free_frames: FreeFrames,
    /// When what of the new kernel was ready.
    pub milestones: Milestones,
    /// What it did one after the other.
    pub phases: Vec<Phase>,
}

/// Free memory of both kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreeFrames {
    /// Of the kernel that handed over, before guests had memory.
    pub before: u64,
    /// Of the next kernel, once all preserved memory was freed.
    pub after: u64,
}
