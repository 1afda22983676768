//! What stands for the huge frames of one giant frame, and how it may move, without the words that say it (`huges.rs`).
//!
//! One *taken* huge frame is a token that is never copied. For each huge frame that is not taken there is a *right*, to
//! any one of them: counted in the giant frame's word, or reserved by a call. So tokens and rights are always 512. What
//! is taken as one block is all 512 tokens.

use vstd::prelude::*;
use verus_state_machines_macros::tokenized_state_machine;
use vstd::tokens::*;
use vstd::modes::*;

verus! {

/// What the word of a huge frame says: nothing yet, that it can be taken, or that it can't.
pub enum Slot { Blank, Free, Taken }

/// Whether a call that opens the giant frame has to write a huge word still, of one that was free or taken, or did; with
/// whether the words were written before.
pub enum Mark { Idle, OfFree(bool), OfTaken(bool), Done(bool) }

/// Whether the giant frame is allocated as one block, and whether the huge words were written.
pub ghost struct Top { pub whole: bool, pub opened: bool }

pub open spec fn all() -> Set<int> { vstd::set_lib::set_int_range(0, 512) }
pub open spec fn marks(mark: Mark) -> Map<int, Mark> { Map::new(all(), |i: int| mark) }

impl Mark {
    pub open spec fn opened(self) -> bool {
        match self { Mark::Idle => false, Mark::OfFree(opened) => opened, Mark::OfTaken(opened) => opened, Mark::Done(opened) => opened }
    }
}

pub proof fn lemma_sizes(held: Set<int>)
    ensures
        all().len() == 512,
        held.subset_of(all()) ==> held.len() <= 512 && (held.len() == 512 ==> held =~= all()),
{
    vstd::set_lib::lemma_int_range(0, 512);
    if held.subset_of(all()) {
        vstd::set_lib::lemma_len_subset(held, all());
        if held.len() == 512 { vstd::set_lib::lemma_subset_equality(held, all()); }
    }
}

pub proof fn lemma_marks()
    ensures forall|mark: Mark, i: int| #![trigger marks(mark).dom().contains(i)] #![trigger marks(mark)[i]]
        (0 <= i < 512) == marks(mark).dom().contains(i) && (0 <= i < 512 ==> marks(mark)[i] == mark),
{
}

proof fn lemma_all_held(pre: Frames::State)
    requires pre.invariant(), pre.top.whole, marks(Mark::Idle).submap_of(pre.mark),
    ensures pre.held =~= all(), pre.held.len() == 512,
{
    lemma_sizes(pre.held);
    lemma_marks();
    assert forall|i: int| 0 <= i < 512 implies pre.held.contains(i) by { assert(pre.one(i)); assert(marks(Mark::Idle)[i] == Mark::Idle); }
    assert(pre.held =~= all());
}

tokenized_state_machine!{ Frames {
    fields {
        /// Rights in the giant word: what it counts as free, or all where it is free as one block.
        #[sharding(variable)]
        pub counted: nat,
        /// Rights that calls have to put into the count.
        #[sharding(count)]
        pub backs: nat,
        /// Rights that calls reserved: only these take.
        #[sharding(count)]
        pub units: nat,
        /// Huge frames that calls have.
        #[sharding(set)]
        pub held: Set<int>,
        /// What the huge words say.
        #[sharding(map)]
        pub slot: Map<int, Slot>,
        #[sharding(map)]
        pub mark: Map<int, Mark>,
        #[sharding(variable)]
        pub top: Top,
        /// Never taken back: the huge words were written.
        #[sharding(persistent_bool)]
        pub opened: bool,
    }

    init!{
        initialize() {
            init counted = 512;
            init backs = 0;
            init units = 0;
            init held = Set::empty();
            init slot = Map::new(all(), |i: int| Slot::Blank);
            init mark = marks(Mark::Idle);
            init top = Top { whole: false, opened: false };
            init opened = false;
        }
    }

    #[invariant]
    pub spec fn sizes(&self) -> bool {
        &&& self.slot.dom() =~= all()
        &&& self.mark.dom() =~= all()
        &&& self.held.subset_of(all())
        &&& self.counted + self.backs + self.units + self.held.len() == 512
        &&& self.opened == self.top.opened
        &&& !self.opened ==> self.units == 0
    }

    #[invariant]
    pub spec fn each(&self) -> bool {
        forall|i: int| 0 <= i < 512 ==> #[trigger] self.one(i)
    }

    /// Of one huge frame: what its word says is what is so, but below one block, and while it opens.
    pub open spec fn one(&self, i: int) -> bool {
        let (slot, mark, held) = (self.slot[i], self.mark[i], self.held.contains(i));
        &&& slot == Slot::Taken ==> held
        &&& self.top.opened ==> slot != Slot::Blank
        &&& self.top.whole ==> self.units == 0
        &&& mark != Mark::Idle ==> self.units == 0 && mark.opened() == self.top.opened
        &&& mark == Mark::Idle && self.top.whole ==> held && slot != Slot::Taken
        &&& mark == Mark::Idle && !self.top.whole ==> (slot == Slot::Taken) == held
        &&& mark == Mark::Idle && !self.top.whole && !self.top.opened ==> !held
        &&& mark is OfFree ==> !self.top.whole && !held && slot != Slot::Taken
        &&& mark is OfTaken ==> self.top.whole && held && slot != Slot::Taken
        &&& mark is Done ==> slot != Slot::Blank && (slot == Slot::Taken) == held
    }

    // ---- The count of a split giant frame

    transition!{
        reserve(count: nat) {
            require(!pre.top.whole && pre.top.opened);
            require(count <= pre.counted);
            have mark >= (marks(Mark::Idle));
            update counted = (pre.counted - count) as nat;
            add units += (count);
        }
    }

    transition!{
        raise(count: nat) {
            remove backs -= (count);
            update counted = pre.counted + count;
        }
    }

    transition!{
        undo(count: nat) {
            remove units -= (count);
            add backs += (count);
        }
    }

    // ---- The word of a huge frame

    transition!{
        take(i: int) {
            remove units -= (1);
            remove slot -= [i => Slot::Free];
            add slot += [i => Slot::Taken];
            add held += set { i } by { assert(pre.one(i)); };
        }
    }

    transition!{
        give(i: int) {
            remove held -= set { i };
            remove slot -= [i => Slot::Taken];
            add slot += [i => Slot::Free];
            add backs += (1);
        }
    }

    // ---- One block

    transition!{
        take_whole() {
            require(!pre.top.whole);
            require(pre.counted == 512);
            have mark >= (marks(Mark::Idle));
            update counted = 0;
            add held += (all());
            update top = Top { whole: true, ..pre.top };
        }
    }

    transition!{
        give_whole() {
            require(pre.top.whole);
            have mark >= (marks(Mark::Idle));
            remove held -= (all());
            update counted = 512;
            update top = Top { whole: false, ..pre.top };
        }
    }

    // ---- Opening

    transition!{
        begin_free() {
            require(!pre.top.whole);
            require(pre.counted == 512);
            remove mark -= (marks(Mark::Idle));
            update counted = 0;
            add backs += (512);
            add mark += (marks(Mark::OfFree(pre.top.opened)));
        }
    }

    transition!{
        begin_taken() {
            require(pre.top.whole);
            remove mark -= (marks(Mark::Idle));
            add mark += (marks(Mark::OfTaken(pre.top.opened)));
        }
    }

    transition!{
        write_free(i: int, was: Slot, opened: bool) {
            remove mark -= [i => Mark::OfFree(opened)];
            add mark += [i => Mark::Done(opened)];
            remove slot -= [i => was];
            add slot += [i => Slot::Free];
        }
    }

    transition!{
        write_taken(i: int, was: Slot, opened: bool) {
            remove mark -= [i => Mark::OfTaken(opened)];
            add mark += [i => Mark::Done(opened)];
            remove slot -= [i => was];
            add slot += [i => Slot::Taken];
        }
    }

    transition!{
        end_as_it_was() {
            require(pre.top.opened);
            require(!pre.top.whole);
            remove mark -= (marks(Mark::OfFree(true)));
            add mark += (marks(Mark::Idle));
        }
    }

    transition!{
        end_written(opened: bool) {
            remove mark -= (marks(Mark::Done(opened)));
            add mark += (marks(Mark::Idle));
            update top = Top { whole: false, opened: true };
            add opened (union)= true;
        }
    }

    // ---- What follows

    property!{
        no_more_than_there_are(backs: nat, units: nat) {
            have backs >= (backs);
            have units >= (units);
            assert(pre.counted + backs + units <= 512);
        }
    }

    property!{
        all_are_counted(some: Set<int>) {
            require(pre.counted == 512);
            have held >= (some);
            assert(some =~= Set::empty()) by { lemma_sizes(pre.held); pre.held.lemma_len0_is_empty(); };
        }
    }

    property!{
        reserved_is_written(i: int, slot: Slot) {
            have units >= (1);
            have slot >= [i => slot];
            assert(slot != Slot::Blank) by { assert(pre.one(i)); };
        }
    }

    property!{
        what_is_free_is_no_one_s(i: int, some: Set<int>) {
            have units >= (1);
            have held >= (some);
            have slot >= [i => Slot::Free];
            assert(!some.contains(i)) by { assert(pre.one(i)); };
        }
    }

    property!{
        opened_is_written(i: int, slot: Slot) {
            have opened >= true;
            have slot >= [i => slot];
            assert(slot != Slot::Blank) by { assert(pre.one(i)); };
        }
    }

    property!{
        opened_stays() {
            have opened >= true;
            assert(pre.top.opened);
        }
    }

    property!{
        nothing_below_one_that_is_taken(backs: nat, units: nat) {
            require(pre.top.whole);
            have mark >= (marks(Mark::Idle));
            have backs >= (backs);
            have units >= (units);
            assert(backs + units == 0) by { lemma_all_held(pre); };
        }
    }

    property!{
        one_call_opens_it(some: Map<int, Mark>) {
            have mark >= (marks(Mark::Idle));
            have mark >= (some);
            assert(some.dom().contains(0) ==> some[0] == Mark::Idle) by {
                lemma_marks();
                assert(marks(Mark::Idle)[0] == Mark::Idle);
                assert(pre.mark[0] == Mark::Idle);
            };
        }
    }

    property!{
        what_is_written_was_not_taken(i: int, mark: Mark, slot: Slot) {
            have mark >= [i => mark];
            have slot >= [i => slot];
            require(mark is OfFree || mark is OfTaken);
            assert(slot != Slot::Taken) by { assert(pre.one(i)); };
        }
    }

    property!{
        what_opens_is_as_it_was(some: Map<int, Mark>) {
            have mark >= (some);
            assert(some.dom().contains(0) && some[0] != Mark::Idle ==> some[0].opened() == pre.top.opened && (some[0] is OfFree ==> !pre.top.whole)) by {
                if some.dom().contains(0) { assert(some.contains_key(0)); assert(pre.mark.contains_key(0) && pre.mark[0] == some[0]); assert(pre.one(0)); }
            };
        }
    }

    #[inductive(initialize)]
    fn initialize_inductive(post: Self) {
        lemma_sizes(post.held);
        lemma_marks();
        assert forall|i: int| 0 <= i < 512 implies #[trigger] post.one(i) by {}
    }

    #[inductive(reserve)]
    fn reserve_inductive(pre: Self, post: Self, count: nat) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(raise)]
    fn raise_inductive(pre: Self, post: Self, count: nat) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(undo)]
    fn undo_inductive(pre: Self, post: Self, count: nat) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(take)]
    fn take_inductive(pre: Self, post: Self, i: int) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(give)]
    fn give_inductive(pre: Self, post: Self, i: int) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(take_whole)]
    fn take_whole_inductive(pre: Self, post: Self) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        pre.held.lemma_len0_is_empty();
        assert(post.held =~= all());
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(give_whole)]
    fn give_whole_inductive(pre: Self, post: Self) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert(pre.held =~= all());
        assert(post.held =~= Set::<int>::empty());
        assert(post.held.len() == 0);
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(begin_free)]
    fn begin_free_inductive(pre: Self, post: Self) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(begin_taken)]
    fn begin_taken_inductive(pre: Self, post: Self) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(write_free)]
    fn write_free_inductive(pre: Self, post: Self, i: int, was: Slot, opened: bool) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(write_taken)]
    fn write_taken_inductive(pre: Self, post: Self, i: int, was: Slot, opened: bool) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(end_as_it_was)]
    fn end_as_it_was_inductive(pre: Self, post: Self) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }

    #[inductive(end_written)]
    fn end_written_inductive(pre: Self, post: Self, opened: bool) {
        lemma_sizes(pre.held);
        lemma_marks();
        assert(pre.one(0));
        assert forall|j: int| 0 <= j < 512 implies #[trigger] post.one(j) by { assert(pre.one(j) && marks(Mark::Idle)[j] == Mark::Idle); }
    }
} }

} // verus!
