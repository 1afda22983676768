//@ file engine/frames/src/frames/word/bitmap.rs
// The pages of one huge frame, with all CPUs at once: what a call takes was no one's, and is its own.

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
        out.1.wf(),
        final(held).id() == self.id(),
        final(held).dom() =~= old(held).dom().difference(pages_of(64 * index, bits)),
//@ fn Bitmap::give_some, before: let old
    proof { super::geometry::sizes(); lemma_not_not(bits); lemma_all(bits); lemma_and(64 * index, held.dom(), !bits); }

//@ fn mask, shared
//@ fn mask
    requires 1 <= count <= 64 && at + count <= 64,
    ensures out == row(at, count),
//@ fn first_word, shared
//@ fn first_word
    requires at < end && end <= 512,
    ensures
        at < out.1 <= end,
        at % 64 + (out.1 - at) <= 64,
        out.0 == row(at % 64, (out.1 - at) as u32),
        out.1 == end || out.1 % 64 == 0,
        out.1 == end || out.1 == base(at) + 64,
//@ fn find_block, shared
//@ fn find_block
    requires order <= 6,
    ensures match out {
            Some(at) => is_block(word, at, order),
            None => !has_block_of(word, order),
        },
//@ fn find_block, before: for _
    proof { lemma_single(word); lemma_all_single(word); lemma_powers(); }
//@ fn find_block, turns: for _
        invariant
            order <= 6,
            0 <= turns.index() <= order,
            power(turns.index(), block),
            forall|at: u32| at < 64 && #[trigger] bit(clear, at as int) ==> at + block <= 64 && word & row(at, block) == 0,
            forall|at: u32| #[trigger] is_run(word, at, block) ==> bit(clear, at as int),
//@ fn find_block, before: clear &= clear
        proof { lemma_powers(); lemma_doubled(word, clear, block); lemma_all_doubled(word, clear, block); }
//@ fn find_block, before: clear &= STARTS
    proof { lemma_powers(); lemma_starts(clear, order); lemma_all_starts(word, clear, order); }
//@ fn find_block, before: Some(
        proof { axiom_u64_trailing_zeros(clear); assert(bit(clear, u64_trailing_zeros(clear) as int)); }
//@ fn order_around
    requires at < 64 && order <= 8,
    ensures
        order <= out <= 8,
        // Of the blocks of a word that hold the page no larger one is clear.
        forall|larger: u8| out < larger <= 6 ==> word & #[trigger] around_of(at, larger) != 0,
        // A clear word may be part of any.
        word == 0 ==> out == 8,
//@ fn order_around, before: let mut
    proof { super::geometry::sizes(); }
//@ fn order_around, loop: while
        invariant order <= around <= 8 && at < 64 && word != 0,
        decreases 6 - around,
//@ fn order_around, before: let pages
        proof { lemma_around(word, at, around); }
//@ fn max_order_of, shared
//@ fn max_order_of
    ensures match out {
            // Exactly that of the largest, or that of any larger.
            Some(order) => if word == 0 { order == 8 } else {
                order < 6 && has_block_of(word, order) && forall|larger: u8| order < larger <= 6 ==> !#[trigger] has_block_of(word, larger)
            },
            None => word == !0u64,
        },
//@ fn max_order_of, before: if word
    proof { super::geometry::sizes(); lemma_powers(); lemma_ends(word); lemma_single(word); lemma_all_single(word); }
//@ fn max_order_of, loop: while
        invariant_except_break
            order == 0 ==> largest is None,
            order > 0 ==> largest == Some((order - 1) as u8) && has_block_of(word, (order - 1) as u8),
            forall|at: u32| #[trigger] is_block(word, at, order) ==> bit(clear, at as int),
        invariant
            order <= 6 && !has_block_of(word, 6),
            forall|at: u32| at < 64 && #[trigger] bit(clear, at as int) ==> at + (1u32 << order) <= 64 && word & row(at, 1u32 << order) == 0,
        ensures
            match largest {
                Some(found) => found < 6 && has_block_of(word, found) && forall|larger: u8| found < larger <= 6 ==> !#[trigger] has_block_of(word, larger),
                None => !has_block_of(word, 0),
            },
        decreases 6 - order,
//@ fn max_order_of, before: clear &= STARTS
        proof { lemma_powers(); lemma_starts(clear, order); lemma_all_starts(word, clear, order); }
//@ fn max_order_of, before: break
            proof { lemma_none_larger(word, order); }
//@ fn max_order_of, before: largest = Some
        proof {
            lemma_full_or_empty(clear);
            let at = choose|i: int| 0 <= i < 64 && #[trigger] bit(clear, i);
            assert(bit(clear, at as u32 as int));
            assert(is_block(word, at as u32, order));
        }
//@ fn max_order_of, before: clear &= clear
        proof {
            lemma_powers();
            let block = 1u32 << order;
            lemma_doubled(word, clear, block);
            assert forall|at: u32| #[trigger] is_run(word, at, block) implies bit(clear, at as int) by { assert(is_block(word, at, order)); }
            lemma_all_doubled(word, clear, block);
            assert(2 * block == 1u32 << ((order + 1) as u8));
        }
//@ fn max_order_of, after: order += 1
        proof {
            lemma_powers();
            assert forall|at: u32| #[trigger] is_block(word, at, order) implies bit(clear, at as int) by {
                let block = 1u32 << ((order - 1) as u8);
                assert(2 * block == 1u32 << order);
                assert(is_run(word, at, (2 * block) as u32));
            }
        }
//@ fn Given::max_order_from
    requires self.wf() && least <= 8,
    ensures
        out <= 8,
        // Of the blocks that they are part of no larger one is clear.
        forall|page: u32, larger: u8| self.are(page) && out < larger <= 6 ==> self.last() & #[trigger] around_of(page % 64, larger) != 0,
        self.last() == 0 ==> out == 8,
        self.row() is Some && self.row()->0.at % 64 + self.row()->0.count > 64 ==> out == 8,
//@ fn Given::max_order_from, before: match self.row
    proof { super::geometry::sizes(); lemma_around_is_block(self.word); lemma_ends(self.word); }
//@ fn Given::max_order_from, before: order_around
                proof { lemma_power_of_two(at, count); }
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
        out->Ok_0.row() == Some(pages),
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
        out->Ok_0.row() == Some(pages),
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

//@ fn Bitmap::is_full, holds
//@ fn Bitmap::is_full
    requires self.wf() && old(held).id() == self.id(),
    ensures
        *final(held) == *old(held),
        // If the call has all pages.
        range(0, 512) <= old(held).dom() ==> out,
//@ fn Bitmap::is_full, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::is_full, loop: for index
        invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
//@ fn Bitmap::is_full, before: if recheck
            proof { lemma_all_held(64 * index, held.dom()); }
//@ fn Bitmap::is_full, passes: if recheck
//@ fn Bitmap::is_empty, holds
//@ fn Bitmap::is_empty
    requires self.wf() && old(held).id() == self.id(),
    ensures
        *final(held) == *old(held),
        // Only if the call has none.
        out ==> old(held).dom().disjoint(range(0, 512)),
//@ fn Bitmap::is_empty, before: for index
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::is_empty, loop: for index
        invariant
            self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
            before.dom().disjoint(range(0, 64 * index)),
//@ fn Bitmap::is_empty, before: if recheck
            proof { lemma_none_held(64 * index, held.dom()); }
//@ fn Bitmap::is_empty, passes: if recheck
//@ fn Bitmap::max_order, holds
//@ fn Bitmap::max_order
    requires self.wf() && old(held).id() == self.id(),
    ensures *final(held) == *old(held) && (out is Some ==> out->0 <= 8),
//@ fn Bitmap::max_order, before: let mut beyond
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::max_order, loop: for index
        invariant
            self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8,
            beyond <= 9,
//@ fn Bitmap::max_order, passes: let word
//@ fn Bitmap::max_order, passes: while order
//@ fn Bitmap::max_order, loop: while order
            invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && order <= 8 && 6 <= order,
            decreases order,
//@ fn Bitmap::has_block, holds
//@ fn Bitmap::has_block
    requires self.wf() && old(held).id() == self.id() && order <= 8,
    ensures *final(held) == *old(held),
//@ fn Bitmap::has_block, before: if order
    let ghost before = *held;
    proof { super::geometry::sizes(); lemma_powers(); }
//@ fn Bitmap::has_block, loop: while at
            invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && HUGE_FRAMES == 512
                && (count == 128 || count == 256) && at <= 512 && at % count == 0,
            decreases 512 - at,
//@ fn Bitmap::has_block, passes: if self
//@ fn Bitmap::has_block, loop: for index
        invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8 && order <= 6,
//@ fn Bitmap::has_block, looks: let word
//@ fn Bitmap::count_free, holds
//@ fn Bitmap::count_free
    requires self.wf() && old(held).id() == self.id(),
    ensures *final(held) == *old(held) && out <= 512,
//@ fn Bitmap::count_free, before: let mut free
    let ghost before = *held;
    proof { super::geometry::sizes(); }
//@ fn Bitmap::count_free, loop: for index
        invariant self.wf() && before.id() == self.id() && *held == before && before == *old(held) && BITMAP_WORDS == 8 && free <= 64 * index,
//@ fn Bitmap::count_free, before: free +=
            proof { lemma_at_most_64(!word); }
//@ fn Bitmap::count_free, passes: let word

//@ items
use crate::bits::*;
use crate::model::{Held, bit, lemma_none, lemma_pages};
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
    /// Those in a row, if they are.
    pub(crate) closed spec fn row(self) -> Option<Pages> { self.row }
    pub(crate) open spec fn wf(self) -> bool { self.row() is Some ==> self.row()->0.count >= 1 && self.row()->0.at + self.row()->0.count <= 512 }
    /// Whether they may be among those that were given back.
    pub(crate) open spec fn are(self, page: u32) -> bool { self.row() is Some ==> self.row()->0.at <= page < self.row()->0.at + self.row()->0.count }
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
