//! What names a class, and whether there is memory for one of its slabs.

use crate::os::{cgroup_memory, hugepages};
use crate::protocol::PageSize;
use firstlight_host::meminfo;
use std::path::Path;

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

    /// Whether the kernel has free pages for `bytes` of a slab; else what to do.
    pub(crate) fn room(&self, bytes: u64) -> Result<(), String> {
        if self.page == PageSize::Transparent {
            // Nothing takes a tmpfs' pages back: too many, and other programs are killed.
            // Nor does anything take them from a cgroup, whose processes are killed then.
            let space = cgroup_memory::space().filter(|space| bytes > space.left_bytes / 10 * 9);
            if let Some(space) = space {
                return Err(format!(
                    "a slab needs {} MiB, and of the {} MiB that {} may use {} MiB are left: keep \
                     fewer or smaller slabs, or raise its limit (MemoryMax=)",
                    bytes >> 20,
                    space.limit_bytes >> 20,
                    space.cgroup.display(),
                    space.left_bytes >> 20
                ));
            }
            let available = meminfo::available_bytes().unwrap_or(u64::MAX);
            if bytes <= available / 10 * 9 {
                return Ok(());
            }
            return Err(format!(
                "a slab needs {} MiB, and of memory {} MiB are available: keep fewer or smaller slabs",
                bytes >> 20,
                available >> 20
            ));
        }
        let sys = Path::new(hugepages::SYS);
        let counts = hugepages::counts(sys, self.page.bytes(), self.node);
        let Ok(Some(counts)) = counts else {
            return Ok(());
        };
        let free = counts.free_pages.saturating_sub(counts.promised_pages);
        let needed = bytes / self.page.bytes();
        if free >= needed {
            return Ok(());
        }
        let place = match self.node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
            None => "/sys/kernel/mm/hugepages".into(),
        };
        Err(format!(
            "a slab needs {needed} huge pages of {}, {free} of {} are free; set more aside in {place}/hugepages-{}kB/nr_hugepages",
            self.page,
            counts.total_pages,
            self.page.bytes() >> 10
        ))
    }
}
