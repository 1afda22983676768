//! The tables of loader and firmware: start info, memory map, command line, ACPI. All
//! are read in place, so all are reserved.

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::clock::Frequency;
use firstlight::cmdline::CommandLine;
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::{
    AcpiError, Fadt, Fault, HEADER_BYTES, Madt, PmTimer, Rsdp, Signature, Tables,
};
use firstlight::firmware::pvh::{PvhError, StartInfo, V1_BYTES};

use crate::arch::{DirectMap, clock};
use crate::console::{correction, note};

/// Where a PC's firmware leaves the root pointer, if the loader does not pass it.
const BIOS_AREA: (u64, u64) = (0xe_0000, 0x10_0000);
/// Video memory and ROM on every PC, also where a map calls it usable: writes there are
/// lost.
pub(crate) const HOLE: PhysRange = match PhysRange::new(0xa_0000, 0x10_0000) {
    Some(range) => range,
    None => PhysRange::EMPTY,
};
/// The root pointer is at a multiple of this.
const RSDP_ALIGN: usize = 16;

/// How a word for restarts begins.
const RESTART: &[u8] = b"restart=";

/// The loader's hand-over.
pub(crate) struct Loader {
    pub(crate) info: StartInfo,
    at: u64,
    pub(crate) command_line: CommandLine<'static>,
    /// Why there is no command line, if it cannot be read.
    unread: Option<PvhError>,
}

impl Loader {
    /// Reads the start info at `at`; writes to no static.
    ///
    /// # Errors
    /// [`PvhError`] if there is none. A command line that cannot be read is left out.
    pub(crate) fn read(memory: DirectMap, at: u64) -> Result<Self, PvhError> {
        let info = StartInfo::read(&memory, PhysAddr::new(at))?;
        let (text, unread) = match info.command_line(&memory) {
            Ok(text) => (text, None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self {
            info,
            at,
            command_line: CommandLine::new(text.unwrap_or_default()),
            unread,
        })
    }

    /// Whether the command line may have a word for restarts.
    pub(crate) fn may_restart(&self) -> bool {
        let text = self.command_line.text();
        text.windows(RESTART.len()).any(|part| part == RESTART)
    }

    /// Reports what could not be read.
    pub(crate) fn report(&self) {
        if let Some(error) = self.unread {
            correction(error);
        }
    }

    /// Reserves its own data: the start info, the memory map, the command line, the modules.
    pub(crate) fn reserve(
        &self,
        memory: DirectMap,
        early: &mut EarlyMemory<'_>,
    ) -> Result<(), EarlyError> {
        let mut reserve = |start: u64, bytes: u64, owner| match PhysRange::with_size(start, bytes) {
            Some(range) => early.reserve(range, owner),
            None => Ok(()),
        };
        let address = |at: Option<PhysAddr>| at.unwrap_or_default().get();
        reserve(self.at, V1_BYTES as u64, "start info")?;
        let map_bytes = u64::from(self.info.memory_map_entries) * 24;
        reserve(
            address(self.info.memory_map),
            map_bytes,
            "loader's memory map",
        )?;
        let line_bytes = self
            .info
            .command_line(&memory)
            .ok()
            .flatten()
            .map_or(0, |text| text.len() + 1);
        reserve(
            address(self.info.command_line),
            line_bytes as u64,
            "command line",
        )?;
        let modules = match self.info.modules(&memory) {
            Ok(modules) => modules,
            Err(error) => {
                correction(error);
                return Ok(());
            }
        };
        reserve(
            self.info.module_list.get(),
            u64::from(self.info.modules) * 32,
            "module list",
        )?;
        modules
            .into_iter()
            .try_for_each(|module| reserve(module.start, module.bytes, "module"))
    }
}

/// The ACPI tables there are; those of nodes are read by the engine.
#[derive(Default)]
pub(crate) struct Acpi {
    pub(crate) madt: Option<Madt<'static>>,
    pub(crate) srat: Option<&'static [u8]>,
    pub(crate) slit: Option<&'static [u8]>,
    pub(crate) pm_timer: Option<PmTimer>,
    /// The port of fixed events, the power button among them.
    pub(crate) event_port: Option<u16>,
}

/// The root of ACPI's tables; none on a machine without.
pub(crate) fn root(memory: DirectMap, loader: &Loader) -> Option<Rsdp> {
    let at = |start: u64| {
        let whole = PhysRange::with_size(start, Rsdp::BYTES as u64)?;
        memory.read(whole).map(Rsdp::parse)
    };
    let passed = loader.info.rsdp.map(PhysAddr::get);
    if let Some(address) = passed {
        match at(address) {
            Some(Ok(rsdp)) => return Some(rsdp),
            Some(Err(error)) => correction(error),
            None => correction(format_args!(
                "RSDP: at {address:#x} there is no memory to read"
            )),
        }
    }
    let (start, end) = BIOS_AREA;
    let starts = (start..end).step_by(RSDP_ALIGN);
    starts.filter_map(at).find_map(Result::ok)
}

/// Tables that are read here.
const READ: [Signature; 4] = [
    Signature::MADT,
    Signature::SRAT,
    Signature::SLIT,
    Signature::FADT,
];

/// Reserves the tables that [`tables`] will read; they may lie in usable memory. Others
/// are not read, so the lengths in their headers are not trusted.
pub(crate) fn reserve(
    memory: DirectMap,
    root: Option<&Rsdp>,
    early: &mut EarlyMemory<'_>,
) -> Result<(), EarlyError> {
    let Some(tables) = root.and_then(|root| Tables::open(memory, root, &mut |_| {}).ok()) else {
        return Ok(());
    };
    let whole = |(address, signature): (u64, Signature)| {
        let header = memory.read(PhysRange::with_size(address, HEADER_BYTES as u64)?)?;
        let bytes = header.get(4..8)?.try_into().map(u32::from_le_bytes).ok()?;
        let range = PhysRange::with_size(address, bytes.into())?;
        let known = header.starts_with(&signature.0) && memory.read(range).is_some();
        known.then_some(range)
    };
    let roots = root.into_iter().flat_map(|root| {
        let rsdt = root.rsdt.map(|address| (address.into(), Signature::RSDT));
        [root.xsdt.map(|address| (address, Signature::XSDT)), rsdt]
    });
    let read = READ.into_iter().filter_map(|wanted| {
        let named = tables.iter().flatten().filter(|(_, name)| *name == wanted);
        named
            .map(|(address, name)| (address.get(), name))
            .find_map(whole)
    });
    roots
        .flatten()
        .filter_map(whole)
        .chain(read)
        .try_for_each(|range| early.reserve(range, "ACPI table"))
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
pub(crate) fn tables(memory: DirectMap, root: Option<&Rsdp>) -> Acpi {
    let Some(root) = root else {
        note("no ACPI: one CPU, one node");
        return Acpi::default();
    };
    let tables = match Tables::open(memory, root, &mut |fault| correction(fault)) {
        Ok(tables) => tables,
        Err(error) => {
            correction(error);
            return Acpi::default();
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
    fn valid<T>(parsed: Result<T, impl core::fmt::Display>) -> Option<T> {
        parsed.inspect_err(|error| correction(error)).ok()
    }
    let fadt = find(Signature::FADT).and_then(|bytes| valid(Fadt::parse(bytes)));
    Acpi {
        madt: find(Signature::MADT).and_then(|bytes| valid(Madt::parse(bytes))),
        srat: find(Signature::SRAT),
        slit: find(Signature::SLIT),
        pm_timer: fadt.and_then(|fadt| fadt.pm_timer()),
        event_port: fadt.and_then(|fadt| fadt.event_port()),
    }
}

/// The frequency of ticks and its source: the command line, if it has one, else
/// [`clock`].
pub(crate) fn frequency(
    given: Option<Frequency>,
    pm_timer: Option<PmTimer>,
) -> Option<(Frequency, &'static str)> {
    if let Some(given) = given {
        return Some((given, "command line"));
    }
    clock::frequency(pm_timer)
        .inspect_err(|error| note(format_args!("times stay in ticks: {error}")))
        .ok()
}
