//! The prover's 64-bit atomic, in the place of the processor's as loom's is in models: each bit that is clear stands
//! for a page that the word has, each page is in one place only, and an atomic step moves pages between the word and
//! the call that makes it. Its steps follow one another: what weaker orderings allow, loom finds.

use vstd::atomic_ghost::*;
use vstd::prelude::*;
use vstd::resource::Loc;
use vstd::resource::map::GhostSubmap;
use vstd::std_specs::bits::*;

pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

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

/// Taken on trust: that these return, and nothing of what.
pub assume_specification[ u64::is_power_of_two ](word: u64) -> bool;
pub assume_specification[ u64::count_ones ](word: u64) -> u32;
pub assume_specification[ u64::wrapping_neg ](word: u64) -> u64;

pub struct Free;

impl AtomicInvariantPredicate<(Loc, int), u64, Held> for Free {
    /// A page is in the word where its bit is clear, and nowhere else then.
    open spec fn atomic_inv(place: (Loc, int), word: u64, pages_in: Held) -> bool {
        pages_in.id() == place.0 && pages_in.dom() == pages(place.1, !word)
    }
}

pub struct AtomicU64 {
    inner: vstd::atomic_ghost::AtomicU64<(Loc, int), Held, Free>,
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

impl AtomicU64 {
    pub closed spec fn wf(self) -> bool { self.inner.well_formed() }
    /// Which bitmap it belongs to.
    pub closed spec fn id(self) -> Loc { self.inner.constant().0 }
    /// The page of its lowest bit.
    pub closed spec fn base(self) -> int { self.inner.constant().1 }

    pub fn new(word: u64, Ghost(base): Ghost<int>, Tracked(clear): Tracked<Held>) -> (out: Self)
        requires clear.dom() == pages(base, !word),
        ensures out.wf() && out.id() == clear.id() && out.base() == base,
    {
        AtomicU64 { inner: vstd::atomic_ghost::AtomicU64::new(Ghost((clear.id(), base)), word, Tracked(clear)) }
    }

    /// A look: from it nothing follows of what the word is later.
    pub fn load(&self, _order: Ordering) -> u64
        requires self.wf(),
    {
        atomic_with_ghost!(&self.inner => load(); ghost clear => {})
    }

    pub fn compare_exchange_weak(&self, current: u64, new: u64, _success: Ordering, _failure: Ordering, Tracked(held): Tracked<&mut Held>) -> (out: Result<u64, u64>)
        requires
            self.wf(),
            old(held).id() == self.id(),
            // What is given back is the caller's.
            pages(self.base(), current & !new) <= old(held).dom(),
        ensures
            final(held).id() == old(held).id(),
            match out {
                Ok(was) => was == current
                    && old(held).dom().disjoint(pages(self.base(), new & !current))
                    && final(held).dom() == old(held).dom().difference(pages(self.base(), current & !new)).union(pages(self.base(), new & !current)),
                Err(_) => *final(held) == *old(held),
            },
    {
        atomic_with_ghost!(&self.inner => compare_exchange_weak(current, new);
            update was -> now;
            returning out;
            ghost clear => {
                if out is Ok {
                    let base = self.base();
                    lemma_step(base, current, new);
                    lemma_pages(base, new, current);
                    lemma_pages(base, current, new);
                    clear.disjoint(&*held);
                    let tracked taken = clear.split(pages(base, new & !current));
                    let tracked given = held.split(pages(base, current & !new));
                    clear.combine(given);
                    held.combine(taken);
                    assert(clear.dom() =~= pages(base, !new));
                    assert(held.dom() =~= old(held).dom().difference(pages(base, current & !new)).union(pages(base, new & !current)));
                }
            }
        )
    }

    pub fn fetch_or(&self, bits: u64, _order: Ordering, Tracked(held): Tracked<&mut Held>) -> (was: u64)
        requires self.wf(), old(held).id() == self.id(),
        ensures
            final(held).id() == old(held).id(),
            old(held).dom().disjoint(pages(self.base(), bits & !was)),
            final(held).dom() == old(held).dom().union(pages(self.base(), bits & !was)),
    {
        atomic_with_ghost!(&self.inner => fetch_or(bits);
            update was -> now;
            ghost clear => {
                let base = self.base();
                lemma_pages(base, was, bits);
                lemma_pages(base, bits, was);
                lemma_step(base, was, now);
                clear.disjoint(&*held);
                let tracked taken = clear.split(pages(base, bits & !was));
                held.combine(taken);
                lemma_pages(base, now, now);
                lemma_pages(base, was, was);
                assert(clear.dom() =~= pages(base, !now));
                assert(held.dom() =~= old(held).dom().union(pages(base, bits & !was)));
            }
        )
    }

    pub fn fetch_and(&self, bits: u64, _order: Ordering, Tracked(held): Tracked<&mut Held>) -> (was: u64)
        requires
            self.wf(),
            old(held).id() == self.id(),
            pages(self.base(), !bits) <= old(held).dom(),
        ensures
            final(held).id() == old(held).id(),
            // They were all taken: by the caller.
            !bits & !was == 0,
            final(held).dom() == old(held).dom().difference(pages(self.base(), !bits)),
    {
        atomic_with_ghost!(&self.inner => fetch_and(bits);
            update was -> now;
            ghost clear => {
                let base = self.base();
                lemma_pages(base, was, bits);
                lemma_pages(base, was, was);
                lemma_pages(base, bits, bits);
                lemma_pages(base, now, now);
                lemma_step(base, was, now);
                clear.disjoint(&*held);
                let tracked given = held.split(pages(base, !bits));
                clear.combine(given);
                assert(clear.dom() =~= pages(base, !now));
                lemma_none(base, !bits, was);
            }
        )
    }
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

/// For the engine's functions that are not proven: these have no contract, and nothing proven may use them.
impl AtomicU64 {
    pub fn compare_exchange(&self, _from: u64, _to: u64, _success: Ordering, _failure: Ordering) -> Result<u64, u64> {
        unimplemented!()
    }
    pub fn store(&self, _word: u64, _order: Ordering) {
        unimplemented!()
    }
    pub fn swap(&self, _word: u64, _order: Ordering) -> u64 {
        unimplemented!()
    }
}

impl core::fmt::Debug for AtomicU64 {
    fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        unimplemented!()
    }
}
