//! ACPI's tables that are read once all memory is up: the serial port for the console (SPCR), and where the registers
//! of DIMM slots are (DSDT). Other content may be by now where memory is: nothing is read there.

use firstlight::addr::PhysRange;
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::{self, Fadt, SerialKind, SerialPort, Signature, Spcr, Table};
use firstlight_image::hotplug::Place;

use crate::arch::serial;
use crate::console::{correction, note};
use crate::machine::Machine;

/// What is at `range`, where no memory is.
fn kept(machine: &Machine, range: PhysRange) -> Option<&'static [u8]> {
    let mut memory = machine.map.memory();
    let is_memory = memory.any(|memory| memory.range.overlaps(range));
    (!is_memory).then(|| machine.direct.read(range)).flatten()
}

/// The first table of this name. What is wrong with the root was said when other tables were read.
fn table(machine: &Machine, name: Signature) -> Option<&'static [u8]> {
    let kept = |range| kept(machine, range);
    let tables = acpi::Tables::open(kept, machine.root.as_ref()?, &mut |_| {}).ok()?;
    let table = tables.find(name, &mut |_| {})?;
    Some(table.bytes())
}

/// Has the log shown where the SPCR says, if there is such a port. Called before anything is shown.
pub(crate) fn choose_port(machine: &Machine) {
    match table(machine, Signature::SPCR).map(Spcr::parse) {
        Some(Ok(spcr)) => spcr.port().into_iter().for_each(choose),
        Some(Err(error)) => correction(error),
        None => {}
    }
}

/// Where the registers of DIMM slots are, if the board has some.
pub(crate) fn slots(machine: &Machine) -> Option<Place> {
    let fadt = Fadt::parse(table(machine, Signature::FADT)?).ok()?;
    let dsdt = Table::read(&|range| kept(machine, range), fadt.dsdt()?, Signature::DSDT);
    Place::find(dsdt.ok()?.bytes())
}

fn choose(port: SerialPort) {
    match (port.kind, u16::try_from(port.address), port.stride) {
        (SerialKind::Uart16550, Ok(base), 1) if port.is_io => {
            if !serial::choose(base) {
                note(format_args!(
                    "the serial port at {base:#x}, which ACPI names for the console, does not answer: the first one \
                     has the log"
                ));
            }
        }
        (kind, _, stride) => note(format_args!(
            "ACPI names a serial port for the console, {kind:?} at {:#x} in {}, a register each {stride} bytes: \
             expected a 16550 at an I/O port, a register a byte; the first one has the log",
            port.address,
            if port.is_io { "I/O ports" } else { "memory" },
        )),
    }
}
