//! Frames that can't be freed: [`Pinned`], those that are reserved for ever and those that are
//! not memory yet.
//!
//! *The list changes only when memory comes or goes, and a reader that meets a change
//! reads again.* Its version is odd while a CPU changes it: that copies the list at most, and reads the
//! huge words of the memory that comes, and of what is beside it.
//!
//! One entry more than the list may have ranges is kept for the call that takes memory out of use.

#[cfg(feature = "hotplug")]
pub(crate) mod hotplug;

use super::table::{Table, Word};
use crate::addr::{Frame, FrameRange};
#[cfg(feature = "hotplug")]
use crate::sync::AtomicBool;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, pause};

/// One range of the list.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    start: AtomicU64,
    end: AtomicU64,
}

// SAFETY: two atomic integers.
unsafe impl Word for Entry {}

impl Entry {
    fn range(&self) -> FrameRange {
        let (start, end) = (self.start(), self.end());
        // In the wrong order only beside a change: the reader reads again.
        FrameRange::new(start, end).unwrap_or_default()
    }

    fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    fn store(&self, start: u64, end: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// Ascending ranges that do not touch.
#[derive(Debug)]
pub(crate) struct Pinned<'m> {
    /// Odd while a CPU changes the list.
    version: AtomicU32,
    len: AtomicU32,
    /// The first `len` are written.
    entries: Table<'m, Entry>,
    /// A CPU takes memory out of use, or brings such memory back.
    #[cfg(feature = "hotplug")]
    hotplug: AtomicBool,
    /// What that CPU pinned: it does not come before its words say whether it went.
    #[cfg(feature = "hotplug")]
    going_offline: Entry,
    /// Entries that its undo may need besides: one for each gap it closed.
    #[cfg(feature = "hotplug")]
    undo_entries: AtomicU32,
    /// Frames that are offline. No fewer while one call makes them so, or ends it.
    #[cfg(feature = "hotplug")]
    offline: AtomicU64,
}

/// Entries that no list of ranges fills: the one that [`hotplug::Hotplug::undo`] may need.
const SPARE: usize = cfg!(feature = "hotplug") as usize;

/// Why a range is still pinned, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpin {
    /// This frame of it is not pinned.
    NotPinned(Frame),
    /// The list is full, with so many ranges: the range lies in the middle of another, which would
    /// become two.
    Full(usize),
    /// The huge frame of this frame has memory of another zone.
    OtherZone(Frame),
}

impl<'m> Pinned<'m> {
    /// How many entries a list of `ranges` ranges needs.
    pub(crate) const fn entries_for(ranges: usize) -> usize {
        ranges.saturating_add(SPARE)
    }

    /// No frames, in entries [for](Self::entries_for) a number of ranges.
    pub(crate) fn new(entries: Table<'m, Entry>) -> Self {
        Self {
            version: AtomicU32::new(0),
            len: AtomicU32::new(0),
            entries,
            #[cfg(feature = "hotplug")]
            hotplug: AtomicBool::new(false),
            #[cfg(feature = "hotplug")]
            going_offline: Entry::default(),
            #[cfg(feature = "hotplug")]
            undo_entries: AtomicU32::new(0),
            #[cfg(feature = "hotplug")]
            offline: AtomicU64::new(0),
        }
    }

    /// These frames; `None` if there is no entry.
    pub(crate) fn of(entries: Table<'m, Entry>, range: FrameRange) -> Option<Self> {
        let list = Self::new(entries);
        if list.entries.len() == 0 {
            return None;
        }
        let first = list.entries.at(0);
        first.store(range.start().get(), range.end().get());
        list.set_len(1);
        Some(list)
    }

    // ---- Reading ---------------------------------------------------------

    #[inline]
    fn listed(&self) -> &'m [Entry] {
        // Acquire: pairs with `set_len`.
        let len = self.len.load(Ordering::Acquire) as usize;
        // SAFETY: the length grows after the entry is written.
        unsafe { self.entries.written(len) }
    }

    /// What `look` sees of a list that does not change meanwhile.
    #[inline]
    fn read<T>(&self, look: impl Fn(&'m [Entry]) -> T) -> T {
        loop {
            // Acquire: pairs with the end of a change.
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = look(self.listed());
                // Acquire: pairs with the fence at the start of a change.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return seen;
                }
            }
            pause();
        }
    }

    /// The first pinned frame of `range`, which is not empty.
    pub(crate) fn first_in(&self, range: FrameRange) -> Option<Frame> {
        let (start, end) = (range.start().get(), range.end().get());
        self.read(|listed| {
            let after = listed.get(first_after(listed, start))?;
            let first = after.start().max(start);
            (first < end).then_some(Frame::new(first))
        })
    }

    /// All frames around `frame` up to the next ones that are pinned; none if it is.
    pub(crate) fn around(&self, frame: Frame) -> FrameRange {
        let (run, is_pinned) = self.run(frame);
        if is_pinned { FrameRange::EMPTY } else { run }
    }

    /// All frames in a row around `frame` that are pinned as it is, or not as it is not; and whether
    /// it is.
    pub(crate) fn run(&self, frame: Frame) -> (FrameRange, bool) {
        self.read(|listed| {
            let after = first_after(listed, frame.get());
            if let Some(entry) = listed.get(after)
                && entry.start() <= frame.get()
            {
                return (entry.range(), true);
            }
            let before = after.checked_sub(1).and_then(|before| listed.get(before));
            let start = before.map_or(0, Entry::end);
            let end = listed.get(after).map_or(u64::MAX, Entry::start);
            // In the wrong order only beside a change.
            (FrameRange::new(start, end).unwrap_or_default(), false)
        })
    }

    /// How many frames of `range` are pinned.
    pub(crate) fn frames_in(&self, range: FrameRange) -> u64 {
        self.read(|listed| {
            let after = first_after(listed, range.start().get());
            let reaching = listed.get(after..).unwrap_or_default().iter();
            let inside = reaching.map(|entry| entry.range().intersect(range).count());
            inside.take_while(|&frames| frames > 0).sum()
        })
    }

    /// From the first frame of `range`, which is not empty, that is not pinned to the last; empty if
    /// all are.
    pub(crate) fn span_of_others(&self, range: FrameRange) -> FrameRange {
        let (first, end) = (range.start().get(), range.end().get());
        self.read(|listed| {
            let at = |frame| listed.get(first_after(listed, frame));
            // The ranges do not touch: beside each of them is a frame that is not pinned.
            let below = at(first).filter(|entry| entry.start() <= first);
            let above = at(end - 1).filter(|entry| entry.start() < end);
            let start = below.map_or(first, Entry::end);
            FrameRange::new(start, above.map_or(end, Entry::start)).unwrap_or_default()
        })
    }

    /// The first frame of `range`, which is not empty, that is not pinned.
    #[cfg(feature = "hotplug")]
    pub(crate) fn first_other(&self, range: FrameRange) -> Option<Frame> {
        let first = match self.run(range.start()) {
            (run, true) => run.end(),
            (_, false) => range.start(),
        };
        (first < range.end()).then_some(first)
    }

    /// How many ranges the list can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len().saturating_sub(SPARE)
    }

    // ---- Changing --------------------------------------------------------

    /// Keeps other CPUs from reading and changing the list while `change` does.
    fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let version = self.begin_change();
        let changed = change();
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
        changed
    }

    /// Makes the version odd; the one before.
    #[inline(never)]
    fn begin_change(&self) -> u32 {
        let version = loop {
            let version = self.version.load(Ordering::Relaxed) & !1;
            let (mine, not_yet) = (Ordering::Acquire, Ordering::Relaxed);
            let taken = (self.version).compare_exchange(version, version + 1, mine, not_yet);
            if taken.is_ok() {
                break version;
            }
            pause();
        };
        // Release: a reader of what is stored from here on sees the odd version.
        fence(Ordering::Release);
        version
    }

    /// How many ranges it may have now, so that what another call has begun can be undone.
    fn space(&self) -> usize {
        #[cfg(feature = "hotplug")]
        let reserved = self.undo_entries.load(Ordering::Relaxed) as usize;
        #[cfg(not(feature = "hotplug"))]
        let reserved = 0;
        self.capacity().saturating_sub(reserved)
    }

    /// Adds `range`, of which nothing is pinned; `false` if the list is full.
    pub(crate) fn pin(&self, range: FrameRange) -> bool {
        self.change(|| self.pin_now(range, self.space()))
    }

    /// Puts back what the caller has just taken off.
    pub(crate) fn pin_back(&self, range: FrameRange) {
        let is_back = self.change(|| self.pin_now(range, self.entries.len()));
        debug_assert!(is_back, "there was space for {range}");
    }

    /// Takes `range`, all of which is pinned, off the list. `refused` says why some of it stays, as it
    /// looks while the list does not change.
    pub(crate) fn unpin(
        &self,
        range: FrameRange,
        refused: impl FnOnce() -> Result<(), Unpin>,
    ) -> Result<(), Unpin> {
        self.unpin_and(range, refused, || Ok(()))
    }

    /// Takes `range` off the list, as [`Self::unpin`], and does `also` before any other call sees it; if that fails, nothing
    /// changed here.
    pub(crate) fn unpin_and(
        &self,
        range: FrameRange,
        refused: impl FnOnce() -> Result<(), Unpin>,
        also: impl FnOnce() -> Result<(), Unpin>,
    ) -> Result<(), Unpin> {
        self.change(|| {
            #[cfg(feature = "hotplug")]
            {
                let held = self.going_offline.range().intersect(range);
                if !held.is_empty() {
                    return Err(Unpin::NotPinned(held.start()));
                }
            }
            refused()?;
            self.unpin_now(range, self.space())?;
            also().inspect_err(|_| {
                let is_back = self.pin_now(range, self.entries.len());
                debug_assert!(is_back, "there was space for {range}");
            })
        })
    }

    /// Adds `range` for a call that may undo it, in a list that others change: where it closes a gap,
    /// they leave an entry until [`Self::release_undo_entries`]. `false` if the list is full.
    #[cfg(feature = "hotplug")]
    pub(crate) fn pin_undoable(&self, range: FrameRange) -> bool {
        self.change(|| {
            let before = self.listed().len();
            let is_listed = self.pin_now(range, self.space());
            if self.listed().len() < before {
                self.undo_entries.fetch_add(1, Ordering::Relaxed);
            }
            is_listed
        })
    }

    /// Nothing of what was added needs to be undone any more.
    #[cfg(feature = "hotplug")]
    pub(crate) fn release_undo_entries(&self) {
        self.undo_entries.store(0, Ordering::Relaxed);
    }

    /// Takes off what the caller has just added by [`Self::pin_undoable`]: there is space for that.
    #[cfg(feature = "hotplug")]
    pub(crate) fn unpin_back(&self, range: FrameRange) {
        let undone = self.change(|| self.unpin_now(range, self.entries.len()));
        debug_assert_eq!(undone, Ok(()), "there was space for {range}");
    }

    /// [`Self::pin`] inside a change, with at most `most` ranges after it.
    fn pin_now(&self, range: FrameRange, most: usize) -> bool {
        let (start, end) = (range.start().get(), range.end().get());
        let listed = self.listed();
        let at = first_after(listed, start);
        let below = at.checked_sub(1).and_then(|below| listed.get(below));
        let below = below.filter(|below| below.end() == start);
        let above = listed.get(at).filter(|above| above.start() == end);
        match (below, above) {
            (Some(below), Some(above)) => {
                below.store(below.start(), above.end());
                self.close_gap(at);
            }
            (Some(below), None) => below.store(below.start(), end),
            (None, Some(above)) => above.store(start, above.end()),
            (None, None) => return self.insert(at, start, end, most),
        }
        true
    }

    /// [`Self::unpin`] inside a change, with at most `most` ranges after it.
    fn unpin_now(&self, range: FrameRange, most: usize) -> Result<(), Unpin> {
        let (start, end) = (range.start().get(), range.end().get());
        let listed = self.listed();
        let at = first_after(listed, start);
        // The ranges do not touch: one has all of it.
        let Some(entry) = listed.get(at).filter(|entry| entry.start() <= start) else {
            return Err(Unpin::NotPinned(range.start()));
        };
        let (first, last) = (entry.start(), entry.end());
        if last < end {
            return Err(Unpin::NotPinned(Frame::new(last)));
        }
        match (first < start, end < last) {
            (false, false) => self.close_gap(at),
            (true, false) => entry.store(first, start),
            (false, true) => entry.store(end, last),
            (true, true) => {
                if !self.insert(at + 1, end, last, most) {
                    return Err(Unpin::Full(self.capacity()));
                }
                entry.store(first, start);
            }
        }
        Ok(())
    }

    /// Makes `start..end` the range number `at`; `false` if the list has `most` ranges.
    fn insert(&self, at: usize, start: u64, end: u64, most: usize) -> bool {
        let len = self.listed().len();
        if len >= most {
            return false;
        }
        for index in (at..len).rev() {
            let moved = self.entries.at(index);
            self.entries.at(index + 1).store(moved.start(), moved.end());
        }
        self.entries.at(at).store(start, end);
        self.set_len(len + 1);
        true
    }

    /// Drops range number `at`.
    fn close_gap(&self, at: usize) {
        let last = self.listed().len() - 1;
        for index in at..last {
            let moved = self.entries.at(index + 1);
            self.entries.at(index).store(moved.start(), moved.end());
        }
        self.set_len(last);
    }

    fn set_len(&self, len: usize) {
        self.len
            .store(u32::try_from(len).unwrap_or(0), Ordering::Release);
    }
}

/// Index of the first range that ends after `frame`.
#[inline]
fn first_after(listed: &[Entry], frame: u64) -> usize {
    listed.partition_point(|entry| entry.end() <= frame)
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::frames::tests::kit::{cases, frames};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn list_of(ranges: usize) -> Pinned<'static> {
        let entries = (0..Pinned::entries_for(ranges)).map(|_| Entry::default());
        Pinned::new(Table::from_slice(Vec::leak(entries.collect())))
    }

    fn unpin(list: &Pinned<'_>, range: FrameRange) -> Result<(), Unpin> {
        list.unpin(range, || Ok(()))
    }

    #[test]
    fn a_full_list_refuses_a_hole_and_stays_as_it_was() {
        let pinned = list_of(1);
        assert_eq!(pinned.capacity(), 1);
        assert!(pinned.pin(frames(0, 10)));
        assert_eq!(unpin(&pinned, frames(4, 6)), Err(Unpin::Full(1)));
        assert_eq!(
            unpin(&pinned, frames(8, 12)),
            Err(Unpin::NotPinned(Frame::new(10)))
        );
        assert_eq!(pinned.frames_in(frames(0, 20)), 10);
        assert_eq!(unpin(&pinned, frames(0, 4)), Ok(()));
        assert_eq!(pinned.first_in(frames(0, 20)), Some(Frame::new(4)));
        assert_eq!(unpin(&pinned, frames(4, 10)), Ok(()));
        assert_eq!(pinned.around(Frame::new(5)), frames(0, u64::MAX));
    }

    /// An offline that fails: what it pinned closed a gap, and another call filled the list since.
    #[cfg(feature = "hotplug")]
    #[test]
    fn what_is_on_its_way_out_comes_back_to_a_list_that_was_filled() {
        let pinned = list_of(2);
        assert!(pinned.pin(frames(0, 10)) && pinned.pin(frames(20, 30)));
        let hotplug = pinned.begin_hotplug().unwrap();
        assert!(hotplug.pin(frames(10, 20)));
        assert_eq!(unpin(&pinned, frames(4, 6)), Ok(()));
        assert_eq!(unpin(&pinned, frames(24, 26)), Err(Unpin::Full(2)));
        let mine = Err(Unpin::NotPinned(Frame::new(10)));
        assert_eq!(unpin(&pinned, frames(8, 12)), mine);
        hotplug.undo();
        drop(hotplug);
        assert_eq!(pinned.around(Frame::new(15)), frames(10, 20));
        // One range more than others may have, until one goes.
        assert_eq!(unpin(&pinned, frames(24, 26)), Err(Unpin::Full(2)));
        let hotplug = pinned.begin_hotplug().unwrap();
        assert!(hotplug.pin(frames(10, 20)));
        assert_eq!(unpin(&pinned, frames(24, 26)), Err(Unpin::Full(2)));
        hotplug.undo();
        assert_eq!(pinned.frames_in(frames(0, 30)), 18);
    }

    /// What went comes off the list again once the call that took it is over.
    #[cfg(feature = "hotplug")]
    #[test]
    fn what_is_on_its_way_out_is_taken_off_the_list_by_no_other_call() {
        let pinned = list_of(4);
        let hotplug = pinned.begin_hotplug().unwrap();
        assert!(pinned.begin_hotplug().is_none());
        assert!(hotplug.pin(frames(10, 20)));
        let refused = Err(Unpin::NotPinned(Frame::new(10)));
        assert_eq!(unpin(&pinned, frames(10, 20)), refused);
        drop(hotplug);
        let refused = pinned.unpin(frames(10, 20), || Err(Unpin::NotPinned(Frame::new(12))));
        assert_eq!(refused, Err(Unpin::NotPinned(Frame::new(12))));
        assert_eq!(unpin(&pinned, frames(10, 20)), Ok(()));
    }

    #[test]
    fn a_change_that_fails_elsewhere_changes_nothing_here() {
        let pinned = list_of(2);
        assert!(pinned.pin(frames(0, 10)));
        let full = pinned.unpin_and(frames(4, 6), || Ok(()), || Err(Unpin::Full(1)));
        assert_eq!(full, Err(Unpin::Full(1)));
        assert_eq!(pinned.run(Frame::new(0)), (frames(0, 10), true));
        assert_eq!(pinned.unpin_and(frames(4, 6), || Ok(()), || Ok(())), Ok(()));
        assert_eq!(pinned.run(Frame::new(4)), (frames(4, 6), false));
    }

    proptest! {
        #![proptest_config(cases(200))]
        /// Beside a plain set of frames.
        #[test]
        fn it_lists_what_a_set_has(steps in prop::collection::vec((any::<bool>(), 0..40_u64, 1..12_u64), 1..60)) {
            let pinned = list_of(64);
            let mut set = std::collections::BTreeSet::new();
            for (pin, start, count) in steps {
                let range = frames(start, start + count);
                let inside = || start..start + count;
                if pin {
                    if inside().all(|frame| !set.contains(&frame)) {
                        prop_assert!(pinned.pin(range));
                        set.extend(inside());
                    }
                } else {
                    let first_not = inside().find(|frame| !set.contains(frame));
                    let expected = match first_not {
                        None => Ok(()),
                        Some(frame) => Err(Unpin::NotPinned(Frame::new(frame))),
                    };
                    prop_assert_eq!(unpin(&pinned, range), expected);
                    if expected.is_ok() {
                        set.retain(|frame| !inside().contains(frame));
                    }
                }
                let (count, first) = (inside().filter(|frame| set.contains(frame)).count(),
                    inside().find(|frame| set.contains(frame)));
                prop_assert_eq!(pinned.frames_in(range), count as u64);
                prop_assert_eq!(pinned.first_in(range), first.map(Frame::new));
                let others = || inside().filter(|frame| !set.contains(frame));
                let span = others().next().map(|first| frames(first, others().next_back().unwrap() + 1));
                let seen = pinned.span_of_others(range);
                prop_assert_eq!((!seen.is_empty()).then_some(seen), span);
                let around = pinned.around(Frame::new(start));
                let below = set.range(..=start).next_back().map_or(0, |frame| frame + 1);
                let above = set.range(start..).next().copied().unwrap_or(u64::MAX);
                prop_assert_eq!(around.is_empty(), set.contains(&start));
                if !around.is_empty() {
                    prop_assert_eq!(around, frames(below, above));
                }
            }
        }
    }
}
