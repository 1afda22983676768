//! The sweep: from entries in any order to ascending, disjoint pieces.
//!
//! Entries are sorted by their start; then one walk from address to address
//! keeps, for each kind, how far it reaches. That is all the state overlaps
//! need, so there is no heap and no limit on how deep entries nest.

use super::correction::{Correction, MapError};
use super::entry::{Attributes, MapEntry, MemoryKind, Region};
use crate::addr::PhysRange;
use crate::store::Full;

/// Scratch space for one entry while a map is built; one for each entry is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScratchEntry {
    start: u64,
    end: u64,
    kind: MemoryKind,
    attributes: Attributes,
    source: u32,
}

impl ScratchEntry {
    /// The content of unused storage.
    pub const EMPTY: Self = Self {
        start: 0,
        end: 0,
        kind: MemoryKind::Usable, // zero
        attributes: Attributes::NONE,
        source: 0,
    };
}

/// Copies the entries that have bytes below the end of physical memory into
/// `scratch`, reports what is wrong with each, and sorts them.
pub(super) fn collect<'a>(
    entries: impl Iterator<Item = MapEntry>,
    scratch: &'a mut [ScratchEntry],
    report: &mut dyn FnMut(Correction),
) -> Result<&'a [ScratchEntry], MapError> {
    let mut needed = 0;
    for (index, entry) in entries.enumerate() {
        let source = u32::try_from(index)
            .ok()
            .filter(|&source| source != Region::OVERRIDE);
        let source = source.ok_or(MapError::TooManyEntries)?;
        let Some(range) = clip(&entry, source, report) else {
            continue;
        };
        if let Some(slot) = scratch.get_mut(needed) {
            *slot = ScratchEntry {
                start: range.start().get(),
                end: range.end().get(),
                kind: entry.kind,
                attributes: entry.attributes,
                source,
            };
        }
        needed += 1;
    }
    let full = MapError::Scratch(Full {
        capacity: scratch.len(),
        needed,
    });
    let pending = scratch.get_mut(..needed).ok_or(full)?;
    pending.sort_unstable_by_key(|entry| (entry.start, entry.source));
    Ok(pending)
}

/// The part of `entry` a map can hold, with a report of the rest.
pub(super) fn clip(
    entry: &MapEntry,
    source: u32,
    report: &mut dyn FnMut(Correction),
) -> Option<PhysRange> {
    Correction::of_one(source, entry, report);
    entry.clipped()
}

/// How far the entries seen so far reach, for one kind.
#[derive(Clone, Copy, Default)]
struct Reach {
    /// End of the entry that reaches furthest.
    end: u64,
    /// That entry.
    source: u32,
    /// End of the furthest entry that is not more reliable.
    plain_end: u64,
    /// End of the furthest entry with a special purpose.
    special_end: u64,
}

impl Reach {
    /// The nearest end after `at`, if it is before `limit`.
    fn next_end(&self, at: u64, limit: u64) -> u64 {
        [self.end, self.plain_end, self.special_end]
            .into_iter()
            .filter(|&end| end > at)
            .fold(limit, u64::min)
    }

    fn attributes(&self, at: u64) -> Attributes {
        Attributes {
            more_reliable: self.plain_end <= at,
            special_purpose: self.special_end > at,
        }
    }
}

/// An overlap still being walked, so that it is reported once.
type Lost = Option<(u32, u32, MemoryKind, PhysRange)>;

struct Sweep {
    reach: [Reach; MemoryKind::COUNT],
    lost: [Lost; MemoryKind::COUNT],
}

/// Calls `emit` with ascending, disjoint pieces that cover the entries exactly.
pub(super) fn sweep(
    entries: &[ScratchEntry],
    emit: &mut impl FnMut(Region, &mut dyn FnMut(Correction)),
    report: &mut dyn FnMut(Correction),
) {
    let mut sweep = Sweep {
        reach: Default::default(),
        lost: Default::default(),
    };
    let mut rest = entries.iter().peekable();
    let mut at = 0;
    loop {
        while let Some(entry) = rest.next_if(|entry| entry.start <= at) {
            sweep.enter(entry, report);
        }
        let limit = rest.peek().map_or(u64::MAX, |entry| entry.start);
        let Some(winner) = sweep.covering(at) else {
            if rest.peek().is_none() {
                break;
            }
            at = limit;
            continue;
        };
        let next = sweep
            .reach
            .iter()
            .fold(limit, |limit, reach| reach.next_end(at, limit));
        if let Some(range) = PhysRange::new(at, next) {
            sweep.note_lost(winner, range, report);
            let reach = sweep.reach[winner.rank()];
            let piece = Region {
                range,
                kind: winner,
                attributes: reach.attributes(at),
                source: reach.source,
            };
            emit(piece, report);
        }
        at = next;
    }
    for kind in MemoryKind::ALL {
        sweep.tell_lost(kind, report);
    }
}

impl Sweep {
    fn enter(&mut self, entry: &ScratchEntry, report: &mut dyn FnMut(Correction)) {
        let reach = &mut self.reach[entry.kind.rank()];
        let shared =
            PhysRange::new(entry.start, entry.end.min(reach.end)).filter(|range| !range.is_empty());
        if let Some(range) = shared {
            report(Correction::Repeated {
                entry: entry.source,
                earlier: reach.source,
                range,
            });
        }
        if entry.end > reach.end {
            reach.end = entry.end;
            reach.source = entry.source;
        }
        if !entry.attributes.more_reliable {
            reach.plain_end = reach.plain_end.max(entry.end);
        }
        if entry.attributes.special_purpose {
            reach.special_end = reach.special_end.max(entry.end);
        }
    }

    /// The most restrictive kind that reaches past `at`.
    fn covering(&self, at: u64) -> Option<MemoryKind> {
        MemoryKind::ALL
            .into_iter()
            .rev()
            .find(|kind| self.reach[kind.rank()].end > at)
    }

    /// Remembers which kinds lost `range` to `winner`; reports those that
    /// lost something else before.
    fn note_lost(
        &mut self,
        winner: MemoryKind,
        range: PhysRange,
        report: &mut dyn FnMut(Correction),
    ) {
        let winner_source = self.reach[winner.rank()].source;
        for kind in MemoryKind::ALL {
            let reach = self.reach[kind.rank()];
            if kind >= winner || reach.end <= range.start().get() {
                self.tell_lost(kind, report);
                continue;
            }
            if let Some((loser, by, by_kind, lost)) = &mut self.lost[kind.rank()] {
                let same = (*loser, *by, *by_kind) == (reach.source, winner_source, winner);
                if same && lost.end() == range.start() {
                    *lost = PhysRange::new(lost.start().get(), range.end().get()).unwrap_or(*lost);
                    continue;
                }
            }
            self.tell_lost(kind, report);
            self.lost[kind.rank()] = Some((reach.source, winner_source, winner, range));
        }
    }

    fn tell_lost(&mut self, kind: MemoryKind, report: &mut dyn FnMut(Correction)) {
        if let Some((entry, winner, winner_kind, range)) = self.lost[kind.rank()].take() {
            report(Correction::Overlap {
                entry,
                kind,
                winner,
                winner_kind,
                range,
            });
        }
    }
}
