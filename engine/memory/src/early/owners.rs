//! The owner log: what each range of early memory is for.
//!
//! Regions of the reserved set merge, so they have no owners; the log has one
//! [`Allocation`] a reservation, oldest first. When its storage is full the
//! reservation still succeeds and is counted as untracked.
#![deny(unsafe_code)]

use core::fmt;

use crate::addr::PhysRange;
use crate::node::NodeId;
use crate::store::Store;

/// A reservation or allocation of early memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The bytes.
    pub range: PhysRange,
    /// The node they lie on; `None` for a reservation, or where it is not known.
    pub node: Option<NodeId>,
    /// `None` in unused storage, so that it is zero; an empty text would have an address.
    pub(super) owner: Option<&'static str>,
}

impl Allocation {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        node: None,
        owner: None,
    };

    /// A reservation of `range`.
    pub(super) const fn reserved(range: PhysRange, owner: &'static str) -> Self {
        Self {
            range,
            node: None,
            owner: Some(owner),
        }
    }

    /// What they are for; empty for unused storage.
    pub const fn owner(&self) -> &'static str {
        match self.owner {
            Some(owner) => owner,
            None => "",
        }
    }
}

impl Default for Allocation {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.range)?;
        if let Some(node) = self.node {
            write!(f, " on {node}")?;
        }
        write!(f, " for {}", self.owner())
    }
}

/// The entries, oldest first, and how many found no slot.
#[derive(Debug)]
pub(super) struct OwnerLog<'s> {
    pub(super) entries: Store<'s, Allocation>,
    pub(super) untracked: u64,
}

impl<'s> OwnerLog<'s> {
    pub(super) const fn new(slots: &'s mut [Allocation]) -> Self {
        Self {
            entries: Store::new(slots),
            untracked: 0,
        }
    }

    /// Adds an entry, or counts it as untracked.
    pub(super) fn add(&mut self, entry: Allocation) {
        if self.entries.push(entry).is_err() {
            self.untracked = self.untracked.saturating_add(1);
        }
    }

    /// Cuts `range` out of every entry.
    pub(super) fn release(&mut self, range: PhysRange) {
        let rest = |start: u64, end: u64| PhysRange::new(start, end).filter(|r| !r.is_empty());
        let split = |entry: PhysRange| {
            let below = rest(entry.start().get(), range.start().get());
            (below, rest(range.end().get(), entry.end().get()))
        };
        // First those that shrink or go, so that there are slots for those cut in two.
        let mut write = 0;
        for read in 0..self.entries.len() {
            let mut entry = self.entries[read];
            if entry.range.overlaps(range) {
                match split(entry.range) {
                    (None, None) => continue,
                    (Some(left), None) | (None, Some(left)) => entry.range = left,
                    (Some(_), Some(_)) => {}
                }
            }
            self.entries[write] = entry;
            write += 1;
        }
        self.entries.truncate(write);
        for at in 0..write {
            let entry = self.entries[at];
            if !entry.range.overlaps(range) {
                continue;
            }
            if let (Some(below), Some(above)) = split(entry.range) {
                self.entries[at].range = below;
                self.add(Allocation {
                    range: above,
                    ..entry
                });
            }
        }
    }
}
