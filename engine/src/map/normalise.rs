//! The last step of every change to a map: join neighbours of the same kind,
//! then shrink memory to whole pages.
//!
//! Pieces come in ascending and disjoint and leave so. Joining comes first: two
//! entries that meet in the middle of a page fill that page together.

use super::correction::Correction;
use super::entry::{Attributes, MemoryKind, Region};
use crate::addr::PhysRange;

/// Receives `(position, region)` for each region written; a position is
/// written again when its region grows.
type Write<'a> = &'a mut dyn FnMut(usize, Region);

#[derive(Debug)]
pub(super) struct Normaliser {
    /// Joined pieces that may grow still.
    run: Option<Region>,
    /// The region written last.
    last: Option<Region>,
    written: usize,
}

impl Normaliser {
    pub(super) const fn new() -> Self {
        Self {
            run: None,
            last: None,
            written: 0,
        }
    }

    /// Number of regions written so far.
    pub(super) const fn written(&self) -> usize {
        self.written
    }

    pub(super) fn push(
        &mut self,
        piece: Region,
        report: &mut dyn FnMut(Correction),
        write: Write<'_>,
    ) {
        if piece.range.is_empty() {
            return;
        }
        if let Some(joined) = self.run.and_then(|run| join(run, piece)) {
            self.run = Some(joined);
            return;
        }
        if let Some(run) = self.run.replace(piece) {
            self.shrink(run, report, write);
        }
    }

    /// Writes what is left; returns the number of regions.
    pub(super) fn finish(&mut self, report: &mut dyn FnMut(Correction), write: Write<'_>) -> usize {
        if let Some(run) = self.run.take() {
            self.shrink(run, report, write);
        }
        self.written
    }

    fn shrink(&mut self, run: Region, report: &mut dyn FnMut(Correction), write: Write<'_>) {
        if !run.kind.is_memory() {
            return self.write(run, write);
        }
        let whole = run.range.inner_frames().bytes();
        // Without a whole page inside, all of it is one cut.
        let (head, tail) = if whole.is_empty() {
            (Some(run.range), None)
        } else {
            (
                PhysRange::new(run.range.start().get(), whole.start().get()),
                PhysRange::new(whole.end().get(), run.range.end().get()),
            )
        };
        let cut = |range| Region {
            range,
            kind: MemoryKind::Reserved,
            attributes: Attributes::NONE,
            ..run
        };
        for range in [head, Some(whole), tail]
            .into_iter()
            .flatten()
            .filter(|range| !range.is_empty())
        {
            if range == whole {
                self.write(Region { range, ..run }, write);
            } else {
                report(Correction::PartialPage {
                    entry: run.source,
                    kind: run.kind,
                    range,
                });
                self.write(cut(range), write);
            }
        }
    }

    fn write(&mut self, region: Region, write: Write<'_>) {
        let joined = self.last.and_then(|last| join(last, region));
        if joined.is_none() {
            self.written += 1;
        }
        let region = joined.unwrap_or(region);
        self.last = Some(region);
        write(self.written - 1, region);
    }
}

/// Both as one region, if they touch and nothing tells them apart.
fn join(first: Region, second: Region) -> Option<Region> {
    let alike = first.kind == second.kind
        && first.attributes == second.attributes
        && (first.source == second.source || !first.kind.keeps_borders());
    if !alike || first.range.end() != second.range.start() {
        return None;
    }
    let range = PhysRange::new(first.range.start().get(), second.range.end().get())?;
    Some(Region { range, ..first })
}
