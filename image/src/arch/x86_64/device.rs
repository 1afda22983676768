//! Devices: their registers in memory, [`Window`], and the configuration space of PCI,
//! [`PciPorts`].

use firstlight::addr::PhysRange;
use firstlight_image::virtio::Registers;
use firstlight_image::virtio::pci::{ConfigSpace, Function, Region};
use x86_64::instructions::port::Port;

use super::paging::{self, Access};

/// Where the address of a word of configuration space goes, and where the word is.
const PCI_ADDRESS: u16 = 0xcf8;
const PCI_DATA: u16 = 0xcfc;
const PCI_ENABLE: u32 = 1 << 31;

/// Registers of a device, mapped.
#[derive(Debug)]
pub(crate) struct Window {
    start: u64,
    bytes: u32,
}

/// The registers at `region`; `None` if they are not mapped.
///
/// # Safety
/// No memory is there, and no other window.
pub(crate) unsafe fn window(region: Region) -> Option<Window> {
    let range = PhysRange::with_size(region.address, region.bytes.into())?;
    paging::allows(range, Access::Write).then_some(Window {
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

    fn read<V>(&self, at: u32, nothing: V) -> V {
        match self.place::<V>(at) {
            // SAFETY: within registers that are mapped, and no memory (the promise of
            // `window`); aligned.
            Some(place) => unsafe { place.read_volatile() },
            None => nothing,
        }
    }

    fn write<V>(&self, at: u32, value: V) {
        if let Some(place) = self.place::<V>(at) {
            // SAFETY: as in `read`.
            unsafe { place.write_volatile(value) }
        }
    }
}

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

/// The configuration space of PCI by its two ports. Without PCI all of it reads as ones.
pub(crate) struct PciPorts(());

impl PciPorts {
    /// # Safety
    /// Nothing else uses the two ports meanwhile.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }

    /// Selects a word; the port where it is.
    fn select(function: Function, at: u8) -> Port<u32> {
        let function_bits = u32::from(function.bus) << 16
            | u32::from(function.device & 31) << 11
            | u32::from(function.function & 7) << 8;
        // SAFETY: the port only selects what the other one shows.
        unsafe { Port::new(PCI_ADDRESS).write(PCI_ENABLE | function_bits | u32::from(at & !3)) }
        Port::new(PCI_DATA)
    }
}

impl ConfigSpace for PciPorts {
    fn read(&self, function: Function, at: u8) -> u32 {
        // SAFETY: reading configuration space has no effect.
        unsafe { Self::select(function, at).read() }
    }

    fn write(&mut self, function: Function, at: u8, value: u32) {
        // SAFETY: the caller changes the function that it drives, and no other.
        unsafe { Self::select(function, at).write(value) }
    }
}
