//! Of ACPI's tables what PCs have: APICs, a timer and the power button behind ports, a root pointer in low memory.

use core::ops::Range;

use firstlight::firmware::acpi::{AcpiError, Fadt, Madt, PmTimer, Signature};

use super::valid;

/// Tables that are read.
pub(super) const READ: [Signature; 4] = [
    Signature::MADT,
    Signature::SRAT,
    Signature::SLIT,
    Signature::FADT,
];

/// Where a PC's firmware leaves the root pointer, if the loader does not pass it.
pub(super) const BIOS_AREA: Range<u64> = 0xe_0000..0x10_0000;

/// The APIC ids of usable CPUs, and entries that cannot be read.
pub(super) fn cpus(madt: &Madt<'static>) -> impl Iterator<Item = Result<u64, AcpiError>> + use<> {
    madt.cpus().filter_map(|cpu| match cpu {
        Ok(cpu) => cpu.enabled.then_some(Ok(cpu.apic_id.into())),
        Err(error) => Some(Err(error)),
    })
}

/// What the SRAT calls the CPU with this id: the same.
pub(super) fn affinity_id(_: Option<&Madt<'_>>, id: u64) -> Option<u32> {
    u32::try_from(id).ok()
}

/// What else is read.
#[derive(Default)]
pub(crate) struct Rest {
    pub(crate) pm_timer: Option<PmTimer>,
    /// The port of fixed events, the power button among them.
    pub(crate) event_port: Option<u16>,
}

impl Rest {
    /// Reads tables that `find` finds.
    pub(super) fn read(find: &dyn Fn(Signature) -> Option<&'static [u8]>) -> Self {
        let fadt = find(Signature::FADT).and_then(|bytes| valid(Fadt::parse(bytes)));
        Self {
            pm_timer: fadt.and_then(|fadt| fadt.pm_timer()),
            event_port: fadt.and_then(|fadt| fadt.event_port()),
        }
    }
}
