//! All memory against the plainest model: what each frame is.
//!
//! A property is a machine, and steps in any order. Whatever a step allocates must be free in the model, of the node,
//! zone and content that was requested; a refusal must be true there; and all counts are recounted.
//!
//! | file | what it is |
//! |---|---|
//! | [`plain`] | the model: of each frame whose it is, over [`Owners`](super::owners), and its node and zone |
//! | [`content`] | what each frame holds, and what it was said to hold |
//! | [`machines`] | the machines |
//! | [`machine`] | an allocator beside its model, and what is checked of each step, after it, and at the end |
//! | [`steps`] | what is done to it, a file for each kind |
//! | [`properties`] | which machine takes which steps |

mod content;
mod machine;
mod machines;
mod plain;
mod properties;
mod steps;
