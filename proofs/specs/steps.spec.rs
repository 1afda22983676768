//@ file engine/frames/src/frames/word/steps.rs
// The steps by which huge frames pass between the word of a giant frame, their own words and calls, with all CPUs at
// once.

//@ fn giant, holds
//@ fn giant, of: Giants
//@ fn giant
    requires word.wf() && old(held).of(word.place()),
    ensures
        final(held).of(word.place()),
        // Words that were written once stay written: all that follows from a look.
        Giants::saw(word.place(), *old(held), out.word(), *final(held)),
//@ fn giant, sees: let bits

//@ fn swap_giant, holds
//@ fn swap_giant, of: Giants
//@ fn swap_giant
    requires word.wf() && old(held).of(word.place()),
        // What it wants depends on what is changed into what: `may` in proofs/huges.rs.
        Giants::knows(word.place(), *old(held), from.word()) ==> Giants::may(word.place(), *old(held), from.word(), to.word()),
    ensures
        final(held).of(word.place()),
        out ==> Giants::moved(word.place(), *old(held), from.word(), to.word(), *final(held)),
        !out ==> *final(held) == *old(held),
//@ fn swap_giant, passes: swap_u64

//@ fn adjust, holds
//@ fn adjust, of: Giants
//@ fn adjust
    requires word.wf() && old(held).of(word.place()),
        by.says().unmovable_order <= LARGEST_PAGES && by.says().movable_order <= LARGEST_PAGES && by.says().contents < 4,
        // Only what was given back, was not taken or came with an opening is counted.
        by.says().free <= old(held).backs(),
    ensures
        final(held).of(word.place()),
        match out {
            Ok(_) => counted(*old(held), *final(held), by.says().free),
            Err(was) => *final(held) == *old(held) && !was.takes(by),
        },
//@ fn adjust, closure: let adjusted
            ensures adjusting(by, word, out),
//@ fn adjust, passes: });

//@ fn lower_free, holds
//@ fn lower_free, of: Giants
//@ fn lower_free
    requires word.wf() && old(held).of(word.place()) && count <= HUGES,
    ensures
        final(held).of(word.place()),
        out ==> counted(*old(held), *final(held), -count),
        !out ==> *final(held) == *old(held),
//@ fn lower_free, closure: let lowered
            ensures lowering(count, word, out),
//@ fn lower_free, passes: });

//@ fn raise_free, holds
//@ fn raise_free, of: Giants
//@ fn raise_free
    requires word.wf() && old(held).of(word.place()) && 1 <= count <= HUGES && count <= old(held).backs(),
    ensures final(held).of(word.place()), counted(*old(held), *final(held), count as int),
//@ fn raise_free, passes: let old
//@ fn raise_free, passes: merge_if

//@ fn merge_if_complete, holds
//@ fn merge_if_complete, of: Giants
//@ fn merge_if_complete
    requires word.wf() && old(held).of(word.place()),
    ensures final(held).of(word.place()), counted(*old(held), *final(held), 0),
//@ fn merge_if_complete, closure: let _
            ensures merging(word, out),
//@ fn merge_if_complete, passes: });

//@ fn raise_bound, holds
//@ fn raise_bound, of: Giants
//@ fn raise_bound
    requires word.wf() && old(held).of(word.place()) && max_order <= LARGEST_PAGES,
    ensures final(held).of(word.place()), counted(*old(held), *final(held), 0),
//@ fn raise_bound, closure: let _
            ensures bounding(word, out),
//@ fn raise_bound, before: let _
    proof { super::geometry::sizes(); }
//@ fn raise_bound, passes: });

//@ fn lower_bound, holds
//@ fn lower_bound, of: Giants
//@ fn lower_bound
    requires word.wf() && old(held).of(word.place()) && max_order <= LARGEST_PAGES,
    ensures final(held).of(word.place()), counted(*old(held), *final(held), 0),
//@ fn lower_bound, closure: let _
            ensures bounding(word, out),
//@ fn lower_bound, before: let _
    proof { super::geometry::sizes(); }
//@ fn lower_bound, passes: });

//@ fn begin_opening, holds
//@ fn begin_opening, of: Giants
//@ fn begin_opening
    requires word.wf() && old(held).of(word.place()) && old(held).marks() == none(),
        from.says().state == 1 || from.says().state == 4,
    ensures
        final(held).of(word.place()),
        old(held).knows_opened() ==> final(held).knows_opened(),
        !out ==> *final(held) == *old(held),
        out ==> final(held).units() == old(held).units() && final(held).held() =~= old(held).held(),
        // A free one is all the caller's, a taken one is whose it was.
        out && from.says().state == 1 ==> final(held).backs() == old(held).backs() + 512 && final(held).marks() == marks(Mark::OfFree(from.says().opened == 1)),
        out && from.says().state == 4 ==> final(held).backs() == old(held).backs() && final(held).marks() == marks(Mark::OfTaken(from.says().opened == 1)),
//@ fn begin_opening, passes: swap_u64

//@ fn end_opening, holds
//@ fn end_opening, of: Giants
//@ fn end_opening
    requires word.wf() && old(held).of(word.place()) && free <= HUGES && free <= old(held).backs(),
        old(held).marks() == marks(Mark::Done(from.says().opened == 1)) || from.says().opened == 1 && old(held).marks() == marks(Mark::OfFree(true)),
    ensures
        final(held).of(word.place()),
        final(held).knows_opened() && final(held).marks() == none(),
        final(held).backs() == old(held).backs() - free && final(held).units() == old(held).units() && final(held).held() =~= old(held).held(),
//@ fn end_opening, passes: word.fetch_add

//@ fn swap_huge, holds
//@ fn swap_huge, of: Huges
//@ fn swap_huge
    requires word.wf() && old(held).of(word.place().0),
        Huges::knows(word.place(), *old(held), from.word() as u64) ==> Huges::may(word.place(), *old(held), from.word() as u64, to.word() as u64),
    ensures
        final(held).of(word.place().0),
        out ==> Huges::moved(word.place(), *old(held), from.word() as u64, to.word() as u64, *final(held)),
        !out ==> *final(held) == *old(held),
//@ fn swap_huge, passes: swap_u32

//@ fn write_huge, holds
//@ fn write_huge, of: Huges
//@ fn write_huge
    requires word.wf() && old(held).of(word.place().0),
        old(held).marks().dom().contains(word.place().1),
        may_write(old(held).marks()[word.place().1], to),
    ensures
        final(held).of(word.place().0),
        old(held).knows_opened() == final(held).knows_opened() && same_counts(*old(held), *final(held)) && final(held).held() == old(held).held(),
        final(held).marks() =~= old(held).marks().insert(word.place().1, Mark::Done(old(held).marks()[word.place().1].opened())),
//@ fn write_huge, passes: word.store

//@ fn give_huge, holds
//@ fn give_huge, of: Huges
//@ fn give_huge
    requires word.wf() && old(held).of(word.place().0) && old(held).marks() == none(),
        old(held).held().contains(word.place().1) && old(held).knows_opened(),
    ensures
        final(held).of(word.place().0),
        out ==> gave_huge(*old(held), *final(held), word.place().1),
        !out ==> *final(held) == *old(held),
//@ fn give_huge, passes: seen.is_allocated

//@ fn take_huge, holds
//@ fn take_huge, of: Giants
//@ fn take_huge
    requires giant.wf() && huge.wf() && huge.place().0 == giant.place() && old(held).of(giant.place()) && old(held).marks() == none(),
        is_free(seen) && !is_free(to),
    ensures
        final(held).of(giant.place()),
        match out {
            Take::Taken => took_huge(*old(held), *final(held), huge.place().1),
            _ => counted(*old(held), *final(held), 0),
        },
//@ fn take_huge, passes: if !lower_free
//@ fn take_huge, passes: if swap_huge
//@ fn take_huge, before: raise_free
    proof { super::geometry::sizes(); held.undo(1); }
//@ fn take_huge, passes: raise_free
//@ fn adjust, before: let adjusted
    proof { super::geometry::sizes(); }
//@ fn lower_free, before: let lowered
    proof { super::geometry::sizes(); }
//@ fn raise_free, before: let raise
    proof { super::geometry::sizes(); }
//@ fn merge_if_complete, before: let _
    proof { super::geometry::sizes(); }
//@ fn begin_opening, before: swap_u64
    proof { lemma_marks(); }
//@ fn end_opening, before: let (opening
    proof { super::geometry::sizes(); lemma_marks(); super::giant::lemma_opened_is_a_bit(from); }
//@ fn end_opening, before: word.fetch_add
    proof {
        assert forall|was: u64| #[trigger] Giants::knows(word.place(), *held, was) implies says(add(was, change)) == (Says {
            free: (says(was).free + free) as u32, raises: says(was).raises, ..says(opened) }) && says(was).state == 2 by {
            assert(held.marks()[0].opened() == (from.says().opened == 1));
            assert(held.marks().dom().contains(0));
            assert(says(was).opened == from.says().opened);
            crate::model::lemma_wraps(change, opening, opened);
            assert(opened == add(change, opening) ==> sub(opened, opening) == change) by (bit_vector);
            super::giant::lemma_opened(was, opening, opened);
        }
    }
//@ fn take_huge, before: if !lower_free
    proof { super::geometry::sizes(); }

//@ items
use crate::huges::{lemma_marks, Frames, Giants, Huges, InGiant, InHuge, Mark, Rights, Slot, all, free, marks, none, same_counts, shape};
use crate::model::Protocol;
use vstd::tokens::*;
use super::geometry::{HUGES, LARGEST_PAGES};
use super::giant::{Says, nothing, says};

/// A change of a giant word's counts, by which a call gave rights to the count, or got some that it reserved.
pub open spec fn counted(before: Rights, after: Rights, more: int) -> bool {
    &&& after.held() =~= before.held() && after.marks() == before.marks()
    &&& before.knows_opened() ==> after.knows_opened()
    &&& after.backs() == before.backs() - (if more > 0 { more } else { 0 })
    &&& after.units() == before.units() + (if more < 0 { -more } else { 0 })
}

/// The call took a huge frame that it did not have, and nothing else.
pub open spec fn took_huge(before: Rights, after: Rights, huge: int) -> bool {
    &&& !before.held().contains(huge) && after.held() =~= before.held().insert(huge)
    &&& same_counts(before, after) && after.marks() == before.marks()
    &&& before.knows_opened() ==> after.knows_opened()
}

/// The call gave back a huge frame, which is not counted yet, and nothing else.
pub open spec fn gave_huge(before: Rights, after: Rights, huge: int) -> bool {
    &&& after.held() =~= before.held().remove(huge)
    &&& after.backs() == before.backs() + 1 && after.units() == before.units() && after.marks() == before.marks()
    &&& after.knows_opened()
}

pub(crate) open spec fn is_free(word: Huge) -> bool { word.says().state == 1 && word.says().isolated == 0 }
pub(crate) open spec fn may_write(mark: Mark, to: Huge) -> bool {
    mark == Mark::OfFree(mark.opened()) && is_free(to) || mark == Mark::OfTaken(mark.opened()) && !is_free(to)
}

pub(crate) open spec fn adjusting(by: Change, word: u64, out: Option<u64>) -> bool {
    match out {
        Some(now) => exists|giant: Giant| #![trigger giant.says()] giant.says() == says(word) && giant.takes(by) && says(now) == giant.after(by),
        None => exists|giant: Giant| #![trigger giant.says()] giant.says() == says(word) && !giant.takes(by),
    }
}

pub open spec fn lowering(count: u32, word: u64, out: Option<u64>) -> bool {
    match out {
        Some(now) => says(word).state == 3 && says(word).free >= count && says(now) == (Says { free: (says(word).free - count) as u32, ..says(word) }),
        None => true,
    }
}

pub open spec fn merging(word: u64, out: Option<u64>) -> bool {
    match out {
        Some(now) => says(word).state == 3 && says(word).free == 512 && says(now).state == 1 && says(now).free == 0 && says(now).opened == 1,
        None => true,
    }
}

pub open spec fn bounding(word: u64, out: Option<u64>) -> bool {
    match out {
        Some(now) => says(word).state == 3 && says(now).state == 3 && says(now).free == says(word).free && says(now).opened == says(word).opened,
        None => true,
    }
}

/// Whatever tokens two calls hold of one giant frame, they share none. So who has it as one block, which is all 512, is
/// the only one who has any of it.
proof fn theorem_no_huge_frame_is_held_twice(tracked one: &mut Rights, tracked other: &mut Rights, id: InstanceId)
    requires old(one).of(id) && old(other).of(id),
    ensures
        old(one).held().disjoint(old(other).held()),
        final(one).of(id) && final(one).held() == old(one).held() && same_counts(*old(one), *final(one)) && final(one).marks() == old(one).marks()
            && final(one).knows_opened() == old(one).knows_opened(),
        final(other).of(id) && final(other).held() == old(other).held(),
{
    if !one.held().disjoint(other.held()) {
        let i = choose|i: int| one.held().contains(i) && other.held().contains(i);
        assert(one.held().contains(i) && other.held().contains(i));
        let tracked mut mine = one.held.remove(i);
        let tracked theirs = other.held.remove(i);
        mine.unique(&theirs);
        assert(false);
    }
}

/// Huge frames that are taken, and rights to those that are not, are 512 in every state that keeps the invariant, as every
/// transition does; what a call that died had is missing elsewhere, and no more.
proof fn theorem_what_is_taken_and_what_can_be_had_are_always_512(state: Frames::State)
    requires state.invariant(),
    ensures state.counted + state.backs + state.units + state.held.len() == 512,
{
}

/// There is such a giant frame, free and with nothing written below; wherever each step succeeds, the next one's conditions
/// hold: it opens, a huge frame of it is taken, given back, counted, and taken again.
fn theorem_the_steps_of_a_giant_frame_follow_one_another(huge: usize)
    requires huge < 512,
{
    proof { super::geometry::sizes(); lemma_marks(); }
    let tracked (Tracked(inst), Tracked(counted), Tracked(backs), Tracked(units), Tracked(held), Tracked(mut slots), Tracked(idle), Tracked(top), _) = Frames::Instance::initialize();
    let ghost id = inst.id();
    let tracked below = inst.clone();
    let tracked mut held = Rights {
        inst: inst.clone(), backs, units, held, marks: MapToken::empty(id), opened: None,
    };
    let tracked inside = InGiant { inst, top, counted, marks: idle, opened: None };
    let giant: AtomicU64<Giants> = AtomicU64::new(Giant::FREE.bits(), Ghost(id), Tracked(inside));
    let mut words: Vec<AtomicU32> = Vec::new();
    let mut at: usize = 0;
    while at < 512
        invariant
            at <= 512 && words.len() == at && below.id() == id && slots.instance_id() == id,
            slots.map().dom() =~= vstd::set_lib::set_int_range(at as int, 512),
            forall|i: int| at <= i < 512 ==> #[trigger] slots.map()[i] == Slot::Blank,
            forall|i: int| 0 <= i < at ==> (#[trigger] words[i]).wf() && words[i].place() == (id, i),
        decreases 512 - at,
    {
        let tracked mut slot = MapToken::empty(id);
        proof { slot.insert(slots.remove(at as int)); }
        // Whatever is in memory.
        let word = AtomicU32::new(0xdead_0001, Ghost((id, at as int)), Tracked(InHuge { inst: below.clone(), slot }));
        words.push(word);
        at += 1;
    }
    if begin_opening(&giant, Giant::FREE, Tracked(&mut held)) {
        at = 0;
        while at < 512
            invariant
                at <= 512 && words.len() == 512 && held.of(id) && held.backs() == 512 && held.units() == 0 && held.held() =~= Set::empty(),
                held.marks().dom() =~= all(),
                forall|i: int| 0 <= i < at ==> #[trigger] held.marks()[i] == Mark::Done(false),
                forall|i: int| at <= i < 512 ==> #[trigger] held.marks()[i] == Mark::OfFree(false),
                forall|i: int| 0 <= i < 512 ==> (#[trigger] words[i]).wf() && words[i].place() == (id, i),
            decreases 512 - at,
        {
            write_huge(&words[at], Huge::FREE, Tracked(&mut held));
            at += 1;
        }
        proof { lemma_marks(); assert(held.marks() =~= marks(Mark::Done(false))); }
        end_opening(&giant, Giant::FREE, 512, Tracked(&mut held));
        assert(held.backs() == 0 && held.units() == 0);
        let allocated = Huge::allocated(Mobility::Unmovable);
        if let Take::Taken = take_huge(&giant, &words[huge], Huge::FREE, allocated, Tracked(&mut held)) {
            assert(held.held() =~= set![huge as int]);
            if give_huge(&words[huge], Tracked(&mut held)) {
                raise_free(&giant, 1, Tracked(&mut held));
                assert(held.held() =~= Set::empty() && held.backs() == 0 && held.units() == 0);
                let again = take_huge(&giant, &words[huge], Huge::FREE, allocated, Tracked(&mut held));
            }
        }
    }
}
