//! Who has which frame: the plainest model of an allocator there is, one number a frame.
//!
//! This is the map from frames to owners of `proofs/owners.rs`, with its `allocate` and `free`: `make verify` proves that
//! of this file, and that what calls have of a machine's words changes as that map does in five of the steps, one at a time.
//! So two property tests compare the allocator with what is proven of these.

extern crate std;

use std::vec::Vec;

/// Of a frame that is free.
pub(super) const NO_ONE: u32 = 0;

/// The owner of each frame.
pub(super) struct Owners(Vec<u32>);

impl Owners {
    /// So many frames, all of one owner, or free.
    pub(super) fn new(frames: usize, owner: u32) -> Self {
        Self(std::vec![owner; frames])
    }

    /// Whether frames `from..to` all have this owner, or are free.
    pub(super) fn are(&self, from: usize, to: usize, owner: u32) -> bool {
        let mut at = from;
        while at < to {
            if self.0[at] != owner {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Whether frames `from..to` all have an owner.
    pub(super) fn are_allocated(&self, from: usize, to: usize) -> bool {
        let mut at = from;
        while at < to {
            if self.0[at] == NO_ONE {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Gives frames `from..to` to an owner; `false` if one of them is not free, and then none.
    pub(super) fn allocate(&mut self, from: usize, to: usize, owner: u32) -> bool {
        let are_free = self.are(from, to, NO_ONE);
        if are_free {
            self.set(from, to, owner);
        }
        are_free
    }

    /// Makes frames `from..to` free; `false` if one of them is, and then none.
    pub(super) fn free(&mut self, from: usize, to: usize) -> bool {
        let are_allocated = self.are_allocated(from, to);
        if are_allocated {
            self.set(from, to, NO_ONE);
        }
        are_allocated
    }

    fn set(&mut self, from: usize, to: usize, owner: u32) {
        let mut at = from;
        while at < to {
            self.0[at] = owner;
            at += 1;
        }
    }
}
