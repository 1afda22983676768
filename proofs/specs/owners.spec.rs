//@ file engine/frames/src/frames/tests/owners.rs
// `Owners`, which the property tests use, is the map from frames to owners.

//@ fn Owners::new
    ensures out.count() == frames, out.map() =~= if owner == 0 { Map::empty() } else { Map::new(owned(0, frames as int), |frame: int| owner) },
//@ fn Owners::are
    requires from <= to <= self.count(),
    ensures out == if owner == 0 { are_free(self.map(), from as int, to as int) } else { are_of(self.map(), from as int, to as int, owner) },
//@ fn Owners::are, before: let mut
    proof { self.lemma_each(); }
//@ fn Owners::are, loop: while
        invariant
            from <= at <= to <= self.count(),
            forall|frame: int| from <= frame < at ==> #[trigger] self.of(frame) == owner,
            forall|frame: int| 0 <= frame < self.count() ==> #[trigger] self.map().contains_key(frame) == (self.of(frame) != 0),
            forall|frame: int| 0 <= frame < self.count() && self.of(frame) != 0 ==> #[trigger] self.map()[frame] == self.of(frame),
        decreases to - at,
//@ fn Owners::are, before: return false
                proof { let (has, of) = (self.map().contains_key(at as int), self.map()[at as int]); assert(self.of(at as int) != owner); }
//@ fn Owners::are_allocated, before: return false
                proof { let has = self.map().contains_key(at as int); assert(self.of(at as int) == 0); }
//@ fn Owners::are_allocated
    requires from <= to <= self.count(),
    ensures out == are_allocated(self.map(), from as int, to as int),
//@ fn Owners::are_allocated, before: let mut
    proof { self.lemma_each(); }
//@ fn Owners::are_allocated, loop: while
        invariant
            from <= at <= to <= self.count(),
            forall|frame: int| from <= frame < at ==> #[trigger] self.of(frame) != 0,
            forall|frame: int| 0 <= frame < self.count() ==> #[trigger] self.map().contains_key(frame) == (self.of(frame) != 0),
        decreases to - at,
//@ fn Owners::allocate
    requires from <= to <= old(self).count() && owner != 0,
    ensures
        final(self).count() == old(self).count(),
        match allocate(old(self).map(), from as int, to as int, owner) {
            Some(now) => out && final(self).map() =~= now,
            None => !out && final(self).map() == old(self).map(),
        },
//@ fn Owners::free
    requires from <= to <= old(self).count(),
    ensures
        final(self).count() == old(self).count(),
        match free(old(self).map(), from as int, to as int) {
            Some(now) => out && final(self).map() =~= now,
            None => !out && final(self).map() == old(self).map(),
        },
//@ fn Owners::set
    requires from <= to <= old(self).count(),
    ensures
        final(self).count() == old(self).count(),
        final(self).map() =~= if owner == 0 { old(self).map().remove_keys(owned(from as int, to as int)) } else {
            old(self).map().union_prefer_right(Map::new(owned(from as int, to as int), |frame: int| owner))
        },
//@ fn Owners::set, before: let mut
    let ghost before = *self;
//@ fn Owners::set, before: self.0
            let ghost then = *self;
//@ fn Owners::set, after: self.0
            proof {
                assert(self.0@ =~= then.0@.update(at as int, owner));
                assert forall|frame: int| 0 <= frame < self.count() implies #[trigger] self.of(frame) == if frame == at { owner } else { then.of(frame) } by {}
            }
//@ fn Owners::set, loop: while
        invariant
            from <= at <= to <= self.count() && self.count() == before.count(),
            forall|frame: int| 0 <= frame < self.count() ==> #[trigger] self.of(frame) == if from <= frame < at { owner } else { before.of(frame) },
        decreases to - at,

//@ items
use crate::owners::{allocate, are_allocated, are_free, are_of, free};
use crate::owners::frames as owned;

impl Owners {
    pub closed spec fn count(self) -> int { self.0@.len() as int }
    pub closed spec fn of(self, frame: int) -> u32 { self.0@[frame] }

    /// The owners of those that are allocated.
    pub open spec fn map(self) -> crate::owners::Owners {
        Map::new(owned(0, self.count()).filter(|frame: int| self.of(frame) != 0), |frame: int| self.of(frame))
    }

    proof fn lemma_each(self)
        ensures
            forall|frame: int| 0 <= frame < self.count() ==> #[trigger] self.map().contains_key(frame) == (self.of(frame) != 0),
            forall|frame: int| 0 <= frame < self.count() && self.of(frame) != 0 ==> #[trigger] self.map()[frame] == self.of(frame),
    {
        broadcast use vstd::set_lib::range_set_properties;
    }
}
