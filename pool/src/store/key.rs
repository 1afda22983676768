//! What names a class.

use crate::protocol::PageSize;

/// What names a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// What backs its slabs.
    pub page: PageSize,
    /// Where they lie; `None` where that is left to the kernel.
    pub node: Option<u32>,
    /// Bytes of a slab.
    pub bytes: u64,
}

impl Key {
    /// What `statfs` calls a block of a file with such pages.
    pub(super) fn block_bytes(&self) -> u64 {
        match self.page {
            PageSize::Transparent => rustix::param::page_size() as u64,
            reserved => reserved.bytes(),
        }
    }
}
