//! Slabs whose lease has ended and that somebody may still reach.
//!
//! A slab that is back was emptied at once, but a client that kept a
//! descriptor or a mapping can draw new pages through it, at least on
//! hugetlbfs, where mapping a file makes it longer even if it is sealed. The
//! kernel cannot be told to refuse that. So such a slab stays charged to its
//! client and is emptied again whenever it holds pages, until nobody else has
//! it open; then it is forgotten and its charge is credited. Emptying is left to
//! others: it waits as long as the client likes to draw pages.
//!
//! Pages that were pinned when the slab was emptied are in no file any more, but
//! a mount still counts them: as long as it counts as many as its revoked slabs
//! account for, these stay charged too.

use super::quota::Charge;
use super::{Return, Serial};
use crate::store::Key;
use crate::store::slab::{Slab, SlabId};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One of them.
#[derive(Debug)]
pub struct Former {
    /// The slab.
    pub slab: Slab,
    /// The class it came from.
    pub key: Key,
    /// Still charged.
    pub charge: Charge,
    /// Its return.
    pub returned: Return,
    /// The lease it had, if it had one.
    pub serial: Option<Serial>,
    /// Bytes that did not go back to the kernel when it was emptied.
    pub pinned_bytes: u64,
    /// Whether it is being emptied once more.
    pub under_way: bool,
}

impl Former {
    /// Whether nobody can reach anything of it any more. A slab of which the
    /// kernel says nothing counts as held.
    fn is_free(&self) -> bool {
        !self.under_way && self.pinned_bytes == 0 && self.slab.is_ours_alone().unwrap_or(false)
    }

    /// Whether somebody drew pages into it, behind its end too, where its length
    /// does not show them.
    fn holds_some(&self) -> bool {
        let is_some = |bytes: std::io::Result<u64>| bytes.is_ok_and(|bytes| bytes > 0);
        is_some(self.slab.held_bytes()) || is_some(self.slab.length())
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Formers(Vec<Former>);

/// What a look at all of them found.
#[derive(Debug, Default)]
pub struct Swept {
    /// Nobody can reach these any more.
    pub free: Vec<Former>,
    /// These hold pages again: to be emptied, then [`Formers::emptied`].
    pub to_empty: Vec<(SlabId, Arc<OwnedFd>)>,
}

impl Formers {
    /// Adds one that was emptied; hands it back where nobody else has it open.
    #[must_use]
    pub fn add(&mut self, former: Former) -> Option<Former> {
        if former.is_free() {
            return Some(former);
        }
        self.0.push(former);
        None
    }

    /// Looks at all of them. `stray_bytes` is what the mounts count besides the
    /// daemon's files: pins that account for more are gone, the oldest first.
    pub fn sweep(&mut self, stray_bytes: u64) -> Swept {
        let mut swept = Swept::default();
        let mut too_much = self.pinned_bytes().saturating_sub(stray_bytes);
        for former in &mut self.0 {
            let gone = former.pinned_bytes.min(too_much);
            former.pinned_bytes -= gone;
            too_much -= gone;
        }
        for mut former in std::mem::take(&mut self.0) {
            if former.is_free() {
                swept.free.push(former);
                continue;
            }
            if !former.under_way && former.holds_some() {
                former.under_way = true;
                swept.to_empty.push((former.slab.id(), former.slab.file()));
            }
            self.0.push(former);
        }
        swept
    }

    /// One of [`Swept::to_empty`] was emptied.
    pub fn emptied(&mut self, id: SlabId) {
        for former in &mut self.0 {
            former.under_way &= former.slab.id() != id;
        }
    }

    /// Bytes that revoked clients have pinned.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.0.iter().map(|former| former.pinned_bytes).sum()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes charged for them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|former| former.slab.bytes()).sum()
    }
}
