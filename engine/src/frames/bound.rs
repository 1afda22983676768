//! Bounds on the blocks of free pages, by which a request of order 1 to 8 sees where it is
//! no use to look.
//!
//! A huge frame's word and its giant frame's say an order that no block of pages
//! exceeds. What is freed raises them. To lower one: lower it first, then look, then
//! raise it to what is there; what is freed from the first step on raises it by itself.
//! Whoever lowers is counted in `busy` meanwhile, so that nobody believes a bound that is
//! too low for the moment; but not who lowers it where nothing is free that is not promised.

use super::request::Mobility;
use super::segment::{GiantIndex, HugeIndex, Segment};
use super::word::{Giant, GiantState, Huge, HugeState, LARGEST_RUN};
use crate::sync::{Ordering, fence_after_rmw};

impl Segment<'_> {
    /// After pages became free below: their blocks may be of order `run`. A fence
    /// must lie between the change of the huge word and this.
    #[inline]
    pub(super) fn raise_giant_run(&self, giant: GiantIndex, mobility: Mobility, run: u8) {
        if Giant::run_in(self.giant_bits(giant), mobility) < run {
            self.set_giant_run_from(giant, mobility, run);
        }
    }

    #[cold]
    fn set_giant_run_from(&self, giant: GiantIndex, mobility: Mobility, run: u8) {
        let mut least = [0; 2];
        least[mobility as usize] = run;
        self.change_giant_run(giant, |word| word.with_run_from(least));
    }

    fn change_giant_run(&self, giant: GiantIndex, change: impl Fn(Giant) -> Giant) {
        let update = |bits| {
            let word = Giant::unpack(bits);
            (word.state == GiantState::Split).then(|| change(word).pack())
        };
        // An error means that it is one block, which has no bound.
        let _ = (self.giants.at(giant)).fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    /// Finds out how large a block a split huge frame has. The caller is counted in `busy`.
    pub(super) fn measure_run(&self, giant: GiantIndex, huge: HugeIndex) {
        self.change_huge_run(huge, |word| Huge { run: 0, ..word });
        self.raise_run(giant, huge, self.row(huge).largest_run());
    }

    /// After pages became free in a huge frame that had none: its bound has started anew with
    /// theirs. What was promised before may stay free and be of a larger block.
    pub(super) fn remeasure_run(&self, giant: GiantIndex, huge: HugeIndex, run: u8) {
        let largest = self.row(huge).largest_run();
        if largest > run {
            self.raise_run(giant, huge, largest);
        }
    }

    /// A split huge frame may have a block of order `run`.
    fn raise_run(&self, giant: GiantIndex, huge: HugeIndex, run: u8) {
        if let Some(new) = self.change_huge_run(huge, |word| word.with_run_from(run)) {
            // Who measured the giant frame meanwhile saw too little.
            self.pass_on_bound(giant, new);
        }
    }

    /// The word of a huge frame after a change of its bound; `None` if it is one block,
    /// which has no bound.
    fn change_huge_run(&self, huge: HugeIndex, change: impl Fn(Huge) -> Huge) -> Option<Huge> {
        let update = |bits| {
            let word = Huge::unpack(bits);
            (word.state == HugeState::Split).then(|| change(word).pack())
        };
        let word = self.huges.at(huge);
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        old.ok().map(|old| change(Huge::unpack(old)))
    }

    /// Tells the giant frame how large a block its huge frame may have now: it was just
    /// changed to be `huge`.
    #[inline]
    pub(super) fn pass_on_bound(&self, giant: GiantIndex, huge: Huge) {
        if huge.bound() > 0 {
            fence_after_rmw();
            self.raise_giant_run(giant, huge.mobility, huge.bound());
        }
    }

    /// Finds out how large a block the split huge frames of `giant` have. The caller
    /// is counted in `busy`.
    pub(super) fn measure_giant_run(&self, giant: GiantIndex) {
        self.change_giant_run(giant, |word| Giant {
            run: [0; 2],
            ..word
        });
        fence_after_rmw();
        let (mut run, mut seen) = ([0; 2], [0; 2]);
        for huge in self.huges_in(giant) {
            let word = self.huge(huge);
            if word.is_partial() {
                let index = word.mobility as usize;
                run[index] = word.bound().max(run[index]);
                seen[index] += 1;
            }
        }
        self.change_giant_run(giant, |word| {
            // Fewer than counted: one is being split or merged just now.
            let bound = |index: usize| {
                if seen[index] < word.partial[index] {
                    LARGEST_RUN
                } else {
                    run[index]
                }
            };
            word.with_run_from([bound(0), bound(1)])
        });
    }
}
