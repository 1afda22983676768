//! The serial port for the console (SPCR), once all memory is up.

use firstlight::firmware::acpi::{SerialKind, SerialPort, Signature, Spcr};

use super::late::table;
use crate::arch::serial;
use crate::console::{correction, note};
use crate::machine::Machine;

/// Has the log shown where the SPCR says, if there is such a port. Called before anything is shown.
pub(crate) fn choose(machine: &Machine) {
    match table(machine, Signature::SPCR).map(Spcr::parse) {
        Some(Ok(spcr)) => spcr.port().into_iter().for_each(choose_this),
        Some(Err(error)) => correction(error),
        None => {}
    }
}

fn choose_this(port: SerialPort) {
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
