//! What only a booted guest has to tell: [`Asked`], [`Kernel`], [`Selftest`],
//! [`Bench`].

use super::Word;
use serde::{Deserialize, Serialize};

/// The machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// QEMU's name of the board: `q35`, `pc` or `microvm`.
    pub board: Word,
    /// Its memory, what firmware keeps of it included.
    pub memory_bytes: u64,
    /// Nodes that firmware describes.
    pub nodes: u64,
    /// CPUs.
    pub cpus: u64,
}

/// The kernel that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// What the guest's check of its allocator came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selftest {
    /// CPUs that took part.
    pub cpus: u64,
    /// Blocks allocated.
    pub allocated_blocks: u64,
    /// Blocks freed.
    pub freed_blocks: u64,
    /// Frames handed out when all memory was taken at once.
    pub all_frames: u64,
    /// Checks that failed.
    pub failures: u64,
}

/// One workload the guest measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bench {
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
