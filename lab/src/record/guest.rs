//! What only a booted guest has to tell: [`Asked`], [`DimmSlots`], [`Kernel`], [`Selftest`],
//! [`Bench`], [`Descriptors`], [`DeferredWork`], [`Zeroed`], [`Swept`].

use super::phase::Word;
use serde::{Deserialize, Serialize};

pub use firstlight_wire::{DeferredWork, Selftest};

/// The state of the guest's page descriptors.
pub type Descriptors = firstlight_wire::Descriptors<String>;

/// The machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asked {
    /// QEMU's name of the board: `q35`, `pc` or `microvm`.
    pub board: Word,
    /// Its memory, what firmware keeps of it included.
    pub memory_bytes: u64,
    /// Nodes that firmware describes.
    pub nodes: u64,
    /// CPUs.
    pub cpus: u64,
    /// What starts the kernel: `loader`, which is QEMU's own, or `uefi`.
    #[serde(default = "loader")]
    pub firmware: Word,
    /// Whether it has a memory balloon.
    #[serde(default)]
    pub balloon: bool,
    /// Its slots for DIMMs.
    #[serde(default)]
    pub hotplug: Option<DimmSlots>,
}

fn loader() -> Word {
    "loader".into()
}

/// Slots for DIMMs that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DimmSlots {
    /// How many.
    pub slots: u32,
    /// Most memory, with what is there from the start.
    pub max_memory_bytes: u64,
}

/// The kernel that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kernel {
    /// `image` or `linux`.
    pub kind: Word,
    /// What it calls itself: the release of a Linux, the version of our image.
    pub release: Option<String>,
    /// The file it came from; `None` for the image that belongs to this program.
    pub file: Option<String>,
    /// The initial file system it was given.
    pub initrd: Option<String>,
}

/// One workload the guest measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bench {
    /// The allocator.
    pub contestant: String,
    /// Its name.
    pub workload: String,
    /// Order of the blocks: 2^order frames.
    pub order: u8,
    /// CPUs that did it at the same time.
    pub threads: u64,
    /// Operations in all.
    pub operations: u64,
    /// How long they took; `None` if the frequency of the guest's clock is not known.
    pub duration_ns: Option<u64>,
}

/// Memory that the guest allocated as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Zeroed {
    /// Bytes that were allocated, in blocks of 2 MiB.
    pub allocated_bytes: u64,
    /// Bytes of these that were zeroed when they were allocated.
    pub zeroed_bytes: u64,
    /// Free bytes that were known to be zero before.
    pub known_zero_bytes: u64,
    /// Blocks that were known to be zero and were not, found by a check and zeroed.
    pub wrong_blocks: u64,
    /// How long allocation took; `None` if the frequency of the guest's clock is not known.
    pub duration_ns: Option<u64>,
}

/// One writing of descriptors in a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Swept {
    /// The node; `None`: all at once.
    pub node: Option<u16>,
    /// `deferred` or `whole`.
    pub part: String,
    /// How the work was cut: as Linux's `padata` does, or `stealing`.
    pub chunking: String,
    /// Bytes of a descriptor.
    pub descriptor_bytes: u64,
    /// Threads a node.
    pub threads: u64,
    /// CPUs there.
    pub cpus: u64,
    /// Frames described.
    pub pages: u64,
    /// Bytes of descriptors.
    pub bytes_written: u64,
    /// How long it took; `None` if the frequency of the guest's clock is not known.
    pub duration_ns: Option<u64>,
}
