//! Pages promised to a call: [`Promise`].
//!
//! A count is lowered before the bits are looked for, and raised after they are clear, so
//! that whoever lowered it by one finds its one. What is not found, or not in one piece,
//! is given back.

use super::request::Mobility;
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::word::{Change, Huge, HugeState, LARGEST_RUN};
use crate::sync::Ordering;

/// Pages taken off a huge frame's count, for the holder to find or give back.
#[derive(Debug)]
#[must_use = "a promise is kept or given back"]
pub(super) struct Promise {
    count: u32,
    /// It was all there was, and `partial` still counts the huge frame as one of these.
    emptied: Option<Mobility>,
}

impl Promise {
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether it was all there was.
    pub(super) const fn was_all(&self) -> bool {
        self.emptied.is_some()
    }
}

impl Segment<'_> {
    /// Takes `count` pages off the count of a huge frame, for the caller to
    /// find; or says which word did not allow it.
    pub(super) fn promise_pages(&self, huge: HugeIndex, count: u32) -> Result<Promise, Huge> {
        self.huges
            .at(huge)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                Huge::unpack(bits).promised(count).map(Huge::pack)
            })
            .map(|old| {
                let old = Huge::unpack(old);
                Promise {
                    count,
                    emptied: (old.free == count).then_some(old.mobility),
                }
            })
            .map_err(Huge::unpack)
    }

    /// Takes as many pages off the count of a huge frame as it has, `most` at most, if it is
    /// split for `mobility`.
    pub(super) fn promise_up_to(
        &self,
        huge: HugeIndex,
        mobility: Mobility,
        most: u32,
    ) -> Option<Promise> {
        let promise = |bits| {
            let word = Huge::unpack(bits);
            let count = word.free.min(most);
            (count > 0 && word.mobility == mobility).then_some((word, count))
        };
        let update = |bits| {
            let (word, count) = promise(bits)?;
            word.promised(count).map(Huge::pack)
        };
        let changed =
            (self.huges.at(huge)).fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        let (old, count) = promise(changed.ok()?)?;
        Some(Promise {
            count,
            emptied: (old.free == count).then_some(mobility),
        })
    }

    /// The promised pages were found. Only now, because up to here they might
    /// have had to go back: others must not take the huge frame for used up.
    pub(super) fn keep_promise(&self, giant: GiantIndex, promise: Promise) {
        if let Some(mobility) = promise.emptied {
            self.settle_giant(giant, Change::partial(mobility, -1));
        }
    }

    /// The promised pages were not found, or not so that they can be used;
    /// `released` of them are free already.
    pub(super) fn give_back(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        promise: Promise,
        released: u32,
    ) {
        let Promise { count, emptied } = promise;
        if count > released {
            // Whoever measured meanwhile did not see them as free.
            self.raise_pages(giant, huge, count - released, LARGEST_RUN, emptied);
        } else {
            self.keep_promise(giant, promise);
        }
    }

    /// Raises the count of a split huge frame by pages whose bits are clear again,
    /// and which are now part of blocks of order `run` at most.
    #[inline]
    pub(super) fn return_pages(&self, giant: GiantIndex, huge: HugeIndex, count: u32, run: u8) {
        // Mostly the count is all there is to change.
        let word = self.huges.at(huge);
        let mut old = word.load(Ordering::Acquire);
        while let Some(new) = Huge::counted_in(old, count, run) {
            match word.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return self.pass_on_bound(giant, Huge::unpack(new)),
                Err(now) => old = now,
            }
        }
        self.raise_pages(giant, huge, count, run, None);
    }

    /// Raises the count of a split huge frame and merges it if those were the
    /// last. `raised` if the caller has counted it as partial already.
    ///
    /// The huge frame is split as long as nobody frees what is not his. If it is
    /// not, the pages were freed twice and belong to whatever it is now.
    fn raise_pages(
        &self,
        giant: GiantIndex,
        huge: HugeIndex,
        count: u32,
        run: u8,
        mut raised: Option<Mobility>,
    ) {
        let lower = |raised: Option<Mobility>| {
            if let Some(mobility) = raised {
                self.settle_giant(giant, Change::partial(mobility, -1));
            }
        };
        let mut old = self.settled_huge(huge);
        let new = loop {
            if old.state != HugeState::Split {
                // Believe it only if it is the latest value.
                if self.swap_huge(huge, old, old) {
                    return lower(raised);
                }
                old = self.settled_huge(huge);
                continue;
            }
            if old.isolated || raised.is_some_and(|mobility| mobility != old.mobility) {
                lower(raised.take());
            }
            // `partial` is raised before the count and lowered after it.
            if old.free == 0 && raised.is_none() && !old.isolated {
                self.settle_giant(giant, Change::partial(old.mobility, 1));
                raised = Some(old.mobility);
            }
            let new = old.freed(count, run);
            if self.swap_huge(huge, old, new) {
                break new;
            }
            old = self.settled_huge(huge);
        };
        if old.free == 0 && new.state == HugeState::Split {
            self.remeasure_run(giant, huge, new.run);
        }
        if old.isolated {
            return;
        }
        let merged = new == Huge::FREE;
        let should_be = i32::from(!merged) - i32::from(old.free > 0);
        let is = i32::from(raised.is_some());
        if merged || should_be != is {
            let by = Change::free(i32::from(merged)).and_partial(old.mobility, should_be - is);
            self.settle_giant(giant, by);
        }
        if !merged {
            self.pass_on_bound(giant, new);
        }
    }
}
