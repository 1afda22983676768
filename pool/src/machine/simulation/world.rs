//! What outlives the daemon: inodes with their marks, the journal, lease pipes, the service
//! manager's descriptors, pages; and what clients hold of it.

use super::life::M;
use crate::lease::journal::Record;
use crate::lease::{Grant, Serial};
use crate::protocol::GrantId;
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet};

/// A client, never used twice.
pub(super) type ClientId = u64;

/// An inode's number, never used twice.
pub(super) type InodeId = u64;

/// The mark on an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Filling,
    Clean,
    Allocated,
}

/// A file of memory, in a mount of its own or in none.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) key: Key,
    pub(super) is_memfd: bool,
    pub(super) mark: Mark,
    pub(super) bytes: u64,
    /// Bytes of pages in it.
    pub(super) held_bytes: u64,
    /// Whether its pages are all as the kernel made them.
    pub(super) is_zero: bool,
    /// Clients that have it open or mapped.
    pub(super) holders: BTreeSet<ClientId>,
    /// Every client it was given to since it was zero.
    pub(super) given_to: Vec<ClientId>,
    pub(super) ever_given: bool,
    /// Bytes that its client keeps pinned when its pages are taken away.
    pub(super) pin_bytes: u64,
    /// Pinned, and in no file any more: its mount counts them.
    pub(super) stray_bytes: u64,
    /// Reserved by a client, until it is emptied.
    pub(super) reserved_bytes: u64,
}

impl Inode {
    /// Bytes that its mount counts, or its file where it is in none.
    pub(super) fn used_bytes(&self) -> u64 {
        self.held_bytes + self.stray_bytes + self.reserved_bytes
    }
}

/// Everything but the daemon.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) next_inode: InodeId,
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    /// What this daemon has ever had open.
    pub(super) had: BTreeSet<InodeId>,
    /// The daemon's own descriptors.
    pub(super) files: BTreeMap<SlabId, InodeId>,
    /// The daemon's knowledge of the journal, and what is in the file.
    pub(super) records: BTreeMap<Serial, Record>,
    pub(super) journal: BTreeMap<Serial, Record>,
    pub(super) next_serial: Serial,
    /// Grants that are on file and have their folders.
    pub(super) grants: BTreeMap<GrantId, Grant>,
    /// The file is not what the daemon knows: it is written as a whole next time.
    pub(super) is_torn: bool,
    pub(super) is_full: bool,
    /// Writing ends of lease pipes that have a name.
    pub(super) pipes: BTreeMap<Serial, BTreeSet<ClientId>>,
    pub(super) has_manager: bool,
    pub(super) kept_slabs: BTreeMap<SlabId, InodeId>,
    pub(super) kept_leases: BTreeMap<Serial, InodeId>,
    pub(super) pages: BTreeMap<Node, Pages>,
}

/// A node; `None` where the machine has one, or a class is bound to none.
pub(super) type Node = Option<u32>;

/// Pages of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pages {
    pub(super) total_bytes: u64,
    /// Bytes of those that other processes have.
    pub(super) other_bytes: u64,
}

impl World {
    pub(super) fn free_bytes(&self, node: Node) -> u64 {
        let pages = self.pages.get(&node).copied().unwrap_or_default();
        let here = self.inodes.values().filter(|one| one.key.node == node);
        let used = here.map(Inode::used_bytes).sum::<u64>() + pages.other_bytes;
        pages.total_bytes.saturating_sub(used)
    }

    pub(super) fn create(&mut self, slab: SlabId, key: Key, is_memfd: bool) {
        let id = self.next_inode;
        self.next_inode += 1;
        let inode = Inode {
            key,
            is_memfd,
            mark: Mark::Filling,
            bytes: key.bytes,
            held_bytes: 0,
            is_zero: true,
            holders: BTreeSet::new(),
            given_to: Vec::new(),
            ever_given: false,
            pin_bytes: 0,
            stray_bytes: 0,
            reserved_bytes: 0,
        };
        self.inodes.insert(id, inode);
        self.files.insert(slab, id);
    }

    pub(super) fn inode(&mut self, slab: SlabId) -> Option<&mut Inode> {
        let id = self.files.get(&slab)?;
        self.inodes.get_mut(id)
    }

    /// What is in no hands vanishes, and its pages are free.
    pub(super) fn collect(&mut self) {
        let open = self.files.values().chain(self.kept_slabs.values());
        let open: BTreeSet<_> = open.chain(self.kept_leases.values()).copied().collect();
        self.inodes.retain(|id, inode| {
            open.contains(id) || !inode.holders.is_empty() || inode.stray_bytes > 0
        });
    }

    /// Takes one of an inode's pages away that is not pinned; whether there was such a one and
    /// more are left.
    pub(super) fn empty_a_part(&mut self, id: InodeId) -> bool {
        let Some(inode) = self.inodes.get_mut(&id) else {
            return false;
        };
        let is_part = inode.held_bytes >= inode.pin_bytes + 4 * M;
        inode.held_bytes -= if is_part { 2 * M } else { 0 };
        is_part
    }

    /// Takes an inode's pages away; what is pinned leaves the file and stays in use.
    pub(super) fn empty(&mut self, id: InodeId) {
        if let Some(inode) = self.inodes.get_mut(&id) {
            let pinned = inode.pin_bytes.min(inode.held_bytes);
            inode.stray_bytes = inode.stray_bytes.max(pinned);
            inode.held_bytes = 0;
            inode.reserved_bytes = 0;
            inode.bytes = 0;
        }
    }

    /// Writes what the daemon knows, if there is space.
    pub(super) fn record(
        &mut self,
        change: impl Fn(&mut BTreeMap<Serial, Record>),
    ) -> Result<(), String> {
        change(&mut self.records);
        if self.is_full {
            self.is_torn = true;
            return Err("no space left".into());
        }
        if self.is_torn {
            self.journal = self.records.clone();
            self.is_torn = false;
        } else {
            change(&mut self.journal);
        }
        Ok(())
    }
}
