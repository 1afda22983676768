//! One change to a finished map, as a stream: regions in, pieces out, both
//! ascending. What a command line changes of a map (`mem=`, `memmap=`) is made of
//! these.

use super::entry::{MemoryKind, Region};
use crate::addr::{PHYS_END, PhysRange};

/// What to do with the bytes of a range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Make a hole of them (of one kind only, if given).
    Remove { only: Option<MemoryKind> },
    /// Give them another kind (those of one kind only, if given).
    Retype {
        only: Option<MemoryKind>,
        kind: MemoryKind,
    },
    /// Lay a region over them: it fills holes, the more restrictive kind wins.
    Overlay(Region),
}

#[derive(Debug)]
pub(super) struct Rewriter {
    range: PhysRange,
    change: Change,
    /// End of what was dealt with.
    done: u64,
    changed_bytes: u64,
}

type Emit<'a> = &'a mut dyn FnMut(Region);

impl Rewriter {
    pub(super) fn new(range: PhysRange, change: Change) -> Self {
        let within =
            PhysRange::new(0, PHYS_END).map_or(PhysRange::EMPTY, |all| all.intersect(range));
        Self {
            range: within,
            change,
            done: 0,
            changed_bytes: 0,
        }
    }

    /// Takes the next region.
    pub(super) fn feed(&mut self, region: Region, emit: Emit<'_>) {
        self.fill_hole(region.range.start().get(), emit);
        let inside = region.range.intersect(self.range);
        self.done = region.range.end().get();
        if inside.is_empty() {
            return emit(region);
        }
        let piece = |start: u64, end: u64| {
            let range = PhysRange::new(start, end).unwrap_or_default();
            Region { range, ..region }
        };
        let before = piece(region.range.start().get(), inside.start().get());
        let after = piece(inside.end().get(), region.range.end().get());
        emit(before);
        if let Some(kept) = self.apply(Region {
            range: inside,
            ..region
        }) {
            emit(kept);
        }
        emit(after);
    }

    /// Ends the stream; returns how many bytes changed.
    pub(super) fn finish(&mut self, emit: Emit<'_>) -> u64 {
        self.fill_hole(PHYS_END, emit);
        self.changed_bytes
    }

    /// What becomes of `old`, which lies inside the range.
    fn apply(&mut self, old: Region) -> Option<Region> {
        let new = match self.change {
            Change::Remove { only } if only.is_none_or(|only| only == old.kind) => None,
            Change::Retype { only, kind } if only.is_none_or(|only| only == old.kind) => {
                Some(Region { kind, ..old })
            }
            Change::Overlay(over) if over.kind > old.kind => Some(Region {
                range: old.range,
                ..over
            }),
            Change::Overlay(over) if over.kind == old.kind => {
                let mut both = old;
                both.attributes.more_reliable &= over.attributes.more_reliable;
                both.attributes.special_purpose |= over.attributes.special_purpose;
                Some(both)
            }
            _ => Some(old),
        };
        if new != Some(old) {
            self.changed_bytes += old.range.bytes();
        }
        new
    }

    /// Lays an overlay into the hole from where we are to `end`.
    fn fill_hole(&mut self, end: u64, emit: Emit<'_>) {
        let Change::Overlay(over) = self.change else {
            return;
        };
        let hole = PhysRange::new(self.done, end)
            .map_or(PhysRange::EMPTY, |hole| hole.intersect(self.range));
        if !hole.is_empty() {
            self.changed_bytes += hole.bytes();
            emit(Region {
                range: hole,
                ..over
            });
        }
    }
}
