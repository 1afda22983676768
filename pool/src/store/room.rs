//! Whether there is memory for a slab, by files of the kernel that stay open.

use super::key::Key;
use crate::os::cgroup_memory::Limits;
use crate::os::hugepages::{self, Counts, KeptCounts};
use crate::os::kept::KeptFile;
use crate::protocol::PageSize;
use firstlight_host::meminfo;
use std::collections::BTreeMap;
use std::path::Path;

/// Where the machine says how much memory is available.
const MEMINFO: &str = "/proc/meminfo";

/// What the kernel says of memory.
#[derive(Debug)]
pub(super) struct Room {
    meminfo: Option<KeptFile>,
    pub(super) limits: Limits,
    /// Of the pages that classes need, by size and node.
    counts: BTreeMap<(PageSize, Option<u32>), KeptCounts>,
}

impl Room {
    /// Of this machine, and of the cgroup that the daemon is in.
    pub(super) fn of_machine() -> Self {
        // Without descriptors for them nothing is known of limits; nor can much else be done then.
        Self::with(Path::new(MEMINFO), Limits::open().unwrap_or_default())
    }

    pub(super) fn with(meminfo: &Path, limits: Limits) -> Self {
        Self {
            meminfo: KeptFile::open(meminfo).ok(),
            limits,
            counts: BTreeMap::new(),
        }
    }

    /// Opens the counts of a class's pages, once, on its node and on the machine. Where that fails nothing is known of
    /// them.
    pub(super) fn know(&mut self, key: Key) {
        self.know_in(Path::new(hugepages::SYS), key);
    }

    fn know_in(&mut self, sys: &Path, key: Key) {
        for place in [(key.page, key.node), (key.page, None)] {
            if key.page == PageSize::Transparent || self.counts.contains_key(&place) {
                continue;
            }
            if let Ok(Some(counts)) = KeptCounts::open(sys, key.page.bytes(), place.1) {
                self.counts.insert(place, counts);
            }
        }
    }

    /// Bytes of such pages that the machine has in use or has promised, as far as that is known.
    pub(super) fn in_use_bytes(&self, page: PageSize) -> u64 {
        let counts = self.counts.get(&(page, None));
        let Some(Ok(counts)) = counts.map(KeptCounts::counts) else {
            return u64::MAX;
        };
        let in_use = counts.total_pages.saturating_sub(counts.free_pages);
        (in_use + counts.promised_pages).saturating_mul(page.bytes())
    }

    /// Whether the kernel has free pages for `bytes` more of a slab, beside what slabs of these classes that are
    /// being filled still lack; else what to do.
    pub(super) fn allows(
        &self,
        key: Key,
        bytes: u64,
        others: impl Iterator<Item = (Key, u64)>,
    ) -> Result<(), String> {
        let claimed = claimed(key, others);
        if key.page == PageSize::Transparent {
            return self.allows_transparent(bytes, claimed);
        }
        let Some(counts) = self.counts(key) else {
            return Ok(());
        };
        let free = counts.available_pages();
        let needed = bytes / key.page.bytes();
        let claimed = claimed / key.page.bytes();
        if free.saturating_sub(claimed) >= needed {
            return Ok(());
        }
        let setting = hugepages::setting(Path::new(hugepages::SYS), key.page.bytes(), key.node);
        Err(format!(
            "a slab needs {needed} huge pages of {}, {free} of {} are free{}; set more aside in {}",
            key.page,
            counts.total_pages,
            but_claimed(claimed, ""),
            setting.display()
        ))
    }

    /// Bytes that the kernel has free beside what slabs of these classes still lack, as far as is known.
    pub(super) fn left_bytes(&self, key: Key, others: impl Iterator<Item = (Key, u64)>) -> u64 {
        let claimed = claimed(key, others);
        let free = if key.page == PageSize::Transparent {
            let space = self
                .limits
                .space()
                .map_or(u64::MAX, |space| space.left_bytes);
            self.available_bytes().min(space) / 10 * 9
        } else {
            let pages = self.counts(key).map(|counts| counts.available_pages());
            pages.map_or(u64::MAX, |pages| pages.saturating_mul(key.page.bytes()))
        };
        free.saturating_sub(claimed)
    }

    /// Those of a class's huge pages, on its node.
    fn counts(&self, key: Key) -> Option<Counts> {
        self.counts.get(&(key.page, key.node))?.counts().ok()
    }

    /// Of memory, as far as is known.
    fn available_bytes(&self) -> u64 {
        let text = self
            .meminfo
            .as_ref()
            .and_then(|meminfo| meminfo.read().ok());
        let available = text.and_then(|text| meminfo::available(&text));
        available.unwrap_or(u64::MAX)
    }

    /// Nothing takes a tmpfs' pages back: too many, and other programs are killed. Nor does anything take them
    /// from a cgroup, whose processes are killed then.
    fn allows_transparent(&self, bytes: u64, claimed: u64) -> Result<(), String> {
        let fits = |left: u64| bytes <= left.saturating_sub(claimed) / 10 * 9;
        let but = but_claimed(claimed >> 20, " MiB");
        if let Some(space) = self.limits.space().filter(|space| !fits(space.left_bytes)) {
            return Err(format!(
                "a slab needs {} MiB, and of the {} MiB that {} may use {} MiB are left{but}: keep \
                 fewer or smaller slabs, or raise its limit (MemoryMax=)",
                bytes >> 20,
                space.limit_bytes >> 20,
                space.cgroup.display(),
                space.left_bytes >> 20
            ));
        }
        let available = self.available_bytes();
        if fits(available) {
            return Ok(());
        }
        Err(format!(
            "a slab needs {} MiB, and of memory {} MiB are available{but}: keep fewer or smaller slabs",
            bytes >> 20,
            available >> 20
        ))
    }
}

/// Of what others claim, the bytes that a slab of this class could have had.
fn claimed(key: Key, others: impl Iterator<Item = (Key, u64)>) -> u64 {
    // What is available is not counted by node.
    let is_of_all = key.page == PageSize::Transparent || key.node.is_none();
    // What may be of any node may be of this one.
    let is_here = |node: Option<u32>| is_of_all || node.is_none() || node == key.node;
    let same = |other: &Key| other.page == key.page && is_here(other.node);
    let claimed = others.filter(|(other, _)| same(other));
    claimed.map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
}

/// That slabs that are being filled will need some of it.
fn but_claimed(claimed: u64, unit: &str) -> String {
    if claimed == 0 {
        return String::new();
    }
    format!(" but {claimed}{unit} for slabs that are being filled or replaced")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meminfo");
        std::fs::write(&path, "MemAvailable: 102400 kB\n").unwrap();
        let room = Room::with(&path, Limits::default());
        let key = |page, node| Key {
            page,
            node,
            bytes: 2 << 20,
        };
        let thp = key(PageSize::Transparent, None);
        let allows = |bytes: u64, under_way: &[(Key, u64)]| {
            room.allows(
                thp,
                bytes << 20,
                under_way.iter().map(|(key, bytes)| (*key, bytes << 20)),
            )
        };
        assert_eq!(allows(90, &[]), Ok(()));
        assert_eq!(allows(45, &[(thp, 40), (thp, 10)]), Ok(()));
        let said = allows(46, &[(thp, 40), (thp, 10)]).unwrap_err();
        let words = "of memory 100 MiB are available but 50 MiB for slabs that are being filled or replaced:";
        assert!(said.contains(words), "{said}");
        // Reserved pages are taken from no other memory.
        assert_eq!(allows(90, &[(key(PageSize::Huge, None), 1 << 20)]), Ok(()));
        // What is available is not counted by node.
        let at = |node| key(PageSize::Transparent, Some(node));
        let beside = [(at(0), 20 << 20)].into_iter();
        assert!(room.allows(at(1), 90 << 20, beside).is_err());
    }

    /// What is to be of any node may take a node's pages, and what is to be of one node is of all.
    #[test]
    fn huge_pages_are_counted_by_node_and_what_is_of_any_node_counts_on_each() {
        const PAGE: u64 = 2 << 20;
        let sys = tempfile::tempdir().unwrap();
        let nodes = [None, Some(0), Some(1)];
        for (node, free) in nodes.into_iter().zip([6, 4, 2]) {
            let setting = hugepages::setting(sys.path(), PAGE, node);
            let folder = setting.parent().unwrap();
            std::fs::create_dir_all(folder).unwrap();
            for (name, number) in [("nr_hugepages", 8), ("free_hugepages", free)] {
                std::fs::write(folder.join(name), format!("{number}\n")).unwrap();
            }
        }
        let mut room = Room::with(Path::new("/nothing"), Limits::default());
        let key = |node, pages: u64| Key {
            page: PageSize::Huge,
            node,
            bytes: pages * PAGE,
        };
        for node in nodes {
            room.know_in(sys.path(), key(node, 1));
        }
        let allows = |node, pages, others: &[(Option<u32>, u64)]| {
            let others = others.iter().map(|(node, pages)| key(*node, *pages));
            let others = others.map(|key| (key, key.bytes));
            let is_allowed = room
                .allows(key(node, pages), pages * PAGE, others.clone())
                .is_ok();
            let left = room.left_bytes(key(node, pages), others);
            assert_eq!(is_allowed, left >= pages * PAGE);
            is_allowed
        };
        assert!(allows(Some(0), 4, &[]) && !allows(Some(0), 5, &[]));
        assert!(allows(Some(0), 4, &[(Some(1), 2)]));
        assert!(allows(Some(0), 3, &[(None, 1)]) && !allows(Some(0), 4, &[(None, 1)]));
        assert!(allows(None, 4, &[(Some(0), 1), (Some(1), 1)]));
        assert!(!allows(None, 5, &[(Some(0), 1), (Some(1), 1)]));
        // Where a count cannot be read nothing is known: the kernel says whether there are pages.
        let setting = hugepages::setting(sys.path(), PAGE, Some(0));
        std::fs::write(setting.with_file_name("free_hugepages"), "many\n").unwrap();
        assert!(allows(Some(0), 1 << 40, &[(None, 1 << 40)]) && !allows(Some(1), 3, &[]));
    }
}
