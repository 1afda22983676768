//! A class: slabs of one page size, node and length, and how many there are to be.

use super::key::Key;
use super::slab::{Slab, SlabId};
use crate::config;
use crate::protocol::PoolRow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    pub(super) fn none(key: Key) -> Self {
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
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) slab: Slab,
    /// Set when it is no longer wanted.
    pub(super) cancel: Arc<AtomicBool>,
    /// Bytes filled so far.
    pub(super) done_bytes: Arc<AtomicU64>,
}

/// Slabs of one kind.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) spec: Spec,
    pub(super) clean: Vec<Slab>,
    pub(super) filling: Vec<Filling>,
    /// Slabs out, by number.
    pub(super) lent: Vec<(SlabId, u64)>,
    /// Slabs that an earlier daemon allocated and that were not found again.
    pub(super) unknown: Vec<SlabId>,
    /// Bytes come back and not yet emptied.
    pub(super) dirty_bytes: u64,
    /// Why nothing is filled.
    pub(super) trouble: Option<String>,
    /// When to try again after that.
    pub(super) retry_at: Option<Instant>,
}

impl Class {
    pub(super) fn new(spec: Spec) -> Self {
        Self {
            spec,
            clean: Vec::new(),
            filling: Vec::new(),
            lent: Vec::new(),
            unknown: Vec::new(),
            dirty_bytes: 0,
            trouble: None,
            retry_at: None,
        }
    }

    /// Slabs there are or will be without anything being begun.
    pub(super) fn present(&self) -> usize {
        self.clean.len() + self.filling.len() + self.lent.len() + self.unknown.len()
    }

    pub(super) fn wanted(&self) -> usize {
        usize::try_from(self.spec.wanted).unwrap_or(usize::MAX)
    }

    /// Its row in a status.
    pub(super) fn row(&self) -> PoolRow {
        let count = |slabs: usize| u32::try_from(slabs).unwrap_or(u32::MAX);
        let part = |filling: &Filling| filling.done_bytes.load(Ordering::Relaxed);
        let whole: u64 = self.clean.iter().map(Slab::bytes).sum();
        PoolRow {
            page: self.spec.key.page,
            node: self.spec.key.node,
            size_class_bytes: self.spec.key.bytes,
            wanted_slabs: self.spec.wanted,
            clean_slabs: count(self.clean.len()),
            filling_slabs: count(self.filling.len()),
            lent_slabs: count(self.lent.len()),
            unknown_slabs: count(self.unknown.len()),
            clean_bytes: whole + self.filling.iter().map(part).sum::<u64>(),
            dirty_bytes: self.dirty_bytes,
            lent_bytes: self.lent.iter().map(|(_, bytes)| bytes).sum(),
            hole_bytes: 0,
            refilled_bytes: 0,
            trouble: self.trouble.clone(),
        }
    }
}
