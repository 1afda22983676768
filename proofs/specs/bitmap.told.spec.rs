//@ file engine/frames/src/frames/word/bitmap.rs
//@ again bitmap_told
// What a call is told that gives back pages, held or not, whatever other CPUs do to the words: see proofs/told.rs.

//@ fn Given::is_word_empty
    ensures out == (self.last() == 0),

//@ fn Bitmap::word
    requires self.wf() && page < 512,
    ensures *out == self.words()[page as int / 64], out.wf() && out.place() == (base(page), self.never(page), self.always(page)),
//@ fn Bitmap::word, before: &self.0
    proof { super::geometry::sizes(); }
//@ fn Bitmap::word_at, holds
//@ fn Bitmap::word_at
    requires self.wf() && at < 512,
    ensures *final(held) == *old(held) && out & self.never(at) == 0 && out & self.always(at) == self.always(at),
//@ fn Bitmap::word_at, looks: self.word
//@ fn Bitmap::is_set, holds
//@ fn Bitmap::is_set
    requires self.wf() && at < 512,
    ensures *final(held) == *old(held), self.stays_free(at) ==> !out, self.stays_allocated(at) ==> out,
//@ fn Bitmap::is_set, passes: let word
//@ fn Bitmap::is_set, before: word >> (
        proof { lemma_is_clear(word, self.never(at), at); lemma_is_set_always(word, self.always(at), at); }
//@ fn Bitmap::all_set, holds
//@ fn Bitmap::all_set
    requires self.wf() && pages.at + pages.count <= 512,
    ensures *final(held) == *old(held), self.has_free(pages) ==> !out, self.all_allocated(pages) ==> out,
//@ fn Bitmap::all_set, passes: self.all_are
//@ fn Bitmap::all_are, holds
//@ fn Bitmap::all_are
    requires self.wf() && pages.at + pages.count <= 512,
    ensures
        *final(held) == *old(held),
        allocated && self.has_free(pages) ==> !out,
        allocated && self.all_allocated(pages) ==> out,
        !allocated && self.has_allocated(pages) ==> !out,
        !allocated && self.all_free(pages) ==> out,
//@ fn Bitmap::all_are, before: let end
    let ghost before = *held;
//@ fn Bitmap::all_are, loop: while
        invariant
            self.wf() && end == pages.at + pages.count && end <= 512 && pages.at <= at <= end && *held == before && before == *old(held),
            allocated ==> forall|page: u32| pages.at <= page < at ==> !#[trigger] self.stays_free(page),
            !allocated ==> forall|page: u32| pages.at <= page < at ==> !#[trigger] self.stays_allocated(page),
        decreases end - at,
//@ fn Bitmap::all_are, passes: if self
//@ fn Bitmap::all_are, before: if self
            proof { self.lemma_seen(at, (next - at) as u32); }

//@ fn Bitmap::give_bits, holds
//@ fn Bitmap::give_bits
    requires self.wf() && at < 512 && bits & self.always(at) == 0,
    ensures match out {
            // In the one step it did all were set; it cleared them, and no other bit.
            Some(new) => gave(old(held), final(held), base(at), bits) && new == final(held).done().last().2 && bits & self.never(at) == 0,
            None => *final(held) == *old(held),
        },
//@ fn Bitmap::give_bits, before: let given
    proof { lemma_giving(bits, self.never(at), self.always(at)); }
//@ fn Bitmap::give_bits, closure: let given
            ensures out == giving(bits, word),
//@ fn Bitmap::give_bits, passes: });

//@ fn Bitmap::give, holds
//@ fn Bitmap::give
    requires self.wf() && pages.count >= 1 && pages.at + pages.count <= 512 && !self.has_allocated(pages),
    ensures self.told(old(held), final(held), pages, out),
//@ fn Bitmap::give, passes: return self
//@ fn Bitmap::give, before: match self
    proof { self.lemma_seen(at, count); }
//@ fn Bitmap::give, passes: match self

//@ fn Bitmap::give_words, holds
//@ fn Bitmap::give_words
    requires self.wf() && pages.count >= 1 && pages.at + pages.count <= 512 && !self.has_allocated(pages),
    ensures self.told(old(held), final(held), pages, out),
//@ fn Bitmap::give_words, before: let end
    let ghost before = *held;
//@ fn Bitmap::give_words, passes: if !self
//@ fn Bitmap::give_words, loop: while
        invariant
            self.wf() && before == *old(held) && !self.has_free(pages) && !self.has_allocated(pages),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end && pages.count >= 1,
            at == pages.at || at == end || at % 64 == 0,
            at == pages.at ==> *held == before,
            at > pages.at ==> last == held.done().last().2,
            gave_row(&before, held, pages.at, at as int),
        decreases end - at,
//@ fn Bitmap::give_words, before: match self
            let ghost so_far = *held;
            proof { self.lemma_seen(at, (next - at) as u32); }
//@ fn Bitmap::give_words, before: at = next
            proof { lemma_further(&before, &so_far, held, pages.at, at, next, bits); }
//@ fn Bitmap::give_words, passes: match self

//@ fn Bitmap::give_some, holds
//@ fn Bitmap::give_some
    requires self.wf() && index < 8 && bits & self.words()[index as int].place().2 == 0,
    ensures
        // One step, which cleared those bits and no other; it returns those of them that were set.
        final(held).done() == old(held).done().push(final(held).done().last()),
        ({
            let (at, was, now) = final(held).done().last();
            at == 64 * index && now == was & !bits && out.0 == was & bits && out.1.last() == now
        }),
//@ fn Bitmap::give_some, passes: let old
//@ fn Bitmap::give_some, before: let old
    proof { super::geometry::sizes(); lemma_clearing(bits, self.words()[index as int].place().1, self.words()[index as int].place().2); }

//@ fn Bitmap::is_full, holds
//@ fn Bitmap::is_full
    requires self.wf(),
    ensures
        *final(held) == *old(held),
        (exists|page: u32| page < 512 && #[trigger] self.stays_free(page)) ==> !out,
        (forall|page: u32| page < 512 ==> #[trigger] self.stays_allocated(page)) ==> out,
//@ fn Bitmap::is_full, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::is_full, loop: for index
        invariant
            self.wf() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
            forall|page: u32| page < 64 * index ==> !#[trigger] self.stays_free(page),
//@ fn Bitmap::is_full, before: if recheck
            proof { self.lemma_word(index as int); }
//@ fn Bitmap::is_full, passes: if recheck
//@ fn Bitmap::is_empty, holds
//@ fn Bitmap::is_empty
    requires self.wf(),
    ensures
        *final(held) == *old(held),
        (exists|page: u32| page < 512 && #[trigger] self.stays_allocated(page)) ==> !out,
        (forall|page: u32| page < 512 ==> #[trigger] self.stays_free(page)) ==> out,
//@ fn Bitmap::is_empty, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::is_empty, loop: for index
        invariant
            self.wf() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
            forall|page: u32| page < 64 * index ==> !#[trigger] self.stays_allocated(page),
//@ fn Bitmap::is_empty, before: if recheck
            proof { self.lemma_word(index as int); }
//@ fn Bitmap::is_empty, passes: if recheck
//@ fn Bitmap::max_order, holds
//@ fn Bitmap::max_order
    requires self.wf(),
    ensures
        *final(held) == *old(held),
        match out {
            // No block that stays free is larger, and one so large may be free.
            Some(order) => order <= 8 && self.may_have(order)
                && forall|at: u32, other: u8| other <= 8 && #[trigger] self.is_free_block(at, other) ==> other <= order,
            None => forall|page: u32| page < 512 ==> !#[trigger] self.stays_free(page),
        },
//@ fn Bitmap::max_order, before: let mut beyond
    let ghost before = *held;
    proof { super::geometry::sizes(); lemma_powers(); }
//@ fn Bitmap::max_order, loop: for index
        invariant
            self.wf() && *held == before && before == *old(held) && BITMAP_WORDS == 8 && LARGEST_PAGES == 8,
            self.so_far(index as int, beyond),
//@ fn Bitmap::max_order, passes: let word
//@ fn Bitmap::max_order, before: if here
            proof { self.lemma_larger(index as int, word, beyond, here); }
//@ fn Bitmap::max_order, before: if beyond
        proof { self.lemma_all_looked_at(beyond); }
//@ fn Bitmap::max_order, passes: while order
//@ fn Bitmap::max_order, loop: while order
            invariant
                self.wf() && *held == before && before == *old(held) && 6 <= order <= 8 && self.may_have(6),
                forall|at: u32, other: u8| order < other <= 8 ==> !#[trigger] self.is_free_block(at, other),
            ensures order == 6 || self.may_have(order),
            decreases order,
//@ fn Bitmap::has_block, holds
//@ fn Bitmap::has_block
    requires self.wf() && order <= 8,
    ensures
        *final(held) == *old(held),
        forall|at: u32| #[trigger] self.is_free_block(at, order) ==> out,
        out ==> self.may_have(order),
//@ fn Bitmap::has_block, before: if order
    let ghost before = *held;
    proof { super::geometry::sizes(); lemma_powers(); }
//@ fn Bitmap::has_block, loop: while at
            invariant
                self.wf() && *held == before && before == *old(held) && HUGE_FRAMES == 512,
                (count == 128 || count == 256) && count == 1u32 << order && order <= 8 && at <= 512 && at % count == 0,
                forall|other: u32| other < at ==> !#[trigger] self.is_free_block(other, order),
            decreases 512 - at,
//@ fn Bitmap::has_block, before: if self
                proof {
                    assert(self.all_free(Pages { at, count }) == self.is_free_block(at, order));
                    assert(self.may_be_free(at, order) == !self.has_allocated(Pages { at, count }));
                    assert forall|other: u32| at < other < at + count implies !#[trigger] self.is_free_block(other, order) by {
                        assert(other % count != 0);
                    }
                }
//@ fn Bitmap::has_block, passes: if self
//@ fn Bitmap::has_block, loop: for index
        invariant
            self.wf() && *held == before && before == *old(held) && BITMAP_WORDS == 8 && order <= 6,
            forall|other: u32| other < 64 * index ==> !#[trigger] self.is_free_block(other, order),
//@ fn Bitmap::has_block, looks: let word
//@ fn Bitmap::has_block, before: if find
            proof { self.lemma_block_of(index as int, word, order); }
//@ fn Bitmap::count_free, holds
//@ fn Bitmap::count_free
    requires self.wf(),
    ensures
        *final(held) == *old(held),
        // What stays free is counted, and what stays allocated is not.
        self.free_up_to(512).len() <= out <= 512 - self.allocated_up_to(512).len(),
//@ fn Bitmap::count_free, before: let mut free
    let ghost before = *held;
    proof {
        super::geometry::sizes();
        assert(self.free_up_to(0) =~= Set::empty() && self.allocated_up_to(0) =~= Set::empty());
    }
//@ fn Bitmap::count_free, loop: for index
        invariant
            self.wf() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
            self.free_up_to(64 * index).len() <= free <= 64 * index - self.allocated_up_to(64 * index).len(),
//@ fn Bitmap::count_free, before: free +=
            proof { lemma_at_most_64(!word); self.lemma_counted(index as int, word); }
//@ fn Bitmap::count_free, passes: let word

//@ items
use crate::model::{bit, lemma_pages};
use crate::told::{AtomicU64, Steps, Steps as Held, Told, stays};
use crate::bits::*;
use crate::model::pages as pages_of;
use super::bitmap::{find_block, first_word, mask, max_order_of};
broadcast use vstd::set_lib::range_set_properties;

impl Given {
    /// The word that the last of the pages lies in, right after.
    pub closed spec fn last(self) -> u64 { self.word }
}

impl Bitmap {
    pub closed spec fn words(self) -> [AtomicU64; BITMAP_WORDS] { self.0 }

    /// Its words are one after the other.
    pub closed spec fn wf(self) -> bool {
        forall|index: int| 0 <= index < 8 ==> (#[trigger] self.0[index]).wf() && self.0[index].place().0 == 64 * index
    }

    /// Of the word of this page the bits that no CPU sets.
    pub open spec fn never(self, page: u32) -> u64 { self.words()[page as int / 64].place().1 }

    /// And those that no CPU clears.
    pub open spec fn always(self, page: u32) -> u64 { self.words()[page as int / 64].place().2 }

    /// Whether a page is allocated, and no CPU gives it back.
    pub open spec fn stays_allocated(self, page: u32) -> bool { bit(self.always(page), page as int % 64) }

    /// Whether one of them is, at least.
    pub(crate) open spec fn has_allocated(self, pages: Pages) -> bool {
        exists|page: u32| pages.at <= page < pages.at + pages.count && #[trigger] self.stays_allocated(page)
    }

    pub(crate) open spec fn all_allocated(self, pages: Pages) -> bool {
        forall|page: u32| pages.at <= page < pages.at + pages.count ==> #[trigger] self.stays_allocated(page)
    }

    pub(crate) open spec fn all_free(self, pages: Pages) -> bool {
        forall|page: u32| pages.at <= page < pages.at + pages.count ==> #[trigger] self.stays_free(page)
    }

    /// A block all of which stays free.
    pub open spec fn is_free_block(self, at: u32, order: u8) -> bool {
        at % (1u32 << order) == 0 && at + (1u32 << order) <= 512
            && forall|page: u32| at <= page < at + (1u32 << order) ==> #[trigger] self.stays_free(page)
    }

    /// A block none of which stays allocated.
    pub open spec fn may_be_free(self, at: u32, order: u8) -> bool {
        at % (1u32 << order) == 0 && at + (1u32 << order) <= 512
            && forall|page: u32| at <= page < at + (1u32 << order) ==> !#[trigger] self.stays_allocated(page)
    }

    pub open spec fn may_have(self, order: u8) -> bool { exists|at: u32| self.may_be_free(at, order) }

    /// Pages up to `end` that stay free, or allocated.
    pub open spec fn free_up_to(self, end: int) -> Set<int> { range(0, end).filter(|page: int| self.stays_free(page as u32)) }
    pub open spec fn allocated_up_to(self, end: int) -> Set<int> { range(0, end).filter(|page: int| self.stays_allocated(page as u32)) }

    /// What `give` tells of these pages.
    pub(crate) open spec fn told(self, before: &Steps, after: &Steps, pages: Pages, out: Result<Given, NotSet>) -> bool {
        &&& match out {
            // Every one of them was set in the step that cleared it.
            Ok(given) => gave_row(before, after, pages.at, pages.at + pages.count) && given.last() == after.done().last().2,
            // It did nothing to the others; if to these, then to whole words of a row of several.
            Err(NotSet { given }) => given < pages.count && gave_row(before, after, pages.at, pages.at + given)
                && (given == 0 ==> *after == *before)
                && (given > 0 ==> (pages.at + given) % 64 == 0),
        }
        // What is free, and stays so, is refused, and nothing was done.
        &&& self.has_free(pages) ==> out is Err && out->Err_0.given == 0
    }

    /// What the largest order of the words up to `end` says, which is one less.
    pub open spec fn so_far(self, end: int, beyond: u8) -> bool {
        &&& beyond == 0 ==> forall|page: u32| page < 64 * end ==> !#[trigger] self.stays_free(page)
        &&& 0 < beyond <= 6 ==> self.may_have((beyond - 1) as u8)
        &&& beyond == 9 ==> self.may_have(6)
        &&& beyond <= 6 || beyond == 9
        &&& forall|at: u32, order: u8| at < 64 * end && order <= 6 && #[trigger] self.is_free_block(at, order) ==> order < beyond
    }

    /// What stays as it is of a word.
    proof fn lemma_word(self, index: int)
        requires self.wf() && 0 <= index < 8,
        ensures
            self.words()[index].place().1 == 0 ==> forall|page: u32| 64 * index <= page < 64 * index + 64 ==> !#[trigger] self.stays_free(page),
            self.words()[index].place().2 == 0 ==> forall|page: u32| 64 * index <= page < 64 * index + 64 ==> !#[trigger] self.stays_allocated(page),
            (forall|page: u32| page < 512 ==> #[trigger] self.stays_free(page)) ==> self.words()[index].place().1 == !0u64,
            (forall|page: u32| page < 512 ==> #[trigger] self.stays_allocated(page)) ==> self.words()[index].place().2 == !0u64,
            forall|word: u64| #[trigger] (word & !0u64) == word, forall|never: u64| #[trigger] (!0u64 & never) == never,
            forall|bits: u64| #[trigger] (0u64 & bits) == 0,
    {
        let (never, always) = (self.words()[index].place().1, self.words()[index].place().2);
        lemma_full_or_empty(never);
        lemma_full_or_empty(always);
        let from = 64 * index;
        assert forall|page: u32| from <= page < from + 64 implies self.never(page) == never && self.always(page) == always && page as int % 64 == page - from by {}
        if never == 0 {
            assert forall|page: u32| from <= page < from + 64 implies !#[trigger] self.stays_free(page) by { assert(!bit(never, page - from)); }
        }
        if always == 0 {
            assert forall|page: u32| from <= page < from + 64 implies !#[trigger] self.stays_allocated(page) by { assert(!bit(always, page - from)); }
        }
        if forall|page: u32| page < 512 ==> #[trigger] self.stays_free(page) {
            assert forall|i: int| 0 <= i < 64 implies #[trigger] bit(never, i) by { assert(self.stays_free((from + i) as u32)); }
        }
        if forall|page: u32| page < 512 ==> #[trigger] self.stays_allocated(page) {
            assert forall|i: int| 0 <= i < 64 implies #[trigger] bit(always, i) by { assert(self.stays_allocated((from + i) as u32)); }
        }
        assert forall|word: u64| #[trigger] (word & !0u64) == word by { assert(word & !0u64 == word) by (bit_vector); }
        assert forall|never: u64| #[trigger] (!0u64 & never) == never by { assert(!0u64 & never == never) by (bit_vector); }
        assert forall|bits: u64| #[trigger] (0u64 & bits) == 0 by { assert(0u64 & bits == 0) by (bit_vector); }
    }

    /// Blocks of a word are those of its bits.
    proof fn lemma_block_of(self, index: int, word: u64, order: u8)
        requires self.wf() && 0 <= index < 8 && order <= 6 && stays(self.words()[index].place(), word),
        ensures
            (exists|at: u32| 64 * index <= at < 64 * index + 64 && #[trigger] self.is_free_block(at, order)) ==> has_block_of(word, order),
            forall|at: u32| #[trigger] is_block(word, at, order) ==> self.may_be_free((64 * index + at) as u32, order),
            has_block_of(word, order) ==> self.may_have(order),
    {
        lemma_powers();
        let (from, block) = (64 * index, 1u32 << order);
        let (never, always) = (self.words()[index].place().1, self.words()[index].place().2);
        assert forall|at: u32| from <= at < from + 64 && #[trigger] self.is_free_block(at, order) implies has_block_of(word, order) by {
            let low = (at - from) as u32;
            lemma_aligned_back(at, low, index as u32, order);
            lemma_each(low, block, never);
            assert forall|i: int| low <= i < low + block implies #[trigger] bit(never, i) by { assert(self.stays_free((from + i) as u32)); }
            let bits = row(low, block);
            assert(bits & !never == 0 && word & never == 0 ==> word & bits == 0) by (bit_vector);
            assert(is_block(word, low, order));
        }
        assert forall|at: u32| #[trigger] is_block(word, at, order) implies self.may_be_free((from + at) as u32, order) by {
            lemma_aligned(index as u32, at, order);
            let bits = row(at, block);
            assert(word & bits == 0 && word & always == always ==> always & bits == 0) by (bit_vector);
            lemma_each(at, block, always);
            assert forall|page: u32| from + at <= page < from + at + block implies !#[trigger] self.stays_allocated(page) by { assert(!bit(always, page - from)); }
        }
        if has_block_of(word, order) {
            let at = choose|at: u32| is_block(word, at, order);
            assert(self.may_be_free((from + at) as u32, order));
        }
    }

    /// With one word more.
    proof fn lemma_larger(self, index: int, word: u64, beyond: u8, here: u8)
        requires
            self.wf() && 0 <= index < 8 && stays(self.words()[index].place(), word) && self.so_far(index, beyond),
            if here == 0 { word == !0u64 } else if word == 0 { here == 9 } else {
                here <= 6 && has_block_of(word, (here - 1) as u8) && forall|larger: u8| here <= larger <= 6 ==> !#[trigger] has_block_of(word, larger)
            },
        ensures self.so_far(index + 1, if here > beyond { here } else { beyond }),
    {
        lemma_powers();
        lemma_ends(word);
        lemma_around_is_block(word);
        assert forall|order: u8| order <= 6 implies (#[trigger] has_block_of(word, order) ==> self.may_have(order)) by {
            self.lemma_block_of(index, word, order);
        }
        let now = if here > beyond { here } else { beyond };
        assert forall|at: u32, order: u8| at < 64 * (index + 1) && order <= 6 && #[trigger] self.is_free_block(at, order) implies order < now by {
            if at >= 64 * index {
                self.lemma_block_of(index, word, order);
                assert(has_block_of(word, order));
                assert(has_block_of(word, 0));
            }
        }
        if now == 0 {
            assert forall|page: u32| page < 64 * (index + 1) implies !#[trigger] self.stays_free(page) by {
                if self.stays_free(page) && page >= 64 * index { assert(self.is_free_block(page, 0)); }
            }
        }
    }

    /// With all words.
    proof fn lemma_all_looked_at(self, beyond: u8)
        requires self.wf() && self.so_far(8, beyond),
        ensures
            0 < beyond <= 6 ==> forall|at: u32, order: u8| order <= 8 && #[trigger] self.is_free_block(at, order) ==> order < beyond,
    {
        lemma_powers();
        assert forall|at: u32, order: u8| 6 <= order <= 8 && #[trigger] self.is_free_block(at, order) implies self.is_free_block(at, 6) by {
            let block = 1u32 << order;
            assert(at % block == 0 && (block == 64 || block == 128 || block == 256));
            assert(at % 64 == 0);
        }
    }

    /// What is counted of a word.
    proof fn lemma_counted(self, index: int, word: u64)
        requires self.wf() && 0 <= index < 8 && stays(self.words()[index].place(), word),
        ensures
            self.free_up_to(64 * index + 64).len() <= self.free_up_to(64 * index).len() + pages_of(0, !word).len(),
            self.allocated_up_to(64 * index + 64).len() + pages_of(0, !word).len() <= self.allocated_up_to(64 * index).len() + 64,
    {
        let (never, always, base) = (self.words()[index].place().1, self.words()[index].place().2, 64 * index);
        let (free, allocated) = (pages_of(base, never), pages_of(base, always));
        assert forall|page: int| base <= page < base + 64 implies #[trigger] self.stays_free(page as u32) == bit(never, page - base)
            && self.stays_allocated(page as u32) == bit(always, page - base) by {
            assert(page as u32 as int / 64 == index && page as u32 as int % 64 == page - base);
        }
        assert(self.free_up_to(base + 64) =~= self.free_up_to(base).union(free));
        assert(self.allocated_up_to(base + 64) =~= self.allocated_up_to(base).union(allocated));
        assert(self.free_up_to(base).disjoint(free) && self.allocated_up_to(base).disjoint(allocated));
        vstd::set_lib::lemma_set_disjoint_lens(self.free_up_to(base), free);
        vstd::set_lib::lemma_set_disjoint_lens(self.allocated_up_to(base), allocated);
        lemma_moved(base, !word);
        let clear = pages_of(base, !word);
        assert(word & never == 0 ==> never & !word == never) by (bit_vector);
        lemma_pages(base, never, word);
        lemma_pages(base, !word, !word);
        assert(never & !word == never);
        assert(free <= clear) by { lemma_pages(base, never, !word); }
        vstd::set_lib::lemma_len_subset(free, clear);
        assert(word & always == always ==> always & !!word == always) by (bit_vector);
        assert(allocated.disjoint(clear)) by { lemma_pages(base, always, !word); }
        vstd::set_lib::lemma_set_disjoint_lens(allocated, clear);
        vstd::set_lib::lemma_int_range(base, base + 64);
        vstd::set_lib::lemma_len_subset(allocated.union(clear), range(base, base + 64));
    }

    /// Whether a page is free, and no CPU takes it.
    pub open spec fn stays_free(self, page: u32) -> bool { bit(self.never(page), page as int % 64) }

    /// Whether one of them is, at least.
    pub(crate) open spec fn has_free(self, pages: Pages) -> bool {
        exists|page: u32| pages.at <= page < pages.at + pages.count && #[trigger] self.stays_free(page)
    }

    /// What was seen of a row, and what stays as it is of it.
    proof fn lemma_seen(self, at: u32, count: u32)
        requires 1 <= count && at % 64 + count <= 64 && at < 512,
        ensures
            forall|word: u64| word & self.never(at) == 0 && #[trigger] (word & row(at % 64, count)) == row(at % 64, count) ==>
                row(at % 64, count) & self.never(at) == 0,
            forall|word: u64| word & self.always(at) == self.always(at) && #[trigger] (word & row(at % 64, count)) == 0 ==>
                row(at % 64, count) & self.always(at) == 0,
            forall|word: u64| word & self.always(at) == self.always(at) && row(at % 64, count) & !self.always(at) == 0 ==>
                #[trigger] (word & row(at % 64, count)) == row(at % 64, count),
            forall|word: u64| word & self.never(at) == 0 && row(at % 64, count) & !self.never(at) == 0 ==>
                #[trigger] (word & row(at % 64, count)) == 0,
            (row(at % 64, count) & self.never(at) == 0) == (forall|page: u32| at <= page < at + count ==> !#[trigger] self.stays_free(page)),
            (row(at % 64, count) & self.always(at) == 0) == (forall|page: u32| at <= page < at + count ==> !#[trigger] self.stays_allocated(page)),
            (row(at % 64, count) & !self.never(at) == 0) == (forall|page: u32| at <= page < at + count ==> #[trigger] self.stays_free(page)),
            (row(at % 64, count) & !self.always(at) == 0) == (forall|page: u32| at <= page < at + count ==> #[trigger] self.stays_allocated(page)),
    {
        let (bits, never, always, low) = (row(at % 64, count), self.never(at), self.always(at), at % 64);
        assert forall|word: u64| word & never == 0 && #[trigger] (word & bits) == bits implies bits & never == 0 by {
            assert(word & never == 0 && word & bits == bits ==> bits & never == 0) by (bit_vector);
        }
        assert forall|word: u64| word & always == always && #[trigger] (word & bits) == 0 implies bits & always == 0 by {
            assert(word & always == always && word & bits == 0 ==> bits & always == 0) by (bit_vector);
        }
        assert forall|word: u64| word & always == always && bits & !always == 0 implies #[trigger] (word & bits) == bits by {
            assert(word & always == always && bits & !always == 0 ==> word & bits == bits) by (bit_vector);
        }
        assert forall|word: u64| word & never == 0 && bits & !never == 0 implies #[trigger] (word & bits) == 0 by {
            assert(word & never == 0 && bits & !never == 0 ==> word & bits == 0) by (bit_vector);
        }
        assert(bits & never == never & bits && bits & always == always & bits) by (bit_vector);
        lemma_each(low, count, never);
        lemma_each(low, count, always);
        assert forall|page: u32| at <= page < at + count implies self.never(page) == never && self.always(page) == always && page as int % 64 == low + (page - at) by {
            assert(page as int / 64 == at as int / 64);
        }
        assert forall|page: u32| at <= page < at + count implies #[trigger] self.stays_free(page) == bit(never, low + (page - at))
            && self.stays_allocated(page) == bit(always, low + (page - at)) by {}
        assert forall|i: int| low <= i < low + count implies #[trigger] bit(never, i) == self.stays_free((at + (i - low)) as u32) by {}
        assert forall|i: int| low <= i < low + count implies #[trigger] bit(always, i) == self.stays_allocated((at + (i - low)) as u32) by {}
    }
}

/// A block of a word is as aligned in it as in the bitmap.
proof fn lemma_aligned_back(at: u32, low: u32, index: u32, order: u8)
    requires order <= 6 && index < 8 && low < 64 && at == 64 * index + low && at % (1u32 << order) == 0 && at + (1u32 << order) <= 512,
    ensures low % (1u32 << order) == 0 && low + (1u32 << order) <= 64,
{
    assert(order <= 6 && index < 8 && low < 64 && at == add(mul(64, index), low) && at % (1u32 << order) == 0 ==>
        low % (1u32 << order) == 0 && add(low, 1u32 << order) <= 64) by (bit_vector);
}

/// In one step all of these bits were set, and they were cleared, and no other.
pub open spec fn gave(before: &Steps, after: &Steps, at: int, bits: u64) -> bool {
    let step = after.done().last();
    &&& after.done() == before.done().push(step)
    &&& step.0 == at && step.1 & bits == bits && step.2 == step.1 & !bits
}

/// In how many words pages `from..to` lie.
pub open spec fn words_of(from: int, to: int) -> int { if to <= from { 0 } else { (to - 1) / 64 - from / 64 + 1 } }

/// Of pages `from..to` the bits in the word whose first page is `at`.
pub open spec fn part(from: int, to: int, at: int) -> u64 {
    let first = if from > at { from } else { at };
    let end = if to < at + 64 { to } else { at + 64 };
    row((first - at) as u32, (end - first) as u32)
}

/// Pages `from..to` were given back, one step a word, and nothing else was done.
pub open spec fn gave_row(before: &Steps, after: &Steps, from: u32, to: int) -> bool {
    let (had, did) = (before.done().len() as int, after.done());
    &&& did.len() == had + words_of(from as int, to)
    &&& forall|step: int| 0 <= step < had ==> #[trigger] did[step] == before.done()[step]
    &&& forall|step: int| had <= step < did.len() ==> gave_part(#[trigger] did[step], from, to, 64 * (from as int / 64 + step - had))
}

/// A step that found all of their bits in the word of page `at` set, and cleared them and no other.
pub open spec fn gave_part(step: (int, u64, u64), from: u32, to: int, at: int) -> bool {
    let bits = part(from as int, to, at);
    step.0 == at && step.1 & bits == bits && step.2 == step.1 & !bits
}

/// With one word more.
proof fn lemma_further(before: &Steps, so_far: &Steps, after: &Steps, from: u32, at: u32, next: u32, bits: u64)
    requires
        from <= at < next <= 512 && at % 64 + (next - at) <= 64,
        at == from || at % 64 == 0,
        gave_row(before, so_far, from, at as int),
        gave(so_far, after, base(at), bits) && bits == row(at % 64, (next - at) as u32),
    ensures gave_row(before, after, from, next as int),
{
    let (had, did) = (before.done().len() as int, after.done());
    assert(so_far.done().len() - had == at as int / 64 - from as int / 64);
    assert forall|step: int| had <= step < did.len() implies gave_part(#[trigger] did[step], from, next as int, 64 * (from as int / 64 + step - had)) by {
        let word = 64 * (from as int / 64 + step - had);
        if step < so_far.done().len() {
            assert(did[step] == so_far.done()[step]);
            assert(word + 64 <= at);
            assert(part(from as int, at as int, word) == part(from as int, next as int, word));
        } else {
            assert(word == base(at));
            assert(part(from as int, next as int, word) == bits);
        }
    }
}

proof fn lemma_is_clear(word: u64, never: u64, at: u32)
    requires word & never == 0,
    ensures bit(never, at as int % 64) ==> (word >> (at % 64)) & 1 == 0,
{
    let (low, i) = (at % 64, at as u64 % 64);
    assert(i < 64 && low == i as u32 && word & never == 0 && (never >> i) & 1 == 1 ==> (word >> low) & 1 == 0) by (bit_vector);
}

proof fn lemma_is_set_always(word: u64, always: u64, at: u32)
    requires word & always == always,
    ensures bit(always, at as int % 64) ==> (word >> (at % 64)) & 1 != 0,
{
    let (low, i) = (at % 64, at as u64 % 64);
    assert(i < 64 && low == i as u32 && word & always == always && (always >> i) & 1 == 1 ==> (word >> low) & 1 != 0) by (bit_vector);
}

proof fn lemma_giving(bits: u64, never: u64, always: u64)
    requires bits & always == 0,
    ensures forall|word: u64| #![trigger giving(bits, word)] word & never == 0 && word & always == always && giving(bits, word) is Some ==>
        giving(bits, word)->0 & never == 0 && giving(bits, word)->0 & always == always && bits & never == 0,
{
    assert forall|word: u64| #![trigger giving(bits, word)] word & never == 0 && word & always == always && giving(bits, word) is Some implies
        giving(bits, word)->0 & never == 0 && giving(bits, word)->0 & always == always && bits & never == 0 by {
        assert(word & never == 0 && word & always == always && word & bits == bits && bits & always == 0 ==>
            (word & !bits) & never == 0 && (word & !bits) & always == always && bits & never == 0) by (bit_vector);
    }
}

proof fn lemma_clearing(bits: u64, never: u64, always: u64)
    requires bits & always == 0,
    ensures
        forall|word: u64| word & never == 0 ==> (#[trigger] (word & !bits)) & never == 0,
        forall|word: u64| word & always == always ==> (#[trigger] (word & !bits)) & always == always,
{
    assert forall|word: u64| word & never == 0 implies (#[trigger] (word & !bits)) & never == 0 by {
        assert(word & never == 0 ==> (word & !bits) & never == 0) by (bit_vector);
    }
    assert forall|word: u64| word & always == always implies (#[trigger] (word & !bits)) & always == always by {
        assert(word & always == always && bits & always == 0 ==> (word & !bits) & always == always) by (bit_vector);
    }
}

/// What is free, and is not taken meanwhile, can't be given back: `give` refuses it, and changes nothing, whatever other
/// CPUs do with all other bits.
fn theorem_what_is_free_is_refused(bitmap: &Bitmap, pages: Pages, Tracked(steps): Tracked<&mut Steps>)
    requires
        bitmap.wf() && pages.count >= 1 && pages.at + pages.count <= 512 && !bitmap.has_allocated(pages),
        exists|page: u32| pages.at <= page < pages.at + pages.count && #[trigger] bitmap.stays_free(page),
{
    let ghost before = steps.done();
    let given = bitmap.give(pages, Tracked(&mut *steps));
    assert(given == Err::<Given, NotSet>(NotSet { given: 0 }));
    assert(steps.done() == before);
}

/// There are bitmaps that this is true of: one all of whose pages stay free, which refuses each, and one none of whose has
/// to, of which a page that is given back has its bit cleared, and no other has; or nothing is done.
fn theorem_there_are_such_bitmaps(at: u32)
    requires at < 512,
{
    proof { super::geometry::sizes(); lemma_nothing(at); }
    let all = !0u64;
    let free = Bitmap([
        AtomicU64::new(0, Ghost((0, all, 0)), Tracked(())), AtomicU64::new(0, Ghost((64, all, 0)), Tracked(())),
        AtomicU64::new(0, Ghost((128, all, 0)), Tracked(())), AtomicU64::new(0, Ghost((192, all, 0)), Tracked(())),
        AtomicU64::new(0, Ghost((256, all, 0)), Tracked(())), AtomicU64::new(0, Ghost((320, all, 0)), Tracked(())),
        AtomicU64::new(0, Ghost((384, all, 0)), Tracked(())), AtomicU64::new(0, Ghost((448, all, 0)), Tracked(())),
    ]);
    let any = Bitmap([
        AtomicU64::new(all, Ghost((0, 0, 0)), Tracked(())), AtomicU64::new(all, Ghost((64, 0, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((128, 0, 0)), Tracked(())), AtomicU64::new(all, Ghost((192, 0, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((256, 0, 0)), Tracked(())), AtomicU64::new(all, Ghost((320, 0, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((384, 0, 0)), Tracked(())), AtomicU64::new(all, Ghost((448, 0, 0)), Tracked(())),
    ]);
    proof { lemma_full_or_empty(0); assert(!bit(0, at as int % 64)); assert(free.always(at) == 0 && any.always(at) == 0); }
    assert(free.wf() && any.wf() && free.stays_free(at) && !free.stays_allocated(at) && !any.stays_allocated(at));
    let tracked mut steps = Steps::none();
    let given = free.give(Pages { at, count: 1 }, Tracked(&mut steps));
    assert(given is Err && steps.done().len() == 0);
    match any.give(Pages { at, count: 1 }, Tracked(&mut steps)) {
        Ok(_) => assert(steps.done().len() == 1 && gave_part(steps.done()[0], at, at + 1, base(at))),
        Err(_) => assert(steps.done().len() == 0),
    }
}

proof fn lemma_nothing(at: u32)
    requires at < 512,
    ensures
        forall|word: u64| #[trigger] (word & 0) == 0, forall|word: u64| #[trigger] (0 & word) == 0,
        bit(!0u64, at as int % 64),
{
    assert forall|word: u64| #[trigger] (word & 0) == 0 by { assert(word & 0 == 0) by (bit_vector); }
    assert forall|word: u64| #[trigger] (0 & word) == 0 by { assert(0 & word == 0) by (bit_vector); }
    let i = at as u64 % 64;
    assert(i < 64 ==> (!0u64 >> i) & 1 == 1) by (bit_vector);
}
