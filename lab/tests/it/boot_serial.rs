//! Where the image shows its log: the first serial port of a PC, or the one that ACPI names for the console.

use crate::common::image::image;
use crate::common::qemu::{QEMU, arguments, qemu_is_here};

use std::fs;
use std::path::Path;
use std::process::Command;

use firstlight_lab::boot::Machine;

/// What an SPCR says after its header: a 16550 at an address in space `space`, 0 for memory, 1 for I/O ports.
fn console(space: u8, address: u64) -> Vec<u8> {
    let mut table = vec![0; 44];
    table[4..8].copy_from_slice(&[space, 8, 0, 1]);
    table[8..16].copy_from_slice(&address.to_le_bytes());
    table
}

/// The logs at the first and the third serial port of a PC, and its events.
fn logs(spcr: &[u8]) -> [String; 3] {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("spcr"), spcr).unwrap();
    let port = |name: &str| format!("file,path={}", at(name).display());
    let third = format!("file,id=third,path={}", at("third").display());
    let table = format!("sig=SPCR,rev=2,data={}", at("spcr").display());
    let extra = [
        "-chardev",
        &third,
        "-device",
        "isa-serial,chardev=third,index=2,iobase=0x3e8,irq=4",
        "-acpitable",
        &table,
    ];
    let machine = Machine {
        memory_mib: 64,
        ..Machine::default()
    };
    let extra = extra.map(str::to_owned);
    let arguments = arguments(&machine, image(), "", &extra, &port("log"), &port("events"));
    let ended = Command::new(QEMU).args(arguments).status().unwrap();
    assert_eq!(ended.code(), Some(85));
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    ["log", "third", "events"].map(|name| read(&at(name)))
}

#[test]
fn the_log_is_at_the_port_that_acpi_names_for_the_console() {
    if !qemu_is_here() {
        return;
    }
    let [first, third, events] = logs(&console(1, 0x3e8));
    assert_eq!(first, "");
    assert!(third.contains("end: ok"), "{third}");
    assert!(events.contains(r#""event":"end""#), "{events}");
    // It keeps to the first one where that port can't be used, and says why.
    for (spcr, why) in [
        (
            console(1, 0x4e8),
            "at 0x4e8, which ACPI names for the console, does not answer",
        ),
        (
            console(0, 0x3e8),
            "Uart16550 at 0x3e8 in memory, a register each 1 bytes: expected a 16550 at an I/O port",
        ),
    ] {
        let [first, third, events] = logs(&spcr);
        assert!(first.contains(why) && first.contains("end: ok"), "{first}");
        assert_eq!(third, "");
        assert!(events.contains(why), "{events}");
    }
}
