//! Who has the huge frames of one giant frame: what stands for them, and how it moves between the two words that say it
//! (`engine/src/frames/word/steps.rs`) and the calls that change them.
//!
//! One *taken* huge frame is a token that is never copied. For each huge frame that is not taken there is a *right*, to
//! any one of them: counted in the giant frame's word, or reserved by a call. So tokens and rights are always 512. What
//! is taken as one block is all 512 tokens.

use vstd::prelude::*;
use verus_state_machines_macros::tokenized_state_machine;
use vstd::tokens::*;
use vstd::modes::*;
use crate::frames::word::giant::{Giant, Says, says, nothing};
use crate::frames::word::huge;
use crate::model::Protocol;

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

/// What a call has of a giant frame.
pub tracked struct Rights {
    pub tracked inst: Frames::Instance,
    /// Rights that are not in the count.
    pub tracked backs: Frames::backs,
    /// Rights that it reserved.
    pub tracked units: Frames::units,
    /// Huge frames that it took.
    pub tracked held: SetToken<int, Frames::held>,
    /// What it opens.
    pub tracked marks: MapToken<int, Mark, Frames::mark>,
    /// That the huge words were written.
    pub tracked opened: Option<Frames::opened>,
}

impl Rights {
    pub open spec fn of(self, id: InstanceId) -> bool {
        &&& self.inst.id() == id
        &&& self.backs.instance_id() == id && self.units.instance_id() == id && self.held.instance_id() == id
        &&& self.marks.instance_id() == id
        &&& self.opened is Some ==> self.opened->0.instance_id() == id
        &&& forall|i: int| #[trigger] self.marks.map().dom().contains(i) ==> self.marks.map()[i] != Mark::Idle
    }
    pub open spec fn backs(self) -> nat { self.backs.count() }
    pub open spec fn units(self) -> nat { self.units.count() }
    pub open spec fn held(self) -> Set<int> { self.held.set() }
    pub open spec fn marks(self) -> Map<int, Mark> { self.marks.map() }
    /// It knows that the huge words were written.
    pub open spec fn knows_opened(self) -> bool { self.opened is Some }

    /// What was reserved was not taken: to be counted again.
    pub proof fn undo(tracked &mut self, count: nat)
        requires exists|id: InstanceId| old(self).of(id), count <= old(self).units(),
        ensures
            forall|id: InstanceId| old(self).of(id) ==> final(self).of(id),
            final(self).backs() == old(self).backs() + count && final(self).units() == old(self).units() - count,
            final(self).held() == old(self).held() && final(self).marks() == old(self).marks(),
            final(self).knows_opened() == old(self).knows_opened(),
    {
        let tracked units = self.units.split(count);
        let tracked backs = self.inst.undo(count, units);
        self.backs.join(backs);
    }
}

/// What a word of a giant frame has.
pub tracked struct InGiant {
    pub tracked inst: Frames::Instance,
    pub tracked top: Frames::top,
    pub tracked counted: Frames::counted,
    pub tracked marks: MapToken<int, Mark, Frames::mark>,
    pub tracked opened: Option<Frames::opened>,
}

/// What every word of a giant frame keeps, that lies wholly in its segment.
pub open spec fn shape(word: u64) -> bool {
    let says = says(word);
    &&& 1 <= says.state <= 4 && says.free <= 512
    &&& says.state == 1 || says.state == 4 ==> says.free == 0
    &&& says.state == 2 ==> says == (Says { state: 2, opened: says.opened, free: says.free, raises: says.raises, ..nothing() })
    &&& says.state == 3 ==> says.opened == 1
    &&& says.opened <= 1
}

pub open spec fn none() -> Map<int, Mark> { Map::empty() }

/// The word of a giant frame.
pub struct Giants;

impl Protocol for Giants {
    type Place = InstanceId;
    type Inside = InGiant;
    type Held = Rights;

    open spec fn inv(place: InstanceId, word: u64, inside: InGiant) -> bool {
        let says = says(word);
        &&& shape(word)
        &&& inside.inst.id() == place && inside.top.instance_id() == place && inside.counted.instance_id() == place && inside.marks.instance_id() == place
        &&& inside.top.value().opened == (says.opened == 1)
        &&& says.opened == 1 ==> inside.opened is Some && inside.opened->0.instance_id() == place
        &&& inside.counted.value() == (if says.state == 1 { 512 } else { says.free as nat })
        &&& inside.marks.map() == (if says.state == 2 { none() } else { marks(Mark::Idle) })
        &&& says.state == 1 || says.state == 3 ==> !inside.top.value().whole
        &&& says.state == 4 ==> inside.top.value().whole
    }

    open spec fn of(place: InstanceId, held: Rights) -> bool { held.of(place) }

    open spec fn knows(place: InstanceId, held: Rights, word: u64) -> bool {
        let says = says(word);
        &&& shape(word)
        // What is taken, or reserved, keeps it from being free as one block.
        &&& says.state == 1 ==> held.backs() + held.units() == 0 && held.held() =~= Set::empty()
        &&& says.state == 4 ==> held.backs() + held.units() == 0
        &&& says.free + held.backs() + held.units() <= 512
        &&& held.knows_opened() ==> says.opened == 1
        // Only one call opens it.
        &&& held.marks().dom().contains(0) ==> says.state == 2 && held.marks()[0].opened() == (says.opened == 1)
    }

    open spec fn may(place: InstanceId, held: Rights, was: u64, now: u64) -> bool {
        let (w, n) = (says(was), says(now));
        &&& shape(now)
        &&& match (w.state, n.state) {
            (1, 1) | (4, 4) | (1, 4) => w.opened == n.opened,
            // All of it was taken, and is given back.
            (4, 1) => w.opened == n.opened && held.held() =~= all(),
            // It opens, for the caller to write what is below.
            (1, 2) | (4, 2) => w.opened == n.opened && n.free == 0 && held.marks() == none(),
            (2, 2) => w.opened == n.opened && n.free >= w.free && held.backs() >= n.free - w.free,
            // All is written, or was and is as it was.
            (2, 3) => n.free >= w.free && held.backs() >= n.free - w.free
                && (held.marks() == marks(Mark::Done(w.opened == 1)) || w.opened == 1 && held.marks() == marks(Mark::OfFree(true))),
            (3, 3) => n.free <= w.free || held.backs() >= n.free - w.free,
            // It is free as one block once all are counted.
            (3, 1) => held.backs() >= 512 - w.free && n.opened == 1,
            _ => false,
        }
    }

    open spec fn moved(place: InstanceId, before: Rights, was: u64, now: u64, after: Rights) -> bool {
        let (w, n) = (says(was), says(now));
        let raised: int = if n.free > w.free { n.free - w.free } else { 0 };
        let lowered: int = if n.free < w.free { w.free - n.free } else { 0 };
        &&& before.knows_opened() ==> after.knows_opened()
        &&& match (w.state, n.state) {
            (1, 4) => same_counts(before, after) && after.marks() == before.marks()
                && before.held() =~= Set::empty() && after.held() =~= all(),
            (4, 1) => same_counts(before, after) && after.marks() == before.marks() && after.held() =~= Set::empty(),
            (1, 2) => after.backs() == before.backs() + 512 && after.units() == before.units() && after.held() =~= before.held()
                && after.marks() == marks(Mark::OfFree(w.opened == 1)),
            (4, 2) => same_counts(before, after) && after.held() =~= before.held() && after.marks() == marks(Mark::OfTaken(w.opened == 1)),
            (2, 3) => after.backs() == before.backs() - raised && after.units() == before.units() && after.held() =~= before.held()
                && after.marks() == none() && after.knows_opened(),
            (3, 1) => after.backs() == before.backs() - (512 - w.free) && after.units() == before.units() && after.held() =~= before.held()
                && after.marks() == before.marks(),
            _ => after.backs() == before.backs() - raised && after.units() == before.units() + (if w.state == 3 { lowered } else { 0 })
                && after.held() =~= before.held() && after.marks() == before.marks(),
        }
    }

    open spec fn saw(place: InstanceId, before: Rights, word: u64, after: Rights) -> bool {
        &&& same_counts(before, after) && after.held() =~= before.held() && after.marks() == before.marks()
        &&& before.knows_opened() || says(word).opened == 1 ==> after.knows_opened()
    }

    proof fn look(place: InstanceId, word: u64, tracked inside: &mut InGiant, tracked held: &Rights) {
        let w = says(word);
        lemma_marks();
        inside.inst.no_more_than_there_are(held.backs(), held.units(), &inside.counted, &held.backs, &held.units);
        if w.state == 1 {
            inside.inst.all_are_counted(held.held(), &inside.counted, &held.held);
        }
        if w.state == 4 {
            inside.inst.nothing_below_one_that_is_taken(held.backs(), held.units(), &held.backs, &held.units, &inside.marks, &inside.top);
        }
        if held.opened is Some {
            inside.inst.opened_stays(&inside.top, held.opened.tracked_borrow());
        }
        if held.marks().dom().contains(0) {
            if w.state != 2 {
                inside.inst.one_call_opens_it(held.marks(), &inside.marks, &held.marks);
            }
            inside.inst.what_opens_is_as_it_was(held.marks(), &held.marks, &inside.top);
        }
    }

    proof fn see(place: InstanceId, word: u64, tracked inside: &mut InGiant, tracked held: &mut Rights) {
        if says(word).opened == 1 {
            held.opened = Some(inside.opened.tracked_borrow().clone());
        }
    }

    proof fn step(place: InstanceId, was: u64, now: u64, tracked inside: &mut InGiant, tracked held: &mut Rights) {
        let (w, n) = (says(was), says(now));
        let opened = w.opened == 1;
        lemma_marks();
        let ghost before = *held;
        if w.state == 1 && n.state == 4 {
            let tracked taken = inside.inst.take_whole(&mut inside.counted, &inside.marks, &mut inside.top);
            held.held = taken;
        } else if w.state == 4 && n.state == 1 {
            let tracked mut given = SetToken::empty(place);
            tracked_swap(&mut given, &mut held.held);
            inside.inst.give_whole(&mut inside.counted, given, &inside.marks, &mut inside.top);
        } else if w.state == 1 && n.state == 2 {
            let tracked mut idle = MapToken::empty(place);
            tracked_swap(&mut idle, &mut inside.marks);
            let tracked (Tracked(backs), Tracked(opening)) = inside.inst.begin_free(&mut inside.counted, idle, &inside.top);
            held.backs.join(backs);
            held.marks = opening;
        } else if w.state == 4 && n.state == 2 {
            let tracked mut idle = MapToken::empty(place);
            tracked_swap(&mut idle, &mut inside.marks);
            held.marks = inside.inst.begin_taken(idle, &inside.top);
        } else if n.state != 1 && n.free > w.free || w.state == 3 && n.state == 1 {
            let count = if n.state == 1 { 512 - w.free } else { n.free - w.free };
            inside.inst.raise(count as nat, &mut inside.counted, held.backs.split(count as nat));
        } else if n.state == 3 && n.free < w.free {
            let count = (w.free - n.free) as nat;
            let tracked units = inside.inst.reserve(count, &mut inside.counted, &inside.marks, &inside.top);
            held.units.join(units);
        }
        if w.state == 2 && n.state == 3 {
            assert(held.marks()[0] != Mark::Idle && held.marks().dom().contains(0));
            inside.inst.what_opens_is_as_it_was(held.marks(), &held.marks, &inside.top);
            let tracked mut opening = MapToken::empty(place);
            tracked_swap(&mut opening, &mut held.marks);
            if opening.map() == marks(Mark::Done(opened)) {
                let tracked (Tracked(idle), Tracked(written)) = inside.inst.end_written(opened, opening, &mut inside.top);
                inside.marks = idle;
                inside.opened = Some(written);
            } else {
                inside.marks = inside.inst.end_as_it_was(opening, &inside.top);
            }
            held.opened = Some(inside.opened.tracked_borrow().clone());
        }
    }
}

/// What a word of a huge frame has.
pub tracked struct InHuge {
    pub tracked inst: Frames::Instance,
    pub tracked slot: MapToken<int, Slot, Frames::slot>,
}

/// The word says that the huge frame can be taken.
pub open spec fn free(word: u64) -> bool { huge::says(word as u32).state == 1 && huge::says(word as u32).isolated == 0 }

/// The word of a huge frame.
pub struct Huges;

impl Protocol for Huges {
    /// Of which giant frame, and which of its huge frames.
    type Place = (InstanceId, int);
    type Inside = InHuge;
    type Held = Rights;

    open spec fn inv(place: (InstanceId, int), word: u64, inside: InHuge) -> bool {
        &&& 0 <= place.1 < 512
        &&& inside.inst.id() == place.0 && inside.slot.instance_id() == place.0 && inside.slot.map().dom() =~= set![place.1]
        &&& inside.slot.map()[place.1] == Slot::Free ==> free(word)
        &&& inside.slot.map()[place.1] == Slot::Taken ==> !free(word)
    }
    open spec fn of(place: (InstanceId, int), held: Rights) -> bool { held.of(place.0) }
    open spec fn knows(place: (InstanceId, int), held: Rights, word: u64) -> bool { 0 <= place.1 < 512 }
    open spec fn may(place: (InstanceId, int), held: Rights, was: u64, now: u64) -> bool {
        let i = place.1;
        if held.marks().dom().contains(i) {
            // It writes what is below.
            held.marks()[i] == Mark::OfFree(held.marks()[i].opened()) && free(now) || held.marks()[i] == Mark::OfTaken(held.marks()[i].opened()) && !free(now)
        } else if free(was) && !free(now) {
            // It takes one that it reserved.
            held.units() >= 1
        } else if !free(was) && free(now) {
            // It gives back what it took, of those that are written.
            held.held().contains(i) && held.knows_opened()
        } else {
            true
        }
    }
    open spec fn moved(place: (InstanceId, int), before: Rights, was: u64, now: u64, after: Rights) -> bool {
        let i = place.1;
        &&& before.knows_opened() == after.knows_opened()
        &&& if before.marks().dom().contains(i) {
            same_counts(before, after) && after.held() == before.held()
                && after.marks() =~= before.marks().insert(i, Mark::Done(before.marks()[i].opened()))
        } else {
            &&& after.marks() == before.marks()
            &&& if free(was) && !free(now) {
                // No one had it.
                !before.held().contains(i) && after.held() =~= before.held().insert(i)
                    && after.units() == before.units() - 1 && after.backs() == before.backs()
            } else if !free(was) && free(now) {
                after.held() =~= before.held().remove(i) && after.units() == before.units() && after.backs() == before.backs() + 1
            } else {
                same_counts(before, after) && after.held() == before.held()
            }
        }
    }
    open spec fn saw(place: (InstanceId, int), before: Rights, word: u64, after: Rights) -> bool { after == before }

    proof fn see(place: (InstanceId, int), word: u64, tracked inside: &mut InHuge, tracked held: &mut Rights) {}

    proof fn look(place: (InstanceId, int), word: u64, tracked inside: &mut InHuge, tracked held: &Rights) {}

    proof fn step(place: (InstanceId, int), was: u64, now: u64, tracked inside: &mut InHuge, tracked held: &mut Rights) {
        let i = place.1;
        let ghost was_slot = inside.slot.map()[i];
        let tracked slot = inside.slot.remove(i);
        if held.marks().dom().contains(i) {
            let ghost before = held.marks();
            let tracked mark = held.marks.remove(i);
            let ghost opened = mark.value().opened();
            inside.inst.what_is_written_was_not_taken(i, mark.value(), was_slot, &slot, &mark);
            if mark.value() == Mark::OfFree(opened) {
                let tracked (Tracked(slot), Tracked(done)) = inside.inst.write_free(i, was_slot, opened, slot, mark);
                inside.slot.insert(slot);
                held.marks.insert(done);
            } else {
                let tracked (Tracked(slot), Tracked(done)) = inside.inst.write_taken(i, was_slot, opened, slot, mark);
                inside.slot.insert(slot);
                held.marks.insert(done);
            }
            assert(held.marks() =~= before.insert(i, Mark::Done(opened)));
        } else if free(was) && !free(now) {
            let tracked unit = held.units.split(1);
            inside.inst.reserved_is_written(i, was_slot, &unit, &slot);
            inside.inst.what_is_free_is_no_one_s(i, held.held(), &unit, &held.held, &slot);
            let tracked (Tracked(taken), Tracked(slot)) = inside.inst.take(i, unit, slot);
            held.held.insert(taken);
            inside.slot.insert(slot);
        } else if !free(was) && free(now) {
            inside.inst.opened_is_written(i, was_slot, &slot, held.opened.tracked_borrow());
            let tracked given = held.held.remove(i);
            let tracked (Tracked(back), Tracked(slot)) = inside.inst.give(i, given, slot);
            held.backs.join(back);
            inside.slot.insert(slot);
        } else {
            inside.slot.insert(slot);
        }
    }
}

pub open spec fn same_counts(before: Rights, after: Rights) -> bool { after.backs() == before.backs() && after.units() == before.units() }

} // verus!
