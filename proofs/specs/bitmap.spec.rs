//@ file engine/src/frames/word/bitmap.rs
// The pages of one huge frame, with all CPUs at once: what a call takes was no one's, and is its own.

//@ external impl Given
//@ external fn words
//@ external fn order_around
//@ external fn max_order_of
//@ external fn Bitmap::take_all
//@ external fn Bitmap::write
//@ external fn Bitmap::set
//@ external fn Bitmap::is_full
//@ external fn Bitmap::is_empty
//@ external fn Bitmap::max_order
//@ external fn Bitmap::has_block
//@ external fn Bitmap::count_free

//@ const STARTS
    ensures forall|order: u8| order <= 6 ==> #[trigger] STARTS[order as int] == starts(order),

//@ fn lowest
    ensures out & !word == 0,
//@ fn lowest, before: if word
    proof {
        assert(word & !word == 0) by (bit_vector);
        assert(0u64 & !word == 0) by (bit_vector);
    }
//@ fn lowest, loop: for _
        invariant left & !word == 0 && taken & !word == 0,
//@ fn lowest, before: taken |= left
        proof { lemma_subset(word, left, taken); }
//@ fn Bitmap::take_some, holds
//@ fn Bitmap::take_some, passes: let old
//@ fn Bitmap::take_some
    requires self.wf() && old(held).id() == self.id() && index < 8,
    ensures
        final(held).id() == self.id(),
        old(held).dom().disjoint(pages_of(64 * index, out.0)),
        final(held).dom() =~= old(held).dom().union(pages_of(64 * index, out.0)),
//@ fn Bitmap::take_some, before: let word
    proof { super::geometry::sizes(); lemma_empty(64 * index); }
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
    proof { super::geometry::sizes(); lemma_not_not(bits); lemma_all(bits); }

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
//@ fn Bitmap::word
    requires self.wf() && page < 512,
    ensures *out == self.words()[page as int / 64], out.wf() && out.id() == self.id() && out.base() == base(page),
//@ fn Bitmap::word, before: &self.0
    proof { super::geometry::sizes(); }
//@ fn Bitmap::word_at
    requires self.wf() && at < 512,
//@ fn Bitmap::is_set
    requires self.wf() && at < 512,
//@ fn Bitmap::all_set
    requires self.wf() && pages.at + pages.count <= 512,
//@ fn Bitmap::all_set, loop: while
        invariant self.wf() && end <= 512 && at <= end,
        decreases end - at,
//@ fn Bitmap::is_any_set
    requires self.wf() && pages.at + pages.count <= 512,
//@ fn Bitmap::is_any_set, loop: while
        invariant self.wf() && end <= 512 && at <= end,
        decreases end - at,

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
//@ fn Bitmap::take_at, after: let bits
    proof { lemma_row(base(at), at % 64, count); lemma_taking(base(at), bits); }
//@ fn Bitmap::take_at, closure: let taken
            ensures out == taking(bits, word),
//@ fn Bitmap::take_at, passes: });

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
//@ fn Bitmap::take_words, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); lemma_taking(base(at), bits); }
//@ fn Bitmap::take_words, before: at = next
            proof { assert(range(pages.at as int, next as int) =~= range(pages.at as int, at as int).union(range(at as int, next as int))); }
//@ fn Bitmap::take_words, closure: let taken
                ensures out == taking(bits, word),
//@ fn Bitmap::take_words, passes: });
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
            proof { lemma_row(base(at), at % 64, (next - at) as u32); lemma_not_not(bits); }
//@ fn Bitmap::untake, passes: self.word

//@ fn Bitmap::give, holds
//@ fn Bitmap::give
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
        range(pages.at as int, pages.at + pages.count) <= old(held).dom(),
    ensures match out {
            Ok(_) => gave(old(held), final(held), pages.at as int, pages.count as int),
            Err(NotSet { given }) => gave(old(held), final(held), pages.at as int, given as int),
        },
//@ fn Bitmap::give, passes: return self
//@ fn Bitmap::give, after: let bits
    proof { lemma_row(base(at), at % 64, count); lemma_giving(base(at), bits); }
//@ fn Bitmap::give, closure: let given
            ensures out == giving(bits, word),
//@ fn Bitmap::give, passes: });

//@ fn Bitmap::give_words, holds
//@ fn Bitmap::give_words
    requires self.wf() && old(held).id() == self.id() && pages.count >= 1 && pages.at + pages.count <= 512,
        range(pages.at as int, pages.at + pages.count) <= old(held).dom(),
    ensures match out {
            Ok(_) => gave(old(held), final(held), pages.at as int, pages.count as int),
            Err(NotSet { given }) => gave(old(held), final(held), pages.at as int, given as int),
        },
//@ fn Bitmap::give_words, before: let end
    let ghost before = *held;
//@ fn Bitmap::give_words, loop: while
        invariant
            self.wf() && before.id() == self.id() && held.id() == self.id() && before == *old(held),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end,
            range(pages.at as int, end as int) <= before.dom(),
            held.dom() =~= before.dom().difference(range(pages.at as int, at as int)),
        decreases end - at,
//@ fn Bitmap::give_words, after: let (bits
            proof { lemma_row(base(at), at % 64, (next - at) as u32); lemma_giving(base(at), bits); }
//@ fn Bitmap::give_words, closure: let cleared
                ensures out == giving(bits, word),
//@ fn Bitmap::give_words, passes: });

//@ items
use crate::model::{Held, bit, lemma_pages};
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

/// The call has what it had.
pub open spec fn same(before: &Held, after: &Held) -> bool {
    after.id() == before.id() && after.dom() =~= before.dom()
}

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

/// Two calls never hold the same page: whatever two hold of one bitmap, they share none.
proof fn theorem_no_page_is_held_twice(tracked one: &mut Held, tracked other: &Held)
    requires old(one).id() == other.id(),
    ensures final(one).dom() == old(one).dom(), old(one).dom().disjoint(other.dom()),
{
    one.disjoint(other);
}

/// There is such a bitmap: all its pages are free, a call takes some, and can give back what it took.
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
    let bitmap = Bitmap([
        AtomicU64::new(0, Ghost(0), Tracked(of0)), AtomicU64::new(0, Ghost(64), Tracked(of1)),
        AtomicU64::new(0, Ghost(128), Tracked(of2)), AtomicU64::new(0, Ghost(192), Tracked(of3)),
        AtomicU64::new(0, Ghost(256), Tracked(of4)), AtomicU64::new(0, Ghost(320), Tracked(of5)),
        AtomicU64::new(0, Ghost(384), Tracked(of6)), AtomicU64::new(0, Ghost(448), Tracked(of7)),
    ]);
    assert(bitmap.wf());
    let tracked mut held = all;
    assert(held.dom() =~= Set::empty());
    if let Ok(TakenAt { at, filled: _, undone: _ }) = bitmap.take_any(order, count, Tracked(&mut held)) {
        assert(held.dom() =~= range(at as int, at + count));
        if let Ok(_) = bitmap.give(Pages { at, count }, Tracked(&mut held)) {
            assert(held.dom() =~= Set::empty());
        }
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
