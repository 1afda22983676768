//! Frames that can't be freed: [`Pinned`], those that are reserved for ever and those that are
//! not memory yet.
//!
//! *The list changes only when memory comes or goes, and a reader that meets a change
//! reads again.* Its version is odd while a CPU changes it, which copies the list at most.

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
}

#[cfg(feature = "hotplug")]
/// Taking memory out of use, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hotplug<'p>(&'p AtomicBool);

#[cfg(feature = "hotplug")]
impl Drop for Hotplug<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Why a range is still pinned, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpin {
    /// This frame of it is not pinned.
    NotPinned(Frame),
    /// The list is full: the range lies in the middle of another, which would become two.
    Full,
}

impl<'m> Pinned<'m> {
    /// No frames; as many ranges as there are `entries` fit in.
    pub(crate) fn new(entries: Table<'m, Entry>) -> Self {
        Self {
            version: AtomicU32::new(0),
            len: AtomicU32::new(0),
            entries,
            #[cfg(feature = "hotplug")]
            hotplug: AtomicBool::new(false),
        }
    }

    /// Begins to take memory out of use; `None` if another CPU does.
    #[cfg(feature = "hotplug")]
    pub(crate) fn begin_hotplug(&self) -> Option<Hotplug<'_>> {
        // Acquire: pairs with the end of the one before.
        let is_mine = !self.hotplug.swap(true, Ordering::Acquire);
        is_mine.then(|| Hotplug(&self.hotplug))
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
        self.read(|listed| {
            let after = first_after(listed, frame.get());
            let before = after.checked_sub(1).and_then(|before| listed.get(before));
            let start = before.map_or(0, Entry::end);
            let end = listed.get(after).map_or(u64::MAX, Entry::start);
            // In the wrong order: the frame itself is pinned.
            FrameRange::new(start.min(end), end)
                .filter(|range| range.contains(frame))
                .unwrap_or_default()
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

    /// How many ranges the list can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    // ---- Changing --------------------------------------------------------

    /// Keeps other CPUs from reading and changing the list while `change` does.
    fn change<T>(&self, change: impl FnOnce() -> T) -> T {
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
        let changed = change();
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
        changed
    }

    /// Adds `range`, of which nothing is pinned; `false` if the list is full.
    pub(crate) fn pin(&self, range: FrameRange) -> bool {
        let (start, end) = (range.start().get(), range.end().get());
        self.change(|| {
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
                (None, None) => return self.insert(at, start, end),
            }
            true
        })
    }

    /// Takes `range`, all of which is pinned, off the list.
    pub(crate) fn unpin(&self, range: FrameRange) -> Result<(), Unpin> {
        let (start, end) = (range.start().get(), range.end().get());
        self.change(|| {
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
                    if !self.insert(at + 1, end, last) {
                        return Err(Unpin::Full);
                    }
                    entry.store(first, start);
                }
            }
            Ok(())
        })
    }

    /// Makes `start..end` the range number `at`; `false` if the list is full.
    fn insert(&self, at: usize, start: u64, end: u64) -> bool {
        let len = self.listed().len();
        if len == self.entries.len() {
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

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use crate::frames::tests::kit::{cases, frames};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn entries(count: usize) -> Table<'static, Entry> {
        Table::from_slice(Vec::leak((0..count).map(|_| Entry::default()).collect()))
    }

    #[test]
    fn a_full_list_refuses_a_hole_and_stays_as_it_was() {
        let pinned = Pinned::new(entries(1));
        assert!(pinned.pin(frames(0, 10)));
        assert_eq!(pinned.unpin(frames(4, 6)), Err(Unpin::Full));
        assert_eq!(
            pinned.unpin(frames(8, 12)),
            Err(Unpin::NotPinned(Frame::new(10)))
        );
        assert_eq!(pinned.frames_in(frames(0, 20)), 10);
        assert_eq!(pinned.unpin(frames(0, 4)), Ok(()));
        assert_eq!(pinned.first_in(frames(0, 20)), Some(Frame::new(4)));
        assert_eq!(pinned.unpin(frames(4, 10)), Ok(()));
        assert_eq!(pinned.around(Frame::new(5)), frames(0, u64::MAX));
    }

    proptest! {
        #![proptest_config(cases())]
        /// Beside a plain set of frames.
        #[test]
        fn it_lists_what_a_set_has(steps in prop::collection::vec((any::<bool>(), 0..40_u64, 1..12_u64), 1..60)) {
            let pinned = Pinned::new(entries(64));
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
                    prop_assert_eq!(pinned.unpin(range), expected);
                    if expected.is_ok() {
                        set.retain(|frame| !inside().contains(frame));
                    }
                }
                let (count, first) = (inside().filter(|frame| set.contains(frame)).count(),
                    inside().find(|frame| set.contains(frame)));
                prop_assert_eq!(pinned.frames_in(range), count as u64);
                prop_assert_eq!(pinned.first_in(range), first.map(Frame::new));
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
