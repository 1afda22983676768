//! What the service manager keeps over a restart: clean slabs, by their mount or by their file without a name, and
//! files of leases.
//!
//! A clean slab is handed over once it is filled, and the manager is told to
//! let go of it when it is allocated. Should the daemon die in between, the mark on
//! the file says what it is.

use super::notifier::{Notifier, Ticket, Told};
use crate::lease::Serial;
use crate::os::service;
use crate::protocol::PageSize;
use crate::store::Key;
use crate::store::slab::{Slab, SlabId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What the manager passed in.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The socket clients connect to.
    pub(super) socket: Option<OwnedFd>,
    /// Whether there is a manager that keeps what it is given.
    pub(super) has_manager: bool,
    /// Clean slabs of an earlier daemon, under their old names.
    pub(super) slabs: Vec<(String, OwnedFd)>,
    /// Files of leases, by the number of the lease.
    pub(super) leases: BTreeMap<Serial, OwnedFd>,
}

impl Received {
    /// What there is; each descriptor by its name.
    ///
    /// # Errors
    /// Variables that make no sense.
    pub(super) fn new() -> io::Result<Self> {
        let mut received = Self {
            has_manager: service::notified_at().is_some(),
            ..Self::default()
        };
        for (name, file) in service::received()? {
            if let Some(serial) = leased(&name) {
                received.leases.insert(serial, file);
            } else if is_slab(&name) {
                received.slabs.push((name, file));
            } else {
                received.socket.get_or_insert(file);
            }
        }
        Ok(received)
    }
}

/// Descriptors that the manager keeps if it does not say how many it keeps: what
/// the unit says (`FileDescriptorStoreMax=`).
const MOST_KEPT: usize = 32_768;

/// Bytes of their names, each with a colon. The manager joins all into one variable of the next daemon's, and
/// the kernel starts no program with one of 128 KiB or more; the rest is for its own name and the socket's.
const MOST_NAMES_BYTES: usize = 124 << 10;

/// Whether and how descriptors are kept.
#[derive(Debug)]
pub(super) struct Keeper {
    notifier: Notifier,
    most: usize,
    /// Names under which something is kept.
    kept: BTreeSet<String>,
    names_bytes: usize,
    /// Descriptors that were not given to the manager for want of room.
    refused: u64,
}

impl Keeper {
    /// Keeps nothing where there is no manager.
    pub(super) fn new(notifier: Notifier) -> Self {
        Self {
            notifier,
            most: service::most_kept().unwrap_or(MOST_KEPT),
            kept: BTreeSet::new(),
            names_bytes: 0,
            refused: 0,
        }
    }

    /// What the manager is told otherwise.
    pub(super) fn notifier(&mut self) -> &mut Notifier {
        &mut self.notifier
    }

    /// Whether the manager has what was given to it with this ticket.
    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.notifier.is_done(ticket)
    }

    /// Ends once the manager was told all.
    pub(super) fn finish(self) {
        self.notifier.finish();
    }

    fn keep_as(&mut self, name: String, file: Arc<OwnedFd>) -> Option<Ticket> {
        if !self.notifier.is_on() {
            return None;
        }
        let told = if self.has_room(&name) {
            let text = format!("FDSTORE=1\nFDNAME={name}\n");
            self.notifier.give(text, file)
        } else {
            Told::No
        };
        if told == Told::No {
            self.refused += 1;
            return None;
        }
        self.insert(name);
        match told {
            Told::Later(ticket) => Some(ticket),
            Told::Now | Told::No => None,
        }
    }

    fn forget_as(&mut self, name: &str) {
        if self.kept.remove(name) {
            self.names_bytes -= name.len() + 1;
            self.forget_old(name);
        }
    }

    /// The manager need not keep what an earlier daemon gave it under this name.
    pub(super) fn forget_old(&mut self, name: &str) {
        let text = format!("FDSTOREREMOVE=1\nFDNAME={name}\n");
        self.notifier.tell(text);
    }

    fn has_room(&self, name: &str) -> bool {
        let fits = self.names_bytes + name.len() < MOST_NAMES_BYTES;
        fits && self.kept.len() < self.most || self.kept.contains(name)
    }

    fn insert(&mut self, name: String) {
        let bytes = name.len() + 1;
        if self.kept.insert(name) {
            self.names_bytes += bytes;
        }
    }

    /// What the operator should know, if descriptors were refused since it was last asked.
    pub(super) fn trouble(&mut self) -> Option<String> {
        let refused = std::mem::take(&mut self.refused);
        (refused > 0).then(|| {
            format!(
                "the service manager keeps {} descriptors and no more: {refused} slabs would be unknown or \
                 zeroed again after a restart (FileDescriptorStoreMax=, and names of 124 KiB)",
                self.kept.len()
            )
        })
    }

    /// Hands a clean slab to the manager. One it does not take is lost with the
    /// daemon, which is safe.
    pub(super) fn keep(&mut self, slab: &Slab) {
        if let Some(file) = slab.kept() {
            self.keep_as(name(slab.id()), file);
        }
    }

    /// The slab is no longer clean.
    pub(super) fn forget(&mut self, slab: SlabId) {
        self.forget_as(&name(slab));
    }

    /// Hands the file of a lease to the manager: with a ticket where that takes a while, and until then the client
    /// is not to be answered. One it does not take is unknown to the next daemon, which counts it all the same.
    pub(super) fn keep_lease(&mut self, serial: Serial, slab: &Slab) -> Option<Ticket> {
        self.keep_as(lease_name(serial), slab.file())
    }

    /// Nothing is left of the lease.
    pub(super) fn forget_lease(&mut self, serial: Serial) {
        self.forget_as(&lease_name(serial));
    }

    /// The manager has had this from an earlier daemon.
    pub(super) fn had_lease(&mut self, serial: Serial) {
        if self.notifier.is_on() {
            self.insert(lease_name(serial));
        }
    }
}

/// A name the manager may use: no colon, nothing unprintable.
fn name(slab: SlabId) -> String {
    format!("slab-{}", slab.0)
}

fn lease_name(serial: Serial) -> String {
    format!("lease-{serial}")
}

/// The lease of a descriptor from the manager, by its name.
fn leased(name: &str) -> Option<Serial> {
    name.strip_prefix("lease-")?.parse().ok()
}

/// Whether a descriptor from the manager is one of ours, by its name; what it is and which
/// class it belongs to shows in the file itself. Earlier versions had mounts for all slabs, which are let go of.
fn is_slab(name: &str) -> bool {
    let is_slab = name.strip_prefix("slab-");
    is_slab.is_some_and(|number| number.parse::<u64>().is_ok()) || name.starts_with("mount-")
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;

    /// One that may have so many descriptors kept, and has none.
    fn keeper(most: usize) -> Keeper {
        let wake = rustix::event::eventfd(0, EventfdFlags::empty()).unwrap();
        let nowhere = Some("/nonexistent/notify".into());
        Keeper {
            most,
            ..Keeper::new(Notifier::of(nowhere, Arc::new(wake)).unwrap())
        }
    }

    #[test]
    fn of_a_lease_that_is_forgotten_no_descriptor_is_kept() {
        let mut keeper = keeper(2);
        keeper.had_lease(7);
        keeper.had_lease(8);
        keeper.forget_lease(7);
        assert_eq!(keeper.kept, BTreeSet::from([lease_name(8)]));
    }

    /// Linux refuses a program a variable of 32 pages or more.
    #[test]
    fn a_daemon_can_be_started_with_the_names_of_all_that_is_kept() {
        let mut keeper = keeper(MOST_KEPT);
        for serial in 123_456.. {
            let name = lease_name(serial);
            if !keeper.has_room(&name) {
                break;
            }
            keeper.insert(name);
        }
        assert!(keeper.kept.len() > 8_000, "{}", keeper.kept.len());
        let names = Vec::from_iter(keeper.kept.clone()).join(":");
        let started = std::process::Command::new("true")
            .env("LISTEN_FDNAMES", names + ":firstlight-pool.socket")
            .status();
        assert!(started.unwrap().success());
        for name in keeper.kept.clone() {
            keeper.forget_as(&name);
        }
        assert_eq!(keeper.names_bytes, 0);
    }
}
