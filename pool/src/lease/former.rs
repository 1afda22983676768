//! Slabs whose lease has ended and that somebody may still reach.
//!
//! A slab that is back was emptied at once, but a borrower that kept a
//! descriptor or a mapping can draw new pages through it, at least on
//! hugetlbfs, where mapping a file makes it longer even if it is sealed. The
//! kernel cannot be told to refuse that. So such a slab stays charged to its
//! borrower and is emptied again whenever it holds pages, until nobody else has
//! it open; then it is forgotten and its charge is credited.

use super::quota::Charge;
use crate::store::Key;
use crate::store::slab::Slab;

/// One of them.
#[derive(Debug)]
pub struct Former {
    /// The slab.
    pub slab: Slab,
    /// The class it came from.
    pub key: Key,
    /// Still charged.
    pub charge: Charge,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Formers(Vec<Former>);

/// What a look at all of them found.
#[derive(Debug, Default)]
pub struct Swept {
    /// Nobody can reach these any more.
    pub free: Vec<Former>,
    /// How many were holding pages again, which were taken away.
    pub emptied: u32,
}

impl Formers {
    /// Adds one that was emptied; hands it back where nobody else has it open.
    #[must_use]
    pub fn add(&mut self, former: Former) -> Option<Former> {
        // A slab nobody can say anything about is treated as held.
        if former.slab.is_ours_alone().unwrap_or(false) {
            return Some(former);
        }
        self.0.push(former);
        None
    }

    /// Looks at all of them.
    pub fn sweep(&mut self) -> Swept {
        let mut swept = Swept::default();
        for former in std::mem::take(&mut self.0) {
            let grown = former.slab.length().is_ok_and(|bytes| bytes > 0);
            if grown && former.slab.empty().is_ok() {
                swept.emptied += 1;
            }
            // Asked after it was emptied: nobody can have filled it in between
            // and be gone.
            if former.slab.is_ours_alone().unwrap_or(false) {
                swept.free.push(former);
            } else {
                self.0.push(former);
            }
        }
        swept
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
