//! Bits of a word and the pages they stand for, without any code: rows and blocks of them, and what changes of a word
//! change of the pages.

use vstd::prelude::*;

use crate::model::{bit, lemma_none, lemma_pages};
use crate::model::pages as pages_of;
use vstd::std_specs::bits::*;

verus! {

broadcast use vstd::set_lib::range_set_properties;

/// Pages `from..to`.
pub open spec fn range(from: int, to: int) -> Set<int> { vstd::set_lib::set_int_range(from, to) }

/// The first page of the word that a page lies in.
pub open spec fn base(page: u32) -> int { 64 * (page as int / 64) }

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

pub proof fn lemma_powers()
    ensures
        1u32 << 0u8 == 1, 1u32 << 1u8 == 2, 1u32 << 2u8 == 4, 1u32 << 3u8 == 8, 1u32 << 4u8 == 16, 1u32 << 5u8 == 32, 1u32 << 6u8 == 64,
        1u32 << 7u8 == 128, 1u32 << 8u8 == 256,
{
    assert(1u32 << 0u8 == 1 && 1u32 << 1u8 == 2 && 1u32 << 2u8 == 4 && 1u32 << 3u8 == 8 && 1u32 << 4u8 == 16 && 1u32 << 5u8 == 32
        && 1u32 << 6u8 == 64 && 1u32 << 7u8 == 128 && 1u32 << 8u8 == 256) by (bit_vector);
}

/// A block of a word is aligned in the bitmap as it is in the word.
pub proof fn lemma_aligned(index: u32, at: u32, order: u8)
    requires index < 8 && at < 64 && order <= 6 && at % (1u32 << order) == 0,
    ensures ((index * 64 + at) as u32) % (1u32 << order) == 0,
{
    assert(index < 8 && at < 64 && order <= 6 && at % (1u32 << order) == 0 ==> add(mul(index, 64), at) % (1u32 << order) == 0) by (bit_vector);
}

/// The bits of a row are its pages.
pub proof fn lemma_row(base: int, at: u32, count: u32)
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

pub proof fn lemma_empty(base: int)
    ensures pages_of(base, 0) =~= Set::empty(),
{
    assert forall|page: int| base <= page < base + 64 implies !#[trigger] bit(0, page - base) by {
        let i = (page - base) as u64;
        assert(i < 64 ==> !((0u64 >> i) & 1 == 1)) by (bit_vector);
    }
}

pub proof fn lemma_subset(word: u64, left: u64, taken: u64)
    requires left & !word == 0 && taken & !word == 0,
    ensures forall|more: u64| (taken | (left & more)) & !word == 0 && #[trigger] (left & more) & !word == 0,
{
    assert forall|more: u64| (taken | (left & more)) & !word == 0 && #[trigger] (left & more) & !word == 0 by {
        assert(left & !word == 0 && taken & !word == 0 ==> (taken | (left & more)) & !word == 0 && (left & more) & !word == 0) by (bit_vector);
    }
}

/// With the lowest of some bits there is one bit more, at most.
pub proof fn lemma_one_more(left: u64, taken: u64)
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
pub proof fn lemma_moved(base: int, bits: u64)
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
pub proof fn lemma_part(base: int, bits: u64)
    ensures forall|was: u64| #![trigger bits & !was] pages_of(base, bits & !was).len() <= pages_of(base, bits).len(),
{
    assert forall|was: u64| #![trigger bits & !was] pages_of(base, bits & !was).len() <= pages_of(base, bits).len() by {
        lemma_pages(base, bits, was);
        vstd::set_lib::lemma_len_subset(pages_of(base, bits & !was), pages_of(base, bits));
    }
}

/// What `order_around` looks at is the block of the next order; where it is not clear, no larger one is.
pub proof fn lemma_around(word: u64, at: u32, around: u8)
    requires at < 64 && around < 6,
    ensures
        2u32 << around >= 1 && 2u32 << around <= 64 && at & !sub(2u32 << around, 1) < 64,
        (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 ==>
            forall|larger: u8| around < larger <= 6 ==> word & #[trigger] around_of(at, larger) != 0,
        word == 0 ==> (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) == 0,
{
    assert(word == 0 ==> (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) == 0) by (bit_vector);
    assert(at < 64 && around < 6 ==> 2u32 << around >= 1 && 2u32 << around <= 64 && at & !sub(2u32 << around, 1) < 64) by (bit_vector);
    assert forall|larger: u8| around < larger <= 6 && (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 implies
        word & #[trigger] around_of(at, larger) != 0 by {
        assert(at < 64 && around < larger && larger <= 6 && (word >> (at & !sub(2u32 << around, 1))) << sub(64u32, 2u32 << around) != 0 ==>
            word & ((!0u64 >> sub(64u32, 1u32 << larger)) << (at & !sub(1u32 << larger, 1))) != 0) by (bit_vector);
    }
}

/// Where none of the bits is missing all are there.
pub proof fn lemma_all(bits: u64)
    ensures forall|word: u64| #![trigger word & bits] bits & !word == 0 ==> word & bits == bits,
{
    assert forall|word: u64| #![trigger word & bits] bits & !word == 0 implies word & bits == bits by {
        assert(bits & !word == 0 ==> word & bits == bits) by (bit_vector);
    }
}

pub proof fn lemma_not_not(bits: u64)
    ensures !!bits == bits,
{
    assert(!!bits == bits) by (bit_vector);
}

/// Setting bits takes those that were clear.
pub proof fn lemma_or(base: int, bits: u64)
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
pub proof fn lemma_and(base: int, held: Set<int>, bits: u64)
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
pub proof fn lemma_store(base: int, held: Set<int>, bits: u64)
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
pub proof fn lemma_others()
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
pub proof fn lemma_whole(base: int)
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
pub proof fn lemma_held(base: int, at: u32, count: u32, held: Set<int>)
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
pub proof fn lemma_is_set(word: u64, at: u32, held: Set<int>)
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
pub proof fn lemma_owner(base: int, bits: u64, held: Set<int>)
    requires pages_of(base, bits) <= held,
    ensures forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) ==> was & bits == bits,
{
    lemma_all(bits);
    assert forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) implies was & bits == bits by {
        lemma_none(base, bits, was);
    }
}

pub proof fn lemma_taking(base: int, bits: u64)
    ensures forall|word: u64| #![trigger taking(bits, word)] taking(bits, word) is Some ==>
        pages_of(base, word & !taking(bits, word)->0) =~= Set::empty() && pages_of(base, taking(bits, word)->0 & !word) == pages_of(base, bits),
{
    lemma_empty(base);
    assert forall|word: u64| #![trigger taking(bits, word)] taking(bits, word) is Some implies
        pages_of(base, word & !taking(bits, word)->0) =~= Set::empty() && pages_of(base, taking(bits, word)->0 & !word) == pages_of(base, bits) by {
        assert(word & bits == 0 ==> word & !(word | bits) == 0 && (word | bits) & !word == bits) by (bit_vector);
    }
}

pub proof fn lemma_giving(base: int, bits: u64)
    ensures forall|word: u64| #![trigger giving(bits, word)] giving(bits, word) is Some ==>
        pages_of(base, word & !giving(bits, word)->0) == pages_of(base, bits) && pages_of(base, giving(bits, word)->0 & !word) =~= Set::empty(),
{
    lemma_empty(base);
    assert forall|word: u64| #![trigger giving(bits, word)] giving(bits, word) is Some implies
        pages_of(base, word & !giving(bits, word)->0) == pages_of(base, bits) && pages_of(base, giving(bits, word)->0 & !word) =~= Set::empty() by {
        assert(word & bits == bits ==> word & !(word & !bits) == bits && (word & !bits) & !word == 0) by (bit_vector);
    }
}

pub proof fn lemma_single(word: u64)
    ensures forall|at: u32| at < 64 && #[trigger] bit(!word, at as int) ==> word & row(at, 1) == 0,
{
    assert forall|at: u32| at < 64 && #[trigger] bit(!word, at as int) implies word & row(at, 1) == 0 by {
        let i = at as u64;
        assert(i < 64 && at == i as u32 && (!word >> i) & 1 == 1 ==> word & ((!0u64 >> sub(64u32, 1u32)) << at) == 0) by (bit_vector);
    }
}

/// Two clear rows side by side are one.
pub proof fn lemma_doubled(word: u64, clear: u64, block: u32)
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
pub proof fn lemma_starts(clear: u64, order: u8)
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
pub proof fn lemma_lowest(base: int, seen: u64)
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
pub proof fn lemma_block(base: int, seen: u64, at: u32, block: u32, count: u32)
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

pub proof fn lemma_not_none()
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

/// A row of `block` clear bits that starts at a multiple of `block`.
pub open spec fn is_run(word: u64, at: u32, block: u32) -> bool {
    at < 64 && at + block <= 64 && at % block == 0 && word & row(at, block) == 0
}

/// A block of 2^`order` clear bits.
pub open spec fn is_block(word: u64, at: u32, order: u8) -> bool { is_run(word, at, 1u32 << order) }

pub open spec fn has_block_of(word: u64, order: u8) -> bool { exists|at: u32| is_block(word, at, order) }

/// Whether no bit of a row is set, bit by bit.
pub proof fn lemma_each(at: u32, count: u32, word: u64)
    requires 1 <= count <= 64 && at + count <= 64,
    ensures
        (word & row(at, count) == 0) == (forall|i: int| at <= i < at + count ==> !#[trigger] bit(word, i)),
        (row(at, count) & !word == 0) == (forall|i: int| at <= i < at + count ==> #[trigger] bit(word, i)),
{
    lemma_each_set(at, count, word);
    lemma_each_set(at, count, !word);
    let bits = row(at, count);
    assert(word & bits == bits & !!word) by (bit_vector);
    assert forall|i: int| at <= i < at + count implies bit(!word, i) == !#[trigger] bit(word, i) by {
        let j = i as u64;
        assert(j < 64 ==> (((!word >> j) & 1 == 1) == !((word >> j) & 1 == 1))) by (bit_vector);
    }
    if word & bits == 0 {
        assert forall|i: int| at <= i < at + count implies !#[trigger] bit(word, i) by { assert(bit(!word, i)); }
    }
    if forall|i: int| at <= i < at + count ==> !#[trigger] bit(word, i) {
        assert forall|i: int| at <= i < at + count implies #[trigger] bit(!word, i) by { assert(!bit(word, i)); }
    }
}

proof fn lemma_each_set(at: u32, count: u32, word: u64)
    requires 1 <= count <= 64 && at + count <= 64,
    ensures (row(at, count) & !word == 0) == (forall|i: int| at <= i < at + count ==> #[trigger] bit(word, i)),
{
    let missing = row(at, count) & !word;
    if missing == 0 {
        assert forall|i: int| at <= i < at + count implies #[trigger] bit(word, i) by {
            let j = i as u64;
            assert(1 <= count && count <= 64 && add(at, count) <= 64 && at < 64 && at as u64 <= j && j < add(at, count) as u64
                && ((!0u64 >> sub(64u32, count)) << at) & !word == 0 ==> (word >> j) & 1 == 1) by (bit_vector);
        }
    } else {
        axiom_u64_trailing_zeros(missing);
        let t = u64_trailing_zeros(missing);
        let j = t as u64;
        assert(1 <= count && count <= 64 && add(at, count) <= 64 && at < 64 && j < 64
            && ((((!0u64 >> sub(64u32, count)) << at) & !word) >> j) & 1 == 1 ==>
            at as u64 <= j && j < add(at, count) as u64 && !((word >> j) & 1 == 1)) by (bit_vector);
        assert(!bit(word, j as int));
    }
}

/// A word of which each bit is set, or none.
pub proof fn lemma_full_or_empty(word: u64)
    ensures
        (word == 0) == (forall|i: int| 0 <= i < 64 ==> !#[trigger] bit(word, i)),
        (word == !0u64) == (forall|i: int| 0 <= i < 64 ==> #[trigger] bit(word, i)),
{
    lemma_each(0, 64, word);
    assert(word & ((!0u64 >> sub(64u32, 64u32)) << 0u32) == word) by (bit_vector);
    assert((((!0u64 >> sub(64u32, 64u32)) << 0u32) & !word == 0) == (word == !0u64)) by (bit_vector);
}

/// Half of a run is one.
proof fn lemma_half(word: u64, at: u32, block: u32)
    requires block == 1 || block == 2 || block == 4 || block == 8 || block == 16 || block == 32, is_run(word, at, (2 * block) as u32),
    ensures is_run(word, at, block) && is_run(word, (at + block) as u32, block),
{
    let next = (at + block) as u32;
    if block == 1 { assert(at % 1 == 0 && next % 1 == 0); }
    else if block == 2 { assert(at % 4 == 0); assert(at % 2 == 0 && next % 2 == 0); }
    else if block == 4 { assert(at % 8 == 0); assert(at % 4 == 0 && next % 4 == 0); }
    else if block == 8 { assert(at % 16 == 0); assert(at % 8 == 0 && next % 8 == 0); }
    else if block == 16 { assert(at % 32 == 0); assert(at % 16 == 0 && next % 16 == 0); }
    else { assert(at % 64 == 0); assert(at % 32 == 0 && next % 32 == 0); }
    assert(at < 64 && 1 <= block && block <= 32 && next == add(at, block) && add(at, mul(2, block)) <= 64
        && word & ((!0u64 >> sub(64u32, mul(2, block))) << at) == 0 ==>
        word & ((!0u64 >> sub(64u32, block)) << at) == 0 && word & ((!0u64 >> sub(64u32, block)) << next) == 0) by (bit_vector);
}

/// Of a larger block a smaller one is part.
pub proof fn lemma_smaller(word: u64, at: u32, larger: u8, order: u8)
    requires order <= larger <= 6, is_block(word, at, larger),
    ensures is_block(word, at, order),
    decreases larger - order,
{
    lemma_powers();
    if order < larger {
        let block = 1u32 << ((larger - 1) as u8);
        assert(2 * block == 1u32 << larger);
        lemma_half(word, at, block);
        lemma_smaller(word, at, (larger - 1) as u8, order);
    }
}

/// Where there is no block there is no larger one.
pub proof fn lemma_none_larger(word: u64, order: u8)
    requires order <= 6 && !has_block_of(word, order),
    ensures forall|larger: u8| order <= larger <= 6 ==> !#[trigger] has_block_of(word, larger),
{
    assert forall|larger: u8| order <= larger <= 6 implies !#[trigger] has_block_of(word, larger) by {
        if has_block_of(word, larger) {
            let at = choose|at: u32| is_block(word, at, larger);
            lemma_smaller(word, at, larger, order);
        }
    }
}

/// Where every run begins at a bit that is set, every run that is twice as long begins at one whose neighbour is.
pub proof fn lemma_all_doubled(word: u64, clear: u64, block: u32)
    requires
        block == 1 || block == 2 || block == 4 || block == 8 || block == 16 || block == 32,
        forall|at: u32| #[trigger] is_run(word, at, block) ==> bit(clear, at as int),
    ensures forall|at: u32| #[trigger] is_run(word, at, (2 * block) as u32) ==> bit(clear & (clear >> block), at as int),
{
    assert forall|at: u32| #[trigger] is_run(word, at, (2 * block) as u32) implies bit(clear & (clear >> block), at as int) by {
        lemma_half(word, at, block);
        let next = add(at, block);
        assert(bit(clear, at as int) && bit(clear, next as int));
        let i = at as u64;
        let j = next as u64;
        assert(i < 64 && j < 64 && 1 <= block && block <= 32 && j == add(i, block as u64) && (clear >> i) & 1 == 1 && (clear >> j) & 1 == 1 ==>
            ((clear & (clear >> block)) >> i) & 1 == 1) by (bit_vector);
    }
}

/// Every clear bit is a run.
pub proof fn lemma_all_single(word: u64)
    ensures forall|at: u32| #[trigger] is_run(word, at, 1) ==> bit(!word, at as int),
{
    assert forall|at: u32| #[trigger] is_run(word, at, 1) implies bit(!word, at as int) by {
        let i = at as u64;
        assert(i < 64 && at == i as u32 && word & ((!0u64 >> sub(64u32, 1u32)) << at) == 0 ==> (!word >> i) & 1 == 1) by (bit_vector);
    }
}

/// A block starts where one may.
pub proof fn lemma_all_starts(word: u64, clear: u64, order: u8)
    requires
        order <= 6,
        forall|at: u32| #[trigger] is_block(word, at, order) ==> bit(clear, at as int),
    ensures
        forall|at: u32| #[trigger] is_block(word, at, order) ==> bit(clear & starts(order), at as int),
        clear & starts(order) == 0 ==> !has_block_of(word, order),
{
    lemma_powers();
    assert forall|at: u32| #[trigger] is_block(word, at, order) implies bit(clear & starts(order), at as int) by {
        let i = at as u64;
        let s = starts(order);
        assert(i < 64 && at == i as u32 && at % 2 == 0 ==> (0x5555_5555_5555_5555u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && at % 4 == 0 ==> (0x1111_1111_1111_1111u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && at % 8 == 0 ==> (0x0101_0101_0101_0101u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && at % 16 == 0 ==> (0x0001_0001_0001_0001u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && at % 32 == 0 ==> (0x0000_0001_0000_0001u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 && at == i as u32 && at % 64 == 0 ==> (1u64 >> i) & 1 == 1) by (bit_vector);
        assert(i < 64 ==> (!0u64 >> i) & 1 == 1) by (bit_vector);
        assert((clear >> i) & 1 == 1 && (s >> i) & 1 == 1 ==> ((clear & s) >> i) & 1 == 1) by (bit_vector);
        assert((s >> i) & 1 == 1);
    }
    if clear & starts(order) == 0 {
        lemma_full_or_empty(0);
        assert forall|at: u32| !#[trigger] is_block(word, at, order) by {
            if is_block(word, at, order) { assert(bit(clear & starts(order), at as int) && !bit(0, at as int)); }
        }
    }
}

/// A word in which all bits are clear, and all others.
pub proof fn lemma_ends(word: u64)
    ensures
        has_block_of(word, 0) == (word != !0u64),
        has_block_of(word, 6) == (word == 0),
{
    lemma_powers();
    lemma_full_or_empty(word);
    assert(word & ((!0u64 >> sub(64u32, 64u32)) << 0u32) == word) by (bit_vector);
    if word == 0 { assert(is_block(word, 0, 6)); }
    if word != !0u64 {
        let i = choose|i: int| 0 <= i < 64 && !#[trigger] bit(word, i);
        lemma_each(i as u32, 1, word);
        assert(is_block(word, i as u32, 0));
    } else {
        assert forall|at: u32| !#[trigger] is_block(word, at, 0) by {
            if is_block(word, at, 0) { lemma_each(at, 1, word); assert(bit(word, at as int)); }
        }
    }
    assert forall|at: u32| #[trigger] is_block(word, at, 6) implies at == 0 by {}
}

/// What holds a page and is clear is a block.
pub proof fn lemma_around_is_block(word: u64)
    ensures
        forall|page: u32, order: u8| page < 64 && order <= 6 && word & #[trigger] around_of(page, order) == 0 ==> has_block_of(word, order),
        forall|order: u8| order <= 6 && #[trigger] has_block_of(word, order) ==> has_block_of(word, 0),
{
    lemma_powers();
    assert forall|page: u32, order: u8| page < 64 && order <= 6 && word & #[trigger] around_of(page, order) == 0 implies has_block_of(word, order) by {
        let at = page & !sub(1u32 << order, 1);
        assert(page < 64 && order <= 6 && at == page & !sub(1u32 << order, 1) ==> at < 64 && add(at, 1u32 << order) <= 64 && at % (1u32 << order) == 0) by (bit_vector);
        assert(is_block(word, at, order));
    }
    assert forall|order: u8| order <= 6 && #[trigger] has_block_of(word, order) implies has_block_of(word, 0) by {
        let at = choose|at: u32| is_block(word, at, order);
        lemma_smaller(word, at, order, 0);
    }
}

/// A power of two, and what is part of the same larger blocks as the block of so many.
pub proof fn lemma_power_of_two(at: u32, count: u32)
    requires 1 <= count <= 64 && at % 64 + count <= 64 && count & sub(count, 1) == 0 && at % count == 0,
    ensures
        u32_trailing_zeros(count) <= 6,
        forall|page: u32, larger: u8| at <= page < at + count && u32_trailing_zeros(count) <= larger <= 6 ==>
            #[trigger] around_of(page % 64, larger) == around_of(at % 64, larger),
{
    axiom_u32_trailing_zeros(count);
    let k = u32_trailing_zeros(count);
    assert(count != 0 && count <= 64 && count & sub(count, 1) == 0 && k < 32 && (count >> k) & 1 == 1 ==> k <= 6 && count == 1u32 << k) by (bit_vector);
    assert forall|page: u32, larger: u8| at <= page < at + count && k <= larger <= 6 implies
        #[trigger] around_of(page % 64, larger) == around_of(at % 64, larger) by {
        assert(page % 64 == at % 64 + (page - at));
        let (from, to) = (at % 64, page % 64);
        let l = larger as u32;
        assert(at % count == 0 && count == 1u32 << k && k <= 6 ==> (at % 64) % count == 0) by (bit_vector);
        assert(from < 64 && from % count == 0 && count == 1u32 << k && k <= l && l <= 6 && l == larger as u32 && from <= to && to < add(from, count) && to < 64 ==>
            to & !sub(1u32 << larger, 1) == from & !sub(1u32 << larger, 1)) by (bit_vector);
    }
}

/// A call that has all pages of a word sees it full.
pub proof fn lemma_all_held(base: int, held: Set<int>)
    ensures range(base, base + 64) <= held ==> forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) ==> was == !0u64,
{
    if range(base, base + 64) <= held {
        assert(!0u64 == (!0u64 >> sub(64u32, 64u32)) << 0u32) by (bit_vector);
        lemma_row(base, 0, 64);
        let all = !0u64;
        assert forall|was: u64| #![trigger pages_of(base, !was)] held.disjoint(pages_of(base, !was)) implies was == !0u64 by {
            lemma_none(base, all, was);
            assert(all == !0u64 && all & !was == 0 ==> was == !0u64) by (bit_vector);
        }
    }
}

/// A call that sees it empty has none.
pub proof fn lemma_none_held(base: int, held: Set<int>)
    ensures held.disjoint(pages_of(base, !0u64)) ==> held.disjoint(range(base, base + 64)),
{
    assert(!0u64 == (!0u64 >> sub(64u32, 64u32)) << 0u32) by (bit_vector);
    lemma_row(base, 0, 64);
}

pub proof fn lemma_at_most_64(word: u64)
    ensures pages_of(0, word).len() <= 64,
{
    vstd::set_lib::lemma_int_range(0, 64);
    vstd::set_lib::lemma_len_subset(pages_of(0, word), range(0, 64));
}

} // verus!
