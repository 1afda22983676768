//! What the allocator keeps of each level. Plain values and pure functions: the sizes
//! ([`geometry`]), the word of a giant frame ([`giant`]) and the word of a huge frame
//! ([`huge`]), both made of fields ([`field`]), what free memory holds ([`content`]). With its atomic steps: the bitmap of a huge frame's
//! pages ([`bitmap`]), and those by which huge frames are taken and given back ([`steps`]).

#![deny(unsafe_code)]

pub(crate) mod bitmap;
pub(crate) mod content;
pub(crate) mod field;
pub(crate) mod geometry;
pub(crate) mod giant;
pub(crate) mod huge;
pub(crate) mod mobility;
pub(crate) mod steps;

pub(crate) use bitmap::Bitmap;
pub(crate) use content::{Content, IS_KEPT, Known, Purpose};
pub(crate) use giant::{Change, Giant, GiantState};
pub(crate) use huge::{Huge, HugeState};
pub(crate) use mobility::Mobility;
