//! The record of one run: what `--json` prints and every report is made from.
//!
//! Schema `firstlight.run/1`, the same for a machine brought up in a process
//! (`kind` "up"), for one that was booted ("boot"), and for a boot of which there is a
//! log and nothing else ("log"). Frames are 4 KiB; `start`
//! and `end` of ranges are half open; times are nanoseconds from where [`TimeBase`] says.
//! What is not known is `None`, printed as `null`, and never 0.
//!
//! What a boot owes to the host it ran on lies in [`Host`] alone. All the rest is
//! the guest's, and on the clock "instructions" it is the same from run to run.

mod balloon;
mod gap;
mod guest;
mod host;
mod hotplug;
mod phase;
mod restart;
mod step;
mod time_base;
mod totals;

use serde::Serialize;

pub use balloon::{Balloon, GuestStatistics, Knob, Resident};
pub use gap::{Gap, Said};
pub use guest::{
    Asked, Bench, DeferredWork, Descriptors, DimmSlots, Kernel, Selftest, Swept, Zeroed,
};
pub use host::{Host, Marker, Power};
pub use hotplug::Hotplugged;
pub use phase::{Phase, Word};
pub use restart::{FreeFrames, Restart};
pub use step::{MOST_STEPS, Step};
pub use time_base::{From, TimeBase};
pub use totals::Totals;

/// Name and version of the record's form.
pub const SCHEMA: &str = "firstlight.run/1";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `up`, `boot` or `log`.
    pub kind: &'static str,
    /// Which clock the times are from: `wall` or `instructions`.
    pub clock: &'static str,
    /// What the times count from.
    pub time_base: TimeBase,
    /// Where the machine's description came from.
    pub source: Source,
    /// Its size.
    pub machine: Machine,
    /// When what was ready.
    pub milestones: Milestones,
    /// What was done one after the other.
    pub phases: Vec<Phase>,
    /// The longest spans between two lines of the log, the longest first.
    pub gaps: Vec<Gap>,
    /// The slowest initcalls of a Linux with `initcall_debug`, [`MOST_STEPS`] at most; where its log
    /// names none, the field is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub initcalls: Vec<Step>,
    /// The slowest services, the same, by systemd's lines or `systemd-analyze`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Step>,
    /// Where the whole restart went.
    pub totals: Totals,
    /// Frames and what they cost.
    pub memory: Memory,
    /// The memory map.
    pub regions: Vec<Region>,
    /// Nodes, ascending.
    pub nodes: Vec<Node>,
    /// Zones, by node.
    pub zones: Vec<Zone>,
    /// What firmware said wrongly and what was made of it.
    pub corrections: Vec<String>,
    /// What could not be read and what was used instead.
    pub notes: Vec<String>,
    /// What real threads did with the memory; of `up` only.
    pub exercise: Option<Exercise>,
    /// What the guest's check of its allocator came to, if it made one.
    pub selftest: Option<Selftest>,
    /// What the guest measured, if it measured.
    pub bench: Vec<Bench>,
    /// How far the guest's page descriptors are, if it keeps any.
    pub descriptors: Option<Descriptors>,
    /// How its deferred descriptors were divided among CPUs.
    pub deferred_work: Option<DeferredWork>,
    /// What a sweep over numbers of threads measured, in order.
    pub sweep: Vec<Swept>,
    /// Memory that it allocated as zeros, if it was to.
    pub zeroed: Option<Zeroed>,
    /// The use of its memory balloon, if it has one.
    pub balloon: Option<Balloon>,
    /// Its restart without firmware, if there was one.
    pub restart: Option<Restart>,
    /// DIMMs that came while it ran, or were to go, in order.
    pub hotplug: Vec<Hotplugged>,
    /// The guest's events as it told them.
    pub events: Vec<serde_json::Value>,
    /// The guest's log, line by line.
    pub log: Vec<String>,
    /// Host and virtual machine monitor; of `boot` only.
    pub host: Option<Host>,
}

impl Record {
    /// One of a Linux by the clock on the wall, of which only the name of its source is known.
    pub(crate) fn of_linux(kind: &'static str, name: &str) -> Self {
        let mut record = Self::new(kind, "wall");
        record.source.kind = "linux".into();
        record.source.name = name.to_owned();
        record.source.kernel = Some(Kernel {
            kind: "linux".into(),
            release: None,
            file: None,
            initrd: None,
        });
        record
    }

    /// Bytes of a frame: what the machine's memory divides into, 4 KiB where that is no size of pages.
    ///
    /// ```
    /// use firstlight_lab::record::Record;
    /// let mut record = Record::new("boot", "instructions");
    /// record.memory.present_frames = Some(1 << 16);
    /// for (memory_bytes, page_bytes) in [(1 << 30, 16 << 10), (4 << 30, 64 << 10), (3 << 30, 4096)] {
    ///     record.machine.memory_bytes = Some(memory_bytes);
    ///     assert_eq!(record.page_bytes(), page_bytes);
    /// }
    /// ```
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        let frames = self.memory.present_frames.unwrap_or(0);
        [16 << 10, 64 << 10]
            .into_iter()
            .find(|bytes| frames > 0 && frames.checked_mul(*bytes) == self.machine.memory_bytes)
            .unwrap_or(firstlight::addr::PAGE_BYTES)
    }

    /// A record in which nothing has been told yet.
    ///
    /// ```
    /// use firstlight_lab::record::Record;
    /// let record = Record::new("boot", "instructions");
    /// assert_eq!(record.milestones.entry_ns, None);
    /// ```
    #[must_use]
    pub fn new(kind: &'static str, clock: &'static str) -> Self {
        Self {
            schema: SCHEMA,
            kind,
            clock,
            time_base: TimeBase::default(),
            source: Source::default(),
            machine: Machine::default(),
            milestones: Milestones::default(),
            phases: Vec::new(),
            gaps: Vec::new(),
            initcalls: Vec::new(),
            services: Vec::new(),
            totals: Totals::default(),
            memory: Memory::default(),
            regions: Vec::new(),
            nodes: Vec::new(),
            zones: Vec::new(),
            corrections: Vec::new(),
            notes: Vec::new(),
            exercise: None,
            selftest: None,
            bench: Vec::new(),
            descriptors: None,
            deferred_work: None,
            sweep: Vec::new(),
            zeroed: None,
            balloon: None,
            restart: None,
            hotplug: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
            host: None,
        }
    }

    /// Whether it says when anything was.
    pub(crate) fn has_times(&self) -> bool {
        let stamped = self.milestones != Milestones::default();
        stamped || !self.gaps.is_empty() || !self.phases.is_empty()
    }
}

/// Where the machine's description came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// `this-machine`, `log`, `directory`, `table` or `shape` of `up`;
    /// `image` or `linux` of `boot`.
    pub kind: Word,
    /// File, directory or shape; empty for this machine and for our own image.
    pub name: String,
    /// What the memory map was read from.
    pub map: String,
    /// What the nodes were read from.
    pub nodes: String,
    /// The command line that was applied.
    pub command_line: String,
    /// The kernel that ran; of `boot` only.
    pub kernel: Option<Kernel>,
    /// The cell of the matrix that booted it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
}

/// How large the machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Memory that can be handed out, in whole pages.
    pub memory_bytes: Option<u64>,
    /// Nodes, those without memory among them.
    pub nodes: Option<u64>,
    /// CPUs; 0 if `up` could not count them.
    pub cpus: Option<u64>,
    /// The machine that was asked for; of `boot` only.
    pub asked: Option<Asked>,
}

/// When what was ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Milestones {
    /// Firmware started the UEFI loader. This and the two that follow: by the time stamp counter, as the loader
    /// read it.
    pub loader_entered_ns: Option<u64>,
    /// The UEFI loader had read and placed the image.
    pub loader_read_ns: Option<u64>,
    /// UEFI's boot services had ended.
    pub boot_services_ended_ns: Option<u64>,
    /// The kernel began: until here it was firmware and loader.
    pub entry_ns: Option<u64>,
    /// Nodes and zones were known.
    pub layout_ns: Option<u64>,
    /// The first frame was handed out.
    pub first_frame_ns: Option<u64>,
    /// Any frame of the machine could be handed out.
    pub all_allocatable_ns: Option<u64>,
    /// All CPUs ran.
    pub cpus_started_ns: Option<u64>,
    /// Every frame had its descriptor, where they were written behind the boot.
    pub all_described_ns: Option<u64>,
}

/// Frames and what they cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// Frames of memory, reserved ones among them.
    pub present_frames: Option<u64>,
    /// Frames the allocator may hand out.
    pub managed_frames: Option<u64>,
    /// Frames that were taken before the allocator began.
    pub reserved_frames: Option<u64>,
    /// Metadata written when all memory was allocatable.
    pub metadata_written_bytes: Option<u64>,
    /// Address space set aside for metadata.
    pub metadata_reserved_bytes: Option<u64>,
    /// Metadata in memory when all memory was allocatable, counted by the
    /// operating system.
    pub metadata_resident_bytes: Option<u64>,
}

/// A row of the memory map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// What it is.
    pub kind: Word,
    /// Mirrored memory.
    pub more_reliable: bool,
    /// Set aside for a device's driver.
    pub special_purpose: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Its number.
    pub node: u16,
    /// Firmware's number for it.
    pub domain: Option<u32>,
    /// Its CPUs.
    pub cpus: Option<u64>,
    /// First frame it spans.
    pub start_frame: u64,
    /// First frame after it.
    pub end_frame: u64,
    /// Frames of memory.
    pub present_frames: u64,
    /// To each node, in ascending order; empty on a machine of more than 1,024
    /// nodes, where all others are as far, and where it is not known.
    pub distances: Vec<u8>,
}

/// A zone of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Zone {
    /// Its node.
    pub node: u16,
    /// Its name as kernels print it.
    pub zone: Word,
    /// First frame it spans.
    pub start_frame: u64,
    /// Frames it spans, holes included.
    pub spanned_frames: u64,
    /// Frames of memory.
    pub present_frames: u64,
}

/// What real threads did with the memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exercise {
    /// How many threads.
    pub threads: u64,
    /// Threads that could not be kept on their CPU.
    pub unpinned_threads: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Requests for which no memory was left; small machines have few.
    pub refusals: u64,
    /// Frames handed out when all memory was taken at once.
    pub drained_frames: u64,
    /// Blocks that took.
    pub drained_blocks: u64,
    /// How long allocating and freeing took.
    pub duration_ns: u64,
}
