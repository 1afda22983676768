//! The rows of a [`KernelLog`](super::KernelLog), by the file that reads them.

use super::rows::Span;

/// What a row says its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum E820Kind {
    /// Type 1: "usable", "System RAM".
    Usable,
    /// Type 2: "reserved", "device reserved"; also words nobody knows, with a problem.
    Reserved,
    /// Type 3: "ACPI data".
    AcpiData,
    /// Type 4: "ACPI NVS".
    AcpiNvs,
    /// Type 5: "unusable".
    Unusable,
    /// Type 7, or 12 by an older custom: "persistent (type N)".
    Persistent,
    /// Special purpose memory: "soft reserved".
    SoftReserved,
    /// A type without a name: "type N".
    Type(u32),
}

/// One row of a memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E820Row {
    /// The addresses.
    pub span: Span,
    /// What lies there.
    pub kind: E820Kind,
    /// Line number.
    pub line: usize,
}

/// A change the kernel made to the map after printing it: "e820: update", "e820: remove".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E820Change {
    /// The addresses.
    pub span: Span,
    /// What they were before.
    pub from: E820Kind,
    /// What they are now; `None` when removed.
    pub to: Option<E820Kind>,
    /// Line number.
    pub line: usize,
}

/// Memory of a proximity domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SratRow {
    /// The node the kernel made of the domain.
    pub node: u32,
    /// The firmware's proximity domain.
    pub domain: u32,
    /// The addresses.
    pub span: Span,
    /// Can be plugged in or out: maybe a window without memory.
    pub hotplug: bool,
    /// Keeps its content without power.
    pub non_volatile: bool,
    /// Line number.
    pub line: usize,
}

/// A processor of a proximity domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SratCpu {
    /// The node the kernel made of the domain.
    pub node: u32,
    /// The firmware's proximity domain.
    pub domain: u32,
    /// The processor's APIC identifier, on Arm its MPIDR.
    pub hardware_id: u64,
    /// Line number.
    pub line: usize,
}

/// Two nodes that claim the same memory, in the kernel's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOverlap {
    /// One node and its memory.
    pub one: (u32, Span),
    /// The other.
    pub other: (u32, Span),
    /// Line number.
    pub line: usize,
}

/// A range of memory and the node it is on ("Early memory node ranges", "NODE_DATA").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// The node.
    pub node: u32,
    /// The addresses.
    pub span: Span,
    /// Line number.
    pub line: usize,
}

/// What one node spans ("Initmem setup node").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpan {
    /// The node.
    pub node: u32,
    /// The addresses; `None` for a node without memory.
    pub span: Option<Span>,
    /// Line number.
    pub line: usize,
}

/// The addresses a zone may lie in ("Zone ranges").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRow {
    /// Name of the zone.
    pub zone: String,
    /// The addresses; `None` for an empty zone.
    pub span: Option<Span>,
    /// Line number.
    pub line: usize,
}

/// Where a node's Movable zone starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovableStart {
    /// The node.
    pub node: u32,
    /// First byte.
    pub start: u64,
    /// Line number.
    pub line: usize,
}

/// Page frames a zone spans that are not memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The node, where printed.
    pub node: Option<u32>,
    /// The zone, where printed.
    pub zone: Option<String>,
    /// Number of page frames.
    pub pages: u64,
    /// Line number.
    pub line: usize,
}

/// What `ZonePages` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesOf {
    /// Pages the zone has.
    Zone,
    /// Pages its descriptors take.
    Memmap,
    /// Pages set aside for devices.
    Reserved,
}

/// A count of a zone's pages ("Normal zone: 89391104 pages, LIFO batch:63").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePages {
    /// Name of the zone.
    pub zone: String,
    /// What is counted.
    pub of: PagesOf,
    /// The count.
    pub pages: u64,
    /// When the line was printed, in nanoseconds of the kernel's clock.
    pub stamp_ns: Option<u64>,
    /// Line number.
    pub line: usize,
}

/// A node whose deferred memory is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredRow {
    /// The node.
    pub node: u32,
    /// Pages initialised, where printed.
    pub pages: Option<u64>,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
    /// When the line was printed, in nanoseconds of the kernel's clock.
    pub stamp_ns: Option<u64>,
    /// Line number.
    pub line: usize,
}

/// One event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemblockEvent {
    /// What happened.
    pub what: MemblockAction,
    /// The code that asked, `function+0x12/0x34`.
    pub caller: String,
    /// Line number.
    pub line: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemblockAction {
    /// Memory was added.
    Add(Span),
    /// Memory was taken away.
    Remove(Span),
    /// A range was reserved, by a caller who named it or by an allocation.
    Reserve(Span),
    /// A reserved range was given back.
    Free(Span),
    /// Memory was asked for; the reservation that follows is the answer.
    Request(MemblockRequest),
}

/// An allocation as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemblockRequest {
    /// The function called, `memblock_alloc_try_nid` and its like.
    pub function: String,
    /// Bytes wanted.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Node wanted; `None` for any (printed as -1).
    pub node: Option<u32>,
    /// Lowest address.
    pub from: u64,
    /// Address not to be crossed; 0 for "what can be accessed".
    pub max: u64,
}

/// The whole state, as `MEMBLOCK configuration` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemblockDump {
    /// The memory ranges.
    pub memory: Vec<MemblockRow>,
    /// The reserved ranges.
    pub reserved: Vec<MemblockRow>,
    /// Line number of the heading.
    pub line: usize,
}

/// One range of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemblockRow {
    /// The addresses.
    pub span: Span,
    /// The node, once known.
    pub node: Option<u32>,
    /// Flags as printed: 1 hotplug, 2 mirror, 4 nomap, 8 driver managed, 16 no-init.
    pub flags: u64,
    /// Line number.
    pub line: usize,
}

/// Size of a page; on arm64 a choice of the build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB; also where a log does not say.
    #[default]
    Kib4,
    /// 16 KiB.
    Kib16,
    /// 64 KiB.
    Kib64,
}

impl PageSize {
    /// All sizes.
    pub const ALL: [Self; 3] = [Self::Kib4, Self::Kib16, Self::Kib64];

    /// log2 of its bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Kib4 => 12,
            Self::Kib16 => 14,
            Self::Kib64 => 16,
        }
    }

    /// Its bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// The kind of processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// x86-64; also where a log does not say.
    #[default]
    X86_64,
    /// arm64: `Booting Linux on physical CPU 0x0000000000 [0x411fd070]`, or the release says so.
    Arm64,
}
