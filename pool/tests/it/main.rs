//! All tests of this crate from outside, as one program: a module for each thing that is tested.

mod client;
mod documents;
