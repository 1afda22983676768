//@ file engine/src/frames/word/bitmap.rs
// The pages of one huge frame, with all CPUs at once: what a call takes was no one's, and is its own.

//@ external fn Given::max_order
//@ external fn max_order_of
//@ external fn Bitmap::is_full
//@ external fn Bitmap::is_empty
//@ external fn Bitmap::max_order
//@ external fn Bitmap::has_block
//@ external fn Bitmap::count_free

//@ const STARTS
    ensures forall|order: u8| order <= 6 ==> #[trigger] STARTS[order as int] == starts(order),

//@ fn lowest
    ensures out & !word == 0 && pages_of(0, out).len() <= count,
//@ fn lowest, before: if word
    proof {
        assert(word & !word == 0) by (bit_vector);
        assert(0u64 & !word == 0) by (bit_vector);
    }
//@ fn lowest, before: for _
    proof { lemma_empty(0); }
//@ fn lowest, turns: for _
        invariant
            left & !word == 0 && taken & !word == 0,
            turns.index() <= count && pages_of(0, taken).len() <= turns.index(),
//@ fn lowest, before: taken |= left
        proof { lemma_subset(word, left, taken); lemma_one_more(left, taken); }
//@ fn Bitmap::take_some, holds
//@ fn Bitmap::take_some, passes: let old
//@ fn Bitmap::take_some
    requires self.wf() && old(held).id() == self.id() && index < 8,
    ensures
        final(held).id() == self.id(),
        old(held).dom().disjoint(pages_of(64 * index, out.0)),
        final(held).dom() =~= old(held).dom().union(pages_of(64 * index, out.0)),
        // As many as were wanted at most.
        pages_of(64 * index, out.0).len() <= most,
//@ fn Bitmap::take_some, before: let word
    proof { super::geometry::sizes(); lemma_empty(64 * index); }
//@ fn Bitmap::take_some, before: let old
    proof { lemma_or(64 * index, wanted); lemma_moved(64 * index, wanted); lemma_part(64 * index, wanted); }
//@ fn Bitmap::give_some, holds
//@ fn Bitmap::give_some, passes: let old
//@ fn Bitmap::give_some
    requires self.wf() && old(held).id() == self.id() && index < 8,
        pages_of(64 * index, bits) <= old(held).dom(),
    ensures
        // All of them were allocated: they were the caller's.
        out.0 == bits,
        final(held).id() == self.id(),
        final(held).dom() =~= old(held).dom().difference(pages_of(64 * index, bits)),
//@ fn Bitmap::give_some, before: let old
    proof { super::geometry::sizes(); lemma_not_not(bits); lemma_all(bits); lemma_and(64 * index, held.dom(), !bits); }

//@ fn mask
    requires 1 <= count <= 64 && at + count <= 64,
    ensures out == row(at, count),
//@ fn first_word
    requires at < end && end <= 512,
    ensures
        at < out.1 <= end,
        at % 64 + (out.1 - at) <= 64,
        out.0 == row(at % 64, (out.1 - at) as u32),
        out.1 == end || out.1 % 64 == 0,
//@ fn find_block
    requires order <= 6,
    ensures match out {
            Some(at) => at < 64 && at + (1u32 << order) <= 64 && at % (1u32 << order) == 0 && word & row(at, 1u32 << order) == 0,
            None => true,
        },
//@ fn find_block, before: for _
    proof { lemma_single(word); lemma_powers(); }
//@ fn find_block, turns: for _
        invariant
            order <= 6,
            0 <= turns.index() <= order,
            power(turns.index(), block),
            forall|at: u32| at < 64 && #[trigger] bit(clear, at as int) ==> at + block <= 64 && word & row(at, block) == 0,
//@ fn find_block, before: clear &= clear
        proof { lemma_powers(); lemma_doubled(word, clear, block); }
//@ fn find_block, before: clear &= STARTS
    proof { lemma_powers(); lemma_starts(clear, order); }
//@ fn find_block, before: Some(
        proof { axiom_u64_trailing_zeros(clear); assert(bit(clear, u64_trailing_zeros(clear) as int)); }
//@ fn order_around
    requires at < 64 && order <= 6,
    ensures
        order <= out <= 8,
        // Of the blocks of a word that hold the page no larger one is clear.
        forall|larger: u8| out < larger <= 6 ==> word & #[trigger] around_of(at, larger) != 0,
//@ fn order_around, before: let mut
    proof { super::geometry::sizes(); }
//@ fn order_around, loop: while
        invariant order <= around <= 6 && at < 64,
        decreases 6 - around,
//@ fn order_around, before: let pages
        proof { lemma_around(word, at, around); }
//@ fn Given::is_word_empty
    ensures out == (self.last() == 0),
//@ fn Bitmap::word
    requires self.wf() && page < 512,
    ensures *out == self.words()[page as int / 64], out.wf() && out.place() == (self.id(), base(page)),
//@ fn Bitmap::word, before: &self.0
    proof { super::geometry::sizes(); }
//@ fn Bitmap::word_at, holds
//@ fn Bitmap::word_at
    requires self.wf() && at < 512 && old(held).id() == self.id(),
    ensures *final(held) == *old(held) && old(held).dom().disjoint(pages_of(base(at), !out)),
//@ fn Bitmap::word_at, looks: self.word
//@ fn Bitmap::is_set, holds
//@ fn Bitmap::is_set
    requires self.wf() && at < 512 && old(held).id() == self.id(),
    ensures
        *final(held) == *old(held),
        // Of a page that the call has.
        old(held).dom().contains(at as int) ==> out,
//@ fn Bitmap::is_set, passes: let word
//@ fn Bitmap::is_set, before: word >> (
        proof { lemma_is_set(word, at, held.dom()); }
//@ fn Bitmap::all_set, holds
//@ fn Bitmap::all_set
    requires self.wf() && pages.at + pages.count <= 512 && old(held).id() == self.id(),
    ensures
        *final(held) == *old(held),
        // Of pages that the call has.
        range(pages.at as int, pages.at + pages.count) <= old(held).dom() ==> out,
//@ fn Bitmap::all_set, passes: self.all_are
//@ fn Bitmap::all_are, holds
//@ fn Bitmap::all_are
    requires self.wf() && pages.at + pages.count <= 512 && old(held).id() == self.id(),
    ensures
        *final(held) == *old(held),
        allocated && range(pages.at as int, pages.at + pages.count) <= old(held).dom() ==> out,
//@ fn Bitmap::all_are, before: let end
    let ghost before = *held;
//@ fn Bitmap::all_are, loop: while
        invariant self.wf() && end == pages.at + pages.count && end <= 512 && pages.at <= at <= end && *held == before
            && before == *old(held) && before.id() == self.id(),
        decreases end - at,
//@ fn Bitmap::all_are, passes: if self
//@ fn Bitmap::all_are, before: if self
            proof { lemma_held(base(at), at % 64, (next - at) as u32, before.dom()); }

//@ fn Bitmap::take_page, holds
//@ fn Bitmap::take_page, waits
//@ fn Bitmap::take_page
    requires self.wf() && old(held).id() == self.id(),
    ensures match out {
            Ok(taken) => took(old(held), final(held), taken.at as int, 1),
            Err(_) => same(old(held), final(held)),
        },
//@ fn Bitmap::take_page, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::take_page, loop: for index
        invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
//@ fn Bitmap::take_page, loop: while seen
            invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && index < 8
                && *word == self.words()[index as int],
//@ fn Bitmap::take_page, after: let new
                proof { lemma_lowest(64 * index, seen); }
//@ fn Bitmap::take_page, passes: word.compare

//@ fn Bitmap::take_any, holds
//@ fn Bitmap::take_any, waits
//@ fn Bitmap::take_any
    requires self.wf() && old(held).id() == self.id() && order <= 8 && 1 <= count <= 1u32 << order,
    ensures match out {
            Ok(taken) => took(old(held), final(held), taken.at as int, count as int) && taken.at % (1u32 << order) == 0,
            Err(_) => same(old(held), final(held)),
        },
//@ fn Bitmap::take_any, before: if order
    let ghost before = *held;
    proof { super::geometry::sizes(); lemma_powers(); }
//@ fn Bitmap::take_any, passes: return self
//@ fn Bitmap::take_any, loop: for index
        invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8
            && order <= 6 && 1 <= count <= 1u32 << order,
//@ fn Bitmap::take_any, loop: while let
            invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && index < 8
                && *word == self.words()[index as int] && order <= 6 && 1 <= count <= 1u32 << order,
//@ fn Bitmap::take_any, before: let new
                proof { lemma_powers(); lemma_block(64 * index, seen, at, 1u32 << order, count); lemma_aligned(index as u32, at, order); }
//@ fn Bitmap::take_any, passes: word.compare

//@ fn Bitmap::take_any_words, holds
//@ fn Bitmap::take_any_words, waits
//@ fn Bitmap::take_any_words
    requires self.wf() && old(held).id() == self.id() && 7 <= order <= 8 && 1 <= count <= 1u32 << order,
    ensures match out {
            Ok(taken) => took(old(held), final(held), taken.at as int, count as int) && taken.at % (1u32 << order) == 0,
            Err(_) => same(old(held), final(held)),
        },
//@ fn Bitmap::take_any_words, before: let mut none
    let ghost before = *held;
    proof { super::geometry::sizes(); lemma_powers(); }
//@ fn Bitmap::take_any_words, loop: while
        invariant self.wf() && before.id() == self.id() && held.id() == self.id() && held.dom() == before.dom() && before == *old(held)
            && HUGE_FRAMES == 512 && at <= 512 && 7 <= order <= 8 && 1 <= count <= 1u32 << order
            && (order == 7 ==> 1u32 << order == 128) && (order == 8 ==> 1u32 << order == 256) && at % (1u32 << order) == 0,
//@ fn Bitmap::take_any_words, passes: match self

//@ fn Bitmap::take_at, holds
//@ fn Bitmap::take_at
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
    ensures match out {
            Ok(taken) => taken.at == pages.at && took(old(held), final(held), pages.at as int, pages.count as int),
            Err(_) => same(old(held), final(held)),
        },
//@ fn Bitmap::take_at, passes: return self
//@ fn Bitmap::take_at, passes: match self
//@ fn Bitmap::take_at, before: match self
    proof { lemma_row(base(at), at % 64, count); }

//@ fn Bitmap::take_bits, holds
//@ fn Bitmap::take_bits
    requires self.wf() && old(held).id() == self.id() && at < 512,
    ensures
        final(held).id() == self.id(),
        match out {
            Some(_) => old(held).dom().disjoint(pages_of(base(at), bits)) && final(held).dom() =~= old(held).dom().union(pages_of(base(at), bits)),
            None => *final(held) == *old(held),
        },
//@ fn Bitmap::take_bits, before: let taken
    proof { lemma_taking(base(at), bits); }
//@ fn Bitmap::take_bits, closure: let taken
            ensures out == taking(bits, word),
//@ fn Bitmap::take_bits, passes: });
//@ fn Bitmap::give_bits, holds
//@ fn Bitmap::give_bits
    requires self.wf() && old(held).id() == self.id() && at < 512, pages_of(base(at), bits) <= old(held).dom(),
    ensures
        out is Some,
        final(held).id() == self.id(),
        final(held).dom() =~= old(held).dom().difference(pages_of(base(at), bits)),
//@ fn Bitmap::give_bits, before: let given
    proof { lemma_giving(base(at), bits); lemma_owner(base(at), bits, held.dom()); }
//@ fn Bitmap::give_bits, closure: let given
            ensures out == giving(bits, word),
//@ fn Bitmap::give_bits, passes: });

//@ fn Bitmap::take_words, holds
//@ fn Bitmap::take_words
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
    ensures match out {
            Ok(taken) => taken.at == pages.at && took(old(held), final(held), pages.at as int, pages.count as int),
            Err(_) => same(old(held), final(held)),
        },
//@ fn Bitmap::take_words, before: let end
    let ghost before = *held;
//@ fn Bitmap::take_words, loop: while
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end,
            before.dom().disjoint(range(pages.at as int, at as int)),
            held.dom() =~= before.dom().union(range(pages.at as int, at as int)),
        decreases end - at,
//@ fn Bitmap::take_words, passes: if !self.all_are
//@ fn Bitmap::take_words, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); }
//@ fn Bitmap::take_words, before: at = next
            proof { assert(range(pages.at as int, next as int) =~= range(pages.at as int, at as int).union(range(at as int, next as int))); }
//@ fn Bitmap::take_words, passes: match self
//@ fn Bitmap::take_words, passes: self.untake

//@ fn Bitmap::untake, holds
//@ fn Bitmap::untake
    requires self.wf() && old(held).id() == self.id() && at <= end <= 512 && range(at as int, end as int) <= old(held).dom(),
    ensures final(held).id() == old(held).id(), final(held).dom() =~= old(held).dom().difference(range(at as int, end as int)),
//@ fn Bitmap::untake, before: while
    let ghost before = *held;
    let ghost start = at as int;
//@ fn Bitmap::untake, loop: while
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held),
            start <= at <= end <= 512 && range(start, end as int) <= before.dom(),
            held.dom() =~= before.dom().difference(range(start, at as int)),
        decreases end - at,
//@ fn Bitmap::untake, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); lemma_not_not(bits); lemma_and(base(at), held.dom(), !bits); }
//@ fn Bitmap::untake, passes: self.word

//@ fn Bitmap::give, holds
//@ fn Bitmap::give
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
        range(pages.at as int, pages.at + pages.count) <= old(held).dom(),
    ensures
        // The owner is never refused.
        out is Ok,
        gave(old(held), final(held), pages.at as int, pages.count as int),
//@ fn Bitmap::give, passes: return self
//@ fn Bitmap::give, before: match self
    proof { lemma_row(base(at), at % 64, count); }
//@ fn Bitmap::give, passes: match self

//@ fn Bitmap::give_words, holds
//@ fn Bitmap::give_words
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
        range(pages.at as int, pages.at + pages.count) <= old(held).dom(),
    ensures
        out is Ok,
        gave(old(held), final(held), pages.at as int, pages.count as int),
//@ fn Bitmap::give_words, before: let end
    let ghost before = *held;
//@ fn Bitmap::give_words, passes: if !self
//@ fn Bitmap::give_words, loop: while
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end,
            range(pages.at as int, end as int) <= before.dom(),
            held.dom() =~= before.dom().difference(range(pages.at as int, at as int)),
        decreases end - at,
//@ fn Bitmap::give_words, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); }
//@ fn Bitmap::give_words, passes: match self

//@ fn Bitmap::take_all, holds
//@ fn Bitmap::take_all
    requires self.wf() && old(held).id() == self.id(),
    ensures
        // All of it, or nothing.
        out ==> took(old(held), final(held), 0, 512),
        !out ==> same(old(held), final(held)),
//@ fn Bitmap::take_all, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::take_all, loop: for index
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held) && BITMAP_WORDS == 8,
            before.dom().disjoint(range(0, 64 * index)),
            held.dom() =~= before.dom().union(range(0, 64 * index)),
//@ fn Bitmap::take_all, before: if !swap
            proof {
                lemma_whole(64 * index);
                assert(range(0, 64 * index + 64) =~= range(0, 64 * index).union(range(64 * index, 64 * index + 64)));
            }
//@ fn Bitmap::take_all, passes: if !swap
//@ fn Bitmap::take_all, passes: self.untake

//@ fn Bitmap::write, holds
//@ fn Bitmap::write
    requires self.wf() && old(held).id() == self.id() && pages.at + pages.count <= 512,
        // The huge frame is the caller's.
        range(0, 512) <= old(held).dom(),
    ensures
        final(held).id() == self.id(),
        // It keeps the pages whose bits are set, and no other.
        final(held).dom() =~= old(held).dom().difference(clear_of(inside, pages, 512)),
//@ fn Bitmap::write, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::write, loop: for index
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held) && BITMAP_WORDS == 8,
            end == pages.at + pages.count && end <= 512 && range(0, 512) <= before.dom(),
            others == if inside { 0u64 } else { !0u64 },
            // Where the next of the pages is, or the end.
            at == if pages.at >= 64 * index { pages.at as int } else if end < 64 * index { end as int } else { 64 * index },
            held.dom() =~= before.dom().difference(clear_of(inside, pages, 64 * index)),
//@ fn Bitmap::write, after: let mut bits
            let ghost from = at;
            proof { lemma_empty(64 * index); lemma_others(); }
//@ fn Bitmap::write, before: word.store
            proof {
                let base = 64 * index;
                if from < end && from < base + 64 {
                    lemma_row(base, from % 64, (at - from) as u32);
                    lemma_pages(base, row(from % 64, (at - from) as u32), 0);
                } else {
                    lemma_pages(base, 0, 0);
                }
                lemma_store(base, held.dom(), bits);
                let word = range(base, base + 64);
                assert(pages_of(base, !bits) =~= word.filter(|page: int| (pages.at <= page < pages.at + pages.count) != inside));
                assert(clear_of(inside, pages, base + 64) =~= clear_of(inside, pages, base).union(pages_of(base, !bits)));
            }
//@ fn Bitmap::write, passes: word.store
//@ fn Bitmap::set, holds
//@ fn Bitmap::set
    requires self.wf() && old(held).id() == self.id() && pages.at + pages.count <= 512,
    ensures
        final(held).id() == self.id(),
        // Those that were free are the caller's.
        old(held).dom() <= final(held).dom(),
        final(held).dom() <= old(held).dom().union(range(pages.at as int, pages.at + pages.count)),
//@ fn Bitmap::set, before: let end
    let ghost before = *held;
//@ fn Bitmap::set, loop: while
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end,
            before.dom() <= held.dom(),
            held.dom() <= before.dom().union(range(pages.at as int, end as int)),
        decreases end - at,
//@ fn Bitmap::set, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); lemma_or(base(at), bits); }
//@ fn Bitmap::set, passes: self.word

//@ items
use crate::model::{Held, Model, bit, lemma_none, lemma_pages};
use crate::model::pages as pages_of;
use vstd::resource::Loc;
use vstd::std_specs::bits::*;
broadcast use vstd::set_lib::range_set_properties;

impl Bitmap {
    pub closed spec fn words(self) -> [AtomicU64; BITMAP_WORDS] { self.0 }

    /// Which bitmap it is: pages of another are others.
    pub closed spec fn id(self) -> Loc { self.0[0].id() }

    /// Its words are of one bitmap, one after the other.
    pub closed spec fn wf(self) -> bool {
        forall|index: int| 0 <= index < 8 ==> (#[trigger] self.0[index]).wf() && self.0[index].id() == self.id() && self.0[index].base() == 64 * index
    }
}

/// Pages `from..to`.
pub open spec fn range(from: int, to: int) -> Set<int> { vstd::set_lib::set_int_range(from, to) }

/// The first page of the word that a page lies in.
pub open spec fn base(page: u32) -> int { 64 * (page as int / 64) }

/// `count` pages from `at` on were taken, which the call did not have, and nothing else.
pub open spec fn took(before: &Held, after: &Held, at: int, count: int) -> bool {
    &&& 0 <= at && at + count <= 512
    &&& after.id() == before.id()
    &&& before.dom().disjoint(range(at, at + count))
    &&& after.dom() =~= before.dom().union(range(at, at + count))
}

/// `count` pages from `at` on were given back, and nothing else.
pub open spec fn gave(before: &Held, after: &Held, at: int, count: int) -> bool {
    after.id() == before.id() && after.dom() =~= before.dom().difference(range(at, at + count))
}

/// Of the pages up to `end`, those whose bits are clear where the bits of `pages` are written as `inside` says.
pub(crate) open spec fn clear_of(inside: bool, pages: Pages, end: int) -> Set<int> {
    range(0, end).filter(|page: int| (pages.at <= page < pages.at + pages.count) != inside)
}

/// The call has what it had.
pub open spec fn same(before: &Held, after: &Held) -> bool {
    after.id() == before.id() && after.dom() =~= before.dom()
}

impl Given {
    /// The word that the last of the pages lies in, right after.
    pub closed spec fn last(self) -> u64 { self.word }
}

/// The bits of the block of 2^`order` pages of a word that holds page `at` of it.
pub open spec fn around_of(at: u32, order: u8) -> u64 { row(at & !sub(1u32 << order, 1), 1u32 << order) }

/// Bits `at..at + count`.
pub open spec fn row(at: u32, count: u32) -> u64 { (!0u64 >> sub(64u32, count)) << at }

/// Whether a number is this power of two.
pub open spec fn power(of: int, block: u32) -> bool {
    (of == 0 ==> block == 1) && (of == 1 ==> block == 2) && (of == 2 ==> block == 4) && (of == 3 ==> block == 8)
        && (of == 4 ==> block == 16) && (of == 5 ==> block == 32) && (of == 6 ==> block == 64)
}

/// Where blocks of an order may start.
pub open spec fn starts(order: u8) -> u64 {
    if order == 0 { !0u64 } else if order == 1 { 0x5555_5555_5555_5555 } else if order == 2 { 0x1111_1111_1111_1111 }
    else if order == 3 { 0x0101_0101_0101_0101 } else if order == 4 { 0x0001_0001_0001_0001 }
    else if order == 5 { 0x0000_0001_0000_0001 } else { 1 }
}

pub open spec fn taking(bits: u64, word: u64) -> Option<u64> { if word & bits == 0 { Some(word | bits) } else { None } }
pub open spec fn giving(bits: u64, word: u64) -> Option<u64> { if word & bits == bits { Some(word & !bits) } else { None } }

proof fn lemma_powers()
    ensures
        1u32 << 0u8 == 1, 1u32 << 1u8 == 2, 1u32 << 2u8 == 4, 1u32 << 3u8 == 8, 1u32 << 4u8 == 16, 1u32 << 5u8 == 32, 1u32 << 6u8 == 64,
        1u32 << 7u8 == 128, 1u32 << 8u8 == 256,
{
    assert(1u32 << 0u8 == 1 && 1u32 << 1u8 == 2 && 1u32 << 2u8 == 4 && 1u32 << 3u8 == 8 && 1u32 << 4u8 == 16 && 1u32 << 5u8 == 32
        && 1u32 << 6u8 == 64 && 1u32 << 7u8 == 128 && 1u32 << 8u8 == 256) by (bit_vector);
}

/// A block of a word is aligned in the bitmap as it is in the word.
proof fn lemma_aligned(index: u32, at: u32, order: u8)
    requires index < 8 && at < 64 && order <= 6 && at % (1u32 << order) == 0,
    ensures ((index * 64 + at) as u32) % (1u32 << order) == 0,
{
    assert(index < 8 && at < 64 && order <= 6 && at % (1u32 << order) == 0 ==> add(mul(index, 64), at) % (1u32 << order) == 0) by (bit_vector);
}

/// The bits of a row are its pages.
proof fn lemma_row(base: int, at: u32, count: u32)
    requires 1 <= count <= 64 && at + count <= 64,
    ensures pages_of(base, row(at, count)) =~= range(base + at, base + at + count),
{
    assert forall|page: int| base <= page < base + 64 implies
        #[trigger] bit(row(at, count), page - base) == (base + at <= page < base + at + count) by {
        let i = (page - base) as u64;
        assert(1 <= count && count <= 64 && add(at, count) <= 64 && at < 64 && i < 64 ==>
            ((((!0u64 >> sub(64u32, count)) << at) >> i) & 1 == 1) == (at as u64 <= i && i < add(at, count) as u64)) by (bit_vector);
    }
}

proof fn lemma_empty(base: int)
    ensures pages_of(base, 0) =~= Set::empty(),
{
    assert forall|page: int| base <= page < base + 64 implies !#[trigger] bit(0, page - base) by {
        let i = (page - base) as u64;
        assert(i < 64 ==> !((0u64 >> i) & 1 == 1)) by (bit_vector);
    }
}

proof fn lemma_subset(word: u64, left: u64, taken: u64)
    requires left & !word == 0 && taken & !word == 0,
    ensures forall|more: u64| (taken | (left & more)) & !word == 0 && #[trigger] (left & more) & !word == 0,
{
    assert forall|more: u64| (taken | (left & more)) & !word == 0 && #[trigger] (left & more) & !word == 0 by {
        assert(left & !word == 0 && taken & !word == 0 ==> (taken | (left & more)) & !word == 0 && (left & more) & !word == 0) by (bit_vector);
    }
}

/// With the lowest of some bits there is one bit more, at most.
proof fn lemma_one_more(left: u64, taken: u64)
    ensures pages_of(0, taken | (left & add(!left, 1))).len() <= pages_of(0, taken).len() + 1,
{
    let low = left & add(!left, 1);
    lemma_pages(0, taken, low);
    if left == 0 {
        assert(left == 0 ==> left & add(!left, 1) == 0) by (bit_vector);
        lemma_empty(0);
        assert(pages_of(0, taken).union(Set::empty()) =~= pages_of(0, taken));
    } else {
        axiom_u64_trailing_zeros(left);
        let t = u64_trailing_zeros(left);
        assert(t < 64 && (left >> (t as u64)) & 1 == 1 && left << sub(64, t as u64) == 0 ==>
            left & add(!left, 1) == (!0u64 >> sub(64u32, 1u32)) << t) by (bit_vector);
        lemma_row(0, t, 1);
        assert(pages_of(0, taken).union(pages_of(0, low)) =~= pages_of(0, taken).insert(t as int));
        vstd::set::lemma_set_insert_len(pages_of(0, taken), t as int);
    }
}

/// A word has as many bits as pages, wherever its pages begin.
proof fn lemma_moved(base: int, bits: u64)
    ensures pages_of(base, bits).len() == pages_of(0, bits).len(),
{
    broadcast use Set::lemma_map_contains;
    let f = |page: int| page + base;
    let moved = pages_of(0, bits).map(f);
    assert forall|page: int| pages_of(base, bits).contains(page) implies moved.contains(page) by {
        assert(pages_of(0, bits).contains(page - base) && f(page - base) == page);
    }
    assert(moved =~= pages_of(base, bits));
    vstd::set_lib::lemma_map_size(pages_of(0, bits), pages_of(base, bits), f);
}

/// Of some bits those that were clear are no more than all.
proof fn lemma_part(base: int, bits: u64)
    ensures forall|was: u64| #![trigger bits & !was] pages_of(base, bits & !was).len() <= pages_of(base, bits).len(),
{
    assert forall|was: u64| #![trigger bits & !was] pages_of(base, bits & !was).len() <= pages_of(base, bits).len() by {
        lemma_pages(base, bits, was);
        vstd::set_lib::lemma_len_subset(pages_of(base, bits & !was), pages_of(base, bits));
    }
}

/// What `order_around` looks at is the block of the next order; where it is not clear, no larger one is.
proof fn lemma_around(word: u64, at: u32, around: u8)
    requires at < 64 && around < 6,
    ensures
        2u32 << around >= 1 && 2u32 << around <= 64 && at & !sub(2u32 << around, 1) < 64,
        (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 ==>
            forall|larger: u8| around < larger <= 6 ==> word & #[trigger] around_of(at, larger) != 0,
{
    assert(at < 64 && around < 6 ==> 2u32 << around >= 1 && 2u32 << around <= 64 && at & !sub(2u32 << around, 1) < 64) by (bit_vector);
    assert forall|larger: u8| around < larger <= 6 && (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 implies
        word & #[trigger] around_of(at, larger) != 0 by {
        assert(at < 64 && around < larger && larger <= 6 && (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 ==>
            word & ((!0u64 >> sub(64u32, 1u32 << larger)) << (at & !sub(1u32 << larger, 1))) != 0) by (bit_vector);
    }
}

/// Where none of the bits is missing all are there.
proof fn lemma_all(bits: u64)
    ensures forall|word: u64| #![trigger word & bits] bits & !word == 0 ==> word & bits == bits,
{
    assert forall|word: u64| #![trigger word & bits] bits & !word == 0 implies word & bits == bits by {
        assert(bits & !word == 0 ==> word & bits == bits) by (bit_vector);
    }
}

proof fn lemma_not_not(bits: u64)
    ensures !!bits == bits,
{
    assert(!!bits == bits) by (bit_vector);
}

/// Setting bits takes those that were clear.
proof fn lemma_or(base: int, bits: u64)
    ensures forall|was: u64| #![trigger was | bits]
        pages_of(base, was & !(was | bits)) =~= Set::empty() && pages_of(base, (was | bits) & !was) == pages_of(base, bits & !was)
            && pages_of(base, bits & !was) <= pages_of(base, bits),
{
    lemma_empty(base);
    assert forall|was: u64| #![trigger was | bits]
        pages_of(base, was & !(was | bits)) =~= Set::empty() && pages_of(base, (was | bits) & !was) == pages_of(base, bits & !was)
            && pages_of(base, bits & !was) <= pages_of(base, bits) by {
        assert(was & !(was | bits) == 0 && (was | bits) & !was == bits & !was) by (bit_vector);
        lemma_pages(base, bits, was);
    }
}

/// Clearing bits of pages that a call has gives those back.
proof fn lemma_and(base: int, held: Set<int>, bits: u64)
    requires pages_of(base, !bits) <= held,
    ensures forall|was: u64| #![trigger was & bits] held.disjoint(pages_of(base, !was)) ==>
        pages_of(base, was & !(was & bits)) == pages_of(base, !bits) && pages_of(base, (was & bits) & !was) =~= Set::empty() && !bits & !was == 0,
{
    lemma_empty(base);
    assert forall|was: u64| #![trigger was & bits] held.disjoint(pages_of(base, !was)) implies
        pages_of(base, was & !(was & bits)) == pages_of(base, !bits) && pages_of(base, (was & bits) & !was) =~= Set::empty() && !bits & !was == 0 by {
        lemma_none(base, !bits, was);
        assert(!bits & !was == 0 ==> was & !(was & bits) == !bits) by (bit_vector);
        assert((was & bits) & !was == 0) by (bit_vector);
    }
}

/// A word all of whose pages a call has can be written.
proof fn lemma_store(base: int, held: Set<int>, bits: u64)
    requires range(base, base + 64) <= held,
    ensures forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) ==>
        pages_of(base, was & !bits) == pages_of(base, !bits) && pages_of(base, bits & !was) =~= Set::empty(),
{
    lemma_empty(base);
    assert forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) implies
        pages_of(base, was & !bits) == pages_of(base, !bits) && pages_of(base, bits & !was) =~= Set::empty() by {
        let all = !0u64;
        assert(pages_of(base, all) <= held);
        lemma_none(base, all, was);
        assert(all == !0u64 && all & !was == 0 ==> was & !bits == !bits && bits & !was == 0) by (bit_vector);
    }
}

/// Bits that are turned over.
proof fn lemma_others()
    ensures forall|bits: u64| #![trigger 0u64 ^ bits] 0u64 ^ bits == bits, forall|bits: u64| #![trigger !0u64 ^ bits] !0u64 ^ bits == !bits && !!bits == bits,
        !!0u64 == 0,
{
    assert forall|bits: u64| #![trigger 0u64 ^ bits] 0u64 ^ bits == bits by { assert(0u64 ^ bits == bits) by (bit_vector); }
    assert forall|bits: u64| #![trigger !0u64 ^ bits] !0u64 ^ bits == !bits && !!bits == bits by {
        let ones = !0u64;
        assert(ones == !0u64 ==> ones ^ bits == !bits && !!bits == bits) by (bit_vector);
    }
    assert(!!0u64 == 0) by (bit_vector);
}

/// All of a word.
proof fn lemma_whole(base: int)
    ensures
        pages_of(base, !0u64 & !0u64) =~= range(base, base + 64),
        pages_of(base, 0u64 & !!0u64) =~= Set::empty(),
{
    lemma_empty(base);
    lemma_row(base, 0, 64);
    assert(!0u64 & !0u64 == (!0u64 >> sub(64u32, 64u32)) << 0u32) by (bit_vector);
    assert(0u64 & !!0u64 == 0) by (bit_vector);
}

/// Of a row of pages that a call has all bits are set, whenever it looks.
proof fn lemma_held(base: int, at: u32, count: u32, held: Set<int>)
    requires 1 <= count <= 64 && at + count <= 64,
    ensures range(base + at, base + at + count) <= held ==> forall|was: u64| #![trigger pages_of(base, !was)]
        held.disjoint(pages_of(base, !was)) ==> was & row(at, count) == row(at, count),
{
    lemma_row(base, at, count);
    if range(base + at, base + at + count) <= held {
        lemma_owner(base, row(at, count), held);
    }
}

/// Of one page.
proof fn lemma_is_set(word: u64, at: u32, held: Set<int>)
    requires held.disjoint(pages_of(base(at), !word)),
    ensures held.contains(at as int) ==> (word >> (at % 64)) & 1 != 0,
{
    if held.contains(at as int) {
        let i = at as u64 % 64;
        assert(!pages_of(base(at), !word).contains(at as int));
        assert(at as int - base(at) == i as int);
        assert(!bit(!word, i as int));
        let low = at % 64;
        assert(i < 64 && low == i as u32 && (!word >> i) & 1 != 1 ==> (word >> low) & 1 != 0) by (bit_vector);
    }
}

/// The same of any bits.
proof fn lemma_owner(base: int, bits: u64, held: Set<int>)
    requires pages_of(base, bits) <= held,
    ensures forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) ==> was & bits == bits,
{
    lemma_all(bits);
    assert forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) implies was & bits == bits by {
        lemma_none(base, bits, was);
    }
}

proof fn lemma_taking(base: int, bits: u64)
    ensures forall|word: u64| #![trigger taking(bits, word)] taking(bits, word) is Some ==>
        pages_of(base, word & !taking(bits, word)->0) =~= Set::empty() && pages_of(base, taking(bits, word)->0 & !word) == pages_of(base, bits),
{
    lemma_empty(base);
    assert forall|word: u64| #![trigger taking(bits, word)] taking(bits, word) is Some implies
        pages_of(base, word & !taking(bits, word)->0) =~= Set::empty() && pages_of(base, taking(bits, word)->0 & !word) == pages_of(base, bits) by {
        assert(word & bits == 0 ==> word & !(word | bits) == 0 && (word | bits) & !word == bits) by (bit_vector);
    }
}

proof fn lemma_giving(base: int, bits: u64)
    ensures forall|word: u64| #![trigger giving(bits, word)] giving(bits, word) is Some ==>
        pages_of(base, word & !giving(bits, word)->0) == pages_of(base, bits) && pages_of(base, giving(bits, word)->0 & !word) =~= Set::empty(),
{
    lemma_empty(base);
    assert forall|word: u64| #![trigger giving(bits, word)] giving(bits, word) is Some implies
        pages_of(base, word & !giving(bits, word)->0) == pages_of(base, bits) && pages_of(base, giving(bits, word)->0 & !word) =~= Set::empty() by {
        assert(word & bits == bits ==> word & !(word & !bits) == bits && (word & !bits) & !word == 0) by (bit_vector);
    }
}

proof fn lemma_single(word: u64)
    ensures forall|at: u32| at < 64 && #[trigger] bit(!word, at as int) ==> word & row(at, 1) == 0,
{
    assert forall|at: u32| at < 64 && #[trigger] bit(!word, at as int) implies word & row(at, 1) == 0 by {
        let i = at as u64;
        assert(i < 64 && at == i as u32 && (!word >> i) & 1 == 1 ==> word & ((!0u64 >> sub(64u32, 1u32)) << at) == 0) by (bit_vector);
    }
}

/// Two clear rows side by side are one.
proof fn lemma_doubled(word: u64, clear: u64, block: u32)
    requires
        1 <= block <= 32,
        forall|at: u32| at < 64 && #[trigger] bit(clear, at as int) ==> at + block <= 64 && word & row(at, block) == 0,
    ensures
        forall|at: u32| at < 64 && #[trigger] bit(clear & (clear >> block), at as int) ==> at + 2 * block <= 64 && word & row(at, (2 * block) as u32) == 0,
{
    assert forall|at: u32| at < 64 && #[trigger] bit(clear & (clear >> block), at as int) implies
        at + 2 * block <= 64 && word & row(at, (2 * block) as u32) == 0 by {
        let i = at as u64;
        let j = add(at, block);
        assert(i < 64 && at == i as u32 && 1 <= block && block <= 32 && j == add(at, block) && ((clear & (clear >> block)) >> i) & 1 == 1 ==>
            (clear >> i) & 1 == 1 && j < 64 && (clear >> (j as u64)) & 1 == 1) by (bit_vector);
        assert(bit(clear, at as int) && bit(clear, j as int));
        assert(at < 64 && 1 <= block && block <= 32 && j == add(at, block) && add(j, block) <= 64
            && word & ((!0u64 >> sub(64u32, block)) << at) == 0 && word & ((!0u64 >> sub(64u32, block)) << j) == 0 ==>
            word & ((!0u64 >> sub(64u32, mul(2, block))) << at) == 0) by (bit_vector);
    }
}

/// Where a block may start its number is a multiple of its size.
proof fn lemma_starts(clear: u64, order: u8)
    requires order <= 6,
    ensures forall|at: u32| at < 64 && #[trigger] bit(clear & starts(order), at as int) ==> bit(clear, at as int) && at % (1u32 << order) == 0,
{
    lemma_powers();
    assert forall|at: u32| at < 64 && #[trigger] bit(clear & starts(order), at as int) implies bit(clear, at as int) && at % (1u32 << order) == 0 by {
        let i = at as u64;
        let s = starts(order);
        assert(i < 64 && ((clear & s) >> i) & 1 == 1 ==> (clear >> i) & 1 == 1 && (s >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && (0x5555_5555_5555_5555u64 >> i) & 1 == 1 ==> at % 2 == 0) by (bit_vector);
        assert(i < 64 && at == i as u32 && (0x1111_1111_1111_1111u64 >> i) & 1 == 1 ==> at % 4 == 0) by (bit_vector);
        assert(i < 64 && at == i as u32 && (0x0101_0101_0101_0101u64 >> i) & 1 == 1 ==> at % 8 == 0) by (bit_vector);
        assert(i < 64 && at == i as u32 && (0x0001_0001_0001_0001u64 >> i) & 1 == 1 ==> at % 16 == 0) by (bit_vector);
        assert(i < 64 && at == i as u32 && (0x0000_0001_0000_0001u64 >> i) & 1 == 1 ==> at % 32 == 0) by (bit_vector);
        assert(i < 64 && at == i as u32 && (1u64 >> i) & 1 == 1 ==> at % 64 == 0) by (bit_vector);
    }
}

/// The lowest clear bit of a word, set.
proof fn lemma_lowest(base: int, seen: u64)
    requires seen != !0u64,
    ensures
        u64_trailing_zeros(!seen) < 64,
        add(seen, 1) == seen + 1,
        pages_of(base, seen & !(seen | add(seen, 1))) =~= Set::empty(),
        pages_of(base, (seen | add(seen, 1)) & !seen) =~= range(base + u64_trailing_zeros(!seen), base + u64_trailing_zeros(!seen) + 1),
{
    lemma_empty(base);
    assert(!0u64 == 0xffff_ffff_ffff_ffff) by (bit_vector);
    axiom_u64_trailing_zeros(!seen);
    let t = u64_trailing_zeros(!seen);
    assert(seen != !0u64 ==> !seen != 0) by (bit_vector);
    let rest = !seen;
    assert(t < 64 && (rest >> (t as u64)) & 1 == 1 && rest << sub(64, t as u64) == 0 && rest == !seen ==>
        (seen | add(seen, 1)) & !seen == (!0u64 >> sub(64u32, 1u32)) << t) by (bit_vector);
    assert(seen & !(seen | add(seen, 1)) == 0) by (bit_vector);
    lemma_row(base, t, 1);
}

/// The first of the pages of a block that is clear.
proof fn lemma_block(base: int, seen: u64, at: u32, block: u32, count: u32)
    requires at + block <= 64 && 1 <= count <= block && seen & row(at, block) == 0,
    ensures
        pages_of(base, seen & !(seen | row(at, count))) =~= Set::empty(),
        pages_of(base, (seen | row(at, count)) & !seen) =~= range(base + at, base + at + count),
{
    lemma_empty(base);
    lemma_row(base, at, count);
    assert(at < 64 && 1 <= count && count <= block && block <= 64 && add(at, block) <= 64 && seen & ((!0u64 >> sub(64u32, block)) << at) == 0 ==>
        seen & !(seen | ((!0u64 >> sub(64u32, count)) << at)) == 0
        && (seen | ((!0u64 >> sub(64u32, count)) << at)) & !seen == (!0u64 >> sub(64u32, count)) << at) by (bit_vector);
}

/// Whatever tokens two calls hold of one bitmap, they share none.
proof fn theorem_no_page_is_held_twice(tracked one: &mut Held, tracked other: &Held)
    requires old(one).id() == other.id(),
    ensures final(one).dom() == old(one).dom(), old(one).dom().disjoint(other.dom()),
{
    one.disjoint(other);
}

/// There is such a bitmap: all its pages are free, and what a call takes of it, if it gets any, `give` does not refuse.
fn theorem_what_was_taken_can_be_given_back(order: u8, count: u32)
    requires order <= 8 && 1 <= count <= 1u32 << order,
{
    proof {
        super::geometry::sizes();
        lemma_not_none();
    }
    let tracked (_, mut all) = vstd::resource::map::GhostMapAuth::<int, ()>::new(Map::new(range(0, 512), |page: int| ()));
    let tracked of0 = all.split(pages_of(0, !0u64));
    let tracked of1 = all.split(pages_of(64, !0u64));
    let tracked of2 = all.split(pages_of(128, !0u64));
    let tracked of3 = all.split(pages_of(192, !0u64));
    let tracked of4 = all.split(pages_of(256, !0u64));
    let tracked of5 = all.split(pages_of(320, !0u64));
    let tracked of6 = all.split(pages_of(384, !0u64));
    let tracked of7 = all.split(pages_of(448, !0u64));
    let ghost id = all.id();
    let bitmap = Bitmap([
        AtomicU64::new(0, Ghost((id, 0)), Tracked(of0)), AtomicU64::new(0, Ghost((id, 64)), Tracked(of1)),
        AtomicU64::new(0, Ghost((id, 128)), Tracked(of2)), AtomicU64::new(0, Ghost((id, 192)), Tracked(of3)),
        AtomicU64::new(0, Ghost((id, 256)), Tracked(of4)), AtomicU64::new(0, Ghost((id, 320)), Tracked(of5)),
        AtomicU64::new(0, Ghost((id, 384)), Tracked(of6)), AtomicU64::new(0, Ghost((id, 448)), Tracked(of7)),
    ]);
    assert(bitmap.wf());
    let tracked mut held = all;
    assert(held.dom() =~= Set::empty());
    if let Ok(TakenAt { at, filled: _, undone: _ }) = bitmap.take_any(order, count, Tracked(&mut held)) {
        assert(held.dom() =~= range(at as int, at + count));
        let given = bitmap.give(Pages { at, count }, Tracked(&mut held));
        assert(given is Ok);
        assert(held.dom() =~= Set::empty());
    }
}

proof fn lemma_not_none()
    ensures
        !0u64 == row(0, 64),
        pages_of(0, !0u64) =~= range(0, 64), pages_of(64, !0u64) =~= range(64, 128), pages_of(128, !0u64) =~= range(128, 192),
        pages_of(192, !0u64) =~= range(192, 256), pages_of(256, !0u64) =~= range(256, 320), pages_of(320, !0u64) =~= range(320, 384),
        pages_of(384, !0u64) =~= range(384, 448), pages_of(448, !0u64) =~= range(448, 512),
{
    assert(!0u64 == (!0u64 >> sub(64u32, 64u32)) << 0u32) by (bit_vector);
    lemma_row(0, 0, 64); lemma_row(64, 0, 64); lemma_row(128, 0, 64); lemma_row(192, 0, 64);
    lemma_row(256, 0, 64); lemma_row(320, 0, 64); lemma_row(384, 0, 64); lemma_row(448, 0, 64);
}

/// What `take_any` takes was free in a ghost copy of the property tests' model, and what it does is what `set` does there;
/// if it takes nothing, nothing changes. What all others hold stays as it is meanwhile.
fn theorem_taking_pages_is_what_the_model_does(bitmap: &Bitmap, order: u8, count: u32, Ghost(model): Ghost<Model>,
    Tracked(mine): Tracked<&mut Held>, Tracked(others): Tracked<&mut Held>)
    requires
        bitmap.wf() && old(mine).id() == bitmap.id() && old(others).id() == bitmap.id(),
        order <= 8 && 1 <= count <= 1u32 << order && model.is(old(mine).dom(), old(others).dom()),
{
    match bitmap.take_any(order, count, Tracked(&mut *mine)) {
        Ok(TakenAt { at, filled: _, undone: _ }) => {
            proof {
                mine.disjoint(&*others);
                assert forall|page: int| at <= page < at + count implies mine.dom().contains(page) by { assert(range(at as int, at + count).contains(page)); }
            }
            assert(model.is_all(at as int, at + count, false));
            assert(model.set(at as int, at + count, true).is(mine.dom(), others.dom()));
        }
        Err(_) => {
            assert(model.is(mine.dom(), others.dom()));
        }
    }
}

/// What is given back was allocated in that model, and is free there from then on.
fn theorem_giving_pages_is_what_the_model_does(bitmap: &Bitmap, pages: Pages, Ghost(model): Ghost<Model>,
    Tracked(mine): Tracked<&mut Held>, Tracked(others): Tracked<&mut Held>)
    requires
        bitmap.wf() && old(mine).id() == bitmap.id() && old(others).id() == bitmap.id(),
        pages.count >= 1 && pages.at + pages.count <= 512 && range(pages.at as int, pages.at + pages.count) <= old(mine).dom(),
        model.is(old(mine).dom(), old(others).dom()),
{
    proof {
        mine.disjoint(&*others);
        assert forall|page: int| pages.at <= page < pages.at + pages.count implies mine.dom().contains(page) && !others.dom().contains(page) by {
            assert(range(pages.at as int, pages.at + pages.count).contains(page));
        }
    }
    assert(model.is_all(pages.at as int, pages.at + pages.count, true));
    let given = bitmap.give(pages, Tracked(&mut *mine));
    assert(given is Ok);
    assert(model.set(pages.at as int, pages.at + pages.count, false).is(mine.dom(), others.dom()));
}
