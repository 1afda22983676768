//! What the service manager keeps over a restart: mounts with their files, and clean
//! files without a name.
//!
//! Of the latter, only a file that was never lent is handed over, and the manager is told to
//! let go of it when it is lent. Should the daemon die in between, the seal on
//! the file says what it is.

use crate::os::service;
use crate::protocol::PageSize;
use crate::store::slab::Slab;
use crate::store::{Key, Store};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What the manager passed in.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The socket clients connect to.
    pub(super) socket: Option<OwnedFd>,
    /// Mounts of an earlier daemon; `None` without a manager.
    pub(super) mounts: Option<Vec<(PageSize, OwnedFd)>>,
    /// Clean files of an earlier daemon, under their old names.
    pub(super) slabs: Vec<(String, OwnedFd)>,
}

impl Received {
    /// What there is; each descriptor by its name.
    ///
    /// # Errors
    /// Variables that make no sense.
    pub(super) fn new() -> io::Result<Self> {
        let mut received = Self {
            mounts: service::is_there().then(Vec::new),
            ..Self::default()
        };
        for (name, file) in service::received()? {
            if let Some(page) = mounted_pages(&name) {
                received.mounts.get_or_insert_default().push((page, file));
            } else if is_slab(&name) {
                received.slabs.push((name, file));
            } else {
                received.socket.get_or_insert(file);
            }
        }
        Ok(received)
    }
}

/// Whether and how slabs are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeper {
    on: bool,
}

impl Keeper {
    /// Keeps nothing where there is no manager.
    pub(super) fn new() -> Self {
        Self {
            on: service::is_there(),
        }
    }

    /// Hands all mounts to the manager; those that it has already it keeps once more
    /// under the same name, which it notices.
    pub(super) fn keep_mounts(self, store: &Store) {
        if self.on {
            for (page, mount) in store.mounts() {
                let _ = service::keep(&mount_name(page), mount);
            }
        }
    }

    /// The mounts are empty, and need not outlive the daemon.
    pub(super) fn forget_mounts(self, store: &Store) {
        if self.on {
            for (page, _) in store.mounts() {
                let _ = service::keep_no_more(&mount_name(page));
            }
        }
    }

    /// Hands a clean slab to the manager. One it does not take is lost with the
    /// daemon, which is safe.
    pub(super) fn keep(self, slab: &Slab) {
        if self.on && slab.is_memfd() {
            let _ = service::keep(&name(slab), slab.as_fd());
        }
    }

    /// The slab is no longer clean.
    pub(super) fn forget(self, slab: &Slab) {
        if self.on && slab.is_memfd() {
            let _ = service::keep_no_more(&name(slab));
        }
    }
}

/// A name the manager may use: no colon, nothing unprintable.
fn name(slab: &Slab) -> String {
    format!("slab-{}", slab.id().0)
}

fn mount_name(page: PageSize) -> String {
    format!("mount-{}", page.word())
}

/// The pages of a mount, by the name it was kept under.
fn mounted_pages(name: &str) -> Option<PageSize> {
    let mut pages = PageSize::ALL.into_iter();
    pages.find(|page| name == mount_name(*page))
}

/// Whether a descriptor from the manager is one of ours, by its name; which
/// class it belongs to shows in the file itself.
fn is_slab(name: &str) -> bool {
    name.strip_prefix("slab-")
        .is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The class among `keys` a file of `bytes` with blocks of `block_bytes` is from.
pub(super) fn class_of(keys: &[Key], bytes: u64, block_bytes: u64) -> Option<Key> {
    let page = |key: &Key| match key.page {
        PageSize::Transparent => block_bytes < PageSize::Huge.bytes(),
        reserved => block_bytes == reserved.bytes(),
    };
    // A file does not tell its node, so it is taken back only where there is no choice.
    let mut fitting = keys.iter().filter(|key| key.bytes == bytes && page(key));
    let first = fitting.next().copied();
    first.filter(|_| fitting.next().is_none())
}
