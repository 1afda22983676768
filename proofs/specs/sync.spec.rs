//@ file engine/src/sync.rs
//@ atomics

//@ external fn pause
//@ fn update_u64, waits
//@ fn update_u64, holds
//@ fn update_u64
    requires
        word.wf(),
        old(held).id() == word.id(),
        forall|seen: u64| change.requires((seen,)),
        // What is given back is the caller's.
        forall|seen: u64, new: u64| #[trigger] change.ensures((seen,), Some(new)) ==> pages(word.base(), seen & !new) <= old(held).dom(),
    ensures
        final(held).id() == old(held).id(),
        match out {
            Ok((was, new)) => change.ensures((was,), Some(new))
                && old(held).dom().disjoint(pages(word.base(), new & !was))
                && final(held).dom() == old(held).dom().difference(pages(word.base(), was & !new)).union(pages(word.base(), new & !was)),
            Err(was) => change.ensures((was,), None) && final(held).dom() == old(held).dom(),
        },
//@ fn update_u64, before: let mut old
    let ghost before = *held;
//@ fn update_u64, loop: while let
        invariant
            word.wf(),
            before == *verus_builtin::old(held),
            before.id() == word.id(),
            *held == before,
            forall|seen: u64| change.requires((seen,)),
            forall|seen: u64, new: u64| #[trigger] change.ensures((seen,), Some(new)) ==> pages(word.base(), seen & !new) <= before.dom(),
        ensures
            change.ensures((old,), None),
            *held == before,
//@ fn update_u64, passes: match word

//@ items
use crate::model::{Held, pages};
