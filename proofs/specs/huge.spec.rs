//@ file engine/frames/src/frames/word/huge.rs
// The word of a huge frame: what it says, and what each change leaves alone.

//@ external impl fmt::Debug for Huge
//@ external const _: ()
//@ const STATE
    ensures STATE.wf() && STATE.at() == 0 && STATE.width() == 3,
//@ const MOBILITY
    ensures MOBILITY.wf() && MOBILITY.at() == 3 && MOBILITY.width() == 1,
//@ const ORDER
    ensures ORDER.wf() && ORDER.at() == 4 && ORDER.width() == 4,
//@ const PARTIAL
    ensures PARTIAL.wf() && PARTIAL.at() == 8 && PARTIAL.width() == 1,
//@ const ISOLATED
    ensures ISOLATED.wf() && ISOLATED.at() == 9 && ISOLATED.width() == 1,
//@ const PINNED
    ensures PINNED.wf() && PINNED.at() == 10 && PINNED.width() == 1,
//@ const CONTENT
    ensures CONTENT.wf() && CONTENT.at() == 11 && CONTENT.width() == 2,

//@ const Huge::FREE
    ensures Huge::FREE.says() == (HugeSays { state: 1, ..nothing() }),
//@ const Huge::FREE, before: const
        proof { lemma_state(1); }
//@ fn Huge::of_bits
    ensures out.word() == bits,
//@ fn Huge::bits
    ensures out == self.word(),
//@ fn Huge::with
    requires field.wf() && field.at() + field.width() <= 32 && number <= most(field.width()),
    ensures out.0 as u64 == put(self.0 as u64, field.at(), field.width(), number),
//@ fn Huge::with, before: Self(
        proof { lemma_lower_half(self.0, field.at(), field.width(), number); }
//@ fn Huge::get
    requires field.wf(),
    ensures out == part(self.0 as u64, field.at(), field.width()),
//@ fn Huge::is_only
    ensures
        out == (self.0 as u64 & (mask(0, 3) | others) == state as u64),

//@ fn Huge::allocated
    ensures out.says() == (HugeSays { state: 4, movable: of(mobility), ..nothing() }),
        out.keeps(),
//@ fn Huge::allocated, before: Self(
        proof { lemma_state(4); lemma_most(); }
//@ fn Huge::split
    ensures out.says() == (HugeSays { state: 3, movable: of(mobility), partial: if partial { 1 } else { 0 },
            order: if partial { LARGEST_PAGES as u32 } else { 0 }, ..nothing() }),
        out.keeps(),
//@ fn Huge::split, before: let split
        proof { lemma_state(3); lemma_most(); }
//@ fn Huge::with_state
    ensures out.says() == (HugeSays { state: state as u32, ..self.says() }), self.keeps() ==> out.keeps(),
//@ fn Huge::with_state, before: self.with
        proof { lemma_most(); }
//@ fn Huge::with_isolated
    ensures out.says() == (HugeSays { isolated: if isolated { 1 } else { 0 }, ..self.says() }), self.keeps() ==> out.keeps(),
//@ fn Huge::with_isolated, before: self.with
        proof { lemma_most(); }
//@ fn Huge::with_pinned
    ensures out.says() == (HugeSays { pinned: if pinned { 1 } else { 0 }, ..self.says() }), self.keeps() ==> out.keeps(),
//@ fn Huge::with_pinned, before: self.with
        proof { lemma_most(); }
//@ fn Huge::with_content
    ensures out.says() == (HugeSays { content: content as u32, ..self.says() }), self.keeps() ==> out.keeps(),
//@ fn Huge::with_content, before: self.with
        proof { lemma_most(); }
//@ fn Huge::out_of_use
    ensures out.says() == (HugeSays { state: 4, pinned: 1, partial: if is_offline { 1 } else { 0 }, ..nothing() }),
        out.keeps(),
//@ fn Huge::out_of_use, before: let allocated
        proof { lemma_most(); }

//@ fn Huge::state
    ensures self.keeps() ==> out as u32 == self.says().state,
//@ fn Huge::mobility
    ensures of(out) == self.says().movable,
//@ fn Huge::mobility, before: Mobility::of
        proof { lemma_fits(self.0); }
//@ fn Huge::max_order
    ensures out == self.says().order,
//@ fn Huge::max_order, before: self.get
        proof { lemma_fits(self.0); }
//@ fn Huge::is_isolated
    ensures out == (self.says().isolated == 1),
//@ fn Huge::is_isolated, before: self.get
        proof { lemma_fits(self.0); }
//@ fn Huge::has_bitmap
    ensures out == (self.says().state == 3),
//@ fn Huge::has_bitmap, before: self.is_only
        proof { lemma_only(self.0, 3); }
//@ fn Huge::is_pinned
    ensures out == (self.says().pinned == 1),
//@ fn Huge::is_pinned, before: self.get
        proof { lemma_fits(self.0); }
//@ fn Huge::content
    ensures self.keeps() ==> out as u32 == self.says().content,
//@ fn Huge::content, before: Content::of
        proof { lemma_fits(self.0); }
//@ fn Huge::is_offline
    ensures self.keeps() ==> out == (self.says().state == 4 && self.says().partial == 1),
//@ fn Huge::is_offline, before: matches
        proof { lemma_fits(self.0); }
//@ fn Huge::is_free
    ensures out == (self.says().state == 1 && self.says().isolated == 0),
//@ fn Huge::is_free, before: self.is_only
        proof { lemma_only(self.0, 1); }
//@ fn Huge::is_free_unknown
    ensures out == (self.says().state == 1 && self.says().isolated == 0 && self.says().content == 0),
//@ fn Huge::is_free_unknown, before: self.is_only
        proof { lemma_only(self.0, 1); }
//@ fn Huge::is_allocated
    ensures out == (self.says().state == 4 && self.says().isolated == 0 && self.says().pinned == 0),
//@ fn Huge::is_allocated, before: self.is_only
        proof { lemma_only(self.0, 4); }
//@ fn Huge::is_split
    ensures out == (self.says().state == 3 && self.says().isolated == 0),
//@ fn Huge::is_split, before: self.is_only
        proof { lemma_only(self.0, 3); }
//@ const Huge::SPLIT
    ensures SPLIT == 0x103,
//@ const Huge::SPLIT, before: const
        proof { lemma_masks(); }
//@ fn Huge::is_partial
    ensures out == (self.says().state == 3 && self.says().partial == 1),
//@ fn Huge::is_partial, before: self.0
        proof { lemma_masks(); lemma_partial(self.0); }
//@ fn Huge::is_counted
    ensures out == (self.says().state == 3 && self.says().partial == 1 && self.says().isolated == 0),
//@ fn Huge::is_counted, before: self.is_partial
        proof { lemma_fits(self.0); }
//@ const Huge::KIND
    ensures KIND == 0x30f,
//@ const Huge::KIND, before: const
        proof { lemma_masks(); }
//@ fn Huge::is_counted_for
    ensures out == self.says().counted_for(mobility),
//@ fn Huge::is_counted_for, before: self.0
        proof { lemma_kind(); }
//@ fn Huge::may_have
    ensures out == (self.says().counted_for(mobility) && self.says().order >= order),
//@ fn Huge::covers
    ensures out == (self.says().state == 3 && self.says().partial == 1 && self.says().order >= order),

//@ fn Huge::full
    ensures out.says() == (HugeSays { partial: 0, order: 0, ..self.says() }), self.keeps() ==> out.keeps(),
//@ fn Huge::full, before: self.with
        proof { lemma_most(); }
//@ fn Huge::partial_from
    requires max_order <= LARGEST_PAGES,
    ensures out.says() == (HugeSays { partial: 1,
            order: if self.says().order < max_order { max_order as u32 } else { self.says().order }, ..self.says() }),
        self.keeps() ==> out.keeps(),
//@ fn Huge::partial_from, before: self.bounded
        proof { lemma_most(); }
//@ fn Huge::bounded_from
    requires max_order <= LARGEST_PAGES,
    ensures out.says() == (HugeSays { order: if self.says().order < max_order { max_order as u32 } else { self.says().order }, ..self.says() }),
        self.keeps() ==> out.keeps(),
//@ fn Huge::bounded_from, before: if self
        proof { lemma_most(); }
//@ fn Huge::bounded_to
    requires max_order <= LARGEST_PAGES,
    ensures out.says() == (HugeSays { order: if self.says().order > max_order { max_order as u32 } else { self.says().order }, ..self.says() }),
        self.keeps() ==> out.keeps(),
//@ fn Huge::bounded_to, before: if self
        proof { lemma_most(); }

//@ items
use super::field::{mask, most, part, put};
broadcast use super::field::theorem_a_field_overflows_into_no_other;

/// What a word says: the number in each of its fields.
pub ghost struct HugeSays {
    pub state: u32,
    pub movable: u32,
    pub order: u32,
    pub partial: u32,
    pub isolated: u32,
    pub pinned: u32,
    pub content: u32,
    pub unused: u32,
}

impl HugeSays {
    /// Its giant frame counts it as partly free for this mobility.
    pub open spec fn counted_for(self, mobility: Mobility) -> bool {
        self.state == 3 && self.partial == 1 && self.isolated == 0 && self.movable == of(mobility)
    }
}

pub open spec fn nothing() -> HugeSays {
    HugeSays { state: 0, movable: 0, order: 0, partial: 0, isolated: 0, pinned: 0, content: 0, unused: 0 }
}

/// As a bit of a word.
pub open spec fn of(mobility: Mobility) -> u32 { if mobility == Mobility::Unmovable { 0 } else { 1 } }

impl Huge {
    pub closed spec fn word(self) -> u32 { self.0 }

    pub open spec fn says(self) -> HugeSays { says(self.word()) }

    /// What every change keeps, if the word before did; of words in memory it is not proven.
    pub closed spec fn keeps(self) -> bool {
        let says = self.says();
        1 <= says.state <= 4 && says.order <= LARGEST_PAGES && says.content <= 2 && says.unused == 0
    }
}

pub open spec fn says(word: u32) -> HugeSays {
    HugeSays {
        state: part(word as u64, 0, 3),
        movable: part(word as u64, 3, 1),
        order: part(word as u64, 4, 4),
        partial: part(word as u64, 8, 1),
        isolated: part(word as u64, 9, 1),
        pinned: part(word as u64, 10, 1),
        content: part(word as u64, 11, 2),
        unused: part(word as u64, 13, 19),
    }
}

/// As `part` and `mask`, for the prover's reasoning about bits.
#[verifier::inline]
spec fn p(word: u64, at: u32, width: u32) -> u32 { (word >> at) as u32 & sub(1u32 << width, 1) }
#[verifier::inline]
spec fn m(at: u32, width: u32) -> u64 { (sub(1u32 << width, 1) as u64) << at }

proof fn lemma_most()
    ensures most(1) == 1, most(2) == 3, most(3) == 7, most(4) == 15, LARGEST_PAGES == 8,
{
    super::geometry::sizes();
    assert(sub(1u32 << 1u32, 1) == 1 && sub(1u32 << 2u32, 1) == 3 && sub(1u32 << 3u32, 1) == 7 && sub(1u32 << 4u32, 1) == 15) by (bit_vector);
}

/// No number is larger than its field.
proof fn lemma_fits(word: u32)
    ensures says(word).state <= 7, says(word).movable <= 1, says(word).order <= 15, says(word).partial <= 1, says(word).isolated <= 1, says(word).pinned <= 1, says(word).content <= 3, says(word).unused <= 524287,
{
    let w = word as u64;
    assert(p(w, 0, 3) <= 7 && p(w, 3, 1) <= 1 && p(w, 4, 4) <= 15 && p(w, 8, 1) <= 1 && p(w, 9, 1) <= 1 && p(w, 10, 1) <= 1 && p(w, 11, 2) <= 3 && p(w, 13, 19) <= 524287) by (bit_vector);
}

proof fn lemma_state(s: u32)
    requires s < 8,
    ensures says(s) == (HugeSays { state: s, ..nothing() }),
{
    let w = s as u64;
    assert(w < 8 ==> p(w, 0, 3) == w as u32 && p(w, 3, 1) == 0 && p(w, 4, 4) == 0 && p(w, 8, 1) == 0 && p(w, 9, 1) == 0 && p(w, 10, 1) == 0 && p(w, 11, 2) == 0 && p(w, 13, 19) == 0) by (bit_vector);
}

proof fn lemma_lower_half(word: u32, at: u32, width: u32, number: u32)
    requires at < 64 && width < 32 && at + width <= 32 && number <= most(width),
    ensures put(word as u64, at, width, number) as u32 as u64 == put(word as u64, at, width, number),
{
    let w = word as u64;
    assert(w <= 0xffff_ffff && at < 64 && width < 32 && add(at, width) <= 32 && number <= sub(1u32 << width, 1) ==>
        (w & !((sub(1u32 << width, 1) as u64) << at) | (number as u64) << at) <= 0xffff_ffff) by (bit_vector);
}

proof fn lemma_only(word: u32, s: u64)
    requires s < 8,
    ensures
        (word as u64 & (mask(0, 3) | 0) == s) == (says(word).state == s),
        (word as u64 & (mask(0, 3) | mask(9, 1)) == s) == (says(word).state == s && says(word).isolated == 0),
        (word as u64 & (mask(0, 3) | (mask(9, 1) | mask(11, 2))) == s) == (says(word).state == s && says(word).isolated == 0 && says(word).content == 0),
        (word as u64 & (mask(0, 3) | (mask(9, 1) | mask(10, 1))) == s) == (says(word).state == s && says(word).isolated == 0 && says(word).pinned == 0),
{
    let w = word as u64;
    assert(s < 8 ==> (w & (m(0, 3) | 0) == s) == (p(w, 0, 3) as u64 == s)) by (bit_vector);
    assert(s < 8 ==> (w & (m(0, 3) | m(9, 1)) == s) == (p(w, 0, 3) as u64 == s && p(w, 9, 1) == 0)) by (bit_vector);
    assert(s < 8 ==> (w & (m(0, 3) | (m(9, 1) | m(11, 2))) == s) == (p(w, 0, 3) as u64 == s && p(w, 9, 1) == 0 && p(w, 11, 2) == 0)) by (bit_vector);
    assert(s < 8 ==> (w & (m(0, 3) | (m(9, 1) | m(10, 1))) == s) == (p(w, 0, 3) as u64 == s && p(w, 9, 1) == 0 && p(w, 10, 1) == 0)) by (bit_vector);
}

proof fn lemma_masks()
    ensures
        3u64 | mask(8, 1) == 0x103,
        mask(0, 3) | mask(8, 1) == 0x107,
        mask(0, 3) | mask(3, 1) | mask(8, 1) | mask(9, 1) == 0x30f,
{
    assert(3u64 | m(8, 1) == 0x103 && m(0, 3) | m(8, 1) == 0x107 && m(0, 3) | m(3, 1) | m(8, 1) | m(9, 1) == 0x30f) by (bit_vector);
}

proof fn lemma_partial(word: u32)
    ensures (word as u64 & 0x107 == 0x103) == (says(word).state == 3 && says(word).partial == 1),
{
    let w = word as u64;
    assert((w & 0x107 == 0x103) == (p(w, 0, 3) == 3 && p(w, 8, 1) == 1)) by (bit_vector);
}

proof fn lemma_kind()
    ensures forall|one: u32, other: u32| #![trigger says(one), says(other)]
        (one as u64 & 0x30f == other as u64 & 0x30f) == (says(one).state == says(other).state && says(one).movable == says(other).movable
            && says(one).partial == says(other).partial && says(one).isolated == says(other).isolated),
{
    assert forall|one: u32, other: u32| #![trigger says(one), says(other)]
        (one as u64 & 0x30f == other as u64 & 0x30f) == (says(one).state == says(other).state && says(one).movable == says(other).movable
            && says(one).partial == says(other).partial && says(one).isolated == says(other).isolated) by {
        let (a, b) = (one as u64, other as u64);
        assert((a & 0x30f == b & 0x30f) == (p(a, 0, 3) == p(b, 0, 3) && p(a, 3, 1) == p(b, 3, 1) && p(a, 8, 1) == p(b, 8, 1)
            && p(a, 9, 1) == p(b, 9, 1))) by (bit_vector);
    }
}

/// A word is what it says: two that say the same are the same, bit for bit.
proof fn theorem_a_word_is_what_it_says(one: Huge, other: Huge)
    requires one.says() == other.says(),
    ensures one == other,
{
    let (a, b) = (one.0 as u64, other.0 as u64);
    assert(a <= 0xffff_ffff && b <= 0xffff_ffff && p(a, 0, 3) == p(b, 0, 3) && p(a, 3, 1) == p(b, 3, 1) && p(a, 4, 4) == p(b, 4, 4) && p(a, 8, 1) == p(b, 8, 1) && p(a, 9, 1) == p(b, 9, 1) && p(a, 10, 1) == p(b, 10, 1) && p(a, 11, 2) == p(b, 11, 2) && p(a, 13, 19) == p(b, 13, 19) ==> a == b) by (bit_vector);
    assert(part(a, 0, 3) == part(b, 0, 3) && part(a, 3, 1) == part(b, 3, 1) && part(a, 4, 4) == part(b, 4, 4) && part(a, 8, 1) == part(b, 8, 1) && part(a, 9, 1) == part(b, 9, 1) && part(a, 10, 1) == part(b, 10, 1) && part(a, 11, 2) == part(b, 11, 2) && part(a, 13, 19) == part(b, 13, 19));
}
