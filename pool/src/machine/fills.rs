//! Whose slab is filled next.
//!
//! Each node fills one slab after the other. A slab that a user gave back is replaced in that user's turn, and what
//! is lacking for another reason in a turn of the pool's own: the next is for the one for which least was filled, in
//! bytes. So one that takes and gives makes itself wait, and not another. One for which nothing was to be filled
//! for a while has saved nothing up.
//!
//! What is filled in the turn of a user whose pages are back takes those pages; anything else leaves them. Where it
//! cannot, those users go on having their turns.

use super::returns::Returns;
use super::slabs::Lacking;
use crate::lease::Whose;
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::BTreeMap;

/// Whose turn: a user's, or the pool's own.
pub(super) type Turn = Option<Whose>;

/// What is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) turn: Turn,
    pub(super) key: Key,
    /// Whether pages that came back are there for it.
    pub(super) has_pages: bool,
}

/// What was filled on a node.
#[derive(Debug, Default)]
struct Turns {
    /// In bytes, of those for which more was filled than for the one that was last.
    filled: BTreeMap<Turn, u64>,
    /// What the last one had before.
    least: u64,
}

impl Turns {
    /// The next of those that wait, the first of equal ones.
    fn next(&mut self, waiting: &[Next]) -> Option<Next> {
        let filled = |turn: &Turn| self.filled.get(turn).copied().unwrap_or(0).max(self.least);
        let next = *waiting.iter().min_by_key(|next| filled(&next.turn))?;
        let least = filled(&next.turn);
        self.least = least;
        let filled = least.saturating_add(next.key.bytes);
        self.filled.insert(next.turn, filled);
        self.filled.retain(|_, filled| *filled > least);
        Some(next)
    }
}

/// What is filled on all nodes.
#[derive(Debug, Default)]
pub(super) struct Fills {
    turns: BTreeMap<Option<u32>, Turns>,
    under_way: BTreeMap<Option<u32>, (SlabId, Next)>,
}

impl Fills {
    pub(super) fn is_busy(&self, node: Option<u32>) -> bool {
        self.under_way.contains_key(&node)
    }

    /// What a node fills next.
    pub(super) fn next(
        &mut self,
        node: Option<u32>,
        lacking: &[Lacking],
        returns: &Returns,
    ) -> Option<Next> {
        let mut waiting = Vec::new();
        for lacking in lacking {
            let (key, mut left) = (lacking.key, lacking.slabs);
            let mut add = |turn, has_pages| {
                if has_pages || lacking.may_take_any {
                    waiting.push(Next {
                        turn,
                        key,
                        has_pages,
                    });
                }
            };
            for owed in returns.owed(key) {
                add(Some(owed.whose), owed.has_pages);
                left = left.saturating_sub(owed.slabs);
            }
            if left > 0 {
                add(None, false);
            }
        }
        self.turns.entry(node).or_default().next(&waiting)
    }

    pub(super) fn begin(&mut self, node: Option<u32>, slab: SlabId, next: Next) {
        self.under_way.insert(node, (slab, next));
    }

    /// A slab is filled, or not.
    pub(super) fn done(&mut self, slab: SlabId) -> Option<Next> {
        let next = self.next_of(slab);
        self.under_way.retain(|_, (filling, _)| *filling != slab);
        next
    }

    /// Classes of which slabs are being filled with pages that came back for them.
    pub(super) fn with_pages(&self) -> impl Iterator<Item = Key> {
        let under_way = self.under_way.values().filter(|(_, next)| next.has_pages);
        under_way.map(|(_, next)| next.key)
    }

    /// What is filled as a slab.
    pub(super) fn next_of(&self, slab: SlabId) -> Option<Next> {
        let mut under_way = self.under_way.values();
        Some(under_way.find(|(filling, _)| *filling == slab)?.1)
    }

    /// In whose turn a slab is being filled.
    pub(super) fn turn(&self, slab: SlabId) -> Turn {
        self.next_of(slab)?.turn
    }
}
