//! A class: slabs of one page size, node and length, and how many there are to be.

use crate::config;
use crate::protocol::PoolRow;
use crate::store::Key;
use crate::store::slab::SlabId;
use std::time::Instant;

/// A class as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Its name.
    pub key: Key,
    /// Slabs to keep, allocated ones among them.
    pub wanted: u32,
    /// Where files come from.
    pub source: config::Source,
    /// Whether slabs may be zeroed in place and allocated again.
    pub trusted: bool,
    /// Of what a guest gives back, how much to keep ready for it.
    pub refill_bytes: u64,
    /// Clean slabs to keep while the machine is short of memory.
    pub floor: Option<u32>,
}

impl Spec {
    /// A class of which nothing is kept.
    #[must_use]
    pub fn none(key: Key) -> Self {
        Self {
            key,
            wanted: 0,
            source: config::Source::Auto,
            trusted: false,
            refill_bytes: 0,
            floor: None,
        }
    }

    /// Bytes of all its slabs.
    #[must_use]
    pub fn wanted_bytes(&self) -> u64 {
        self.key.bytes.saturating_mul(self.wanted.into())
    }
}

impl From<&config::Class> for Spec {
    fn from(class: &config::Class) -> Self {
        Self {
            key: Key {
                page: class.page.0,
                node: class.node.as_ref().map(|node| *node.as_ref()),
                bytes: class.size.as_ref().bytes(),
            },
            wanted: class.slabs,
            source: class.source,
            trusted: class.trusted,
            refill_bytes: class
                .refill
                .as_ref()
                .map_or(0, |refill| refill.as_ref().bytes()),
            floor: class.keep_under_pressure,
        }
    }
}

/// A slab that is being filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    pub(super) id: SlabId,
    /// Whether it is still to become clean.
    pub(super) is_wanted: bool,
    /// Bytes filled so far, as last reported.
    pub(super) done_bytes: u64,
}

/// Slabs of one kind.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) spec: Spec,
    pub(super) clean: Vec<SlabId>,
    pub(super) filling: Vec<Filling>,
    /// Allocated slabs, with their bytes.
    pub(super) allocated: Vec<(SlabId, u64)>,
    /// Slabs that are back and being zeroed in place, to be clean again.
    pub(super) zeroing: Vec<SlabId>,
    /// Slabs that an earlier daemon allocated and that were not found again.
    pub(super) unknown: Vec<SlabId>,
    /// Bytes come back and not yet emptied.
    pub(super) dirty_bytes: u64,
    /// Why nothing is filled.
    pub(super) trouble: Option<String>,
    /// When to try again after that.
    pub(super) retry_at: Option<Instant>,
    /// When to try again what takes pages that are promised to nobody.
    pub(super) any_retry_at: Option<Instant>,
}

impl Class {
    pub(super) fn new(spec: Spec) -> Self {
        Self {
            spec,
            clean: Vec::new(),
            filling: Vec::new(),
            allocated: Vec::new(),
            zeroing: Vec::new(),
            unknown: Vec::new(),
            dirty_bytes: 0,
            trouble: None,
            retry_at: None,
            any_retry_at: None,
        }
    }

    /// Slabs there are or will be without anything being begun.
    pub(super) fn present(&self) -> usize {
        let present = self.clean.len() + self.filling.len() + self.allocated.len();
        present + self.zeroing.len() + self.unknown.len()
    }

    pub(super) fn wanted(&self) -> usize {
        usize::try_from(self.spec.wanted).unwrap_or(usize::MAX)
    }

    /// Keeps so many slabs from now on; returns those to give back, clean and being filled.
    pub(super) fn want(&mut self, slabs: u32) -> (Vec<(SlabId, u64)>, Vec<SlabId>) {
        self.spec.wanted = slabs;
        self.retry_at = None;
        self.any_retry_at = None;
        self.trouble = None;
        let mut excess = self.present().saturating_sub(self.wanted());
        let mut cancelled = Vec::new();
        for filling in self.filling.iter_mut().rev().take(excess) {
            filling.is_wanted = false;
            cancelled.push(filling.id);
            excess -= 1;
        }
        let keep = self.clean.len().saturating_sub(excess);
        let given_back = self.clean.split_off(keep).into_iter();
        let bytes = self.spec.key.bytes;
        (given_back.map(|id| (id, bytes)).collect(), cancelled)
    }

    /// Its row in a status.
    pub(super) fn row(&self) -> PoolRow {
        let count = |slabs: usize| u32::try_from(slabs).unwrap_or(u32::MAX);
        let whole = self.spec.key.bytes * self.clean.len() as u64;
        let parts: u64 = self.filling.iter().map(|filling| filling.done_bytes).sum();
        PoolRow {
            page: self.spec.key.page,
            node: self.spec.key.node,
            size_class_bytes: self.spec.key.bytes,
            wanted_slabs: self.spec.wanted,
            clean_slabs: count(self.clean.len()),
            filling_slabs: count(self.filling.len() + self.zeroing.len()),
            allocated_slabs: count(self.allocated.len()),
            unknown_slabs: count(self.unknown.len()),
            clean_bytes: whole + parts,
            dirty_bytes: self.dirty_bytes,
            allocated_bytes: self.allocated.iter().map(|(_, bytes)| bytes).sum(),
            hole_bytes: 0,
            refilled_bytes: 0,
            trouble: self.trouble.clone(),
        }
    }
}
