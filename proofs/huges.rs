//! Who has the huge frames of one giant frame: how what stands for them (`tokens.rs`) moves between the two words that say
//! it (`engine/frames/src/frames/word/steps.rs`) and the calls that change them.

use vstd::prelude::*;
use vstd::tokens::*;
use vstd::modes::*;
use crate::frames::word::giant::{Giant, Says, says, nothing};
use crate::frames::word::huge;
use crate::model::Protocol;
pub use crate::tokens::*;

verus! {

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
