//! Reading physical memory: [`PhysRead`], for tables that point to others.
//!
//! A kernel implements it over its direct map; tests and hosted programs use
//! [`MemoryImage`], bytes that stand for one range of memory.

use super::bytes;
use crate::addr::{PhysAddr, PhysRange};

/// Returns the bytes of a physical range, or `None` where there is no memory.
///
/// Any closure `Fn(PhysRange) -> Option<&[u8]>` is one. Callers check the
/// length of what they get, so an implementation that returns too little
/// is refused, not trusted.
pub trait PhysRead<'m> {
    /// The bytes of `range`, all of them.
    fn read(&self, range: PhysRange) -> Option<&'m [u8]>;
}

impl<'m, F: Fn(PhysRange) -> Option<&'m [u8]>> PhysRead<'m> for F {
    fn read(&self, range: PhysRange) -> Option<&'m [u8]> {
        self(range)
    }
}

/// `length` bytes from `start`; `None` if they wrap or are not all there.
pub(crate) fn read<'m>(
    memory: &(impl PhysRead<'m> + ?Sized),
    start: u64,
    length: u64,
) -> Option<&'m [u8]> {
    let range = PhysRange::with_size(start, length)?;
    memory.read(range)?.get(..bytes::index(length))
}

/// A slice that stands for physical memory from an address on.
///
/// ```
/// use firstlight_frames::addr::{PhysAddr, PhysRange};
/// use firstlight_boot::firmware::{MemoryImage, PhysRead};
/// let image = MemoryImage::new(PhysAddr::new(0xf_0000), b"RSD PTR ");
/// assert_eq!(image.read(PhysRange::new(0xf_0004, 0xf_0007).unwrap()), Some(&b"PTR"[..]));
/// assert_eq!(image.read(PhysRange::new(0xf_0004, 0xf_0009).unwrap()), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryImage<'m> {
    base: PhysAddr,
    content: &'m [u8],
}

impl<'m> MemoryImage<'m> {
    /// `content` lies at `base`.
    pub const fn new(base: PhysAddr, content: &'m [u8]) -> Self {
        Self { base, content }
    }
}

impl<'m> PhysRead<'m> for MemoryImage<'m> {
    fn read(&self, range: PhysRange) -> Option<&'m [u8]> {
        let from = range.start().get().checked_sub(self.base.get())?;
        let to = range.end().get().checked_sub(self.base.get())?;
        self.content.get(bytes::index(from)..bytes::index(to))
    }
}
