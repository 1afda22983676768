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
#[path = "../../memory/src/addr.rs"]
pub mod addr;
// What the sizes there follow from, of which the prover knows the numbers.
#[path = "../../memory/src/levels.rs"]
pub mod levels;
// In the place of the processor's atomics.
pub mod model;
// Bits of a word, and the pages they stand for.
pub mod bits;
// What a call is told that gives back what it need not hold.
pub mod told;
// What stands for the huge frames of a giant frame.
pub mod tokens;
// Who has them.
pub mod huges;
// Who has which frame of a machine, and nothing else.
pub mod owners;
// What calls have of a machine, and that it is that.
pub mod machine;
pub(crate) mod sync;

pub mod frames {
    pub mod tests {
        pub(crate) mod owners;
    }
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
