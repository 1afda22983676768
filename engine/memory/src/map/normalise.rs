//! The last step of every change to a map: join neighbours of the same kind,
//! then shrink memory to whole pages.
//!
//! Pieces come in ascending and disjoint and leave so. Joining comes first: two
//! entries that meet in the middle of a page fill that page together.

use super::correction::Correction;
use super::entry::{Attributes, MemoryKind, Region};
use crate::addr::{PAGE_BYTES, PhysRange};

/// Receives `(position, region)` for each region written; a position is
/// written again when its region grows.
type Write<'a> = &'a mut dyn FnMut(usize, Region);

#[derive(Debug)]
pub(super) struct Normaliser {
    /// Joined pieces that may grow still.
    run: Option<Region>,
    /// Source of the byte that begins the run's first whole page.
    whole_source: u32,
    /// Source of the byte that begins the run's last, unfilled page.
    tail_source: u32,
    /// The region written last.
    last: Option<Region>,
    written: usize,
}

impl Normaliser {
    pub(super) const fn new() -> Self {
        Self {
            run: None,
            whole_source: 0,
            tail_source: 0,
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
        let joined = self.run.and_then(|run| join(run, piece));
        if joined.is_none()
            && let Some(run) = self.run
        {
            self.shrink(run, report, write);
        }
        self.run = joined.or(Some(piece));
        let first_page = self
            .run
            .and_then(|run| run.range.start().align_up(PAGE_BYTES));
        if first_page.is_some_and(|page| piece.range.contains(page)) {
            self.whole_source = piece.source;
        }
        let last_page = piece.range.end().align_down(PAGE_BYTES);
        if joined.is_none() || piece.range.start() <= last_page {
            self.tail_source = piece.source;
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
        let (whole_source, tail_source) = (self.whole_source, self.tail_source);
        let whole = run.range.inner_frames().addrs();
        // Without a whole page inside, all of it is one cut.
        let (head, tail) = if whole.is_empty() {
            (Some(run.range), None)
        } else {
            (
                PhysRange::new(run.range.start().get(), whole.start().get()),
                PhysRange::new(whole.end().get(), run.range.end().get()),
            )
        };
        let mut part = |range: Option<PhysRange>, source, kind| {
            let Some(range) = range.filter(|range| !range.is_empty()) else {
                return;
            };
            if kind == run.kind {
                return self.write(
                    Region {
                        range,
                        source,
                        ..run
                    },
                    write,
                );
            }
            report(Correction::PartialPage {
                entry: source,
                kind: run.kind,
                range,
            });
            self.write(
                Region {
                    range,
                    kind,
                    attributes: Attributes::NONE,
                    source,
                },
                write,
            );
        };
        part(head, run.source, MemoryKind::Reserved);
        part(Some(whole), whole_source, run.kind);
        part(tail, tail_source, MemoryKind::Reserved);
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

/// Both as one region, if they touch and do not differ.
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
