//@ file engine/frames/src/sync.rs
//@ atomics

//@ external fn pause
//@ external fn recheck_u32
//@ fn update_u64, waits
//@ fn update_u64, holds
//@ fn update_u64, of: Protocol
//@ fn update_u64
    requires
        word.wf(),
        P::of(word.place(), *old(held)),
        forall|seen: u64| P::knows(word.place(), *old(held), seen) ==> #[trigger] change.requires((seen,)),
        // What is given back is the caller's.
        forall|seen: u64, new: u64| P::knows(word.place(), *old(held), seen) && #[trigger] change.ensures((seen,), Some(new)) ==>
            P::may(word.place(), *old(held), seen, new),
    ensures
        P::of(word.place(), *final(held)),
        match out {
            Ok((was, new)) => change.ensures((was,), Some(new)) && P::knows(word.place(), *old(held), was)
                && P::moved(word.place(), *old(held), was, new, *final(held)),
            Err(was) => change.ensures((was,), None) && P::knows(word.place(), *old(held), was) && *final(held) == *old(held),
        },
//@ fn update_u64, before: let mut old
    let ghost before = *held;
//@ fn update_u64, looks: let mut old
//@ fn update_u64, loop: while let
        invariant
            word.wf(),
            before == *verus_builtin::old(held),
            *held == before,
            P::of(word.place(), before),
            P::knows(word.place(), before, old),
            forall|seen: u64| P::knows(word.place(), before, seen) ==> #[trigger] change.requires((seen,)),
            forall|seen: u64, new: u64| P::knows(word.place(), before, seen) && #[trigger] change.ensures((seen,), Some(new)) ==>
                P::may(word.place(), before, seen, new),
        ensures
            change.ensures((old,), None),
            P::knows(word.place(), before, old),
            *held == before,
//@ fn update_u64, passes: match word
//@ fn swap_u64, holds
//@ fn swap_u64, of: Protocol
//@ fn swap_u64
    requires
        word.wf(),
        P::of(word.place(), *old(held)),
        P::knows(word.place(), *old(held), from) ==> P::may(word.place(), *old(held), from, to),
    ensures
        P::of(word.place(), *final(held)),
        out ==> P::knows(word.place(), *old(held), from) && P::moved(word.place(), *old(held), from, to, *final(held)),
        !out ==> *final(held) == *old(held),
//@ fn swap_u64, passes: let swapped
//@ fn swap_u32, holds
//@ fn swap_u32, of: Huges
//@ fn swap_u32
    requires
        word.wf(),
        Huges::of(word.place(), *old(held)),
        Huges::knows(word.place(), *old(held), from as u64) ==> Huges::may(word.place(), *old(held), from as u64, to as u64),
    ensures
        Huges::of(word.place(), *final(held)),
        out ==> Huges::moved(word.place(), *old(held), from as u64, to as u64, *final(held)),
        !out ==> *final(held) == *old(held),
//@ fn swap_u32, passes: let swapped
//@ fn recheck_u64, holds
//@ fn recheck_u64, of: Protocol
//@ fn recheck_u64
    requires word.wf(), P::of(word.place(), *old(held)),
    ensures *final(held) == *old(held), P::knows(word.place(), *old(held), out),
//@ fn recheck_u64, looks: word.load

//@ items
use crate::huges::{Huges, Rights};
use crate::model::Protocol;
