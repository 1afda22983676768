//! The tables of ACPI: CPUs, nodes, timers. All are read in place, so all are reserved. What
//! processors have of their own is in `pc` and `arm`, with the same names:
//!
//! | name | meaning |
//! |---|---|
//! | `READ` | tables that are read |
//! | `BIOS_AREA` | where the root pointer may be, if the loader does not pass it |
//! | `cpus`, `affinity_id` | CPUs of the MADT, and what the SRAT calls one |
//! | `Rest` | what else is read |

#[cfg(target_arch = "aarch64")]
#[path = "arm.rs"]
mod own;
#[cfg(target_arch = "x86_64")]
#[path = "pc.rs"]
mod own;

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::{
    self, AcpiError, BootTimes, Fault, Fpdt, HEADER_BYTES, Madt, Rsdp, Signature, Srat, SratEntry,
};
use firstlight::start::AcpiNodes;

use super::{Cpu, pvh};
use crate::arch::DirectMap;
use crate::console::{correction, note};
use own::{BIOS_AREA, READ, Rest};
#[cfg(target_arch = "aarch64")]
pub(crate) use own::{port, psci};

/// The root pointer is at a multiple of this.
const RSDP_ALIGN: usize = 16;

/// Where the tables begin: ACPI's root pointer.
pub(crate) type Root = Rsdp;

/// The ACPI tables there are; those of nodes are read by the engine.
#[derive(Default)]
pub(crate) struct Tables {
    madt: Option<Madt<'static>>,
    srat: Option<&'static [u8]>,
    slit: Option<&'static [u8]>,
    pub(crate) rest: Rest,
}

impl Tables {
    /// Those of nodes.
    pub(crate) fn nodes(&self) -> AcpiNodes<'static> {
        AcpiNodes {
            srat: self.srat,
            slit: self.slit,
            cpus: u32::try_from(self.listed_cpus()).unwrap_or(u32::MAX),
        }
    }

    /// CPUs that firmware lists as usable; at least this one.
    fn listed_cpus(&self) -> usize {
        self.cpus().count().max(1)
    }

    /// Usable CPUs, in the order of the MADT.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = Cpu> {
        let listed = self.madt.iter().flat_map(own::cpus);
        listed.flatten().map(|id| Cpu { id })
    }

    /// Reports entries of CPUs that cannot be read.
    pub(crate) fn report_cpus(&self) {
        let entries = self.madt.iter().flat_map(own::cpus);
        for error in entries.filter_map(Result::err) {
            correction(format_args!("MADT entry left out: {error}"));
        }
    }

    /// The domain of a CPU, by the SRAT.
    pub(crate) fn domain_of(&self, id: u64) -> Option<u32> {
        let srat = Srat::parse(self.srat?).ok()?;
        let id = own::affinity_id(self.madt.as_ref(), id)?;
        let mut entries = srat.entries().flatten();
        entries.find_map(|entry| match entry {
            SratEntry::Cpu {
                apic_id,
                domain,
                enabled: true,
                ..
            } if apic_id == id => Some(domain),
            _ => None,
        })
    }
}

/// The root of ACPI's tables; none on a machine without.
pub(crate) fn root(memory: DirectMap, loader: &pvh::Loader) -> Option<Rsdp> {
    let at = |start: u64| {
        let whole = PhysRange::with_size(start, Rsdp::BYTES as u64)?;
        memory.read(whole).map(Rsdp::parse)
    };
    let passed = loader.rsdp().map(PhysAddr::get);
    if let Some(address) = passed {
        match at(address) {
            Some(Ok(rsdp)) => return Some(rsdp),
            Some(Err(error)) => correction(error),
            None => correction(format_args!(
                "RSDP: at {address:#x} there is no memory to read"
            )),
        }
    }
    let starts = BIOS_AREA.step_by(RSDP_ALIGN);
    starts.filter_map(at).find_map(Result::ok)
}

/// Reserves the tables that [`tables`] will read, the first of each name that can be read whole; they may lie in
/// usable memory. Others are not read, so the lengths in their headers are not trusted. Whether all could be read: others may lie where
/// memory is not mapped yet.
pub(crate) fn reserve(
    memory: DirectMap,
    root: Option<&Rsdp>,
    early: &mut EarlyMemory<'_>,
) -> Result<bool, EarlyError> {
    let Some(root) = root else { return Ok(true) };
    let Ok(tables) = acpi::Tables::open(memory, root, &mut |_| {}) else {
        return Ok(false);
    };
    let whole = |(address, signature): (u64, Signature)| {
        let header = memory.read(PhysRange::with_size(address, HEADER_BYTES as u64)?)?;
        let bytes = header.get(4..8)?.try_into().map(u32::from_le_bytes).ok()?;
        let range = PhysRange::with_size(address, bytes.into())?;
        let known = header.starts_with(&signature.0) && memory.read(range).is_some();
        known.then_some(range)
    };
    let rsdt = root.rsdt.map(|address| (address.into(), Signature::RSDT));
    let roots = [root.xsdt.map(|address| (address, Signature::XSDT)), rsdt];
    let mut all = true;
    let named = tables.iter().filter_map(|table| match table {
        Ok((address, name)) => READ.contains(&name).then_some((address.get(), name)),
        Err(_) => {
            all = false;
            None
        }
    });
    let mut unread = false;
    let mut missing = READ.map(Some);
    for table in roots.into_iter().flatten().chain(named) {
        let slot = missing.iter_mut().find(|name| **name == Some(table.1));
        if slot.is_none() && READ.contains(&table.1) {
            continue;
        }
        match whole(table) {
            Some(range) => {
                early.reserve(range, "ACPI table")?;
                if let Some(slot) = slot {
                    *slot = None;
                }
            }
            None => unread = true,
        }
    }
    Ok(all && !unread)
}

/// Whether a pointer of the root table is at fault, not a table.
fn is_of_root(fault: &Fault) -> bool {
    match fault {
        Fault::NullPointer { .. } | Fault::Cycle { .. } => true,
        Fault::Unreadable {
            error: AcpiError::Unreadable { table, .. },
            ..
        } => *table == Signature::default(),
        _ => false,
    }
}

/// Reads the tables that are needed. Faulty ones are reported and left out.
pub(crate) fn tables(memory: DirectMap, root: Option<&Rsdp>) -> Tables {
    let Some(root) = root else {
        note("no ACPI: one CPU, one node");
        return Tables::default();
    };
    let tables = match acpi::Tables::open(memory, root, &mut |fault| correction(fault)) {
        Ok(tables) => tables,
        Err(error) => {
            correction(error);
            return Tables::default();
        }
    };
    for fault in tables.iter().filter_map(Result::err) {
        correction(fault);
    }
    let find = |signature| {
        // Every search meets the root's bad pointers again; they are reported above.
        let mut report = |fault| {
            if !is_of_root(&fault) {
                correction(fault);
            }
        };
        let table = tables.find(signature, &mut report);
        table.map(|table| table.bytes())
    };
    let rest = Rest::read(&find);
    Tables {
        madt: find(Signature::MADT).and_then(|bytes| valid(Madt::parse(bytes))),
        srat: find(Signature::SRAT),
        slit: find(Signature::SLIT),
        rest,
    }
}

/// When firmware did what, if a table says so. What is wrong with root and other tables was reported
/// when they were read.
pub(super) fn boot_times(
    memory: impl PhysRead<'static> + Copy,
    root: PhysAddr,
) -> Option<BootTimes> {
    let whole = PhysRange::with_size(root.get(), Rsdp::BYTES as u64);
    let root = whole.and_then(|whole| Rsdp::parse(memory.read(whole)?).ok());
    let Some(tables) = root.and_then(|root| acpi::Tables::open(memory, &root, &mut |_| {}).ok())
    else {
        note(
            "no performance table (FPDT) was looked for: ACPI's root table is unusable, or where memory is",
        );
        return None;
    };
    let table = tables.find(Signature::FPDT, &mut |fault| {
        if !is_of_root(&fault) {
            correction(fault);
        }
    })?;
    let address = valid(Fpdt::parse(table.bytes()).and_then(|fpdt| fpdt.boot_table()))??;
    valid(BootTimes::read(&memory, address))?
}

/// What was read; an error is reported.
fn valid<T>(parsed: Result<T, AcpiError>) -> Option<T> {
    parsed.inspect_err(|error| correction(error)).ok()
}
