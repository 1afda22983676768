//! The words of a bitmap once more, for calls that need not hold what they give back: no page is anyone's here, every
//! CPU may change every bit at any time, and of a call it is only kept which steps it did. What follows is what such a
//! call is told, and what it did to the words.

use vstd::prelude::*;

use crate::model::Protocol;

verus! {

/// A word that no call has anything of.
pub type AtomicU64 = crate::model::AtomicU64<Told>;

/// What a call did, step by step: made by the steps themselves, and by nothing else.
pub tracked struct Steps {
    done: Ghost<Seq<(int, u64, u64)>>,
}

impl Steps {
    /// Of each step the first page of the word, and the word before and after.
    pub closed spec fn done(self) -> Seq<(int, u64, u64)> { self.done@ }

    /// Of a call that did nothing yet.
    pub proof fn none() -> (tracked out: Steps)
        ensures out.done() == Seq::<(int, u64, u64)>::empty(),
    {
        Steps { done: Ghost(Seq::empty()) }
    }
}

/// What stays as it is, is so in this word.
pub open spec fn stays(place: (int, u64, u64), word: u64) -> bool { word & place.1 == 0 && word & place.2 == place.2 }

/// Every step may be taken by every call, but for bits that no CPU sets, pages that stay free, and bits that no CPU
/// clears, pages that stay allocated.
pub struct Told;

impl Protocol for Told {
    /// The page of the lowest bit, the bits that no CPU sets, and those that no CPU clears.
    type Place = (int, u64, u64);
    type Inside = ();
    type Held = Steps;

    open spec fn inv(place: (int, u64, u64), word: u64, inside: ()) -> bool { stays(place, word) }
    open spec fn of(place: (int, u64, u64), held: Steps) -> bool { true }
    open spec fn knows(place: (int, u64, u64), held: Steps, word: u64) -> bool { stays(place, word) }
    open spec fn may(place: (int, u64, u64), held: Steps, was: u64, now: u64) -> bool { stays(place, now) }
    open spec fn moved(place: (int, u64, u64), before: Steps, was: u64, now: u64, after: Steps) -> bool {
        after.done() == before.done().push((place.0, was, now))
    }

    open spec fn saw(place: (int, u64, u64), before: Steps, word: u64, after: Steps) -> bool { after == before }

    proof fn see(place: (int, u64, u64), word: u64, tracked inside: &mut (), tracked held: &mut Steps) {}

    proof fn look(place: (int, u64, u64), word: u64, tracked inside: &mut (), tracked held: &Steps) {}

    proof fn step(place: (int, u64, u64), was: u64, now: u64, tracked inside: &mut (), tracked held: &mut Steps) {
        held.done = Ghost(held.done@.push((place.0, was, now)));
    }
}

} // verus!
