//! Virtio devices of this machine: the balloon, on PCI or on MMIO ([`find`]), and any on PCI ([`on_pci`]).

use core::fmt;

use firstlight::addr::{Order, PAGE_BYTES, PhysRange};
use firstlight::frames::Request;
use firstlight_image::balloon::{Balloon, KIND, SharedMemory};
use firstlight_image::virtio::mmio::Named;
use firstlight_image::virtio::pci::{self, Places, Region};
use firstlight_image::virtio::{MmioTransport, Patience, PciTransport, Transport, VirtioError};
use firstlight_image::virtio_mem::MemError;
use spin::Mutex;

use crate::arch::device::{Window, can_be, pci as space, window};
use crate::arch::{DirectMap, relax};
use crate::firmware;
use crate::machine::Machine;
use crate::time;

/// Longest wait for an answer. QEMU answers before the notification returns.
pub(crate) const PATIENCE: Patience = Patience {
    now_ns: time::now_ns,
    relax,
    longest_ns: 5_000_000_000,
};

/// The memory shared with the balloon: addresses are physical ones.
static SHARED: SharedMemory = SharedMemory::new();

/// Where a balloon is.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    Pci(Places),
    Mmio(Region),
}

/// Why there is no device to use.
pub(crate) enum NoDevice {
    /// A balloon neither on PCI nor on MMIO.
    None,
    /// Its registers are where memory is, or no registers can be.
    Unmapped(Region),
    Device(VirtioError),
    /// A memory device whose blocks are not used.
    Memory(MemError),
}

impl From<VirtioError> for NoDevice {
    fn from(error: VirtioError) -> Self {
        Self::Device(error)
    }
}

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(
                "there is no balloon on PCI, and no word virtio_mmio.device= names one; \
                 QEMU has -device virtio-balloon-pci,free-page-reporting=on",
            ),
            Self::Unmapped(Region { address, bytes }) => write!(
                f,
                "the device's registers, {bytes} bytes at {address:#x}, are where memory is, or no registers can be"
            ),
            Self::Device(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

/// Finds the balloon and maps its registers. Before the other CPUs start.
pub(crate) fn find(machine: &Machine) -> Result<Found, NoDevice> {
    let words = machine.command_line.words();
    let named = words
        .filter(|word| word.is(Named::WORD))
        .filter_map(|word| Named::parse(word.value?))
        .map(|Named { address, bytes }| Region { address, bytes });
    // Why the last of them is none.
    let mut none = NoDevice::None;
    for region in named.chain(firmware::virtio()) {
        let device = open(machine, region).and_then(|window| Ok(MmioTransport::new(window)?));
        match device {
            Ok(device) if device.kind() == KIND => return Ok(Found::Mmio(region)),
            Ok(device) => {
                none = NoDevice::Device(VirtioError::Kind {
                    seen: device.kind(),
                    expected: KIND,
                });
            }
            Err(error) => none = error,
        }
    }
    let places = places(machine, KIND, 0).ok_or(none)??;
    let regions = [Some(places.common), Some(places.notify), places.config];
    for region in regions.into_iter().flatten() {
        open(machine, region)?;
    }
    Ok(Found::Pci(places))
}

/// Where the registers of a device of `kind` on PCI are, the one after `before` others.
fn places(machine: &Machine, kind: u32, before: usize) -> Option<Result<Places, VirtioError>> {
    // SAFETY: nothing else uses PCI in this image.
    let mut space = unsafe { space(machine) }?;
    let function = pci::nth(&space, kind, before)?;
    Some(Places::read(&mut space, function))
}

/// The device of `kind` on PCI that comes after `before` others, if there is one.
pub(crate) fn on_pci(
    machine: &Machine,
    kind: u32,
    before: usize,
) -> Option<Result<PciTransport<Window>, NoDevice>> {
    let places = places(machine, kind, before)?;
    Some(
        places
            .map_err(NoDevice::Device)
            .and_then(|places| transport(machine, &places)),
    )
}

fn transport(machine: &Machine, places: &Places) -> Result<PciTransport<Window>, NoDevice> {
    let common = open(machine, places.common)?;
    let notify = open(machine, places.notify)?;
    let config = places
        .config
        .map(|region| open(machine, region))
        .transpose()?;
    Ok(PciTransport::new(places, common, notify, config)?)
}

/// What is done with a balloon, wherever it is.
pub(crate) trait WithBalloon {
    type Answer;
    fn with<T: Transport + Send>(self, balloon: Balloon<'static, T>) -> Self::Answer;
}

/// The driver of a balloon that was found; called once.
pub(crate) fn drive<W: WithBalloon>(
    machine: &Machine,
    found: Found,
    work: W,
) -> Result<W::Answer, NoDevice> {
    let at = core::ptr::from_ref(&SHARED) as u64;
    match found {
        Found::Mmio(region) => {
            let transport = MmioTransport::new(open(machine, region)?)?;
            Ok(work.with(Balloon::new(transport, PATIENCE, &SHARED, at)?))
        }
        Found::Pci(places) => {
            let transport = transport(machine, &places)?;
            Ok(work.with(Balloon::new(transport, PATIENCE, &SHARED, at)?))
        }
    }
}

/// The registers at `region`, unless memory is there or registers cannot be.
pub(crate) fn open(machine: &Machine, region: Region) -> Result<Window, NoDevice> {
    let unmapped = NoDevice::Unmapped(region);
    let range = PhysRange::with_size(region.address, region.bytes.into());
    let can_be = |range: &PhysRange| {
        range.end() <= DirectMap::limit() && !range.is_empty() && can_be(*range)
    };
    let Some(range) = range.filter(can_be) else {
        return Err(unmapped);
    };
    if machine
        .map
        .memory()
        .any(|memory| memory.range.overlaps(range))
    {
        return Err(unmapped);
    }
    // Registers above 4 GiB are mapped when they are first met, by the first CPU.
    static MAPPING: Mutex<()> = Mutex::new(());
    let _one = MAPPING.lock();
    // SAFETY: the memory map has no memory there, and windows of one device do not overlap
    // in their use: the transport has one of each.
    if let Some(window) = unsafe { window(region) } {
        return Ok(window);
    }
    let table = || {
        let page = machine.frames.allocate(Request::new(Order::PAGE));
        let page = page.map_err(|_| ())?;
        PhysRange::with_size(page.addr().get(), PAGE_BYTES).ok_or(())
    };
    if machine
        .direct
        .add_registers(core::iter::once(range), table)
        .is_err()
    {
        return Err(unmapped);
    }
    // SAFETY: as above.
    unsafe { window(region) }.ok_or(unmapped)
}
