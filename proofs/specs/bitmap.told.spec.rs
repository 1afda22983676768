//@ file engine/src/frames/word/bitmap.rs
//@ again bitmap_told
// What a call is told that gives back pages, held or not, whatever other CPUs do to the words: see proofs/told.rs.

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
        out.1 == end || out.1 == base(at) + 64,
//@ fn Given::is_word_empty
    ensures out == (self.last() == 0),

//@ fn Bitmap::word
    requires self.wf() && page < 512,
    ensures *out == self.words()[page as int / 64], out.wf() && out.place() == (base(page), self.never(page)),
//@ fn Bitmap::word, before: &self.0
    proof { super::geometry::sizes(); }
//@ fn Bitmap::word_at, holds
//@ fn Bitmap::word_at
    requires self.wf() && at < 512,
    ensures *final(held) == *old(held) && out & self.never(at) == 0,
//@ fn Bitmap::word_at, looks: self.word
//@ fn Bitmap::is_set, holds
//@ fn Bitmap::is_set
    requires self.wf() && at < 512,
    ensures *final(held) == *old(held), self.stays_free(at) ==> !out,
//@ fn Bitmap::is_set, passes: let word
//@ fn Bitmap::is_set, before: word >> (
        proof { lemma_is_clear(word, self.never(at), at); }
//@ fn Bitmap::all_set, holds
//@ fn Bitmap::all_set
    requires self.wf() && pages.at + pages.count <= 512,
    ensures *final(held) == *old(held), self.has_free(pages) ==> !out,
//@ fn Bitmap::all_set, passes: self.all_are
//@ fn Bitmap::all_are, holds
//@ fn Bitmap::all_are
    requires self.wf() && pages.at + pages.count <= 512,
    ensures *final(held) == *old(held), allocated && self.has_free(pages) ==> !out,
//@ fn Bitmap::all_are, before: let end
    let ghost before = *held;
//@ fn Bitmap::all_are, loop: while
        invariant
            self.wf() && end == pages.at + pages.count && end <= 512 && pages.at <= at <= end && *held == before && before == *old(held),
            allocated ==> forall|page: u32| pages.at <= page < at ==> !#[trigger] self.stays_free(page),
        decreases end - at,
//@ fn Bitmap::all_are, passes: if self
//@ fn Bitmap::all_are, before: if self
            proof { self.lemma_seen(at, (next - at) as u32); }

//@ fn Bitmap::give_bits, holds
//@ fn Bitmap::give_bits
    requires self.wf() && at < 512,
    ensures match out {
            // In the one step it did all were set; it cleared them, and no other bit.
            Some(new) => gave(old(held), final(held), base(at), bits) && new == final(held).done().last().2 && bits & self.never(at) == 0,
            None => *final(held) == *old(held),
        },
//@ fn Bitmap::give_bits, before: let given
    proof { lemma_giving(bits, self.never(at)); }
//@ fn Bitmap::give_bits, closure: let given
            ensures out == giving(bits, word),
//@ fn Bitmap::give_bits, passes: });

//@ fn Bitmap::give, holds
//@ fn Bitmap::give
    requires self.wf() && pages.count >= 1 && pages.at + pages.count <= 512,
    ensures
        match out {
            // Every one of them was set in the step that cleared it.
            Ok(given) => gave_row(old(held), final(held), pages.at, pages.at + pages.count) && given.last() == final(held).done().last().2,
            // It did nothing to the others; if to these, then to whole words of a row of several.
            Err(NotSet { given }) => given < pages.count && gave_row(old(held), final(held), pages.at, pages.at + given)
                && (given == 0 ==> *final(held) == *old(held))
                && (given > 0 ==> (pages.at + given) % 64 == 0),
        },
        // What is free, and stays so, is refused, and nothing was done.
        self.has_free(pages) ==> out is Err && out->Err_0.given == 0,
//@ fn Bitmap::give, passes: return self
//@ fn Bitmap::give, before: match self
    proof { self.lemma_seen(at, count); }
//@ fn Bitmap::give, passes: match self

//@ fn Bitmap::give_words, holds
//@ fn Bitmap::give_words
    requires self.wf() && pages.count >= 1 && pages.at + pages.count <= 512,
    ensures
        match out {
            Ok(given) => gave_row(old(held), final(held), pages.at, pages.at + pages.count) && given.last() == final(held).done().last().2,
            Err(NotSet { given }) => given < pages.count && gave_row(old(held), final(held), pages.at, pages.at + given)
                && (given == 0 ==> *final(held) == *old(held))
                && (given > 0 ==> (pages.at + given) % 64 == 0),
        },
        self.has_free(pages) ==> out is Err && out->Err_0.given == 0,
//@ fn Bitmap::give_words, before: let end
    let ghost before = *held;
//@ fn Bitmap::give_words, passes: if !self
//@ fn Bitmap::give_words, loop: while
        invariant
            self.wf() && before == *old(held) && !self.has_free(pages),
            end == pages.at + pages.count && end <= 512 && pages.at <= at <= end && pages.count >= 1,
            at == pages.at || at == end || at % 64 == 0,
            at == pages.at ==> *held == before,
            at > pages.at ==> last == held.done().last().2,
            gave_row(&before, held, pages.at, at as int),
        decreases end - at,
//@ fn Bitmap::give_words, before: match self
            let ghost so_far = *held;
//@ fn Bitmap::give_words, before: at = next
            proof { lemma_further(&before, &so_far, held, pages.at, at, next, bits); }
//@ fn Bitmap::give_words, passes: match self

//@ fn Bitmap::give_some, holds
//@ fn Bitmap::give_some
    requires self.wf() && index < 8,
    ensures
        // One step, which cleared those bits and no other; it returns those of them that were set.
        final(held).done() == old(held).done().push(final(held).done().last()),
        ({
            let (at, was, now) = final(held).done().last();
            at == 64 * index && now == was & !bits && out.0 == was & bits && out.1.last() == now
        }),
//@ fn Bitmap::give_some, passes: let old
//@ fn Bitmap::give_some, before: let old
    proof { super::geometry::sizes(); lemma_clearing(bits, self.words()[index as int].place().1); }

//@ items
use crate::model::bit;
use crate::told::{AtomicU64, Steps, Steps as Held, Told};
use super::bitmap::{base, giving, row};

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

    /// Whether a page is free, and no CPU takes it.
    pub open spec fn stays_free(self, page: u32) -> bool { bit(self.never(page), page as int % 64) }

    /// Whether one of them is, at least.
    pub(crate) open spec fn has_free(self, pages: Pages) -> bool {
        exists|page: u32| pages.at <= page < pages.at + pages.count && #[trigger] self.stays_free(page)
    }

    /// Where all bits of a row were seen set none of its pages stays free.
    proof fn lemma_seen(self, at: u32, count: u32)
        requires 1 <= count && at % 64 + count <= 64 && at < 512,
        ensures
            forall|word: u64| word & self.never(at) == 0 && #[trigger] (word & row(at % 64, count)) == row(at % 64, count) ==>
                row(at % 64, count) & self.never(at) == 0,
            row(at % 64, count) & self.never(at) == 0 ==> forall|page: u32| at <= page < at + count ==> !#[trigger] self.stays_free(page),
    {
        let (bits, never) = (row(at % 64, count), self.never(at));
        assert forall|word: u64| word & never == 0 && #[trigger] (word & bits) == bits implies bits & never == 0 by {
            assert(word & never == 0 && word & bits == bits ==> bits & never == 0) by (bit_vector);
        }
        if bits & never == 0 {
            assert forall|page: u32| at <= page < at + count implies !#[trigger] self.stays_free(page) by {
                let (from, i) = (at % 64, page as u64 % 64);
                assert(page as int / 64 == at as int / 64);
                assert(from < 64 && 1 <= count && add(from, count) <= 64 && from as u64 <= i && i < add(from, count) as u64
                    && ((!0u64 >> sub(64u32, count)) << from) & never == 0 ==> (never >> i) & 1 != 1) by (bit_vector);
            }
        }
    }
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

proof fn lemma_giving(bits: u64, never: u64)
    ensures forall|word: u64| #![trigger giving(bits, word)] word & never == 0 && giving(bits, word) is Some ==>
        giving(bits, word)->0 & never == 0 && bits & never == 0,
{
    assert forall|word: u64| #![trigger giving(bits, word)] word & never == 0 && giving(bits, word) is Some implies
        giving(bits, word)->0 & never == 0 && bits & never == 0 by {
        assert(word & never == 0 && word & bits == bits ==> (word & !bits) & never == 0 && bits & never == 0) by (bit_vector);
    }
}

proof fn lemma_clearing(bits: u64, never: u64)
    ensures
        forall|word: u64| word & never == 0 ==> (#[trigger] (word & !bits)) & never == 0,
{
    assert forall|word: u64| word & never == 0 implies (#[trigger] (word & !bits)) & never == 0 by {
        assert(word & never == 0 ==> (word & !bits) & never == 0) by (bit_vector);
    }
}

/// What is free, and is not taken meanwhile, can't be given back: `give` refuses it, and changes nothing, whatever other
/// CPUs do with all other bits.
fn theorem_what_is_free_is_refused(bitmap: &Bitmap, pages: Pages, Tracked(steps): Tracked<&mut Steps>)
    requires
        bitmap.wf() && pages.count >= 1 && pages.at + pages.count <= 512,
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
        AtomicU64::new(0, Ghost((0, all)), Tracked(())), AtomicU64::new(0, Ghost((64, all)), Tracked(())),
        AtomicU64::new(0, Ghost((128, all)), Tracked(())), AtomicU64::new(0, Ghost((192, all)), Tracked(())),
        AtomicU64::new(0, Ghost((256, all)), Tracked(())), AtomicU64::new(0, Ghost((320, all)), Tracked(())),
        AtomicU64::new(0, Ghost((384, all)), Tracked(())), AtomicU64::new(0, Ghost((448, all)), Tracked(())),
    ]);
    let any = Bitmap([
        AtomicU64::new(all, Ghost((0, 0)), Tracked(())), AtomicU64::new(all, Ghost((64, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((128, 0)), Tracked(())), AtomicU64::new(all, Ghost((192, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((256, 0)), Tracked(())), AtomicU64::new(all, Ghost((320, 0)), Tracked(())),
        AtomicU64::new(all, Ghost((384, 0)), Tracked(())), AtomicU64::new(all, Ghost((448, 0)), Tracked(())),
    ]);
    assert(free.wf() && any.wf() && free.stays_free(at));
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
