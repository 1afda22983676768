//! Of ACPI's tables what Arm machines have: CPU interfaces of the GIC, the instruction for firmware's calls, a serial
//! port.

use core::ops::Range;

use firstlight::addr::{PAGE_BYTES, PhysRange};
use firstlight::firmware::acpi::{
    AcpiError, Dbg2, Fadt, Madt, SerialKind, SerialPort, Signature, Spcr,
};
use firstlight::firmware::psci::PsciConduit;
use spin::Once;

use super::valid;
use crate::console::{correction, note};

/// Tables that are read.
pub(super) const READ: [Signature; 6] = [
    Signature::MADT,
    Signature::SRAT,
    Signature::SLIT,
    Signature::FADT,
    Signature::SPCR,
    Signature::DBG2,
];

/// Only the loader says where the root pointer is.
pub(super) const BIOS_AREA: Range<u64> = 0..0;

/// Affinity fields of usable CPUs, and entries that cannot be read.
pub(super) fn cpus(madt: &Madt<'static>) -> impl Iterator<Item = Result<u64, AcpiError>> + use<> {
    madt.giccs().filter_map(|cpu| match cpu {
        Ok(cpu) => cpu.enabled.then_some(Ok(cpu.mpidr)),
        Err(error) => Some(Err(error)),
    })
}

/// What the SRAT calls the CPU with these affinity fields: its processor UID.
pub(super) fn affinity_id(madt: Option<&Madt<'_>>, id: u64) -> Option<u32> {
    let mut cpus = madt?.giccs().flatten();
    Some(cpus.find(|cpu| cpu.mpidr == id)?.processor_uid)
}

/// What else is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rest {
    psci: Option<PsciConduit>,
    port: Option<SerialPort>,
}

/// For where the tables are not at hand: a CPU that dies, among others.
static REST: Once<Rest> = Once::new();

/// How firmware is called, once the tables were read.
pub(crate) fn psci() -> Option<PsciConduit> {
    REST.get()?.psci
}

/// The serial port, once the tables were read.
pub(crate) fn port() -> Option<SerialPort> {
    REST.get()?.port
}

impl Rest {
    /// Reads tables that `find` finds; once.
    pub(super) fn read(find: &dyn Fn(Signature) -> Option<&'static [u8]>) -> Self {
        let fadt = find(Signature::FADT).and_then(|bytes| valid(Fadt::parse(bytes)));
        let psci = fadt.and_then(|fadt| fadt.psci());
        if psci.is_none() {
            note("ACPI names no way to call firmware (FADT, PSCI): only the first CPU runs");
        }
        *REST.call_once(|| Self {
            psci,
            port: serial_port(find),
        })
    }

    /// Where the registers of the serial port are, which have to be mapped.
    pub(crate) fn registers(&self) -> Option<PhysRange> {
        PhysRange::with_size(self.port?.address & !(PAGE_BYTES - 1), PAGE_BYTES)
    }
}

/// The console's port, or else the first one for a debugger that is known.
fn serial_port(find: &dyn Fn(Signature) -> Option<&'static [u8]>) -> Option<SerialPort> {
    let spcr = find(Signature::SPCR).and_then(|bytes| valid(Spcr::parse(bytes)));
    let console = spcr.and_then(|spcr| spcr.port());
    let dbg2 = find(Signature::DBG2).and_then(|bytes| valid(Dbg2::parse(bytes)));
    let ports = dbg2.into_iter().flat_map(|dbg2| dbg2.ports());
    let debug = ports.filter_map(|port| port.inspect_err(|error| correction(error)).ok());
    let mut unknown = None;
    for port in console.into_iter().chain(debug) {
        match port.kind {
            SerialKind::Pl011 | SerialKind::Uart16550 if !port.is_io => return Some(port),
            _ => unknown = unknown.or(Some(port)),
        }
    }
    match unknown {
        Some(SerialPort { kind, address, .. }) => note(format_args!(
            "serial port at {address:#x} is no PL011 or 16550 in memory ({kind:?}): it shows nothing"
        )),
        None => note("ACPI names no serial port (SPCR, DBG2): none shows the log"),
    }
    None
}
