//! A machine, and nothing else of it than who has which frame. `engine/frames/src/frames/tests/owners.rs`, which the property
//! tests compare the allocator with, is proven to be this; and so is what calls have of a machine's words (`machine.rs`).

use vstd::prelude::*;

verus! {

/// The owners of the frames that are allocated; all others are free.
pub type Owners = Map<int, u32>;

/// Whether frames `from..to` are all free.
pub open spec fn are_free(owners: Owners, from: int, to: int) -> bool {
    forall|frame: int| from <= frame < to ==> !#[trigger] owners.contains_key(frame)
}

/// Whether frames `from..to` all have an owner.
pub open spec fn are_allocated(owners: Owners, from: int, to: int) -> bool {
    forall|frame: int| from <= frame < to ==> #[trigger] owners.contains_key(frame)
}

/// Whether frames `from..to` all have this owner.
pub open spec fn are_of(owners: Owners, from: int, to: int, owner: u32) -> bool {
    forall|frame: int| from <= frame < to ==> #[trigger] owners.contains_key(frame) && owners[frame] == owner
}

/// Frames `from..to` get an owner, if all are free.
pub open spec fn allocate(owners: Owners, from: int, to: int, owner: u32) -> Option<Owners> {
    if are_free(owners, from, to) { Some(owners.union_prefer_right(Map::new(frames(from, to), |frame: int| owner))) } else { None }
}

/// Frames `from..to` become free, if all are allocated.
pub open spec fn free(owners: Owners, from: int, to: int) -> Option<Owners> {
    if are_allocated(owners, from, to) { Some(owners.remove_keys(frames(from, to))) } else { None }
}

pub open spec fn frames(from: int, to: int) -> Set<int> { vstd::set_lib::set_int_range(from, to) }

} // verus!
