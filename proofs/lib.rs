//! The engine's own files, with what is proven of them put in: see docs/proofs.md.
#![allow(dead_code, unused_imports, unused_variables, missing_docs, unexpected_cfgs)]

use vstd::prelude::*;

verus! {

/// What the code asserts is proven: no word makes it panic.
pub(crate) const fn holds(condition: bool)
    requires condition,
{
}

} // verus!

macro_rules! assert {
    ($condition:expr) => {
        crate::holds($condition)
    };
}
macro_rules! debug_assert {
    ($condition:expr) => {
        crate::holds($condition)
    };
}

// As it ships, without a specification: nothing proven uses its functions.
pub mod addr;
// In the place of the processor's atomics.
pub mod model;
// What a call is told that gives back what it need not hold.
pub mod told;
// Who has the huge frames of a giant frame.
pub mod huges;
pub(crate) mod sync;

pub mod frames {
    pub mod word {
        pub(crate) mod bitmap;
        // The same file once more, of the words of `told`.
        pub(crate) mod bitmap_told;
        pub(crate) mod content;
        pub(crate) mod field;
        pub(crate) mod geometry;
        pub mod giant;
        pub mod huge;
        pub(crate) mod mobility;
        pub(crate) mod steps;

        pub(crate) use mobility::Mobility;
    }
}
