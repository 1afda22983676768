//! The interface between the bare-metal image and the program that boots it, in
//! one place for both: the image writes, `firstlight-lab` reads.
//!
//! - [`Event`]: one JSON object a line, schema [`SCHEMA`];
//! - [`Outcome`]: how a run ended, as an exit code and as a word;
//! - [`marker`]: bytes on a port that the host sees at once;
//! - [`phase`], [`milestone`]: names in events that have a meaning to the reader;
//! - [`handover`]: what the UEFI loader hands to the image; [`parts`], a result on its way back;
//! - [`MOST_THREADS`], [`DESCRIPTOR_BYTES`]: bounds of the image's command line.
//!
//! Reading needs the feature `read`.
#![no_std]
#![deny(unsafe_code)]

mod event;
pub mod handover;
mod outcome;
pub mod parts;

pub use event::{
    Balloon, DeferredWork, Descriptors, Event, HandedOver, Hotplug, Restart, Selftest, Zeroed,
};
pub use outcome::Outcome;

/// Name and version of the events' form, in the first one.
pub const SCHEMA: &str = "firstlight.events/1";
/// Precedes an event on a port that also carries the log.
pub const MARK: &str = "@firstlight ";
/// Most numbers in the word `threads=` of the image's command line.
pub const MOST_THREADS: usize = 16;
/// Sizes that the word `descriptor_bytes=` of the image's command line can have.
pub const DESCRIPTOR_BYTES: [u32; 3] = [8, 16, 64];

/// Bytes that the image writes to port 0x80 when it reaches a point.
///
/// `entry.s` writes the first two itself: 0x10 at the first instruction, 0x11 in
/// long mode.
pub mod marker {
    /// The port.
    pub const PORT: u16 = 0x80;
    /// The memory map is sorted and disjoint.
    pub const MEMORY_MAP: u8 = 0x20;
    /// All memory is mapped.
    pub const PAGE_TABLES: u8 = 0x21;
    /// Nodes are known.
    pub const TOPOLOGY: u8 = 0x22;
    /// Zones are known.
    pub const LAYOUT: u8 = 0x23;
    /// The allocator's tables are reserved.
    pub const FRAME_ALLOCATOR: u8 = 0x24;
    /// All memory can be allocated.
    pub const FIRST_FRAME: u8 = 0x25;
    /// Space for descriptors is reserved.
    pub const DESCRIPTORS: u8 = 0x26;
    /// The clock's frequency is known.
    pub const CLOCK: u8 = 0x30;
    /// The other CPUs have been started.
    pub const OTHER_CPUS: u8 = 0x31;
    /// The mode begins.
    pub const MODE: u8 = 0x40;
    /// With a balloon: memory is allocated and written.
    pub const BALLOON_WRITTEN: u8 = 0x50;
    /// It is free again.
    pub const BALLOON_FREED: u8 = 0x51;
    /// All of it that is to be reported is.
    pub const BALLOON_REPORTED: u8 = 0x52;
    /// Memory is handed over; the next kernel begins with 0x10.
    pub const HANDED_OVER: u8 = 0x42;
    /// Memory hotplug is served from now on.
    pub const HOTPLUG: u8 = 0x54;
    /// The mode has ended.
    pub const MODE_END: u8 = 0x41;
    /// The processor reported a fault.
    pub const FAULT: u8 = 0xf0;
    /// The image panicked.
    pub const PANIC: u8 = 0xf1;
}

/// Names of [`Event::Phase`]: the steps, one after the other.
pub mod phase {
    /// From the start of the machine to the image's first instruction.
    pub const FIRMWARE: &str = "firmware and loader";
    /// From the previous kernel's last instruction to the image's first, of a restart.
    pub const RESTART: &str = "restart";
    /// Page protection and exceptions.
    pub const PROCESSOR: &str = "processor";
    /// The loader's map, sorted and disjoint.
    pub const MEMORY_MAP: &str = "memory map";
    /// Everything in use is reserved, all memory mapped.
    pub const PAGE_TABLES: &str = "page tables";
    /// ACPI tables, nodes.
    pub const TOPOLOGY: &str = "topology";
    /// Nodes, zones, extents.
    pub const LAYOUT: &str = "layout";
    /// Space for descriptors, and those written before the boot goes on.
    pub const DESCRIPTORS: &str = "descriptors";
    /// The allocator's tables.
    pub const FRAME_ALLOCATOR: &str = "frame allocator";
    /// The first allocation.
    pub const FIRST_FRAME: &str = "first frame";
    /// A first touch of a page's descriptor.
    pub const FIRST_DESCRIBED_FRAME: &str = "first described frame";
    /// A large hash table, with `regress=hash-buckets` only.
    pub const HASH_TABLES: &str = "hash tables";
    /// Memory blocks, with `regress=small-blocks` only.
    pub const MEMORY_BLOCKS: &str = "memory blocks";
    /// The frequency of the time stamp counter.
    pub const CLOCK: &str = "clock";
    /// Starting the other CPUs.
    pub const OTHER_CPUS: &str = "other CPUs";
    /// Descriptors that workers write.
    pub const DEFERRED_DESCRIPTORS: &str = "deferred descriptors";
}

/// Names of [`Event::Milestone`].
pub mod milestone {
    /// Firmware began to run, by its own clock.
    pub const FIRMWARE_STARTED: &str = "firmware_started";
    /// Firmware began to load the UEFI loader, by its own clock.
    pub const LOADER_LOADING: &str = "loader_loading";
    /// Firmware started the UEFI loader, by its own clock.
    pub const LOADER_STARTING: &str = "loader_starting";
    /// The loader called `ExitBootServices`, by firmware's clock.
    pub const BOOT_SERVICES_ENDING: &str = "boot_services_ending";
    /// That call was about to return, by firmware's clock.
    pub const BOOT_SERVICES_LEFT: &str = "boot_services_left";
    /// Firmware started the UEFI loader.
    pub const LOADER_ENTERED: &str = "loader_entered";
    /// The UEFI loader had read the image.
    pub const LOADER_READ: &str = "loader_read";
    /// UEFI's boot services had ended.
    pub const BOOT_SERVICES_ENDED: &str = "boot_services_ended";
    /// The image's first instruction.
    pub const ENTRY: &str = "entry";
    /// Nodes and zones are known.
    pub const LAYOUT: &str = "layout";
    /// A frame has been allocated.
    pub const FIRST_FRAME: &str = "first_frame";
    /// Any frame could be allocated.
    pub const ALL_ALLOCATABLE: &str = "all_allocatable";
    /// All CPUs run.
    pub const CPUS_STARTED: &str = "cpus_started";
    /// Every page has its descriptor.
    pub const ALL_DESCRIBED: &str = "all_described";

    /// The clock of a milestone before the image's entry: `tsc`, the time stamp counter as the loader read it, or
    /// `fpdt`, that of firmware's performance data table. None of those from the entry on.
    ///
    /// ```
    /// use firstlight_wire::milestone;
    /// assert_eq!(milestone::source(milestone::LOADER_ENTERED), Some("tsc"));
    /// assert_eq!(milestone::source(milestone::ENTRY), None);
    /// ```
    pub fn source(name: &str) -> Option<&'static str> {
        match name {
            LOADER_ENTERED | LOADER_READ | BOOT_SERVICES_ENDED => Some("tsc"),
            FIRMWARE_STARTED | LOADER_LOADING | LOADER_STARTING | BOOT_SERVICES_ENDING
            | BOOT_SERVICES_LEFT => Some("fpdt"),
            _ => None,
        }
    }
}
