//! What only a booted guest has to tell: [`Asked`], [`Kernel`], [`Selftest`],
//! [`Bench`], [`Descriptors`], [`Swept`].

use super::Word;
use serde::{Deserialize, Serialize};

/// The machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The allocator that did it; `None` if the guest did not say.
    pub contestant: Option<String>,
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

/// How far the guest's page descriptors are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptors {
    /// When they are written: `lazy`, `early` or `eager`.
    pub mode: String,
    /// What writes them.
    pub writer: String,
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
    /// Bytes they have room in.
    pub reserved_bytes: u64,
    /// Frames whose descriptors were looked at.
    pub checked_frames: u64,
    /// Of these, those that did not hold what they should.
    pub wrong_frames: u64,
}

/// One writing of descriptors in a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
