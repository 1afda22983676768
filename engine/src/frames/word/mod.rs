//! The two words the allocator decides by: [`Giant`], 64 bits a giant frame,
//! and [`Huge`], 32 bits a huge frame. Plain values; the atomics that hold
//! them live in [`super::segment`].

mod giant;
mod huge;

pub(crate) use giant::{Change, Giant, GiantState};
pub(crate) use huge::{Huge, HugeState};

use super::geometry::HUGE_ORDER;

/// Order of the largest block inside a huge frame that is split.
pub(crate) const LARGEST_RUN: u8 = HUGE_ORDER - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::geometry::{HUGE_FRAMES, HUGES};
    use crate::frames::request::Mobility;
    use Mobility::{Movable, Unmovable};

    #[test]
    fn words_survive_packing() {
        for giant in [
            Giant::WHOLE,
            Giant::SPLITTING,
            Giant::ALLOCATED,
            Giant::split(HUGES, [3, HUGES]),
        ] {
            assert_eq!(Giant::unpack(giant.pack()), giant);
            assert_ne!(giant.pack(), 0);
        }
        for huge in [
            Huge::FREE,
            Huge::SPLITTING,
            Huge::allocated(Unmovable),
            Huge::allocated(Movable),
            Huge::split(Movable, HUGE_FRAMES - 1),
            Huge::split(Unmovable, 5).with_isolated(true),
            Huge::split(Unmovable, 5),
            Huge::split(Unmovable, 0),
        ] {
            assert_eq!(Huge::unpack(huge.pack()), huge);
            for mobility in Mobility::ALL {
                let partial = huge.is_partial() && huge.mobility == mobility;
                assert_eq!(Huge::is_partial_in(huge.pack(), mobility), partial);
            }
            assert_ne!(huge.pack(), 0);
        }
    }

    #[test]
    fn a_giant_merges_only_when_nothing_is_left_below() {
        let free = Change::free;
        assert_eq!(
            Giant::split(HUGES - 1, [0; 2]).changed(free(1)),
            Some(Giant::MERGED)
        );
        assert_eq!(
            Giant::split(HUGES - 1, [0, 1]).changed(free(1)),
            Some(Giant::split(HUGES, [0, 1]))
        );
        assert_eq!(
            Giant::split(HUGES, [0, 1]).changed(Change::partial(Movable, -1)),
            Some(Giant::MERGED)
        );
        let taken = free(-2).and_partial(Unmovable, -1).and_busy(1);
        let busy = Giant::split(HUGES, [1, 0]).changed(taken).unwrap();
        assert_eq!(Giant::unpack(busy.pack()), busy);
        assert_eq!(busy.changed(free(2)).unwrap().state, GiantState::Split);
        assert_eq!(busy.changed(free(2).and_busy(-1)), Some(Giant::MERGED));
        assert_eq!(Giant::split(0, [0; 2]).changed(free(-1)), None);
        assert_eq!(Giant::WHOLE.changed(free(-1)), None);
    }

    #[test]
    fn the_bound_on_blocks_follows_what_is_free() {
        let full = Huge::split(Unmovable, 0);
        let checkerboard = full.freed(1, 0).freed(1, 0);
        assert!(checkerboard.may_have_run(0) && !checkerboard.may_have_run(1));
        assert!(checkerboard.freed(1, 1).may_have_run(1));
        // A bound that was there stays, as far as there are pages.
        let large = full.freed(64, 6).freed(1, 0);
        assert_eq!(large.bound(), 6);
        let few = large.promised(50).unwrap();
        assert_eq!(few.bound(), 3);
        // What was promised may have been other pages than those of the block.
        assert_eq!(few.freed(49, 0).bound(), 6);
        assert_eq!(Huge::split(Unmovable, 9).run, 3);
    }
}
