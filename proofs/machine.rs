//! A machine of giant frames, and calls that have some of it: how the tokens of both levels are one ownership of frames,
//! and that what five steps of `engine/frames/src/frames/word/` do to it, one at a time, is what `owners.rs` says.
//!
//! A huge frame is had as a whole, by its token, or page by page. `Kept` is what no call has meanwhile: the page
//! tokens of a huge frame that is whole, or the token of one that is in pages. So one token of a huge frame is exchanged
//! for 512 of pages, and back.

use vstd::prelude::*;

use crate::bits::range;
use crate::frames::word::bitmap::{Bitmap, TakenAt};
use crate::frames::word::geometry::Pages;
use crate::frames::word::giant::Giant;
use crate::frames::word::huge::Huge;
use crate::frames::word::steps::{self, Take};
use crate::huges::{Frames, Giants, Huges, Rights, all, free as is_free_word, none, shape};
use crate::model::{AtomicU32, AtomicU64, Held, Protocol};
use crate::owners::{Owners, allocate, are_allocated, are_free, free, frames};
use vstd::resource::Loc;
use vstd::tokens::*;

verus! {

broadcast use vstd::set_lib::range_set_properties;

/// Which tokens are of which giant frame, and of which huge frame's bitmap; huge frames are numbered through.
pub ghost struct Machine {
    pub giants: Map<int, InstanceId>,
    pub bitmaps: Map<int, Loc>,
}

impl Machine {
    pub open spec fn wf(self) -> bool {
        forall|huge: int| #[trigger] self.bitmaps.contains_key(huge) == self.giants.contains_key(huge / 512)
    }
    pub open spec fn has(self, frame: int) -> bool { self.bitmaps.contains_key(frame / 512) }
}

/// What one call has of a machine.
pub tracked struct Share {
    pub tracked giants: Map<int, Rights>,
    pub tracked pages: Map<int, Held>,
}

impl Share {
    pub open spec fn of(self, machine: Machine) -> bool {
        &&& self.giants.dom() =~= machine.giants.dom() && self.pages.dom() =~= machine.bitmaps.dom()
        &&& forall|giant: int| #[trigger] machine.giants.contains_key(giant) ==> self.giants[giant].of(machine.giants[giant])
        &&& forall|huge: int| #[trigger] machine.bitmaps.contains_key(huge) ==> self.pages[huge].id() == machine.bitmaps[huge]
    }
    /// As a whole.
    pub open spec fn has_huge(self, huge: int) -> bool { self.giants[huge / 512].held().contains(huge % 512) }
    pub open spec fn has_page(self, huge: int, page: int) -> bool { self.pages[huge].dom().contains(page) }
    /// No frame both ways.
    pub open spec fn one_way(self, machine: Machine) -> bool {
        forall|frame: int| #![trigger self.has(frame)] machine.has(frame) ==> !(self.has_huge(frame / 512) && self.has_page(frame / 512, frame % 512))
    }
    /// One way or the other.
    pub open spec fn has(self, frame: int) -> bool { self.has_huge(frame / 512) || self.has_page(frame / 512, frame % 512) }
}

/// Of a huge frame what no call has.
pub tracked struct Kept {
    pub tracked huge: Option<Frames::held>,
    pub tracked pages: Held,
}

impl Kept {
    pub open spec fn of(self, machine: Machine, huge: int) -> bool {
        &&& self.pages.id() == machine.bitmaps[huge]
        &&& match self.huge {
            None => self.pages.dom() =~= range(0, 512),
            Some(token) => self.pages.dom() =~= Set::empty() && token.instance_id() == machine.giants[huge / 512] && token.element() == huge % 512,
        }
    }
}

/// All calls, and what is kept.
pub tracked struct Whole {
    pub tracked calls: Map<u32, Share>,
    pub tracked kept: Map<int, Kept>,
}

pub open spec fn owns(owners: Owners, who: u32, frame: int) -> bool { owners.contains_key(frame) && owners[frame] == who }

impl Whole {
    pub open spec fn wf(self, machine: Machine) -> bool {
        &&& machine.wf()
        &&& forall|who: u32| #[trigger] self.calls.contains_key(who) ==> self.calls[who].of(machine)
        &&& self.kept.dom() =~= machine.bitmaps.dom()
        &&& forall|huge: int| #[trigger] machine.bitmaps.contains_key(huge) ==> self.kept[huge].of(machine, huge)
    }
    pub open spec fn has(self, who: u32, frame: int) -> bool { self.calls.contains_key(who) && self.calls[who].has(frame) }
    /// Each frame's owner is the call that has it; a frame that no call has is free.
    pub open spec fn is(self, machine: Machine, owners: Owners) -> bool {
        &&& forall|frame: int| #[trigger] owners.contains_key(frame) ==> machine.has(frame)
        &&& forall|who: u32, frame: int| #![trigger owns(owners, who, frame)] #![trigger self.has(who, frame)]
            machine.has(frame) ==> owns(owners, who, frame) == self.has(who, frame)
    }
    /// The same but for what this call has.
    pub open spec fn but_for(self, before: Whole, who: u32) -> bool {
        &&& self.calls.dom() =~= before.calls.dom() && self.calls.contains_key(who)
        &&& forall|other: u32| #[trigger] before.calls.contains_key(other) && other != who ==> self.calls[other] == before.calls[other]
    }
}

/// Of one huge frame two calls never have the token and a page, nor both the same.
proof fn lemma_apart(tracked one: Share, tracked other: Share, tracked kept: Kept, machine: Machine, frame: int)
    requires
        machine.wf() && machine.has(frame) && one.of(machine) && other.of(machine) && kept.of(machine, frame / 512),
    ensures !(one.has(frame) && other.has(frame)),
{
    let (huge, page) = (frame / 512, frame % 512);
    assert(machine.bitmaps.contains_key(huge) && machine.giants.contains_key(huge / 512));
    let tracked mut one = one;
    let tracked mut other = other;
    let tracked Kept { huge: token, pages: mut kept } = kept;
    if one.has(frame) && other.has(frame) {
        let tracked mut mine = one.giants.tracked_remove(huge / 512);
        let tracked mut theirs = other.giants.tracked_remove(huge / 512);
        let tracked my_pages = one.pages.tracked_remove(huge);
        let tracked mut their_pages = other.pages.tracked_remove(huge);
        if mine.held().contains(huge % 512) {
            let tracked mut a = mine.held.remove(huge % 512);
            if theirs.held().contains(huge % 512) {
                let tracked b = theirs.held.remove(huge % 512);
                a.unique(&b);
            } else {
                if token is Some {
                    let tracked b = token.tracked_unwrap();
                    a.unique(&b);
                }
                their_pages.disjoint(&kept);
            }
        } else if theirs.held().contains(huge % 512) {
            let tracked mut a = theirs.held.remove(huge % 512);
            if token is Some {
                let tracked b = token.tracked_unwrap();
                a.unique(&b);
            }
            kept.disjoint(&my_pages);
        } else {
            their_pages.disjoint(&my_pages);
        }
        assert(false);
    }
}

/// Two calls never hold the same frame of a machine, neither as a page, nor as a part of a huge or giant frame, nor one as
/// the one and the other as the other, whatever tokens they have.
proof fn theorem_no_frame_is_held_twice(tracked whole: &mut Whole, machine: Machine, one: u32, other: u32, frame: int)
    requires old(whole).wf(machine) && machine.has(frame) && one != other,
    ensures *final(whole) == *old(whole), !(final(whole).has(one, frame) && final(whole).has(other, frame)),
{
    if whole.has(one, frame) && whole.has(other, frame) {
        let tracked a = whole.calls.tracked_remove(one);
        let tracked b = whole.calls.tracked_remove(other);
        let tracked kept = whole.kept.tracked_remove(frame / 512);
        lemma_apart(a, b, kept, machine, frame);
        assert(false);
    }
}

/// Nor does one call have a huge frame both ways.
proof fn lemma_one_way(tracked whole: &mut Whole, machine: Machine, who: u32)
    requires old(whole).wf(machine) && old(whole).calls.contains_key(who),
    ensures
        *final(whole) == *old(whole),
        final(whole).calls[who].one_way(machine),
{
    if exists|frame: int| machine.has(frame) && whole.calls[who].has_huge(frame / 512) && whole.calls[who].has_page(frame / 512, frame % 512) {
        let frame = choose|frame: int| machine.has(frame) && whole.calls[who].has_huge(frame / 512) && whole.calls[who].has_page(frame / 512, frame % 512);
        let huge = frame / 512;
        assert(machine.bitmaps.contains_key(huge) && machine.giants.contains_key(huge / 512));
        let tracked mut share = whole.calls.tracked_remove(who);
        let tracked Kept { huge: token, pages: mut kept } = whole.kept.tracked_remove(huge);
        let tracked mut rights = share.giants.tracked_remove(huge / 512);
        let tracked pages = share.pages.tracked_remove(huge);
        let tracked mut a = rights.held.remove(huge % 512);
        if token is Some {
            let tracked b = token.tracked_unwrap();
            a.unique(&b);
        }
        kept.disjoint(&pages);
        assert(false);
    }
}

/// A call that has `from..to` now, and had none of it, was given it by the model; nothing else changed.
proof fn lemma_taken(tracked whole: &mut Whole, before: Whole, machine: Machine, owners: Owners, who: u32, from: int, to: int)
    requires
        old(whole).wf(machine) && old(whole).but_for(before, who) && before.is(machine, owners),
        forall|frame: int| from <= frame < to ==> #[trigger] machine.has(frame) && !before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> old(whole).has(who, frame) == (before.has(who, frame) || from <= frame < to),
    ensures
        *final(whole) == *old(whole),
        allocate(owners, from, to, who) is Some,
        final(whole).is(machine, allocate(owners, from, to, who)->0),
{
    if !are_free(owners, from, to) {
        let frame = choose|frame: int| from <= frame < to && #[trigger] owners.contains_key(frame);
        let other = owners[frame];
        assert(machine.has(frame));
        assert(owns(owners, other, frame));
        assert(before.has(other, frame));
        assert(other != who);
        assert(before.calls.contains_key(other));
        assert(whole.has(other, frame) && whole.has(who, frame));
        theorem_no_frame_is_held_twice(whole, machine, who, other, frame);
        assert(false);
    }
    let now = allocate(owners, from, to, who)->0;
    assert forall|other: u32, frame: int| machine.has(frame) implies owns(now, other, frame) == whole.has(other, frame) by {
        assert(owns(owners, other, frame) == before.has(other, frame));
        assert(before.calls.contains_key(other) == whole.calls.contains_key(other));
        if from <= frame < to {
            assert(owns(now, who, frame) && whole.has(who, frame));
            if other != who {
                assert(!owners.contains_key(frame));
            }
        }
    }
}

/// A call that had `from..to`, and has none of it now, gave it back in the model.
proof fn lemma_given(whole: Whole, before: Whole, machine: Machine, owners: Owners, who: u32, from: int, to: int)
    requires
        whole.but_for(before, who) && before.is(machine, owners),
        forall|frame: int| from <= frame < to ==> #[trigger] machine.has(frame) && before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == (before.has(who, frame) && !(from <= frame < to)),
    ensures
        free(owners, from, to) is Some,
        whole.is(machine, free(owners, from, to)->0),
{
    assert forall|frame: int| from <= frame < to implies #[trigger] owners.contains_key(frame) by {
        assert(machine.has(frame) && before.has(who, frame) && owns(owners, who, frame));
    }
    let now = free(owners, from, to)->0;
    assert forall|other: u32, frame: int| machine.has(frame) implies owns(now, other, frame) == whole.has(other, frame) by {
        assert(owns(owners, other, frame) == before.has(other, frame));
        assert(before.calls.contains_key(other) == whole.calls.contains_key(other));
        if from <= frame < to {
            assert(owns(owners, who, frame));
        }
    }
}

/// Where a call has what it had, frame by frame, no owner changed.
proof fn lemma_same(whole: Whole, before: Whole, machine: Machine, owners: Owners, who: u32)
    requires
        whole.but_for(before, who) && before.is(machine, owners),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == before.has(who, frame),
    ensures whole.is(machine, owners),
{
    assert forall|other: u32, frame: int| machine.has(frame) implies owns(owners, other, frame) == whole.has(other, frame) by {
        assert(owns(owners, other, frame) == before.has(other, frame));
        assert(before.calls.contains_key(other) == whole.calls.contains_key(other));
    }
}

/// What the steps of one huge frame are asked for: its bitmap and its word are of this machine.
pub(crate) open spec fn is_bitmap(machine: Machine, huge: int, bitmap: &Bitmap) -> bool {
    machine.bitmaps.contains_key(huge) && bitmap.wf() && bitmap.id() == machine.bitmaps[huge]
}
pub open spec fn is_giant(machine: Machine, at: int, giant: &AtomicU64<Giants>) -> bool {
    machine.giants.contains_key(at) && giant.wf() && giant.place() == machine.giants[at]
}
pub open spec fn is_huge(machine: Machine, at: int, huge: &AtomicU32) -> bool {
    machine.bitmaps.contains_key(at) && huge.wf() && huge.place() == (machine.giants[at / 512], at % 512)
}

/// Pages that a call takes of a huge frame are what `allocate` of the model gives it, which had them free; if it takes none,
/// no owner changes.
fn theorem_taking_pages_is_allocate(bitmap: &Bitmap, order: u8, count: u32, Ghost(machine): Ghost<Machine>, Ghost(huge): Ghost<int>,
    Ghost(owners): Ghost<Owners>, Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && is_bitmap(machine, huge, bitmap),
        order <= 8 && 1 <= count <= 1u32 << order,
{
    let ghost before = *whole;
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut pages = share.pages.tracked_remove(huge);
    let taken = bitmap.take_any(order, count, Tracked(&mut pages));
    proof {
        share.pages.tracked_insert(huge, pages);
        whole.calls.tracked_insert(who, share);
        lemma_one_way(whole, machine, who);
    }
    match taken {
        Ok(TakenAt { at, filled: _, undone: _ }) => {
            let ghost (from, to) = (512 * huge + at, 512 * huge + at + count);
            proof {
                lemma_pages_taken(*whole, before, machine, who, huge, at as int, count as int);
                lemma_taken(whole, before, machine, owners, who, from, to);
            }
            assert(allocate(owners, from, to, who) is Some && whole.is(machine, allocate(owners, from, to, who)->0));
        }
        Err(_) => {
            proof { lemma_same(*whole, before, machine, owners, who); }
            assert(whole.is(machine, owners));
        }
    }
    assert(whole.wf(machine));
}

/// Only the pages that a call has of one huge frame changed.
pub open spec fn only_pages(whole: Whole, before: Whole, who: u32, huge: int) -> bool {
    &&& whole.but_for(before, who)
    &&& whole.calls[who].giants == before.calls[who].giants
    &&& forall|other: int| other != huge ==> #[trigger] whole.calls[who].pages[other] == before.calls[who].pages[other]
}

proof fn lemma_pages_taken(whole: Whole, before: Whole, machine: Machine, who: u32, huge: int, at: int, count: int)
    requires
        whole.wf(machine) && only_pages(whole, before, who, huge) && machine.bitmaps.contains_key(huge) && before.calls.contains_key(who),
        0 <= at && at + count <= 512,
        before.calls[who].pages[huge].dom().disjoint(range(at, at + count)),
        whole.calls[who].pages[huge].dom() =~= before.calls[who].pages[huge].dom().union(range(at, at + count)),
        whole.calls[who].one_way(machine),
    ensures
        forall|frame: int| 512 * huge + at <= frame < 512 * huge + at + count ==> #[trigger] machine.has(frame) && !before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == (before.has(who, frame) || 512 * huge + at <= frame < 512 * huge + at + count),
{
    assert forall|frame: int| 512 * huge + at <= frame < 512 * huge + at + count implies #[trigger] machine.has(frame) && !before.has(who, frame) by {
        assert(frame / 512 == huge && frame % 512 == frame - 512 * huge);
        assert(whole.calls[who].has_page(huge, frame % 512));
        assert(whole.calls[who].has(frame));
    }
    assert forall|frame: int| #[trigger] machine.has(frame) implies
        whole.has(who, frame) == (before.has(who, frame) || 512 * huge + at <= frame < 512 * huge + at + count) by {
        if frame / 512 == huge { assert(frame == 512 * huge + frame % 512); }
    }
}

/// Pages that a call gives back are what `free` of the model frees, which had them allocated, to that call.
fn theorem_giving_pages_is_free(bitmap: &Bitmap, pages: Pages, Ghost(machine): Ghost<Machine>, Ghost(huge): Ghost<int>,
    Ghost(owners): Ghost<Owners>, Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && is_bitmap(machine, huge, bitmap),
        pages.count >= 1 && pages.at + pages.count <= 512,
        range(pages.at as int, pages.at + pages.count) <= old(whole).calls[who].pages[huge].dom(),
{
    let ghost before = *whole;
    let ghost (from, to) = (512 * huge + pages.at, 512 * huge + pages.at + pages.count);
    proof { lemma_one_way(whole, machine, who); }
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut held = share.pages.tracked_remove(huge);
    let given = bitmap.give(pages, Tracked(&mut held));
    proof {
        share.pages.tracked_insert(huge, held);
        whole.calls.tracked_insert(who, share);
        lemma_pages_given(*whole, before, machine, who, huge, pages.at as int, pages.count as int);
        lemma_given(*whole, before, machine, owners, who, from, to);
    }
    assert(given is Ok);
    assert(free(owners, from, to) is Some && whole.is(machine, free(owners, from, to)->0));
    assert(whole.wf(machine));
}

proof fn lemma_pages_given(whole: Whole, before: Whole, machine: Machine, who: u32, huge: int, at: int, count: int)
    requires
        before.wf(machine) && only_pages(whole, before, who, huge) && machine.bitmaps.contains_key(huge) && before.calls.contains_key(who),
        0 <= at && at + count <= 512,
        range(at, at + count) <= before.calls[who].pages[huge].dom(),
        whole.calls[who].pages[huge].dom() =~= before.calls[who].pages[huge].dom().difference(range(at, at + count)),
        before.calls[who].one_way(machine),
    ensures
        forall|frame: int| 512 * huge + at <= frame < 512 * huge + at + count ==> #[trigger] machine.has(frame) && before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == (before.has(who, frame) && !(512 * huge + at <= frame < 512 * huge + at + count)),
{
    assert forall|frame: int| 512 * huge + at <= frame < 512 * huge + at + count implies #[trigger] machine.has(frame) && before.has(who, frame) by {
        assert(frame / 512 == huge && frame % 512 == frame - 512 * huge);
        assert(before.calls[who].has_page(huge, frame % 512));
    }
    assert forall|frame: int| #[trigger] machine.has(frame) implies
        whole.has(who, frame) == (before.has(who, frame) && !(512 * huge + at <= frame < 512 * huge + at + count)) by {
        if frame / 512 == huge {
            assert(frame == 512 * huge + frame % 512);
            assert(before.calls[who].has(frame) || !before.calls[who].has(frame));
        }
    }
}

/// Only the huge frames that a call has of one giant frame changed.
pub open spec fn only_huges(whole: Whole, before: Whole, who: u32, giant: int) -> bool {
    &&& whole.but_for(before, who)
    &&& whole.calls[who].pages == before.calls[who].pages
    &&& forall|other: int| other != giant ==> #[trigger] whole.calls[who].giants[other] == before.calls[who].giants[other]
}

/// A huge frame that a call takes as a whole is 512 frames that `allocate` gives it; if it takes none, no owner changes.
fn theorem_taking_a_huge_frame_is_allocate(giant: &AtomicU64<Giants>, word: &AtomicU32, seen: Huge, to: Huge,
    Ghost(machine): Ghost<Machine>, Ghost(huge): Ghost<int>, Ghost(owners): Ghost<Owners>, Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who),
        is_giant(machine, huge / 512, giant) && is_huge(machine, huge, word),
        old(whole).calls[who].giants[huge / 512].marks() == none(),
        steps::is_free(seen) && !steps::is_free(to),
{
    let ghost before = *whole;
    let ghost (at, from) = (huge / 512, 512 * huge);
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut rights = share.giants.tracked_remove(at);
    let taken = steps::take_huge(giant, word, seen, to, Tracked(&mut rights));
    proof {
        share.giants.tracked_insert(at, rights);
        whole.calls.tracked_insert(who, share);
    }
    if let Take::Taken = taken {
        proof {
            lemma_one_way(whole, machine, who);
            lemma_huges_taken(*whole, before, machine, who, at, huge, huge + 1);
            lemma_taken(whole, before, machine, owners, who, from, from + 512);
        }
        assert(allocate(owners, from, from + 512, who) is Some && whole.is(machine, allocate(owners, from, from + 512, who)->0));
    } else {
        proof { lemma_same(*whole, before, machine, owners, who); }
        assert(whole.is(machine, owners));
    }
    assert(whole.wf(machine));
}

/// A huge frame that a call gives back as a whole is 512 frames that `free` frees, which had them allocated, to that call; if
/// its word does not change, no owner does.
fn theorem_giving_a_huge_frame_is_free(word: &AtomicU32, Ghost(machine): Ghost<Machine>, Ghost(huge): Ghost<int>, Ghost(owners): Ghost<Owners>,
    Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && is_huge(machine, huge, word),
        old(whole).calls[who].giants[huge / 512].marks() == none() && old(whole).calls[who].giants[huge / 512].knows_opened(),
        old(whole).calls[who].has_huge(huge),
{
    let ghost before = *whole;
    let ghost (at, from) = (huge / 512, 512 * huge);
    proof { lemma_one_way(whole, machine, who); }
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut rights = share.giants.tracked_remove(at);
    let given = steps::give_huge(word, Tracked(&mut rights));
    proof {
        share.giants.tracked_insert(at, rights);
        whole.calls.tracked_insert(who, share);
    }
    if given {
        proof {
            lemma_huges_given(*whole, before, machine, who, at, huge, huge + 1);
            lemma_given(*whole, before, machine, owners, who, from, from + 512);
        }
        assert(free(owners, from, from + 512) is Some && whole.is(machine, free(owners, from, from + 512)->0));
    } else {
        proof { lemma_same(*whole, before, machine, owners, who); }
        assert(whole.is(machine, owners));
    }
    assert(whole.wf(machine));
}

proof fn lemma_huges_taken(whole: Whole, before: Whole, machine: Machine, who: u32, giant: int, first: int, end: int)
    requires
        whole.wf(machine) && only_huges(whole, before, who, giant) && machine.giants.contains_key(giant) && before.calls.contains_key(who),
        512 * giant <= first <= end <= 512 * giant + 512,
        forall|i: int| first <= 512 * giant + i < end ==> !#[trigger] before.calls[who].giants[giant].held().contains(i),
        whole.calls[who].giants[giant].held() =~= before.calls[who].giants[giant].held().union(range(first - 512 * giant, end - 512 * giant)),
        whole.calls[who].one_way(machine),
    ensures
        forall|frame: int| 512 * first <= frame < 512 * end ==> #[trigger] machine.has(frame) && !before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == (before.has(who, frame) || 512 * first <= frame < 512 * end),
{
    assert forall|frame: int| 512 * first <= frame < 512 * end implies #[trigger] machine.has(frame) && !before.has(who, frame) by {
        let huge = frame / 512;
        assert(first <= huge < end && huge / 512 == giant && huge % 512 == huge - 512 * giant);
        assert(machine.bitmaps.contains_key(huge) == machine.giants.contains_key(giant));
        assert(whole.calls[who].has_huge(huge));
        assert(whole.calls[who].has(frame));
        assert(!before.calls[who].giants[giant].held().contains(huge % 512));
    }
    assert forall|frame: int| #[trigger] machine.has(frame) implies whole.has(who, frame) == (before.has(who, frame) || 512 * first <= frame < 512 * end) by {
        let huge = frame / 512;
        if huge / 512 == giant {
            assert(huge == 512 * giant + huge % 512);
        } else {
            assert(!(first <= huge < end));
        }
    }
}

proof fn lemma_huges_given(whole: Whole, before: Whole, machine: Machine, who: u32, giant: int, first: int, end: int)
    requires
        before.wf(machine) && only_huges(whole, before, who, giant) && machine.giants.contains_key(giant) && before.calls.contains_key(who),
        512 * giant <= first <= end <= 512 * giant + 512,
        forall|i: int| first <= 512 * giant + i < end ==> #[trigger] before.calls[who].giants[giant].held().contains(i),
        whole.calls[who].giants[giant].held() =~= before.calls[who].giants[giant].held().difference(range(first - 512 * giant, end - 512 * giant)),
        before.calls[who].one_way(machine),
    ensures
        forall|frame: int| 512 * first <= frame < 512 * end ==> #[trigger] machine.has(frame) && before.has(who, frame),
        forall|frame: int| #[trigger] machine.has(frame) ==> whole.has(who, frame) == (before.has(who, frame) && !(512 * first <= frame < 512 * end)),
{
    assert forall|frame: int| 512 * first <= frame < 512 * end implies #[trigger] machine.has(frame) && before.has(who, frame) by {
        let huge = frame / 512;
        assert(first <= huge < end && huge / 512 == giant && huge % 512 == huge - 512 * giant);
        assert(machine.bitmaps.contains_key(huge) == machine.giants.contains_key(giant));
        assert(before.calls[who].giants[giant].held().contains(huge % 512));
    }
    assert forall|frame: int| #[trigger] machine.has(frame) implies whole.has(who, frame) == (before.has(who, frame) && !(512 * first <= frame < 512 * end)) by {
        let huge = frame / 512;
        assert(before.calls[who].has(frame) || !before.calls[who].has(frame));
        if huge / 512 == giant {
            assert(huge == 512 * giant + huge % 512);
        } else {
            assert(!(first <= huge < end));
        }
    }
}

/// A giant frame that is taken as one block is 262,144 frames that `allocate` gives; if it is not, no owner changes.
fn theorem_taking_a_giant_frame_is_allocate(giant: &AtomicU64<Giants>, is: Giant, taken: Giant, Ghost(machine): Ghost<Machine>,
    Ghost(at): Ghost<int>, Ghost(owners): Ghost<Owners>, Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && is_giant(machine, at, giant),
        is.says().state == 1 && taken.says().state == 4 && is.says().opened == taken.says().opened && shape(is.word()) && shape(taken.word()),
{
    let ghost before = *whole;
    let ghost (from, to) = (262144 * at, 262144 * at + 262144);
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut rights = share.giants.tracked_remove(at);
    let is_taken = steps::swap_giant(giant, is, taken, Tracked(&mut rights));
    proof {
        share.giants.tracked_insert(at, rights);
        whole.calls.tracked_insert(who, share);
    }
    if is_taken {
        proof {
            lemma_one_way(whole, machine, who);
            lemma_huges_taken(*whole, before, machine, who, at, 512 * at, 512 * at + 512);
            lemma_taken(whole, before, machine, owners, who, from, to);
        }
        assert(allocate(owners, from, to, who) is Some && whole.is(machine, allocate(owners, from, to, who)->0));
    } else {
        proof { lemma_same(*whole, before, machine, owners, who); }
        assert(whole.is(machine, owners));
    }
    assert(whole.wf(machine));
}

/// A giant frame that is given back as one block is 262,144 frames that `free` frees, which had them allocated, to that call;
/// if its word does not change, no owner does.
fn theorem_giving_a_giant_frame_is_free(giant: &AtomicU64<Giants>, taken: Giant, is: Giant, Ghost(machine): Ghost<Machine>,
    Ghost(at): Ghost<int>, Ghost(owners): Ghost<Owners>, Ghost(who): Ghost<u32>, Tracked(whole): Tracked<&mut Whole>)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && is_giant(machine, at, giant),
        is.says().state == 1 && taken.says().state == 4 && is.says().opened == taken.says().opened && shape(is.word()) && shape(taken.word()),
        old(whole).calls[who].giants[at].held() =~= all(),
{
    let ghost before = *whole;
    let ghost (from, to) = (262144 * at, 262144 * at + 262144);
    proof { lemma_one_way(whole, machine, who); }
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut rights = share.giants.tracked_remove(at);
    let is_given = steps::swap_giant(giant, taken, is, Tracked(&mut rights));
    proof {
        share.giants.tracked_insert(at, rights);
        whole.calls.tracked_insert(who, share);
    }
    if is_given {
        proof {
            lemma_huges_given(*whole, before, machine, who, at, 512 * at, 512 * at + 512);
            lemma_given(*whole, before, machine, owners, who, from, to);
        }
        assert(free(owners, from, to) is Some && whole.is(machine, free(owners, from, to)->0));
    } else {
        proof { lemma_same(*whole, before, machine, owners, who); }
        assert(whole.is(machine, owners));
    }
    assert(whole.wf(machine));
}

/// The token of a huge frame becomes 512 of pages.
proof fn open(tracked whole: &mut Whole, machine: Machine, who: u32, huge: int)
    requires old(whole).wf(machine) && old(whole).calls.contains_key(who) && machine.bitmaps.contains_key(huge) && old(whole).calls[who].has_huge(huge),
    ensures
        final(whole).wf(machine) && final(whole).but_for(*old(whole), who),
        final(whole).calls[who].pages[huge].dom() =~= old(whole).calls[who].pages[huge].dom().union(range(0, 512)),
        forall|other: int| other != huge ==> #[trigger] final(whole).calls[who].pages[other] == old(whole).calls[who].pages[other],
        changed_huges(final(whole).calls[who], old(whole).calls[who], huge / 512),
        final(whole).calls[who].giants[huge / 512].held() =~= old(whole).calls[who].giants[huge / 512].held().remove(huge % 512),
{
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked mut kept = whole.kept.tracked_remove(huge);
    let tracked mut rights = share.giants.tracked_remove(huge / 512);
    let tracked mut pages = share.pages.tracked_remove(huge);
    let tracked mut token = rights.held.remove(huge % 512);
    let tracked Kept { huge: had, pages: mut all } = kept;
    if had is Some {
        let tracked other = had.tracked_unwrap();
        token.unique(&other);
    }
    let tracked none = all.split(Set::empty());
    pages.combine(all);
    whole.kept.tracked_insert(huge, Kept { huge: Some(token), pages: none });
    share.pages.tracked_insert(huge, pages);
    share.giants.tracked_insert(huge / 512, rights);
    whole.calls.tracked_insert(who, share);
}

/// And 512 tokens of pages that of their huge frame.
proof fn merge(tracked whole: &mut Whole, machine: Machine, who: u32, huge: int)
    requires old(whole).wf(machine) && old(whole).calls.contains_key(who) && machine.bitmaps.contains_key(huge)
        && range(0, 512) <= old(whole).calls[who].pages[huge].dom(),
    ensures
        final(whole).wf(machine) && final(whole).but_for(*old(whole), who),
        final(whole).calls[who].pages[huge].dom() =~= old(whole).calls[who].pages[huge].dom().difference(range(0, 512)),
        forall|other: int| other != huge ==> #[trigger] final(whole).calls[who].pages[other] == old(whole).calls[who].pages[other],
        changed_huges(final(whole).calls[who], old(whole).calls[who], huge / 512),
        final(whole).calls[who].giants[huge / 512].held() =~= old(whole).calls[who].giants[huge / 512].held().insert(huge % 512),
{
    let tracked mut share = whole.calls.tracked_remove(who);
    let tracked Kept { huge: token, pages: mut kept } = whole.kept.tracked_remove(huge);
    let tracked mut rights = share.giants.tracked_remove(huge / 512);
    let tracked mut pages = share.pages.tracked_remove(huge);
    if token is None {
        kept.disjoint(&pages);
        assert(range(0, 512).contains(0));
        assert(false);
    }
    let tracked token = token.tracked_unwrap();
    let tracked given = pages.split(range(0, 512));
    kept.combine(given);
    rights.held.insert(token);
    whole.kept.tracked_insert(huge, Kept { huge: None, pages: kept });
    share.pages.tracked_insert(huge, pages);
    share.giants.tracked_insert(huge / 512, rights);
    whole.calls.tracked_insert(who, share);
}

/// Nothing of the giant frames but which huge frames of this one it has.
pub open spec fn changed_huges(now: Share, before: Share, giant: int) -> bool {
    &&& forall|other: int| other != giant ==> #[trigger] now.giants[other] == before.giants[other]
    &&& now.giants[giant].backs() == before.giants[giant].backs() && now.giants[giant].units() == before.giants[giant].units()
    &&& now.giants[giant].marks() == before.giants[giant].marks() && now.giants[giant].knows_opened() == before.giants[giant].knows_opened()
}

/// No owner changes when a huge frame opens, 512 page tokens for its own, nor when the call that opened it merges it right after
/// that, its own for 512.
proof fn theorem_opening_and_merging_a_huge_frame_changes_no_owner(tracked whole: &mut Whole, machine: Machine, owners: Owners, who: u32, huge: int)
    requires
        old(whole).wf(machine) && old(whole).is(machine, owners) && old(whole).calls.contains_key(who) && machine.bitmaps.contains_key(huge),
        old(whole).calls[who].has_huge(huge),
    ensures final(whole).wf(machine) && final(whole).is(machine, owners) && final(whole).calls.contains_key(who) && final(whole).calls[who].has_huge(huge),
{
    let before = *whole;
    open(whole, machine, who, huge);
    assert forall|frame: int| #[trigger] machine.has(frame) implies whole.has(who, frame) == before.has(who, frame) by { lemma_exchanged(frame, huge); }
    lemma_same(*whole, before, machine, owners, who);
    assert(whole.is(machine, owners));
    let opened = *whole;
    merge(whole, machine, who, huge);
    assert forall|frame: int| #[trigger] machine.has(frame) implies whole.has(who, frame) == opened.has(who, frame) by { lemma_exchanged(frame, huge); }
    lemma_same(*whole, opened, machine, owners, who);
}

proof fn lemma_exchanged(frame: int, huge: int)
    ensures
        frame / 512 == huge ==> 0 <= frame % 512 < 512,
        (frame / 512) / 512 == huge / 512 && (frame / 512) % 512 == huge % 512 ==> frame / 512 == huge,
{
}

/// Of the first huge frames of a giant frame what is kept, and a call that has none of their pages.
proof fn whole_huges(count: nat) -> (tracked out: (Map<int, Kept>, Map<int, Held>))
    requires count <= 512,
    ensures
        out.0.dom() =~= range(0, count as int) && out.1.dom() =~= range(0, count as int),
        forall|huge: int| 0 <= huge < count ==> (#[trigger] out.0[huge]).huge is None && out.0[huge].pages.dom() =~= range(0, 512),
        forall|huge: int| 0 <= huge < count ==> (#[trigger] out.1[huge]).dom() =~= Set::empty() && out.1[huge].id() == out.0[huge].pages.id(),
    decreases count,
{
    if count == 0 {
        (Map::tracked_empty(), Map::tracked_empty())
    } else {
        let tracked (mut kept, mut pages) = whole_huges((count - 1) as nat);
        let tracked (_, mut all) = vstd::resource::map::GhostMapAuth::<int, ()>::new(Map::new(range(0, 512), |page: int| ()));
        let tracked none = all.split(Set::empty());
        kept.tracked_insert(count - 1, Kept { huge: None, pages: all });
        pages.tracked_insert(count - 1, none);
        (kept, pages)
    }
}

/// There is such a machine: a giant frame of which no call has anything. Its words are not built.
fn theorem_there_is_such_a_machine() {
    let tracked (Tracked(inst), Tracked(counted), Tracked(backs), Tracked(units), Tracked(held), Tracked(slots), Tracked(idle), Tracked(top), _) = Frames::Instance::initialize();
    let ghost id = inst.id();
    proof {
        let tracked rights = Rights { inst, backs, units, held, marks: MapToken::empty(id), opened: None };
        let tracked (kept, pages) = whole_huges(512);
        let tracked mut giants = Map::tracked_empty();
        giants.tracked_insert(0, rights);
        let tracked mut calls = Map::tracked_empty();
        calls.tracked_insert(1u32, Share { giants, pages });
        let machine = Machine { giants: map![0int => id], bitmaps: Map::new(range(0, 512), |huge: int| kept[huge].pages.id()) };
        let tracked whole = Whole { calls, kept };
        assert(whole.wf(machine));
        let owners = Map::<int, u32>::empty();
        assert forall|who: u32, frame: int| machine.has(frame) implies owns(owners, who, frame) == whole.has(who, frame) by {
            assert(0 <= frame / 512 < 512);
            if who == 1 { assert(!whole.calls[1].has_huge(frame / 512)); assert(whole.calls[1].pages[frame / 512].dom() =~= Set::empty()); }
        }
        assert(whole.is(machine, owners));
    }
}

} // verus!
