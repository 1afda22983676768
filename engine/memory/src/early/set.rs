//! [`RegionSet`]: sorted, disjoint regions in caller-provided storage.
//!
//! Regions that touch and are alike (same node, same flags) are always one
//! region. Every change first counts what it needs: when the storage is too
//! small it fails with [`Full`] and nothing has changed. Costs O(regions), and
//! a change looks only at the regions it meets, found by binary search.
#![deny(unsafe_code)]

use core::ops::Deref;

use super::region::EarlyRegion;
use crate::addr::PhysRange;
use crate::store::{Full, Store};

/// Sorted, disjoint, merged regions.
#[derive(Debug)]
pub(super) struct RegionSet<'s> {
    regions: Store<'s, EarlyRegion>,
    /// Behind the last region that was changed: tables list ranges in ascending order.
    next: usize,
}

impl Deref for RegionSet<'_> {
    type Target = [EarlyRegion];
    fn deref(&self) -> &[EarlyRegion] {
        &self.regions
    }
}

/// `start..end`, where the ends are known to be in order.
fn span(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).unwrap_or(PhysRange::EMPTY)
}

impl<'s> RegionSet<'s> {
    /// An empty set.
    pub(super) const fn new(slots: &'s mut [EarlyRegion]) -> Self {
        Self {
            regions: Store::new(slots),
            next: 0,
        }
    }

    /// Position of the first region that ends after `addr`.
    fn first_ending_after(&self, addr: u64) -> usize {
        let ends_after = |at: usize| {
            self.regions
                .get(at)
                .is_some_and(|r| r.range.end().get() > addr)
        };
        if ends_after(self.next) && !self.next.checked_sub(1).is_some_and(ends_after) {
            return self.next;
        }
        self.regions
            .partition_point(|r| r.range.end().get() <= addr)
    }

    /// Positions of the regions that share a byte with `range`.
    pub(super) fn meeting(&self, range: PhysRange) -> (usize, usize) {
        if range.is_empty() {
            return (0, 0);
        }
        let lo = self.first_ending_after(range.start().get());
        let beyond = self.regions[lo..].iter();
        let count = beyond.take_while(|r| r.range.start() < range.end()).count();
        (lo, lo + count)
    }

    /// Regions it has slots for.
    pub(super) fn capacity(&self) -> usize {
        self.regions.capacity()
    }

    /// Bytes in the set.
    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(|r| r.range.bytes()).sum()
    }

    /// Whether every byte of `range` is in the set.
    pub(super) fn covers(&self, range: PhysRange) -> bool {
        let (lo, hi) = self.meeting(range);
        let inside = self.regions.get(lo..hi).unwrap_or_default().iter();
        inside
            .map(|r| r.range.intersect(range).bytes())
            .sum::<u64>()
            == range.bytes()
    }

    fn must_fit(&self, needed: usize) -> Result<(), Full> {
        let capacity = self.regions.capacity();
        if needed > capacity {
            Err(Full { capacity, needed })
        } else {
            Ok(())
        }
    }

    /// Adds the bytes of `new` that are not in the set yet; those that are keep
    /// their node and flags.
    ///
    /// Regions like `new` merge with it; between those that are not alike a piece of
    /// `new` goes into each gap.
    pub(super) fn add(&mut self, mut new: EarlyRegion) -> Result<(), Full> {
        if new.range.is_empty() {
            return Ok(());
        }
        let (mut start, mut end) = (new.range.start(), new.range.end());
        // Firmware lists memory from the lowest address on.
        if self
            .regions
            .last()
            .is_none_or(|last| last.range.end() < start)
        {
            return self.regions.push(new);
        }
        // The window includes neighbours that only touch.
        let lo = self.regions.partition_point(|r| r.range.end() < start);
        let beyond = self.regions[lo..].iter();
        let hi = lo + beyond.take_while(|r| r.range.start() <= end).count();
        // Most often it touches nothing, or one region it extends.
        match self.regions.get_mut(lo..hi) {
            Some([]) => return self.regions.insert(lo, new),
            Some([region]) if region.alike(&new) => {
                start = start.min(region.range.start());
                end = end.max(region.range.end());
                region.range = span(start.get(), end.get());
                return Ok(());
            }
            _ => {}
        }
        let mut others = 0;
        for region in &self.regions[lo..hi] {
            if region.alike(&new) {
                start = start.min(region.range.start());
                end = end.max(region.range.end());
            } else {
                others += 1;
            }
        }
        new.range = span(start.get(), end.get());
        let mut gaps = 0;
        let mut cursor = start;
        for other in self.regions[lo..hi].iter().filter(|r| !r.alike(&new)) {
            gaps += usize::from(cursor < other.range.start());
            cursor = cursor.max(other.range.end());
        }
        gaps += usize::from(cursor < end);
        self.must_fit(self.regions.len() - (hi - lo) + others + gaps)?;

        // Close up over the regions that merge.
        let mut write = lo;
        for read in lo..hi {
            let region = self.regions[read];
            if !region.alike(&new) {
                self.regions[write] = region;
                write += 1;
            }
        }
        self.regions.remove(write, hi);
        self.fill_gaps(new, lo, write, gaps)
    }

    /// As [`Self::add`]; bytes of the set that are `weaker` become `new` too.
    pub(super) fn add_over(
        &mut self,
        new: EarlyRegion,
        weaker: impl Fn(&EarlyRegion) -> bool,
    ) -> Result<(), Full> {
        let (lo, hi) = self.meeting(new.range);
        if !self.regions[lo..hi].iter().any(&weaker) {
            return self.add(new);
        }
        let changed = |region: &EarlyRegion| EarlyRegion {
            range: region.range.intersect(new.range),
            ..if weaker(region) { new } else { *region }
        };
        self.must_fit(self.len_after(new.range, lo, hi, changed, Some(new)))?;
        // Only a region that reaches past both ends needs a slot, and in the end it is three.
        for at in (lo..hi).rev() {
            let region = self.regions[at];
            if weaker(&region) {
                self.remove(region.range.intersect(new.range))?;
            }
        }
        self.add(new)
    }

    /// Puts a piece of `new` into each of the `gaps` that the regions `lo..hi` leave in it.
    ///
    /// From the right, so that one pass is enough however many there are.
    fn fill_gaps(
        &mut self,
        new: EarlyRegion,
        lo: usize,
        hi: usize,
        gaps: usize,
    ) -> Result<(), Full> {
        let above = hi..self.regions.len();
        for _ in 0..gaps {
            self.regions.push(new)?;
        }
        self.regions.copy_within(above, hi + gaps);
        let start = new.range.start();
        let (mut from, mut to, mut top) = (hi, hi + gaps, new.range.end());
        while from < to {
            let below = from
                .checked_sub(1)
                .filter(|&at| at >= lo)
                .map(|at| self.regions[at]);
            let floor = below.map_or(start, |r| r.range.end().max(start));
            if floor < top {
                to -= 1;
                self.regions[to] = EarlyRegion {
                    range: span(floor.get(), top.get()),
                    ..new
                };
            }
            let Some(region) = below else { break };
            from -= 1;
            to -= 1;
            self.regions[to] = region;
            top = region.range.start();
        }
        Ok(())
    }

    /// Takes the bytes of `range` out of the set.
    pub(super) fn remove(&mut self, range: PhysRange) -> Result<(), Full> {
        let (mut lo, mut hi) = self.meeting(range);
        if lo == hi {
            return Ok(());
        }
        let (first, last) = (self.regions[lo], self.regions[hi - 1]);
        let left = span(first.range.start().get(), range.start().get());
        let right = span(range.end().get(), last.range.end().get());
        if hi - lo == 1 && !left.is_empty() && !right.is_empty() {
            self.must_fit(self.regions.len() + 1)?;
            self.regions.insert(
                hi,
                EarlyRegion {
                    range: right,
                    ..last
                },
            )?;
            self.regions[lo].range = left;
            return Ok(());
        }
        if !left.is_empty() {
            self.regions[lo].range = left;
            lo += 1;
        }
        if !right.is_empty() {
            self.regions[hi - 1].range = right;
            hi -= 1;
        }
        self.regions.remove(lo, hi);
        Ok(())
    }

    /// Applies `change` to node and flags of every byte of the set in `range`; applied
    /// twice it must do the same as once.
    ///
    /// A region that crosses an end of `range` is cut there, unless the piece inside
    /// merges with its neighbour: then only the border between the two moves.
    pub(super) fn update(
        &mut self,
        range: PhysRange,
        change: impl Fn(&mut EarlyRegion),
    ) -> Result<(), Full> {
        let (lo, hi) = self.meeting(range);
        if lo == hi {
            return Ok(());
        }
        let (first, last) = (self.regions[lo], self.regions[hi - 1]);
        if range.start() <= first.range.start() && last.range.end() <= range.end() {
            self.regions[lo..hi].iter_mut().for_each(change);
            self.next = hi - self.merge(lo.saturating_sub(1), (hi + 1).min(self.regions.len()));
            return Ok(());
        }
        let changed = |region: &EarlyRegion| {
            let mut inside = EarlyRegion {
                range: region.range.intersect(range),
                ..*region
            };
            change(&mut inside);
            inside
        };
        self.must_fit(self.len_after(range, lo, hi, changed, None))?;
        let cut_low = first.range.start() < range.start() && !changed(&first).alike(&first);
        let cut_high = range.end() < last.range.end() && !changed(&last).alike(&last);
        let tail = EarlyRegion {
            range: span(range.end().get(), last.range.end().get()),
            ..last
        };
        if hi - lo == 1 && cut_low && cut_high {
            self.regions[lo].range = span(first.range.start().get(), range.start().get());
            self.regions.insert(lo + 1, tail)?;
            return self.regions.insert(lo + 1, changed(&first));
        }
        let (from, to) = (lo + usize::from(cut_low), hi - usize::from(cut_high));
        for region in self.regions.get_mut(from..to).unwrap_or_default() {
            change(region);
        }
        // Regions yet to be cut take no part in the merge.
        let before = if cut_low { from } else { lo.saturating_sub(1) };
        let after = if cut_high {
            to
        } else {
            (to + 1).min(self.regions.len())
        };
        let hi = hi - self.merge(before, after);
        if cut_high {
            self.cut_high(hi - 1, changed(&last), tail)?;
        }
        if cut_low {
            self.cut_low(lo, changed(&first))
        } else {
            Ok(())
        }
    }

    /// Replaces the region at `at` by `inside`, its changed lower part, and `tail`.
    fn cut_high(&mut self, at: usize, inside: EarlyRegion, tail: EarlyRegion) -> Result<(), Full> {
        self.regions[at] = tail;
        match at.checked_sub(1).map(|before| &mut self.regions[before]) {
            Some(left) if joins(left, &inside) => {
                left.range = span(left.range.start().get(), inside.range.end().get());
                Ok(())
            }
            _ => self.regions.insert(at, inside),
        }
    }

    /// Leaves of the region at `at` what lies below `inside`, its changed upper part.
    fn cut_low(&mut self, at: usize, inside: EarlyRegion) -> Result<(), Full> {
        let start = self.regions[at].range.start().get();
        self.regions[at].range = span(start, inside.range.start().get());
        match self.regions.get_mut(at + 1) {
            Some(right) if joins(&inside, right) => {
                right.range = span(inside.range.start().get(), right.range.end().get());
                Ok(())
            }
            _ => self.regions.insert(at + 1, inside),
        }
    }

    /// Number of regions, merged, once `changed` replaces the parts inside `range` of
    /// the regions `lo..hi`, and `fill` is added to the gaps between them.
    fn len_after(
        &self,
        range: PhysRange,
        lo: usize,
        hi: usize,
        changed: impl Fn(&EarlyRegion) -> EarlyRegion,
        fill: Option<EarlyRegion>,
    ) -> usize {
        let mut count = self.regions.len() - (hi - lo);
        let mut last = lo.checked_sub(1).map(|at| self.regions[at]);
        let mut put = |piece: EarlyRegion| {
            if piece.range.is_empty() {
                return 0;
            }
            let merges = last.is_some_and(|before| joins(&before, &piece));
            last = Some(piece);
            usize::from(!merges)
        };
        let gap = |start: u64, end: u64| EarlyRegion {
            range: fill.map_or(PhysRange::EMPTY, |_| span(start, end)),
            ..fill.unwrap_or_default()
        };
        let mut filled = range.start().get();
        for region in &self.regions[lo..hi] {
            let (start, end) = (region.range.start().get(), region.range.end().get());
            if start < range.start().get() {
                count += put(EarlyRegion {
                    range: span(start, range.start().get()),
                    ..*region
                });
            }
            count += put(gap(filled, start));
            filled = end;
            count += put(changed(region));
            if range.end().get() < end {
                count += put(EarlyRegion {
                    range: span(range.end().get(), end),
                    ..*region
                });
            }
        }
        count += put(gap(filled, range.end().get()));
        if let Some(next) = self.regions.get(hi) {
            count = (count + put(*next)).saturating_sub(1);
        }
        count
    }

    /// Makes one of alike regions that touch, in positions `from..to`; how many went away.
    fn merge(&mut self, from: usize, to: usize) -> usize {
        let mut pairs = self.regions[from..to].windows(2);
        if !pairs.any(|pair| joins(&pair[0], &pair[1])) {
            return 0;
        }
        let mut write = from;
        for read in from + 1..to {
            let region = self.regions[read];
            let before = &mut self.regions[write];
            if joins(before, &region) {
                before.range = span(before.range.start().get(), region.range.end().get());
            } else {
                write += 1;
                self.regions[write] = region;
            }
        }
        self.regions.remove(write + 1, to);
        to - (write + 1)
    }
}

/// Whether the two are one region: they touch, in this order, and are alike.
fn joins(left: &EarlyRegion, right: &EarlyRegion) -> bool {
    left.range.end() == right.range.start() && left.alike(right)
}
