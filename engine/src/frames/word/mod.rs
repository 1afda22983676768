//! What the allocator keeps of each level, as plain values and pure functions: the sizes
//! ([`geometry`]), the word of a giant frame ([`giant`]), the word of a huge frame
//! ([`huge`]) and the bitmap of its pages ([`bitmap`]).

pub(crate) mod bitmap;
pub(crate) mod geometry;
pub(crate) mod giant;
pub(crate) mod huge;
pub(crate) mod mobility;

pub(crate) use bitmap::Bitmap;
pub(crate) use giant::{Change, Giant, GiantState};
pub(crate) use huge::{Huge, HugeState};
pub(crate) use mobility::Mobility;
