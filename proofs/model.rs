//! The prover's 64-bit atomic, in the place of the processor's as loom's is in models: each bit that is clear stands
//! for a page that the word has, each page is in one place only, and an atomic step moves pages between the word and
//! the call that makes it. Its steps follow one another: what weaker orderings allow, loom finds.

use vstd::atomic_ghost::*;
use vstd::prelude::*;
use vstd::resource::Loc;
use vstd::resource::map::GhostSubmap;
use vstd::std_specs::bits::*;

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};

verus! {

broadcast use vstd::set_lib::range_set_properties;

/// The right to use pages: made once for each page, never copied.
pub type Held = GhostSubmap<int, ()>;

/// Whether bit `i` of a word is set.
pub open spec fn bit(word: u64, i: int) -> bool { (word >> (i as u64)) & 1 == 1 }

/// The pages from `base` on whose bits are set in a word.
pub open spec fn pages(base: int, word: u64) -> Set<int> {
    vstd::set_lib::set_int_range(base, base + 64).filter(|page: int| bit(word, page - base))
}

/// Taken on trust, of Rust's library: that the first returns, and what the others do.
pub assume_specification[ u64::is_power_of_two ](word: u64) -> bool;
pub assume_specification[ u32::is_power_of_two ](number: u32) -> (out: bool) ensures out == (number != 0 && number & sub(number, 1) == 0);
pub assume_specification[ u64::count_ones ](word: u64) -> (out: u32) ensures out == pages(0, word).len();
pub assume_specification[ u64::wrapping_neg ](word: u64) -> (out: u64) ensures out == add(!word, 1);

/// How tokens move between a word and the calls that change it.
pub trait Protocol: Sized {
    /// Which word it is.
    type Place;
    /// Tokens that are in the word.
    type Inside;
    /// Tokens that a call has.
    type Held;

    /// What is in a word that is this number.
    spec fn inv(place: Self::Place, word: u64, inside: Self::Inside) -> bool;
    /// What a call has belongs to this word, among others.
    spec fn of(place: Self::Place, held: Self::Held) -> bool;
    /// What a call that has this knows of the word, whatever others do.
    spec fn knows(place: Self::Place, held: Self::Held, word: u64) -> bool;
    /// Whether a call that has this may change the word so.
    spec fn may(place: Self::Place, held: Self::Held, was: u64, now: u64) -> bool;
    /// What a call has after it changed the word.
    spec fn moved(place: Self::Place, before: Self::Held, was: u64, now: u64, after: Self::Held) -> bool;

    /// What a call has after it looked at the word.
    spec fn saw(place: Self::Place, before: Self::Held, word: u64, after: Self::Held) -> bool;

    proof fn see(place: Self::Place, word: u64, tracked inside: &mut Self::Inside, tracked held: &mut Self::Held)
        requires Self::inv(place, word, *old(inside)), Self::of(place, *old(held)),
        ensures Self::inv(place, word, *final(inside)), Self::of(place, *final(held)), Self::saw(place, *old(held), word, *final(held));

    proof fn look(place: Self::Place, word: u64, tracked inside: &mut Self::Inside, tracked held: &Self::Held)
        requires Self::inv(place, word, *old(inside)), Self::of(place, *held),
        ensures Self::inv(place, word, *final(inside)), Self::knows(place, *held, word);

    proof fn step(place: Self::Place, was: u64, now: u64, tracked inside: &mut Self::Inside, tracked held: &mut Self::Held)
        requires
            Self::inv(place, was, *old(inside)),
            Self::of(place, *old(held)),
            Self::knows(place, *old(held), was),
            Self::may(place, *old(held), was, now),
        ensures
            Self::inv(place, now, *final(inside)),
            Self::of(place, *final(held)),
            Self::moved(place, *old(held), was, now, *final(held));
}

/// What a call has, and is told, that put `new` into a word if it was still `current`.
pub open spec fn exchanged<P: Protocol>(place: P::Place, before: P::Held, current: u64, new: u64, out: Result<u64, u64>, after: P::Held) -> bool {
    &&& P::of(place, after)
    &&& match out {
        Ok(was) => was == current && P::knows(place, before, was) && P::moved(place, before, was, new, after),
        Err(was) => after == before && P::knows(place, before, was),
    }
}

pub struct Inv<P> { of: core::marker::PhantomData<P> }

impl<P: Protocol> AtomicInvariantPredicate<P::Place, u64, P::Inside> for Inv<P> {
    open spec fn atomic_inv(place: P::Place, word: u64, inside: P::Inside) -> bool { P::inv(place, word, inside) }
}

/// A word of 64 bits; of a bitmap, if nothing else is said.
pub struct AtomicU64<P: Protocol = Pages> {
    inner: vstd::atomic_ghost::AtomicU64<P::Place, P::Inside, Inv<P>>,
}

impl<P: Protocol> AtomicU64<P> {
    pub closed spec fn wf(self) -> bool { self.inner.well_formed() }
    /// Which word it is.
    pub closed spec fn place(self) -> P::Place { self.inner.constant() }

    pub fn new(word: u64, Ghost(place): Ghost<P::Place>, Tracked(inside): Tracked<P::Inside>) -> (out: Self)
        requires P::inv(place, word, inside),
        ensures out.wf() && out.place() == place,
    {
        AtomicU64 { inner: vstd::atomic_ghost::AtomicU64::new(Ghost(place), word, Tracked(inside)) }
    }

    /// A look: from it nothing follows of what the word is later.
    pub fn load(&self, _order: Ordering) -> u64
        requires self.wf(),
    {
        atomic_with_ghost!(&self.inner => load(); ghost inside => {})
    }

    /// A look by a call that has something: it sees what follows from that.
    pub fn load_by(&self, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (word: u64)
        requires self.wf(), P::of(self.place(), *old(held)),
        ensures *final(held) == *old(held), P::knows(self.place(), *old(held), word),
    {
        atomic_with_ghost!(&self.inner => load(); returning word; ghost inside => {
            P::look(self.place(), word, &mut inside, &*held);
        })
    }

    /// A look by a call that learns something by it that stays so.
    pub fn load_seeing(&self, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (word: u64)
        requires self.wf(), P::of(self.place(), *old(held)),
        ensures P::of(self.place(), *final(held)), P::saw(self.place(), *old(held), word, *final(held)),
    {
        atomic_with_ghost!(&self.inner => load(); returning word; ghost inside => {
            P::see(self.place(), word, &mut inside, &mut *held);
        })
    }

    /// Another word, if it is still `current`.
    pub fn compare_exchange_weak(&self, current: u64, new: u64, _success: Ordering, _failure: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (out: Result<u64, u64>)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            P::knows(self.place(), *old(held), current) ==> P::may(self.place(), *old(held), current, new),
        ensures exchanged::<P>(self.place(), *old(held), current, new, out, *final(held)),
    {
        atomic_with_ghost!(&self.inner => compare_exchange_weak(current, new); update was -> now; returning out; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            if out is Ok {
                P::step(self.place(), was, now, &mut inside, &mut *held);
            }
        })
    }

    /// Another word, if it is still `current`.
    pub fn compare_exchange(&self, current: u64, new: u64, _success: Ordering, _failure: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (out: Result<u64, u64>)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            P::knows(self.place(), *old(held), current) ==> P::may(self.place(), *old(held), current, new),
        ensures exchanged::<P>(self.place(), *old(held), current, new, out, *final(held)),
    {
        atomic_with_ghost!(&self.inner => compare_exchange(current, new); update was -> now; returning out; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            if out is Ok {
                P::step(self.place(), was, now, &mut inside, &mut *held);
            }
        })
    }

    /// Sets bits.
    pub fn fetch_or(&self, bits: u64, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (was: u64)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u64| #[trigger] P::knows(self.place(), *old(held), was) ==> P::may(self.place(), *old(held), was, was | bits),
        ensures
            P::of(self.place(), *final(held)),
            P::knows(self.place(), *old(held), was),
            P::moved(self.place(), *old(held), was, was | bits, *final(held)),
    {
        atomic_with_ghost!(&self.inner => fetch_or(bits); update was -> now; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            P::step(self.place(), was, now, &mut inside, &mut *held);
        })
    }

    /// Clears all other bits.
    pub fn fetch_and(&self, bits: u64, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (was: u64)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u64| #[trigger] P::knows(self.place(), *old(held), was) ==> P::may(self.place(), *old(held), was, was & bits),
        ensures
            P::of(self.place(), *final(held)),
            P::knows(self.place(), *old(held), was),
            P::moved(self.place(), *old(held), was, was & bits, *final(held)),
    {
        atomic_with_ghost!(&self.inner => fetch_and(bits); update was -> now; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            P::step(self.place(), was, now, &mut inside, &mut *held);
        })
    }

    /// Adds; wraps.
    pub fn fetch_add(&self, more: u64, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (was: u64)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u64| #[trigger] P::knows(self.place(), *old(held), was) ==> P::may(self.place(), *old(held), was, add(was, more)),
        ensures
            P::of(self.place(), *final(held)),
            P::knows(self.place(), *old(held), was),
            P::moved(self.place(), *old(held), was, add(was, more), *final(held)),
    {
        atomic_with_ghost!(&self.inner => fetch_add_wrapping(more); update was -> now; ghost inside => {
            lemma_wraps(was, more, now);
            P::look(self.place(), was, &mut inside, &*held);
            P::step(self.place(), was, now, &mut inside, &mut *held);
        })
    }

    /// Another word.
    pub fn swap(&self, word: u64, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (was: u64)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u64| #[trigger] P::knows(self.place(), *old(held), was) ==> P::may(self.place(), *old(held), was, word),
        ensures
            P::of(self.place(), *final(held)),
            P::knows(self.place(), *old(held), was),
            P::moved(self.place(), *old(held), was, word, *final(held)),
    {
        atomic_with_ghost!(&self.inner => swap(word); update was -> now; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            P::step(self.place(), was, now, &mut inside, &mut *held);
        })
    }

    /// Another word.
    pub fn store(&self, word: u64, _order: Ordering, Tracked(held): Tracked<&mut P::Held>)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u64| #[trigger] P::knows(self.place(), *old(held), was) ==> P::may(self.place(), *old(held), was, word),
        ensures
            P::of(self.place(), *final(held)),
            exists|was: u64| #[trigger] P::knows(self.place(), *old(held), was) && P::moved(self.place(), *old(held), was, word, *final(held)),
    {
        atomic_with_ghost!(&self.inner => store(word); update was -> now; ghost inside => {
            P::look(self.place(), was, &mut inside, &*held);
            P::step(self.place(), was, now, &mut inside, &mut *held);
        })
    }
}

/// A word of 32 bits, of a huge frame.
pub struct AtomicU32<P: Protocol = crate::huges::Huges> {
    inner: vstd::atomic_ghost::AtomicU32<P::Place, P::Inside, Inv<P>>,
}

impl<P: Protocol> AtomicInvariantPredicate<P::Place, u32, P::Inside> for Inv<P> {
    open spec fn atomic_inv(place: P::Place, word: u32, inside: P::Inside) -> bool { P::inv(place, word as u64, inside) }
}

impl<P: Protocol> AtomicU32<P> {
    pub closed spec fn wf(self) -> bool { self.inner.well_formed() }
    /// Which word it is.
    pub closed spec fn place(self) -> P::Place { self.inner.constant() }

    pub fn new(word: u32, Ghost(place): Ghost<P::Place>, Tracked(inside): Tracked<P::Inside>) -> (out: Self)
        requires P::inv(place, word as u64, inside),
        ensures out.wf() && out.place() == place,
    {
        AtomicU32 { inner: vstd::atomic_ghost::AtomicU32::new(Ghost(place), word, Tracked(inside)) }
    }

    /// A look: from it nothing follows of what the word is later.
    pub fn load(&self, _order: Ordering) -> u32
        requires self.wf(),
    {
        atomic_with_ghost!(&self.inner => load(); ghost inside => {})
    }

    /// Another word, if it is still `current`.
    pub fn compare_exchange(&self, current: u32, new: u32, _success: Ordering, _failure: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (out: Result<u32, u32>)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            P::knows(self.place(), *old(held), current as u64) ==> P::may(self.place(), *old(held), current as u64, new as u64),
        ensures exchanged::<P>(self.place(), *old(held), current as u64, new as u64, match out { Ok(was) => Ok(was as u64), Err(was) => Err(was as u64) }, *final(held)),
    {
        atomic_with_ghost!(&self.inner => compare_exchange(current, new); update was -> now; returning out; ghost inside => {
            P::look(self.place(), was as u64, &mut inside, &*held);
            if out is Ok {
                P::step(self.place(), was as u64, now as u64, &mut inside, &mut *held);
            }
        })
    }

    /// Another word.
    pub fn swap(&self, word: u32, _order: Ordering, Tracked(held): Tracked<&mut P::Held>) -> (was: u32)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u32| #[trigger] P::knows(self.place(), *old(held), was as u64) ==> P::may(self.place(), *old(held), was as u64, word as u64),
        ensures
            P::of(self.place(), *final(held)),
            P::knows(self.place(), *old(held), was as u64),
            P::moved(self.place(), *old(held), was as u64, word as u64, *final(held)),
    {
        atomic_with_ghost!(&self.inner => swap(word); update was -> now; ghost inside => {
            P::look(self.place(), was as u64, &mut inside, &*held);
            P::step(self.place(), was as u64, now as u64, &mut inside, &mut *held);
        })
    }

    /// Another word.
    pub fn store(&self, word: u32, _order: Ordering, Tracked(held): Tracked<&mut P::Held>)
        requires
            self.wf(), P::of(self.place(), *old(held)),
            forall|was: u32| #[trigger] P::knows(self.place(), *old(held), was as u64) ==> P::may(self.place(), *old(held), was as u64, word as u64),
        ensures
            P::of(self.place(), *final(held)),
            exists|was: u32| #[trigger] P::knows(self.place(), *old(held), was as u64) && P::moved(self.place(), *old(held), was as u64, word as u64, *final(held)),
    {
        atomic_with_ghost!(&self.inner => store(word); update was -> now; ghost inside => {
            P::look(self.place(), was as u64, &mut inside, &*held);
            P::step(self.place(), was as u64, now as u64, &mut inside, &mut *held);
        })
    }
}

impl AtomicU64<Pages> {
    /// Which bitmap it belongs to.
    pub open spec fn id(self) -> Loc { self.place().0 }
    /// The page of its lowest bit.
    pub open spec fn base(self) -> int { self.place().1 }
}

/// Of pages: each bit that is clear stands for a page that the word has.
pub struct Pages;

impl Protocol for Pages {
    /// Which bitmap, and the page of the lowest bit.
    type Place = (Loc, int);
    type Inside = Held;
    type Held = Held;

    open spec fn inv(place: (Loc, int), word: u64, inside: Held) -> bool {
        inside.id() == place.0 && inside.dom() == pages(place.1, !word)
    }
    open spec fn of(place: (Loc, int), held: Held) -> bool { held.id() == place.0 }
    /// Bits of pages that it has are set.
    open spec fn knows(place: (Loc, int), held: Held, word: u64) -> bool { held.dom().disjoint(pages(place.1, !word)) }
    /// What is given back is the caller's.
    open spec fn may(place: (Loc, int), held: Held, was: u64, now: u64) -> bool { pages(place.1, was & !now) <= held.dom() }
    open spec fn moved(place: (Loc, int), before: Held, was: u64, now: u64, after: Held) -> bool {
        &&& after.id() == before.id()
        &&& before.dom().disjoint(pages(place.1, now & !was))
        &&& after.dom() == before.dom().difference(pages(place.1, was & !now)).union(pages(place.1, now & !was))
    }

    open spec fn saw(place: (Loc, int), before: Held, word: u64, after: Held) -> bool { after == before }

    proof fn see(place: (Loc, int), word: u64, tracked inside: &mut Held, tracked held: &mut Held) {}

    proof fn look(place: (Loc, int), word: u64, tracked inside: &mut Held, tracked held: &Held) {
        inside.disjoint(held);
    }

    proof fn step(place: (Loc, int), was: u64, now: u64, tracked inside: &mut Held, tracked held: &mut Held) {
        let base = place.1;
        lemma_step(base, was, now);
        lemma_pages(base, now, was);
        lemma_pages(base, was, now);
        inside.disjoint(&*held);
        let tracked taken = inside.split(pages(base, now & !was));
        let tracked given = held.split(pages(base, was & !now));
        inside.combine(given);
        held.combine(taken);
        assert(inside.dom() =~= pages(base, !now));
        assert(held.dom() =~= old(held).dom().difference(pages(base, was & !now)).union(pages(base, now & !was)));
    }
}

/// What wraps is what the bits of a sum are.
pub proof fn lemma_wraps(was: u64, more: u64, now: u64)
    requires now == was + more || now == was + more - 0x1_0000_0000_0000_0000,
    ensures now == add(was, more),
{
    if now != was + more {
        let rest = !more;
        assert(rest == !more ==> sub(0xffff_ffff_ffff_ffff, more) == rest) by (bit_vector);
        assert(now == was - rest - 1);
        assert(rest == !more ==> add(was, more) == sub(sub(was, rest), 1)) by (bit_vector);
    }
}

proof fn lemma_bits(i: u64, a: u64, b: u64)
    requires i < 64,
    ensures
        bit(!a, i as int) == !bit(a, i as int),
        bit(a & b, i as int) == (bit(a, i as int) && bit(b, i as int)),
        bit(a | b, i as int) == (bit(a, i as int) || bit(b, i as int)),
{
    assert(i < 64 ==> (((!a >> i) & 1 == 1) == !((a >> i) & 1 == 1))) by (bit_vector);
    assert(i < 64 ==> ((((a & b) >> i) & 1 == 1) == ((a >> i) & 1 == 1 && (b >> i) & 1 == 1))) by (bit_vector);
    assert(i < 64 ==> ((((a | b) >> i) & 1 == 1) == ((a >> i) & 1 == 1 || (b >> i) & 1 == 1))) by (bit_vector);
}

/// Bit by bit, of all pages of a word.
pub proof fn lemma_pages(base: int, a: u64, b: u64)
    ensures
        pages(base, a & b) =~= pages(base, a).intersect(pages(base, b)),
        pages(base, a | b) =~= pages(base, a).union(pages(base, b)),
        pages(base, a & !b) =~= pages(base, a).difference(pages(base, b)),
        pages(base, !a).disjoint(pages(base, a)),
        pages(base, !a).union(pages(base, a)) =~= vstd::set_lib::set_int_range(base, base + 64),
{
    assert forall|page: int| base <= page < base + 64 implies
        #[trigger] bit(a & b, page - base) == (bit(a, page - base) && bit(b, page - base)) by { lemma_bits((page - base) as u64, a, b); }
    assert forall|page: int| base <= page < base + 64 implies
        #[trigger] bit(a | b, page - base) == (bit(a, page - base) || bit(b, page - base)) by { lemma_bits((page - base) as u64, a, b); }
    assert forall|page: int| base <= page < base + 64 implies
        #[trigger] bit(a & !b, page - base) == (bit(a, page - base) && !bit(b, page - base)) by {
        lemma_bits((page - base) as u64, a, !b);
        lemma_bits((page - base) as u64, b, b);
    }
    assert forall|page: int| base <= page < base + 64 implies
        #[trigger] bit(!a, page - base) == !bit(a, page - base) by { lemma_bits((page - base) as u64, a, a); }
}

/// What a step makes of a word's pages.
proof fn lemma_step(base: int, was: u64, now: u64)
    ensures
        pages(base, now & !was) <= pages(base, !was),
        pages(base, !now) =~= pages(base, !was).difference(pages(base, now & !was)).union(pages(base, was & !now)),
{
    lemma_pages(base, now, was);
    lemma_pages(base, was, now);
}

/// Pages that are held are not in the word: their bits are set.
pub proof fn lemma_none(base: int, mine: u64, word: u64)
    requires pages(base, mine).disjoint(pages(base, !word)),
    ensures mine & !word == 0,
{
    let both = mine & !word;
    lemma_pages(base, mine, word);
    lemma_pages(base, word, word);
    if both != 0 {
        let i = vstd::std_specs::bits::u64_trailing_zeros(both);
        vstd::std_specs::bits::axiom_u64_trailing_zeros(both);
        let page = base + i as int;
        assert(bit(both, i as int));
        assert(vstd::set_lib::set_int_range(base, base + 64).contains(page));
        assert(page - base == i as int);
        assert(pages(base, both).contains(page));
        assert(false);
    }
}

} // verus!

impl<P: Protocol> core::fmt::Debug for AtomicU64<P> {
    fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        unimplemented!()
    }
}
