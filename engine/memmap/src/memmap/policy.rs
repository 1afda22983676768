//! The knobs of a memory map: [`MemmapPolicy`].
#![deny(unsafe_code)]

use super::Writer;

/// What a kernel may choose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemmapPolicy {
    /// How descriptors are written.
    pub writer: Writer,
    /// Write also where the memory is known to hold what would be written; for
    /// measurements.
    pub always_write: bool,
}
