//@ file engine/frames/src/frames/word/giant.rs
// The word of a giant frame: what it says, what most functions keep, and what each change leaves alone.

//@ external impl fmt::Debug for Giant
//@ external const _: ()

//@ const KEPT
    ensures KEPT == 1,
//@ const STATE
    ensures STATE.wf() && STATE.at() == 0 && STATE.width() == 3,
//@ const OPENED
    ensures OPENED.wf() && OPENED.at() == 3 && OPENED.width() == 1,
//@ const FREE
    ensures FREE.wf() && FREE.at() == 4 && FREE.width() == 10,
//@ const UNMOVABLE
    ensures UNMOVABLE.wf() && UNMOVABLE.at() == 14 && UNMOVABLE.width() == 12,
//@ const MOVABLE
    ensures MOVABLE.wf() && MOVABLE.at() == 26 && MOVABLE.width() == 12,
//@ const PARTIAL
    ensures PARTIAL[0].wf() && PARTIAL[0].at() == 14 && PARTIAL[0].width() == 12,
        PARTIAL[1].wf() && PARTIAL[1].at() == 26 && PARTIAL[1].width() == 12,
//@ const UNMOVABLE_ORDER
    ensures UNMOVABLE_ORDER.wf() && UNMOVABLE_ORDER.at() == 38 && UNMOVABLE_ORDER.width() == 4,
//@ const MOVABLE_ORDER
    ensures MOVABLE_ORDER.wf() && MOVABLE_ORDER.at() == 42 && MOVABLE_ORDER.width() == 4,
//@ const ORDER
    ensures ORDER[0].wf() && ORDER[0].at() == 38 && ORDER[0].width() == 4,
        ORDER[1].wf() && ORDER[1].at() == 42 && ORDER[1].width() == 4,
//@ const KNOWN
    ensures KNOWN.wf() && KNOWN.at() == 46 && KNOWN.width() == 10,
//@ const CONTENTS
    ensures CONTENTS.wf() && CONTENTS.at() == 56 && CONTENTS.width() == 2,
//@ const STALE
    ensures STALE.wf() && STALE.at() == 58 && STALE.width() == 1,
//@ const RAISES
    ensures RAISES.wf() && RAISES.at() == 59 && RAISES.width() == 5,
//@ const CONTENT
    ensures CONTENT == 0x07ff_c000_0000_0000,
//@ const CONTENT, before: const
        proof { lemma_masks(); }
//@ const LASTING
    ensures LASTING == 0xf800_0000_0000_0008,
//@ const LASTING, before: const
        proof { lemma_masks(); }
//@ const COUNTS
    ensures COUNTS == 0x3f_ffff_fff0,
//@ const COUNTS, before: const
        proof { lemma_masks(); }

//@ fn Change::free
    ensures out.says() == (ChangeSays { free: count as int, ..no_change() }),
//@ fn Change::reverse
    requires self.says().free > i32::MIN && self.says().known > i32::MIN,
    ensures out.says() == (ChangeSays { free: -self.says().free, known: -self.says().known, ..self.says() }),
//@ fn Change::and_free
    requires i32::MIN <= self.says().free + count <= i32::MAX,
    ensures out.says() == (ChangeSays { free: self.says().free + count, ..self.says() }),
//@ fn Change::and_known
    requires i32::MIN <= self.says().known + count <= i32::MAX,
    ensures
        count == 0 || content == Content::Unknown ==> out.says() == self.says(),
        count != 0 && content != Content::Unknown ==> out.says() == (ChangeSays {
            known: self.says().known + count, contents: self.says().contents | content as u8, ..self.says() }),
//@ fn Change::partial
    ensures out.says() == (if mobility == Mobility::Unmovable { ChangeSays { unmovable: count as int, ..no_change() } }
        else { ChangeSays { movable: count as int, ..no_change() } }),
//@ fn Change::and_partial
    requires
        i32::MIN <= self.says().unmovable + count <= i32::MAX,
        i32::MIN <= self.says().movable + count <= i32::MAX,
    ensures out.says() == (if mobility == Mobility::Unmovable { ChangeSays { unmovable: self.says().unmovable + count, ..self.says() } }
        else { ChangeSays { movable: self.says().movable + count, ..self.says() } }),
//@ fn Change::open
    ensures out.says() == (if mobility == Mobility::Unmovable {
            ChangeSays { free: -1, unmovable: 1, unmovable_order: LARGEST_PAGES, ..no_change() }
        } else { ChangeSays { free: -1, movable: 1, movable_order: LARGEST_PAGES, ..no_change() } }),
//@ fn Change::not_opened
    ensures out.says() == (if mobility == Mobility::Unmovable { ChangeSays { free: 1, unmovable: -1, ..no_change() } }
        else { ChangeSays { free: 1, movable: -1, ..no_change() } }),

//@ const Giant::FREE
    ensures Giant::FREE.says() == (Says { state: 1, ..nothing() }),
//@ const Giant::FREE, before: pub(crate)
        proof { lemma_state(1); }
//@ const Giant::ALLOCATED
    ensures Giant::ALLOCATED.says() == (Says { state: 4, ..nothing() }),
//@ const Giant::ALLOCATED, before: pub(crate)
        proof { lemma_state(4); }

//@ fn Giant::of_bits
    ensures out.word() == bits,
//@ fn Giant::bits
    ensures out == self.word(),
//@ fn Giant::with
    requires field.wf() && number <= most(field.width()),
    ensures out.0 == put(self.0, field.at(), field.width(), number),
//@ fn Giant::lasting
    ensures out.0 == self.0 & 0xf800_0000_0000_0008 | state as u64,
        out.says() == (Says { state: state as u32, opened: self.says().opened, raises: self.says().raises, ..nothing() }),
//@ fn Giant::lasting, before: Self(
        proof { lemma_lasting(self.0, state as u64); }
//@ fn Giant::raised
    requires by <= 1,
    ensures out.says() == (Says { raises: ((self.says().raises + by) % 32) as u32, ..self.says() }),
//@ fn Giant::raised, before: let raises
        proof {
            let was = part(self.0, 59, 5);
            lemma_fits(self.0);
            assert(sub(1u32 << 5u32, 1) == 31) by (bit_vector);
            assert(was <= 31 && by <= 1 ==> (add(was, by) & 31 == add(was, by) % 32)) by (bit_vector);
        }
//@ fn Giant::split
    requires free <= HUGES && partial[0] < 4096 && partial[1] < 4096,
    ensures out.says() == (Says {
            state: 3, opened: 1, free, unmovable: partial[0], movable: partial[1],
            unmovable_order: if partial[0] == 0 { 0 } else { LARGEST_PAGES as u32 },
            movable_order: if partial[1] == 0 { 0 } else { LARGEST_PAGES as u32 },
            ..nothing()
        }),
        out.keeps(),
//@ fn Giant::split, before: let opened
        proof { lemma_state(3); lemma_most(); }
//@ fn Giant::with_partial
    requires partial[0] < 4096 && partial[1] < 4096,
    ensures out.says() == (Says { unmovable: partial[0], movable: partial[1], ..self.says() }),
//@ fn Giant::with_partial, before: self.with
        proof { lemma_most(); }
//@ fn Giant::with_content, before: let known
        proof { lemma_most(); }
//@ fn Giant::with_content
    ensures out.says() == (Says {
            known: if content == Content::Unknown { 0 } else { HUGES }, contents: content as u32, ..self.says() }),
        self.keeps() && (self.says().state == 1 || self.says().state == 3) ==> out.keeps(),
//@ fn Giant::with_known
    requires known <= HUGES,
    ensures out.says() == (Says { known, contents: if known == 0 { 0 } else { content as u32 }, ..self.says() }),
        self.keeps() && (self.says().state == 1 || self.says().state == 3) ==> out.keeps(),
//@ fn Giant::with_known, before: let contents
        proof { lemma_most(); }

//@ fn Giant::state
    ensures self.keeps() ==> out as u32 == self.says().state,
//@ fn Giant::is_split
    ensures out == (self.says().state == 3),
//@ fn Giant::free
    ensures out == self.says().free,
//@ fn Giant::partial
    ensures out == self.says().partial(mobility),
//@ fn Giant::has_partial
    ensures out == (self.says().unmovable > 0 || self.says().movable > 0),
//@ fn Giant::has_partial, before: self.0
        proof { lemma_has_partial(self.0); }
//@ fn Giant::max_order
    ensures out == self.says().order(mobility),
//@ fn Giant::max_order, before: ORDER
        proof { lemma_fits(self.0); }
//@ fn Giant::was_opened
    ensures out == (self.says().opened == 1),
//@ fn Giant::was_opened, before: OPENED
        proof { lemma_fits(self.0); }
//@ fn Giant::is_opened
    ensures out == (self.says().opened == 1 && self.says().state != 2),
//@ fn Giant::has_words
    ensures self.keeps() ==> out == (self.says().opened == 1 && (self.says().state == 3 || self.says().state == 2)),
//@ fn Giant::mobility
    ensures self.keeps() ==> (out != Mobility::Unmovable) == (self.says().state == 4 && self.says().movable == 1),
//@ fn Giant::known
    ensures out == self.says().known,
//@ fn Giant::contents
    ensures out == self.says().contents,
//@ fn Giant::content
    ensures
        self.says().known == 0 ==> out == Some(Content::Unknown),
        self.says().known > 0 && self.says().opened == 1 && self.says().stale == 0 ==> out is None,
        self.says().known > 0 && (self.says().opened == 0 || self.says().stale == 1) ==>
            out == Some(super::content::content_of(self.says().contents)),
//@ fn Giant::content, before: if self
        proof { lemma_fits(self.0); }
//@ fn Giant::is_unwritten
    ensures out == (self.says().opened == 0 || self.says().stale == 1),
//@ fn Giant::is_unwritten, before: !self
        proof { lemma_fits(self.0); }
//@ fn Giant::is_stale
    ensures out == (self.says().stale == 1),
//@ fn Giant::is_stale, before: STALE
        proof { lemma_fits(self.0); }
//@ fn Giant::may_hold
    ensures
        content != Content::Unknown ==> out == (self.says().known > 0 && self.says().contents & content as u32 != 0),
        self.keeps() && content == Content::Unknown ==> out == (if self.says().state == 1 {
            self.says().known < HUGES } else { self.says().free > self.says().known }),
//@ fn Giant::may_have
    ensures out == (self.says().partial(mobility) > 0 && self.says().order(mobility) >= order),
//@ fn Giant::has_huges
    ensures
        self.keeps() && (any_content || self.says().known == 0) ==>
            out == (self.says().state == 1 || self.says().state == 3 && self.says().free > 0),
        // One of unknown content: as `may_hold` says.
        self.keeps() && !any_content && self.says().known > 0 ==> out == (if self.says().state == 1 {
            self.says().known < HUGES } else { self.says().free > self.says().known }),
//@ fn Giant::is_used_up
    ensures self.keeps() ==> out == (self.says().state == 4 || self.says().state == 3 && self.says().free == 0
        && self.says().unmovable == 0 && self.says().movable == 0),
//@ fn Giant::is_used_up, before: match
        proof { lemma_counts(self.0); }
//@ fn Giant::is_complete
    ensures out == self.complete(),
//@ fn Giant::is_complete, before: self.0
        proof { lemma_counts(self.0); lemma_masks(); lemma_most(); }

//@ fn Giant::taken
    ensures out.says() == (Says {
            state: 4, opened: self.says().opened, raises: self.says().raises,
            movable: if mobility == Mobility::Unmovable { 0 } else { 1 },
            stale: if self.says().stale == 1 || self.says().opened == 1 && self.says().known > 0 { 1 } else { 0 },
            ..nothing()
        }),
        out.keeps(),
//@ fn Giant::taken, before: let is_stale
        proof { lemma_most(); lemma_fits(self.0); }
//@ fn Giant::freed
    ensures out.says() == (Says {
            state: 1, opened: self.says().opened, raises: ((self.says().raises + 1) % 32) as u32,
            stale: if self.says().stale == 1 || self.says().opened == 1 && content != Content::Unknown { 1 } else { 0 },
            known: if content == Content::Unknown { 0 } else { HUGES }, contents: content as u32,
            ..nothing()
        }),
        out.keeps(),
//@ fn Giant::freed, before: let is_stale
        proof { lemma_most(); lemma_fits(self.0); }
//@ fn Giant::merged
    ensures
        !self.complete() ==> out == self,
        self.complete() ==> out.says() == (Says {
            state: 1, opened: 1, known: self.says().known, contents: self.says().contents, stale: self.says().stale,
            raises: self.says().raises, ..nothing()
        }),
        self.keeps() ==> out.keeps(),
//@ fn Giant::merged, before: let merged
        proof { lemma_merged(self.0); lemma_most(); lemma_masks(); }
//@ fn Giant::opening
    ensures
        out.says() == (Says { state: 2, opened: self.says().opened, raises: self.says().raises, ..nothing() }),
        out.keeps(),
//@ fn Giant::opening, before: self.lasting
        proof { lemma_fits(self.0); }
//@ fn Giant::opened_with
    requires free <= HUGES,
    ensures
        out.says() == (Says { state: 3, opened: 1, free, known: self.says().known, contents: self.says().contents,
            raises: self.says().raises, ..nothing() }),
        self.keeps() ==> out.keeps(),
//@ fn Giant::opened_with, before: let known
        proof { lemma_known(self.0, GiantState::Split as u64); lemma_most(); lemma_masks(); }
//@ fn Giant::closed
    ensures
        out.says() == (Says { state: 4, opened: self.says().opened, raises: self.says().raises, ..nothing() }),
        out.keeps(),
//@ fn Giant::closed, before: self.lasting
        proof { lemma_fits(self.0); }

//@ fn Giant::raise_of_free
    requires count <= HUGES,
    ensures
        // Added to a word in one step, by any CPU at any time: as long as there is room, no other count changes.
        forall|word: Giant| #![trigger word.says()] word.says().free + count <= HUGES ==> word.plus(out).says() == (Says {
            free: (word.says().free + count) as u32, raises: ((word.says().raises + 1) % 32) as u32, ..word.says() }),
        // Of its bits the same.
        forall|bits: u64| #![trigger says(bits)] says(bits).free + count <= HUGES ==> says(add(bits, out)) == (Says {
            free: (says(bits).free + count) as u32, raises: ((says(bits).raises + 1) % 32) as u32, ..says(bits) }),
//@ fn Giant::raise_of_free, before: RAISES
        proof {
            lemma_most();
            assert forall|word: Giant| #![trigger word.says()] word.says().free + count <= HUGES implies word.plus((1u64 << 59) | ((count as u64) << 4)).says() == (Says {
                free: (word.says().free + count) as u32, raises: ((word.says().raises + 1) % 32) as u32, ..word.says() }) by {
                lemma_plus(word.0, count);
            }
            assert forall|bits: u64| #![trigger says(bits)] says(bits).free + count <= HUGES implies says(add(bits, (1u64 << 59) | ((count as u64) << 4))) == (Says {
                free: (says(bits).free + count) as u32, raises: ((says(bits).raises + 1) % 32) as u32, ..says(bits) }) by {
                lemma_plus(bits, count);
            }
        }
//@ fn Giant::lowered_free
    requires count <= HUGES,
    ensures match out {
            Some(now) => self.says().state == 3 && self.says().free >= count
                && now.says() == (Says { free: (self.says().free - count) as u32, ..self.says() }),
            None => self.says().state != 3 || self.says().free < count,
        },
        self.keeps() && out is Some ==> out->0.keeps(),
//@ fn Giant::lowered_free, before: if self
        proof { lemma_most(); lemma_minus(self.0, count); }
//@ fn Giant::changed
    requires by.says().unmovable_order <= LARGEST_PAGES && by.says().movable_order <= LARGEST_PAGES && by.says().contents < 4,
    ensures
        match out {
            Some(now) => self.takes(by) && now.says() == self.after(by),
            None => !self.takes(by),
        },
        self.keeps() && out is Some ==> out->0.keeps(),
//@ fn Giant::changed, before: let free = self
        proof { lemma_most(); lemma_fits(self.0); }
//@ fn Giant::content_changed
    requires by.says().contents < 4 && by.says().known != 0,
    ensures match out {
            Some(now) => 0 <= self.says().known + by.says().known <= HUGES && now.says() == (Says {
                known: (self.says().known + by.says().known) as u32,
                contents: self.contents_after(by),
                stale: if self.says().known + by.says().known == 0 { 0 } else { self.says().stale },
                ..self.says() }),
            None => !(0 <= self.says().known + by.says().known <= HUGES),
        },
//@ fn Giant::content_changed, before: match
        proof { lemma_most(); lemma_no_content(self.0); lemma_fits(self.0); lemma_both(self.says().contents, by.says().contents as u32); }

//@ fn Giant::without_empty_bounds
    ensures out.says() == (Says {
            unmovable_order: if self.says().unmovable == 0 { 0 } else { self.says().unmovable_order },
            movable_order: if self.says().movable == 0 { 0 } else { self.says().movable_order },
            ..self.says() }),
//@ fn Giant::without_empty_bounds, before: let mut
        proof { lemma_most(); }
//@ fn Giant::bounded_from
    requires max_order <= LARGEST_PAGES,
    ensures
        out.says() == (if mobility == Mobility::Unmovable {
            Says { unmovable_order: higher(self.says().unmovable_order, max_order), ..self.says() }
        } else { Says { movable_order: higher(self.says().movable_order, max_order), ..self.says() } }),
        self.keeps() && self.says().state == 3 ==> out.keeps(),
//@ fn Giant::bounded_from, before: self.with_order
        proof { lemma_most(); }
//@ fn Giant::with_order
    requires field.wf() && field.width() == 4 && at_least <= LARGEST_PAGES,
    ensures
        field.at() == 38 ==> out.says() == (Says { unmovable_order: higher(self.says().unmovable_order, at_least), ..self.says() }),
        field.at() == 42 ==> out.says() == (Says { movable_order: higher(self.says().movable_order, at_least), ..self.says() }),
//@ fn Giant::with_order, before: if field
        proof { lemma_most(); }
//@ fn Giant::bounded_to
    requires max_order <= LARGEST_PAGES,
    ensures
        out.says() == (if mobility == Mobility::Unmovable {
            Says { unmovable_order: lower(self.says().unmovable_order, max_order), ..self.says() }
        } else { Says { movable_order: lower(self.says().movable_order, max_order), ..self.says() } }),
        self.keeps() ==> out.keeps(),
//@ fn Giant::bounded_to, before: if self
        proof { lemma_most(); }

//@ items
use super::field::{mask, most, part, put};
broadcast use super::field::theorem_a_field_overflows_into_no_other;

/// What a word says: the number in each of its fields.
pub ghost struct Says {
    pub state: u32,
    pub opened: u32,
    pub free: u32,
    pub unmovable: u32,
    pub movable: u32,
    pub unmovable_order: u32,
    pub movable_order: u32,
    pub known: u32,
    pub contents: u32,
    pub stale: u32,
    pub raises: u32,
}

impl Says {
    pub open spec fn partial(self, mobility: Mobility) -> u32 {
        if mobility == Mobility::Unmovable { self.unmovable } else { self.movable }
    }
    pub open spec fn order(self, mobility: Mobility) -> u32 {
        if mobility == Mobility::Unmovable { self.unmovable_order } else { self.movable_order }
    }
}

pub open spec fn nothing() -> Says {
    Says { state: 0, opened: 0, free: 0, unmovable: 0, movable: 0, unmovable_order: 0, movable_order: 0,
        known: 0, contents: 0, stale: 0, raises: 0 }
}

/// What a change says.
pub ghost struct ChangeSays {
    pub free: int,
    pub unmovable: int,
    pub movable: int,
    pub unmovable_order: u8,
    pub movable_order: u8,
    pub known: int,
    pub contents: u8,
}

pub open spec fn no_change() -> ChangeSays {
    ChangeSays { free: 0, unmovable: 0, movable: 0, unmovable_order: 0, movable_order: 0, known: 0, contents: 0 }
}

pub open spec fn higher(was: u32, at_least: u8) -> u32 { if was < at_least { at_least as u32 } else { was } }
pub open spec fn lower(was: u32, at_most: u8) -> u32 { if was > at_most { at_most as u32 } else { was } }

impl Change {
    pub closed spec fn says(self) -> ChangeSays {
        ChangeSays {
            free: self.free as int, unmovable: self.partial[0] as int, movable: self.partial[1] as int,
            unmovable_order: self.max_order[0], movable_order: self.max_order[1],
            known: self.known as int, contents: self.contents,
        }
    }
}

impl Giant {
    pub closed spec fn word(self) -> u64 { self.0 }

    pub open spec fn says(self) -> Says { says(self.word()) }

    /// The word after `fetch_add`, which wraps.
    pub closed spec fn plus(self, more: u64) -> Giant { Giant(add(self.0, more)) }

    /// What most functions keep, if the word before did. Of words in memory only `shape` in `proofs/huges.rs` is proven:
    /// one that is being opened does not keep this once something was counted in it.
    pub closed spec fn keeps(self) -> bool {
        let says = self.says();
        &&& 1 <= says.state <= 4
        &&& says.free <= HUGES && says.known <= HUGES
        &&& says.unmovable_order <= LARGEST_PAGES && says.movable_order <= LARGEST_PAGES
        // Only a split one counts what is below.
        &&& says.state != 3 ==> says.free == 0 && says.unmovable == 0 && says.unmovable_order == 0 && says.movable_order == 0
        &&& says.state != 3 ==> says.movable <= (if says.state == 4 { 1 } else { 0int })
        // What is split was opened, and its words below say what they hold.
        &&& says.state == 3 ==> says.opened == 1 && says.stale == 0
        // Nothing is known of what is allocated, or being opened.
        &&& says.state == 2 || says.state == 4 ==> says.known == 0 && says.contents == 0
    }

    /// All huge frames are free, and no call is about to change that.
    pub(crate) open spec fn complete(self) -> bool {
        self.says().state == 3 && self.says().free == HUGES && self.says().unmovable == 0 && self.says().movable == 0
    }

    /// No count leaves its range by this change.
    pub(crate) open spec fn takes(self, by: Change) -> bool {
        let (was, by) = (self.says(), by.says());
        &&& was.state == 3
        &&& 0 <= was.free + by.free <= HUGES
        &&& 0 <= was.unmovable + by.unmovable < 4096
        &&& 0 <= was.movable + by.movable < 4096
        &&& by.known == 0 || 0 <= was.known + by.known <= HUGES
    }

    pub(crate) open spec fn contents_after(self, by: Change) -> u32 {
        let (was, by) = (self.says(), by.says());
        if by.known == 0 { was.contents }
        else if was.known + by.known == 0 { 0 }
        else if by.known > 0 { was.contents | by.contents as u32 }
        else { was.contents }
    }

    /// What the word says after a change.
    pub(crate) open spec fn after(self, by: Change) -> Says {
        let contents = self.contents_after(by);
        let (was, by) = (self.says(), by.says());
        let raised: int = if by.free > 0 || by.unmovable > 0 || by.movable > 0 { 1 } else { 0 };
        let counted = Says {
            free: (was.free + by.free) as u32,
            unmovable: (was.unmovable + by.unmovable) as u32,
            movable: (was.movable + by.movable) as u32,
            // Where no pages are free they form no block; else the bound never goes down.
            unmovable_order: if was.unmovable + by.unmovable == 0 { 0 } else { higher(was.unmovable_order, by.unmovable_order) },
            movable_order: if was.movable + by.movable == 0 { 0 } else { higher(was.movable_order, by.movable_order) },
            known: (was.known + by.known) as u32,
            contents,
            stale: if by.known != 0 && was.known + by.known == 0 { 0 } else { was.stale },
            raises: ((was.raises + raised) % 32) as u32,
            ..was
        };
        if counted.free == HUGES && counted.unmovable == 0 && counted.movable == 0 {
            // It merges.
            Says { state: 1, opened: 1, known: counted.known, contents: counted.contents, stale: counted.stale,
                raises: counted.raises, ..nothing() }
        } else {
            counted
        }
    }
}

pub open spec fn says(word: u64) -> Says {
    Says {
        state: part(word, 0, 3),
        opened: part(word, 3, 1),
        free: part(word, 4, 10),
        unmovable: part(word, 14, 12),
        movable: part(word, 26, 12),
        unmovable_order: part(word, 38, 4),
        movable_order: part(word, 42, 4),
        known: part(word, 46, 10),
        contents: part(word, 56, 2),
        stale: part(word, 58, 1),
        raises: part(word, 59, 5),
    }
}

/// As `part`, for the prover's reasoning about bits.
#[verifier::inline]
spec fn p(word: u64, at: u32, width: u32) -> u32 { (word >> at) as u32 & sub(1u32 << width, 1) }

proof fn lemma_most()
    ensures most(1) == 1, most(2) == 3, most(3) == 7, most(4) == 15, most(5) == 31, most(10) == 1023, most(12) == 4095,
        HUGES == 512, LARGEST_PAGES == 8,
{
    super::geometry::sizes();
    assert(sub(1u32 << 1u32, 1) == 1 && sub(1u32 << 2u32, 1) == 3 && sub(1u32 << 3u32, 1) == 7 && sub(1u32 << 4u32, 1) == 15
        && sub(1u32 << 5u32, 1) == 31 && sub(1u32 << 10u32, 1) == 1023 && sub(1u32 << 12u32, 1) == 4095) by (bit_vector);
}

/// No number is larger than its field.
proof fn lemma_fits(w: u64)
    ensures says(w).state <= 7, says(w).opened <= 1, says(w).free <= 1023, says(w).unmovable <= 4095, says(w).movable <= 4095, says(w).unmovable_order <= 15, says(w).movable_order <= 15, says(w).known <= 1023, says(w).contents <= 3, says(w).stale <= 1, says(w).raises <= 31,
{
    assert(p(w, 0, 3) <= 7 && p(w, 3, 1) <= 1 && p(w, 4, 10) <= 1023 && p(w, 14, 12) <= 4095 && p(w, 26, 12) <= 4095 && p(w, 38, 4) <= 15 && p(w, 42, 4) <= 15 && p(w, 46, 10) <= 1023 && p(w, 56, 2) <= 3 && p(w, 58, 1) <= 1 && p(w, 59, 5) <= 31) by (bit_vector);
}

#[verifier::inline]
spec fn m(at: u32, width: u32) -> u64 { (sub(1u32 << width, 1) as u64) << at }

proof fn lemma_masks()
    ensures
        mask(46, 10) | mask(56, 2) | mask(58, 1) == 0x07ff_c000_0000_0000,
        mask(3, 1) | mask(59, 5) == 0xf800_0000_0000_0008,
        mask(4, 10) | mask(14, 12) | mask(26, 12) == 0x3f_ffff_fff0,
        mask(14, 12) | mask(26, 12) == 0x3f_ffff_c000,
        mask(46, 10) | mask(56, 2) == 0x03ff_c000_0000_0000,
        0x07ff_c000_0000_0000u64 | mask(59, 5) == 0xffff_c000_0000_0000,
        mask(0, 3) | 0x3f_ffff_fff0 == 0x3f_ffff_fff7,
        3u64 | (512u64 << 4u32) == 0x2003,
{
    assert(m(46, 10) | m(56, 2) | m(58, 1) == 0x07ff_c000_0000_0000) by (bit_vector);
    assert(m(3, 1) | m(59, 5) == 0xf800_0000_0000_0008) by (bit_vector);
    assert(m(4, 10) | m(14, 12) | m(26, 12) == 0x3f_ffff_fff0) by (bit_vector);
    assert(m(14, 12) | m(26, 12) == 0x3f_ffff_c000) by (bit_vector);
    assert(m(46, 10) | m(56, 2) == 0x03ff_c000_0000_0000) by (bit_vector);
    assert(0x07ff_c000_0000_0000u64 | m(59, 5) == 0xffff_c000_0000_0000) by (bit_vector);
    assert(m(0, 3) | 0x3f_ffff_fff0 == 0x3f_ffff_fff7) by (bit_vector);
    assert(3u64 | (512u64 << 4u32) == 0x2003) by (bit_vector);
}

proof fn lemma_state(s: u64)
    requires s < 8,
    ensures says(s) == (Says { state: s as u32, ..nothing() }),
{
    assert(s < 8 ==> p(s, 0, 3) == s as u32 && p(s, 3, 1) == 0 && p(s, 4, 10) == 0 && p(s, 14, 12) == 0 && p(s, 26, 12) == 0 && p(s, 38, 4) == 0 && p(s, 42, 4) == 0 && p(s, 46, 10) == 0 && p(s, 56, 2) == 0 && p(s, 58, 1) == 0 && p(s, 59, 5) == 0) by (bit_vector);
}

proof fn lemma_lasting(w: u64, s: u64)
    requires s < 8,
    ensures says(w & 0xf800_0000_0000_0008 | s) == (Says { state: s as u32, opened: says(w).opened, raises: says(w).raises, ..nothing() }),
{
    assert(s < 8 ==> p(w & 0xf800_0000_0000_0008 | s, 0, 3) == s as u32 && p(w & 0xf800_0000_0000_0008 | s, 3, 1) == p(w, 3, 1) && p(w & 0xf800_0000_0000_0008 | s, 4, 10) == 0 && p(w & 0xf800_0000_0000_0008 | s, 14, 12) == 0 && p(w & 0xf800_0000_0000_0008 | s, 26, 12) == 0 && p(w & 0xf800_0000_0000_0008 | s, 38, 4) == 0 && p(w & 0xf800_0000_0000_0008 | s, 42, 4) == 0 && p(w & 0xf800_0000_0000_0008 | s, 46, 10) == 0 && p(w & 0xf800_0000_0000_0008 | s, 56, 2) == 0 && p(w & 0xf800_0000_0000_0008 | s, 58, 1) == 0 && p(w & 0xf800_0000_0000_0008 | s, 59, 5) == p(w, 59, 5)) by (bit_vector);
}

proof fn lemma_merged(w: u64)
    requires true,
    ensures says(w & 0xffff_c000_0000_0000 | 1) == (Says { state: 1, known: says(w).known, contents: says(w).contents, stale: says(w).stale, raises: says(w).raises, ..nothing() }),
{
    assert(true ==> p(w & 0xffff_c000_0000_0000 | 1, 0, 3) == 1 && p(w & 0xffff_c000_0000_0000 | 1, 3, 1) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 4, 10) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 14, 12) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 26, 12) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 38, 4) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 42, 4) == 0 && p(w & 0xffff_c000_0000_0000 | 1, 46, 10) == p(w, 46, 10) && p(w & 0xffff_c000_0000_0000 | 1, 56, 2) == p(w, 56, 2) && p(w & 0xffff_c000_0000_0000 | 1, 58, 1) == p(w, 58, 1) && p(w & 0xffff_c000_0000_0000 | 1, 59, 5) == p(w, 59, 5)) by (bit_vector);
}

proof fn lemma_known(w: u64, s: u64)
    requires s < 8,
    ensures says(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000)) == (Says { state: s as u32, opened: says(w).opened, known: says(w).known, contents: says(w).contents, raises: says(w).raises, ..nothing() }),
{
    assert(s < 8 ==> p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 0, 3) == s as u32 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 3, 1) == p(w, 3, 1) && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 4, 10) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 14, 12) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 26, 12) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 38, 4) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 42, 4) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 46, 10) == p(w, 46, 10) && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 56, 2) == p(w, 56, 2) && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 58, 1) == 0 && p(w & 0xf800_0000_0000_0008 | s | (w & 0x03ff_c000_0000_0000), 59, 5) == p(w, 59, 5)) by (bit_vector);
}

proof fn lemma_no_content(w: u64)
    requires true,
    ensures says(w & !0x07ff_c000_0000_0000u64) == (Says { known: 0, contents: 0, stale: 0, ..says(w) }),
{
    assert(true ==> p(w & !0x07ff_c000_0000_0000u64, 0, 3) == p(w, 0, 3) && p(w & !0x07ff_c000_0000_0000u64, 3, 1) == p(w, 3, 1) && p(w & !0x07ff_c000_0000_0000u64, 4, 10) == p(w, 4, 10) && p(w & !0x07ff_c000_0000_0000u64, 14, 12) == p(w, 14, 12) && p(w & !0x07ff_c000_0000_0000u64, 26, 12) == p(w, 26, 12) && p(w & !0x07ff_c000_0000_0000u64, 38, 4) == p(w, 38, 4) && p(w & !0x07ff_c000_0000_0000u64, 42, 4) == p(w, 42, 4) && p(w & !0x07ff_c000_0000_0000u64, 46, 10) == 0 && p(w & !0x07ff_c000_0000_0000u64, 56, 2) == 0 && p(w & !0x07ff_c000_0000_0000u64, 58, 1) == 0 && p(w & !0x07ff_c000_0000_0000u64, 59, 5) == p(w, 59, 5)) by (bit_vector);
}

proof fn lemma_plus(w: u64, count: u32)
    requires says(w).free + count <= 1023,
    ensures says(add(w, (1u64 << 59u32) | ((count as u64) << 4u32))) == (Says { free: (says(w).free + count) as u32, raises: ((says(w).raises + 1) % 32) as u32, ..says(w) }),
{
    lemma_fits(w);
    assert(count <= 1023 && add(p(w, 4, 10), count) <= 1023 ==> p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 0, 3) == p(w, 0, 3) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 3, 1) == p(w, 3, 1) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 4, 10) == add(p(w, 4, 10), count) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 14, 12) == p(w, 14, 12) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 26, 12) == p(w, 26, 12) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 38, 4) == p(w, 38, 4) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 42, 4) == p(w, 42, 4) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 46, 10) == p(w, 46, 10) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 56, 2) == p(w, 56, 2) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 58, 1) == p(w, 58, 1) && p(add(w, (1u64 << 59u32) | ((count as u64) << 4u32)), 59, 5) == add(p(w, 59, 5), 1) % 32) by (bit_vector);
}

pub proof fn lemma_opened_is_a_bit(giant: Giant)
    ensures giant.says().opened <= 1,
{
    lemma_fits(giant.0);
}

/// A word that is being opened, whatever was counted meanwhile, after what ends that was added.
pub proof fn lemma_opened(w: u64, opening: u64, opened: u64)
    requires
        says(w) == (Says { state: 2, opened: says(w).opened, free: says(w).free, raises: says(w).raises, ..nothing() }),
        says(opening) == (Says { state: 2, opened: says(w).opened, raises: says(opening).raises, ..nothing() }),
        says(opened).state == 3 && says(opened).opened == 1 && says(opened).raises == says(opening).raises,
        says(w).free + says(opened).free <= 512,
    ensures
        says(add(w, sub(opened, opening))) == (Says { free: (says(w).free + says(opened).free) as u32, raises: says(w).raises, ..says(opened) }),
{
    lemma_fits(w);
    lemma_fits(opening);
    lemma_fits(opened);
    assert(p(w, 0, 3) == 2 && p(w, 14, 12) == 0 && p(w, 26, 12) == 0 && p(w, 38, 4) == 0 && p(w, 42, 4) == 0 && p(w, 46, 10) == 0 && p(w, 56, 2) == 0 && p(w, 58, 1) == 0
        && p(opening, 0, 3) == 2 && p(opening, 3, 1) == p(w, 3, 1) && p(opening, 4, 10) == 0 && p(opening, 14, 12) == 0 && p(opening, 26, 12) == 0 && p(opening, 38, 4) == 0
        && p(opening, 42, 4) == 0 && p(opening, 46, 10) == 0 && p(opening, 56, 2) == 0 && p(opening, 58, 1) == 0
        && p(opened, 0, 3) == 3 && p(opened, 3, 1) == 1 && p(opened, 59, 5) == p(opening, 59, 5) && add(p(w, 4, 10), p(opened, 4, 10)) <= 512
        && p(w, 4, 10) <= 1023 && p(opened, 4, 10) <= 1023 ==> {
        let n = add(w, sub(opened, opening));
        p(n, 0, 3) == 3 && p(n, 3, 1) == 1 && p(n, 4, 10) == add(p(w, 4, 10), p(opened, 4, 10)) && p(n, 14, 12) == p(opened, 14, 12) && p(n, 26, 12) == p(opened, 26, 12)
        && p(n, 38, 4) == p(opened, 38, 4) && p(n, 42, 4) == p(opened, 42, 4) && p(n, 46, 10) == p(opened, 46, 10) && p(n, 56, 2) == p(opened, 56, 2)
        && p(n, 58, 1) == p(opened, 58, 1) && p(n, 59, 5) == p(w, 59, 5)
    }) by (bit_vector);
}

proof fn lemma_minus(w: u64, count: u32)
    requires count <= 1023,
    ensures says(w).free >= count ==> w >= (count as u64) << 4u32
        && says(sub(w, (count as u64) << 4u32)) == (Says { free: (says(w).free - count) as u32, ..says(w) }),
{
    assert(count <= 1023 && p(w, 4, 10) >= count ==> w >= (count as u64) << 4u32 && p(sub(w, (count as u64) << 4u32), 0, 3) == p(w, 0, 3) && p(sub(w, (count as u64) << 4u32), 3, 1) == p(w, 3, 1) && p(sub(w, (count as u64) << 4u32), 4, 10) == sub(p(w, 4, 10), count) && p(sub(w, (count as u64) << 4u32), 14, 12) == p(w, 14, 12) && p(sub(w, (count as u64) << 4u32), 26, 12) == p(w, 26, 12) && p(sub(w, (count as u64) << 4u32), 38, 4) == p(w, 38, 4) && p(sub(w, (count as u64) << 4u32), 42, 4) == p(w, 42, 4) && p(sub(w, (count as u64) << 4u32), 46, 10) == p(w, 46, 10) && p(sub(w, (count as u64) << 4u32), 56, 2) == p(w, 56, 2) && p(sub(w, (count as u64) << 4u32), 58, 1) == p(w, 58, 1) && p(sub(w, (count as u64) << 4u32), 59, 5) == p(w, 59, 5)) by (bit_vector);
}

proof fn lemma_has_partial(w: u64)
    ensures (w & (mask(14, 12) | mask(26, 12)) != 0) == (says(w).unmovable > 0 || says(w).movable > 0),
{
    assert((w & (m(14, 12) | m(26, 12)) != 0) == (p(w, 14, 12) > 0 || p(w, 26, 12) > 0)) by (bit_vector);
}

proof fn lemma_counts(w: u64)
    ensures
        (w & 0x3f_ffff_fff0 == 0) == (says(w).free == 0 && says(w).unmovable == 0 && says(w).movable == 0),
        (w & 0x3f_ffff_fff7 == 0x2003) == (says(w).state == 3 && says(w).free == 512 && says(w).unmovable == 0 && says(w).movable == 0),
{
    assert((w & 0x3f_ffff_fff0 == 0) == (p(w, 4, 10) == 0 && p(w, 14, 12) == 0 && p(w, 26, 12) == 0)) by (bit_vector);
    assert((w & 0x3f_ffff_fff7 == 0x2003) == (p(w, 0, 3) == 3 && p(w, 4, 10) == 512 && p(w, 14, 12) == 0 && p(w, 26, 12) == 0)) by (bit_vector);
}

proof fn lemma_both(a: u32, b: u32)
    ensures a < 4 && b < 4 ==> a | b < 4, 0u32 | b == b, a | 0 == a,
{
    assert(a < 4 && b < 4 ==> a | b < 4) by (bit_vector);
    assert(0u32 | b == b && a | 0 == a) by (bit_vector);
}

// ---- What the rest of the engine relies on ----------------------------------

/// A word is what it says: two that say the same are the same, bit for bit.
proof fn theorem_a_word_is_what_it_says(one: Giant, other: Giant)
    requires one.says() == other.says(),
    ensures one == other,
{
    let (a, b) = (one.0, other.0);
    assert(p(a, 0, 3) == p(b, 0, 3) && p(a, 3, 1) == p(b, 3, 1) && p(a, 4, 10) == p(b, 4, 10) && p(a, 14, 12) == p(b, 14, 12) && p(a, 26, 12) == p(b, 26, 12) && p(a, 38, 4) == p(b, 38, 4) && p(a, 42, 4) == p(b, 42, 4) && p(a, 46, 10) == p(b, 46, 10) && p(a, 56, 2) == p(b, 56, 2) && p(a, 58, 1) == p(b, 58, 1) && p(a, 59, 5) == p(b, 59, 5) ==> a == b) by (bit_vector);
    assert(part(a, 0, 3) == part(b, 0, 3) && part(a, 3, 1) == part(b, 3, 1) && part(a, 4, 10) == part(b, 4, 10) && part(a, 14, 12) == part(b, 14, 12) && part(a, 26, 12) == part(b, 26, 12) && part(a, 38, 4) == part(b, 38, 4) && part(a, 42, 4) == part(b, 42, 4) && part(a, 46, 10) == part(b, 46, 10) && part(a, 56, 2) == part(b, 56, 2) && part(a, 58, 1) == part(b, 58, 1) && part(a, 59, 5) == part(b, 59, 5));
}

/// Merged and opened again, a giant frame is as before, if its bounds are 0.
fn theorem_merge_and_split_are_inverse(split: Giant)
    requires
        split.keeps() && split.complete(),
        // Where no pages are free they form no block.
        split.says().unmovable_order == 0 && split.says().movable_order == 0,
{
    let merged = split.merged();
    assert(merged.says().state == 1);
    let opened = merged.opened_with(HUGES);
    proof { theorem_a_word_is_what_it_says(opened, split); }
    assert(opened == split);
}

/// Opened and merged again, a free giant frame is as before, but for the note that its words were not written.
fn theorem_split_and_merge_are_inverse(free: Giant)
    requires free.keeps() && free.says().state == 1,
{
    let merged = free.opened_with(HUGES).merged();
    assert(merged.says() == (Says { opened: 1, stale: 0, ..free.says() }));
}

/// What was reserved in one step is added back in one, and but for the count of raises the word is as before.
fn theorem_a_reservation_is_undone(word: Giant, count: u32)
    requires word.keeps() && word.says().state == 3 && 0 < count <= word.says().free,
{
    let lowered = word.lowered_free(count);
    assert(lowered is Some);
    if let Some(lowered) = lowered {
        let raise = Giant::raise_of_free(count);
        assert(lowered.says().free + count <= HUGES);
        assert(lowered.plus(raise).says() == (Says { raises: ((word.says().raises + 1) % 32) as u32, ..word.says() }));
    }
}
