//! The serial port that ACPI names for the console (SPCR), where that is another than a PC's first.

use firstlight::addr::PhysRange;
use firstlight::firmware::PhysRead;
use firstlight::firmware::acpi::{self, SerialKind, SerialPort, Signature, Spcr};

use crate::arch::serial;
use crate::console::{correction, note};
use crate::machine::Machine;

/// Has the log shown there, if there is such a port. Called once all memory is up, before anything is shown; other
/// content may be by now where memory is: nothing is read there.
pub(crate) fn choose_port(machine: &Machine) {
    let Some(root) = &machine.root else { return };
    let direct = *machine.direct;
    let kept = |range: PhysRange| {
        let mut memory = machine.map.memory();
        match memory.any(|memory| memory.range.overlaps(range)) {
            true => None,
            false => direct.read(range),
        }
    };
    // What is wrong with the root was said when the other tables were read.
    let Ok(tables) = acpi::Tables::open(kept, root, &mut |_| {}) else {
        return;
    };
    let Some(table) = tables.find(Signature::SPCR, &mut |_| {}) else {
        return;
    };
    match Spcr::parse(table.bytes()) {
        Ok(spcr) => spcr.port().into_iter().for_each(choose),
        Err(error) => correction(error),
    }
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
