//! Registers of devices in memory: [`Window`].

use firstlight::addr::PhysRange;
use firstlight_image::virtio::Registers;
use firstlight_image::virtio::pci::Region;

use super::paging::{self, Access};
use crate::arch::translation;

/// Registers of a device, mapped; by default none, which read as ones.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: u64,
    bytes: u32,
}

/// Whether registers can be in `range` once it is mapped: not in the image, nor where the processor
/// would keep them in its caches.
pub(crate) fn can_be(range: PhysRange) -> bool {
    translation::can_be_registers(range) && !range.overlaps(paging::image_range())
}

/// The registers at `region`; `None` if they are not mapped, or [cannot be](can_be) there, whatever a
/// tree says.
///
/// # Safety
/// No memory is there, and no other window.
pub(crate) unsafe fn window(region: Region) -> Option<Window> {
    let range = PhysRange::with_size(region.address, region.bytes.into())?;
    let is_there = can_be(range) && paging::allows(range, Access::Registers);
    is_there.then_some(Window {
        start: region.address,
        bytes: region.bytes,
    })
}

impl Window {
    /// The address of a value of type `V`; `None` outside the registers.
    fn place<V>(&self, at: u32) -> Option<*mut V> {
        let end = at.checked_add(size_of::<V>() as u32)?;
        let place = (self.start + u64::from(at)) as *mut V;
        (end <= self.bytes && place.is_aligned()).then_some(place)
    }

    fn read<V: Value>(&self, at: u32, nothing: V) -> V {
        match self.place::<V>(at) {
            // SAFETY: within registers that are mapped, and no memory (the promise of
            // `window`); aligned.
            Some(place) => unsafe { V::load(place) },
            None => nothing,
        }
    }

    fn write<V: Value>(&self, at: u32, value: V) {
        if let Some(place) = self.place::<V>(at) {
            // SAFETY: as in `read`.
            unsafe { value.store(place) }
        }
    }
}

/// What a register holds.
trait Value: Sized {
    /// # Safety
    /// A register of this size is at `place`, aligned.
    unsafe fn load(place: *const Self) -> Self;

    /// # Safety
    /// As for `load`.
    unsafe fn store(self, place: *mut Self);
}

/// On aarch64 by instructions of ours: a compiler may choose one that writes its address back (`str w0, [x1], #4`), and
/// of such an access a hypervisor is not told what it was.
macro_rules! value {
    ($type:ty, $load:literal, $store:literal) => {
        impl Value for $type {
            #[inline(always)]
            unsafe fn load(place: *const Self) -> Self {
                #[cfg(target_arch = "aarch64")]
                {
                    let value;
                    // SAFETY: the caller's promise.
                    unsafe {
                        core::arch::asm!($load, out(reg) value, in(reg) place, options(nostack, preserves_flags));
                    }
                    value
                }
                #[cfg(not(target_arch = "aarch64"))]
                // SAFETY: as above.
                unsafe {
                    place.read_volatile()
                }
            }

            #[inline(always)]
            unsafe fn store(self, place: *mut Self) {
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the caller's promise.
                unsafe {
                    core::arch::asm!($store, in(reg) self, in(reg) place, options(nostack, preserves_flags));
                }
                #[cfg(not(target_arch = "aarch64"))]
                // SAFETY: as above.
                unsafe {
                    place.write_volatile(self);
                }
            }
        }
    };
}

value!(u8, "ldrb {:w}, [{}]", "strb {:w}, [{}]");
value!(u16, "ldrh {:w}, [{}]", "strh {:w}, [{}]");
value!(u32, "ldr {:w}, [{}]", "str {:w}, [{}]");

impl Registers for Window {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn read8(&self, at: u32) -> u8 {
        self.read(at, u8::MAX)
    }
    fn read16(&self, at: u32) -> u16 {
        self.read(at, u16::MAX)
    }
    fn read32(&self, at: u32) -> u32 {
        self.read(at, u32::MAX)
    }
    fn write8(&mut self, at: u32, value: u8) {
        self.write(at, value);
    }
    fn write16(&mut self, at: u32, value: u16) {
        self.write(at, value);
    }
    fn write32(&mut self, at: u32, value: u32) {
        self.write(at, value);
    }
}
