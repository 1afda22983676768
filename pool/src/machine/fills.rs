//! Whose slab is filled next.
//!
//! Each node fills one slab after the other. A slab that a user gave back is replaced in that user's turn, and what
//! is lacking for another reason in a turn of the pool's own: the next is for the one for which least was filled, in
//! bytes. So one that takes and gives makes itself wait, and not another. One for which nothing was to be filled
//! for a while has saved nothing up. Of a class for which pages are short, what waits to be credited comes
//! first: what is lacking else would take the pages that those users gave back.

use super::returns::Returns;
use super::slabs::Lacking;
use crate::lease::Whose;
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet};

/// Whose turn: a user's, or the pool's own.
pub(super) type Turn = Option<Whose>;

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
    fn next(&mut self, waiting: &[(Turn, Key)]) -> Option<(Turn, Key)> {
        let filled = |turn: &Turn| self.filled.get(turn).copied().unwrap_or(0).max(self.least);
        let (turn, key) = *waiting.iter().min_by_key(|(turn, _)| filled(turn))?;
        let least = filled(&turn);
        self.least = least;
        self.filled.insert(turn, least.saturating_add(key.bytes));
        self.filled.retain(|_, filled| *filled > least);
        Some((turn, key))
    }
}

/// What is filled on all nodes.
#[derive(Debug, Default)]
pub(super) struct Fills {
    turns: BTreeMap<Option<u32>, Turns>,
    under_way: BTreeMap<Option<u32>, (SlabId, Turn)>,
    /// Classes of which a slab could not be filled, until one is while nobody waits to be credited.
    short: BTreeSet<Key>,
}

impl Fills {
    pub(super) fn is_busy(&self, node: Option<u32>) -> bool {
        self.under_way.contains_key(&node)
    }

    /// The class of which a node fills one next, and in whose turn.
    pub(super) fn next(
        &mut self,
        node: Option<u32>,
        lacking: &[Lacking],
        returns: &Returns,
    ) -> Option<(Turn, Key)> {
        let mut waiting = Vec::new();
        for lacking in lacking {
            let key = lacking.key;
            let mut first = returns.waiting(key).peekable();
            if lacking.is_in_trouble {
                self.short.insert(key);
            } else if first.peek().is_none() {
                self.short.remove(&key);
            }
            if self.is_short(key) && first.peek().is_some() {
                waiting.extend(first.map(|whose| (Some(whose), key)));
                continue;
            }
            let mut left = lacking.slabs;
            for (whose, owed) in returns.owed(key) {
                waiting.push((Some(whose), key));
                left = left.saturating_sub(owed);
            }
            if left > 0 {
                waiting.push((None, key));
            }
        }
        self.turns.entry(node).or_default().next(&waiting)
    }

    pub(super) fn is_short(&self, key: Key) -> bool {
        self.short.contains(&key)
    }

    pub(super) fn begin(&mut self, node: Option<u32>, slab: SlabId, turn: Turn) {
        self.under_way.insert(node, (slab, turn));
    }

    /// A slab is filled, or not: in whose turn.
    pub(super) fn done(&mut self, slab: SlabId) -> Turn {
        let turn = self.turn(slab);
        self.under_way.retain(|_, (filling, _)| *filling != slab);
        turn
    }

    /// In whose turn a slab is being filled.
    pub(super) fn turn(&self, slab: SlabId) -> Turn {
        let mut under_way = self.under_way.values();
        under_way.find(|(filling, _)| *filling == slab)?.1
    }
}
