//! The trail: who holds which early memory.
//!
//! The reserved set forgets who asked, because its regions merge; the trail
//! keeps one [`Allocation`] a claim, in the order of the claims. When its
//! storage is used up the claim itself still succeeds, and is counted as
//! untracked, so that a report can say what it does not know.
#![deny(unsafe_code)]

use core::fmt;

use crate::addr::PhysRange;
use crate::node::NodeId;
use crate::store::Store;

/// One claim on early memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The bytes claimed.
    pub range: PhysRange,
    /// The node they lie on; `None` for a reservation, or if nobody said.
    pub node: Option<NodeId>,
    /// Who asked.
    pub owner: &'static str,
}

impl Allocation {
    /// What storage is filled with before it is lent.
    pub const EMPTY: Self = Self {
        range: PhysRange::EMPTY,
        node: None,
        owner: "",
    };

    /// A reservation of `range`.
    pub(super) const fn reserved(range: PhysRange, owner: &'static str) -> Self {
        Self {
            range,
            node: None,
            owner,
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
        write!(f, " for {}", self.owner)
    }
}

/// The claims, oldest first, and how many found no room.
#[derive(Debug)]
pub(super) struct Trail<'s> {
    pub(super) claims: Store<'s, Allocation>,
    pub(super) untracked: u64,
}

impl<'s> Trail<'s> {
    pub(super) fn new(slots: &'s mut [Allocation]) -> Self {
        Self {
            claims: Store::new(slots),
            untracked: 0,
        }
    }

    /// Notes a claim, or counts it.
    pub(super) fn note(&mut self, claim: Allocation) {
        if self.claims.push(claim).is_err() {
            self.untracked = self.untracked.saturating_add(1);
        }
    }

    /// Cuts `range` out of every claim.
    pub(super) fn release(&mut self, range: PhysRange) {
        let rest = |start: u64, end: u64| PhysRange::new(start, end).filter(|r| !r.is_empty());
        let split = |claim: PhysRange| {
            let below = rest(claim.start().get(), range.start().get());
            (below, rest(range.end().get(), claim.end().get()))
        };
        // First the claims that shrink or go, so that there is room for the ones cut in two.
        let mut write = 0;
        for read in 0..self.claims.len() {
            let mut claim = self.claims[read];
            if claim.range.overlaps(range) {
                match split(claim.range) {
                    (None, None) => continue,
                    (Some(left), None) | (None, Some(left)) => claim.range = left,
                    (Some(_), Some(_)) => {}
                }
            }
            self.claims[write] = claim;
            write += 1;
        }
        self.claims.truncate(write);
        for at in 0..write {
            let claim = self.claims[at];
            if !claim.range.overlaps(range) {
                continue;
            }
            if let (Some(below), Some(above)) = split(claim.range) {
                self.claims[at].range = below;
                self.note(Allocation {
                    range: above,
                    ..claim
                });
            }
        }
    }
}
