//! The reports of the image: [`Event`].

use crate::Outcome;
use serde::Serialize;

/// One line. `S` is its type of text and `L` of lists of bytes: borrowed where it is
/// written, owned where it is read.
///
/// Ticks are those of the time stamp counter, which starts with the machine;
/// [`Clock`](Self::Clock) has its frequency. Frames are 4 KiB, ranges half open.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schema",
    schemars(bound = "S: schemars::JsonSchema, L: schemars::JsonSchema + Default")
)]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<S, L> {
    /// The first one.
    Start {
        /// [`SCHEMA`](crate::SCHEMA).
        schema: S,
        /// Version of the image.
        version: S,
        /// Its command line.
        command_line: S,
    },
    /// The frequency of the ticks.
    Clock {
        /// Ticks a second.
        hz: u64,
        /// How that is known.
        source: S,
    },
    /// A step.
    Phase {
        /// One of [`phase`](crate::phase).
        name: S,
        /// Its begin.
        start_ticks: u64,
        /// Its end.
        end_ticks: u64,
    },
    /// Something is ready.
    Milestone {
        /// One of [`milestone`](crate::milestone).
        name: S,
        /// Since when.
        ticks: u64,
        /// [The clock](crate::milestone::source) of one before the entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<S>,
    },
    /// The size of the machine.
    Machine {
        /// Memory that can be allocated.
        memory_bytes: u64,
        /// Nodes.
        nodes: u64,
        /// CPUs that firmware names.
        cpus: u64,
        /// CPUs that run.
        cpus_started: u64,
    },
    /// A region of the memory map.
    Region {
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
        /// Its type.
        kind: S,
        /// Mirrored.
        #[serde(default)]
        more_reliable: bool,
        /// Set aside for a driver.
        #[serde(default)]
        special_purpose: bool,
    },
    /// A node.
    Node {
        /// Its number.
        node: u16,
        /// Firmware's number for it.
        domain: u32,
        /// Its CPUs.
        cpus: u64,
        /// First frame it spans.
        start_frame: u64,
        /// First frame after it.
        end_frame: u64,
        /// Frames of memory.
        present_frames: u64,
        /// Its distance to each node, ascending.
        #[serde(default)]
        distances: L,
    },
    /// A zone.
    Zone {
        /// Its node.
        node: u16,
        /// Its name.
        zone: S,
        /// First frame it spans.
        start_frame: u64,
        /// Frames it spans.
        spanned_frames: u64,
        /// Frames of memory.
        present_frames: u64,
    },
    /// The allocator's frames and metadata.
    Memory {
        /// Frames of memory.
        present_frames: u64,
        /// Frames that can be allocated.
        managed_frames: u64,
        /// Frames that cannot.
        reserved_frames: u64,
        /// Metadata written when all memory could be allocated.
        metadata_written_bytes: u64,
        /// Space reserved for metadata.
        metadata_reserved_bytes: u64,
    },
    /// A mistake of the firmware, and how it was corrected.
    Correction {
        /// In words.
        text: S,
    },
    /// Something that a reader should know.
    Note {
        /// In words.
        text: S,
    },
    /// Why the run ends, where it failed.
    Failure {
        /// In words.
        text: S,
    },
    /// The result of the self-test.
    Selftest(Selftest),
    /// One measurement of a bench.
    Bench {
        /// The allocator.
        contestant: S,
        /// Name of the workload.
        workload: S,
        /// Order of its blocks.
        order: u8,
        /// CPUs at the same time.
        threads: u64,
        /// Operations in all.
        operations: u64,
        /// How long they took.
        ticks: u64,
    },
    /// The state of page descriptors.
    Descriptors(Descriptors<S>),
    /// The CPUs that wrote deferred descriptors.
    DeferredWork(DeferredWork),
    /// The acceptance of unaccepted memory.
    Acceptance {
        /// Frames that had to be accepted.
        total_frames: u64,
        /// Frames that are online.
        online_frames: u64,
        /// Frames that the platform refused to accept.
        refused_frames: u64,
        /// Frames accepted by an allocation.
        lazy_frames: u64,
        /// How long it took.
        ticks: u64,
        /// Checks that failed.
        failures: u64,
    },
    /// One writing of descriptors.
    Sweep {
        /// The node; `None`: all at once.
        #[serde(default)]
        node: Option<u16>,
        /// `deferred` or `whole`.
        part: S,
        /// How the work was cut: `padata` or `stealing`.
        chunking: S,
        /// Bytes of a descriptor.
        descriptor_bytes: u64,
        /// Threads a node.
        threads: u64,
        /// CPUs there.
        cpus: u64,
        /// Frames described.
        pages: u64,
        /// Bytes of descriptors.
        bytes_written: u64,
        /// How long it took.
        ticks: u64,
    },
    /// Memory that was allocated as zeros.
    Zeroed(Zeroed),
    /// A knob of work that goes on behind the rest.
    Knob {
        /// Of what: `zeroing` or `reporting`.
        of: S,
        /// Its name.
        name: S,
        /// Its value.
        value: u64,
    },
    /// The use of a memory balloon.
    Balloon(Balloon<S>),
    /// The last one of a kernel that hands memory over; what follows is of the next kernel.
    HandedOver(HandedOver),
    /// What a restarted kernel found.
    Restart(Restart<S>),
    /// Memory came, or was to go.
    Hotplug(Hotplug<S>),
    /// The last one.
    End {
        /// How it went.
        outcome: Outcome,
    },
    /// An event of a later image; only read.
    #[serde(other)]
    Unknown,
}

/// The result of the image's check of its allocator.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Selftest {
    /// CPUs that took part.
    pub cpus: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Blocks freed.
    pub freed_blocks: u64,
    /// Frames that were allocated when all memory was allocated at once.
    pub all_frames: u64,
    /// Checks that failed.
    pub failures: u64,
}

/// The state of the image's page descriptors.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Descriptors<S> {
    /// When they are written: `lazy`, `early` or `eager`.
    pub mode: S,
    /// The stores that write them.
    pub writer: S,
    /// Bytes of each.
    pub descriptor_bytes: u64,
    /// Sections that have any.
    pub sections: u64,
    /// Sections whose descriptors are ready.
    pub ready_sections: u64,
    /// Of these, written by a first touch.
    pub touched_sections: u64,
    /// Of these, written by workers.
    pub worked_sections: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Of these, zeros; unreported by older images.
    #[cfg_attr(feature = "read", serde(default))]
    pub zeroed_bytes: Option<u64>,
    /// Bytes of space reserved for them.
    pub reserved_bytes: u64,
    /// Frames whose descriptors were checked.
    pub checked_frames: u64,
    /// Of these, those with a wrong descriptor.
    pub wrong_frames: u64,
}

/// How the deferred descriptors were divided among CPUs.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct DeferredWork {
    /// CPUs that wrote some.
    pub threads: u64,
    /// Chunks of the work.
    pub chunks: u64,
}

/// Memory that was allocated as zeros.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Zeroed {
    /// Bytes that were allocated, in blocks of 2 MiB.
    pub allocated_bytes: u64,
    /// Bytes of these that were zeroed when they were allocated.
    pub zeroed_bytes: u64,
    /// Free bytes that were known to be zero before.
    pub known_zero_bytes: u64,
    /// Blocks that were known to be zero and were not, found by a check and zeroed.
    pub wrong_blocks: u64,
    /// How long allocation took.
    pub ticks: u64,
    /// Blocks that were not zero, or could not be freed.
    pub failures: u64,
}

/// Memory that a kernel hands over to the next.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct HandedOver {
    /// Ranges in the table.
    pub ranges: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Frames that were free before guests had memory.
    pub free_frames: u64,
    /// CPUs that were stopped, all but the one that goes on.
    pub stopped_cpus: u64,
}

/// Memory that a restarted kernel took over.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Restart<S> {
    /// Why the table was refused, if it was.
    pub refused: Option<S>,
    /// Bytes of guests' memory that their owners took.
    pub guest_bytes: u64,
    /// Of these, bytes that were read and compared.
    pub checked_bytes: u64,
    /// Pages with other content than the previous kernel left there.
    pub wrong_pages: u64,
    /// Bytes of preserved memory that no owner took.
    pub released_bytes: u64,
    /// Bytes of the rest that were allocated, written and freed before the check.
    pub other_bytes: u64,
    /// The previous kernel's last instruction.
    pub left_ticks: u64,
    /// Guests' memory could be used.
    pub usable_ticks: u64,
    /// Frames that were free once all of it was freed.
    pub free_frames: u64,
    /// Checks that failed.
    pub failures: u64,
}

/// Memory that came while the machine ran, or was to go.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Hotplug<S> {
    /// `add`, `remove`, or `resize` where a memory device is not of the size that the host wants.
    pub action: S,
    /// The slot of the DIMM; from 256 on, memory devices.
    pub slot: u64,
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its node; `None` if there is no such node.
    pub node: Option<u16>,
    /// The zone it is in; `None` if it is in none.
    pub zone: Option<S>,
    /// Whether it waits offline.
    pub offline: bool,
    /// When the machine began to look for events, and found this one.
    pub event_ticks: u64,
    /// When the memory could be allocated, or was gone.
    pub done_ticks: u64,
    /// When all its descriptors were written, if there are any.
    pub described_ticks: Option<u64>,
    /// Free frames of the machine after it; of an image that does not say, 0.
    #[cfg_attr(feature = "read", serde(default))]
    pub free_frames: u64,
    /// Why nothing came of it.
    pub refused: Option<S>,
    /// Checks that failed.
    pub failures: u64,
}

/// The use of the machine's memory balloon.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
pub struct Balloon<S> {
    /// How the device is reached: `pci` or `mmio`.
    pub transport: S,
    /// Whether free memory was reported.
    pub reporting: bool,
    /// Bytes that were allocated, written and freed.
    pub freed_bytes: u64,
    /// Bytes that were reported since.
    pub reported_bytes: u64,
    /// Reports that were sent.
    pub reports: u64,
    /// Passes over free memory, with a delay between two of them.
    pub passes: u64,
    /// Bytes that the zeroing worker zeroed.
    pub worker_zeroed_bytes: u64,
    /// Free bytes that were known to be zero when reporting had ended.
    pub stock_bytes: u64,
    /// How long reporting took, without the delays.
    pub reporting_ticks: u64,
    /// Most bytes that the host had in the balloon.
    pub inflated_bytes: u64,
    /// Bytes still in the balloon at the end.
    pub left_bytes: u64,
    /// Checks that failed.
    pub failures: u64,
}
