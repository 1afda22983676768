//! The record of one run: what `--json` prints and the report is made from.
//!
//! Schema `firstlight.run/1`. Frames are 4 KiB; `start` and `end` of ranges are
//! half open; all times are nanoseconds since the process began.

use serde::Serialize;

/// Name and version of the record's form.
pub(crate) const SCHEMA: &str = "firstlight.run/1";

/// One run of `firstlight up`.
#[derive(Serialize)]
pub(crate) struct Record {
    pub(crate) schema: &'static str,
    pub(crate) kind: &'static str,
    /// Which clock the times are from.
    pub(crate) clock: &'static str,
    pub(crate) source: Source,
    pub(crate) machine: Machine,
    pub(crate) milestones: Milestones,
    pub(crate) phases: Vec<Phase>,
    pub(crate) memory: Memory,
    pub(crate) regions: Vec<Region>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) zones: Vec<Zone>,
    /// What firmware said wrongly and what was made of it.
    pub(crate) corrections: Vec<String>,
    /// What could not be read and what was used instead.
    pub(crate) notes: Vec<String>,
    pub(crate) exercise: Exercise,
}

/// Where the machine's description came from.
#[derive(Serialize)]
pub(crate) struct Source {
    /// `this-machine`, `log`, `directory` or `shape`.
    pub(crate) kind: &'static str,
    /// File, directory or shape; empty for this machine.
    pub(crate) name: String,
    /// What the memory map was read from.
    pub(crate) map: String,
    /// What the nodes were read from.
    pub(crate) nodes: String,
    /// The command line that was applied.
    pub(crate) command_line: String,
}

#[derive(Serialize)]
pub(crate) struct Machine {
    /// Memory that can be handed out, in whole pages.
    pub(crate) memory_bytes: u64,
    pub(crate) nodes: u64,
    pub(crate) cpus: u64,
}

#[derive(Serialize)]
pub(crate) struct Milestones {
    /// Nodes and zones were known.
    pub(crate) layout_ns: u64,
    /// The first frame was handed out.
    pub(crate) first_frame_ns: u64,
    /// Any frame of the machine could be handed out.
    pub(crate) all_allocatable_ns: u64,
}

#[derive(Serialize)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

#[derive(Serialize)]
pub(crate) struct Memory {
    /// Frames of memory, reserved ones among them.
    pub(crate) present_frames: u64,
    /// Frames the allocator may hand out.
    pub(crate) managed_frames: u64,
    /// Frames that were taken before the allocator began.
    pub(crate) reserved_frames: u64,
    /// Metadata written when all memory was allocatable.
    pub(crate) metadata_written_bytes: u64,
    /// Address space set aside for metadata.
    pub(crate) metadata_reserved_bytes: u64,
    /// Metadata in memory when all memory was allocatable, counted by the
    /// operating system; `null` if it would not say.
    pub(crate) metadata_resident_bytes: Option<u64>,
}

#[derive(Serialize)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: &'static str,
    pub(crate) more_reliable: bool,
    pub(crate) special_purpose: bool,
}

#[derive(Serialize)]
pub(crate) struct Node {
    pub(crate) node: u16,
    /// Firmware's number for it.
    pub(crate) domain: u32,
    pub(crate) cpus: u64,
    pub(crate) start_frame: u64,
    pub(crate) end_frame: u64,
    pub(crate) present_frames: u64,
    /// To each node, in ascending order; empty on a machine of more than 1,024
    /// nodes, where all others are as far.
    pub(crate) distances: Vec<u8>,
}

#[derive(Serialize)]
pub(crate) struct Zone {
    pub(crate) node: u16,
    pub(crate) zone: &'static str,
    pub(crate) start_frame: u64,
    pub(crate) spanned_frames: u64,
    pub(crate) present_frames: u64,
}

/// What real threads did with the memory.
#[derive(Serialize, Default)]
pub(crate) struct Exercise {
    pub(crate) threads: u64,
    /// Threads that could not be kept on their CPU.
    pub(crate) unpinned_threads: u64,
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    /// Requests for which no memory was left; small machines have few.
    pub(crate) refusals: u64,
    /// Frames handed out when all memory was taken at once.
    pub(crate) drained_frames: u64,
    /// Blocks that took.
    pub(crate) drained_blocks: u64,
    pub(crate) duration_ns: u64,
}
