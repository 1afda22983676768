//! Clean files without a name, kept by the service manager over a restart.
//!
//! Only a file that was never lent is handed over, and the manager is told to
//! let go of it when it is lent. Should the daemon die in between, the seal on
//! the file says what it is.

use crate::os::service;
use crate::protocol::PageSize;
use crate::store::Key;
use crate::store::slab::Slab;
use std::os::fd::AsFd;

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

/// Whether a descriptor from the manager is one of ours, by its name; which
/// class it belongs to shows in the file itself.
pub(super) fn is_slab(name: &str) -> bool {
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
