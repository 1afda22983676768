//! Taking memory out of use, as far as the list of pinned frames is concerned: [`Hotplug`].
//!
//! *One call at a time, and it can always undo what it pinned.* Others may only take frames off the
//! list meanwhile, so an undo needs an entry only where the call closed a gap, and the list keeps
//! one that others do not get. None of them takes off what is on its way out: until it is known
//! whether it goes, it is memory.

use super::Pinned;
use crate::addr::{Frame, FrameRange};
use crate::sync::Ordering;

/// Taking memory out of use, until this is dropped. One at a time.
#[derive(Debug)]
pub(crate) struct Hotplug<'p, 'm>(&'p Pinned<'m>);

impl Hotplug<'_, '_> {
    /// Adds `range`, of which nothing is pinned, and keeps others from taking any of it off the
    /// list until this is dropped; `false` if the list is full.
    pub(crate) fn pin(&self, range: FrameRange) -> bool {
        let list = self.0;
        list.change(|| {
            let is_listed = list.pin_now(range, list.space());
            if is_listed {
                list.going_offline
                    .store(range.start().get(), range.end().get());
            }
            is_listed
        })
    }

    /// Holds `range`: keeps others from taking it off the list until this is dropped; or the first frame of it
    /// that is not pinned.
    pub(crate) fn hold(&self, range: FrameRange) -> Result<(), Frame> {
        let list = self.0;
        list.change(|| {
            list.going_offline
                .store(range.start().get(), range.end().get())
        });
        list.first_other(range).map_or(Ok(()), Err)
    }

    /// Takes off what [`Hotplug::pin`] added. There is space for that: only where it closed a gap
    /// does it need an entry, and then others have left the last one.
    pub(crate) fn undo(&self) {
        let list = self.0;
        let undone = list.change(|| {
            let range = list.going_offline.range();
            if range.is_empty() {
                return Ok(()); // It was not listed.
            }
            list.going_offline.store(0, 0);
            list.unpin_now(range, list.entries.len())
        });
        debug_assert_eq!(undone, Ok(()));
    }

    /// So many frames more are offline; fewer, if that is negative.
    pub(crate) fn count(&self, more: i64) {
        self.0
            .offline
            .fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }
}

impl Drop for Hotplug<'_, '_> {
    fn drop(&mut self) {
        let list = self.0;
        if !list.going_offline.range().is_empty() {
            // As a change: one that finds nothing on its way out sees the words and the count.
            list.change(|| list.going_offline.store(0, 0));
        }
        list.hotplug.store(false, Ordering::Release);
    }
}

impl<'m> Pinned<'m> {
    /// Begins to take memory out of use; `None` if another CPU does.
    pub(crate) fn begin_hotplug(&self) -> Option<Hotplug<'_, 'm>> {
        // Acquire: pairs with the end of the one before.
        let is_mine = !self.hotplug.swap(true, Ordering::Acquire);
        is_mine.then_some(Hotplug(self))
    }

    /// Whether some frames are offline.
    pub(crate) fn is_any_offline(&self) -> bool {
        self.offline.load(Ordering::Relaxed) > 0
    }
}
