//! Where registers are by ACPI: the regions of slots and of events in the code of a DSDT, the configuration space of PCI
//! in an MCFG; each what a plain look finds, and nothing that ends beyond all addresses.
#![no_main]

use firstlight_fuzz::with_header;
use firstlight_image::hotplug::Place;
use firstlight_image::virtio::ecam;
use firstlight_image::virtio::pci::Region;
use libfuzzer_sys::fuzz_target;

/// The bytes after the first `name` from `from` on: where.
fn behind(code: &[u8], from: usize, name: &[u8]) -> Option<usize> {
    (from..code.len()).find_map(|at| code[at..].starts_with(name).then(|| at + name.len()))
}

/// An integer of ACPI's code at `at`, and where it ends.
fn integer(code: &[u8], at: usize) -> Option<(u64, usize)> {
    let size = match code.get(at)? {
        0x0a => 1,
        0x0b => 2,
        0x0c => 4,
        0x0e => 8,
        _ => return None,
    };
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(code.get(at + 1..at + 1 + size)?);
    Some((u64::from_le_bytes(bytes), at + 1 + size))
}

/// The first `bytes` of a region that is declared at `at`.
fn expected(code: &[u8], at: usize, bytes: u32) -> Option<Place> {
    let (address, next) = integer(code, at + 1)?;
    let (declared, _) = integer(code, next)?;
    let end = u128::from(address) + u128::from(declared);
    if address == 0 || declared < u64::from(bytes) || end > u128::from(u64::MAX) {
        return None;
    }
    match code[at] {
        0 => Some(Place::Memory(Region { address, bytes })),
        1 if end <= 0x1_0000 => Some(Place::Ports(u16::try_from(address).unwrap())),
        _ => None,
    }
}

fn code(dsdt: &[u8]) {
    let slots = behind(dsdt, 0, b"\x5b\x80HPMR").and_then(|at| expected(dsdt, at, 24));
    assert_eq!(Place::of_slots(dsdt), slots);
    let events = behind(dsdt, 0, b"ACPI0013\0")
        .and_then(|at| behind(dsdt, at, b"\x5b\x80EREG"))
        .and_then(|at| expected(dsdt, at, 4));
    assert_eq!(Place::of_events(dsdt), events);
}

fn table(mcfg: &[u8]) {
    let entries = mcfg.get(44..).unwrap_or_default().chunks_exact(16);
    let places = entries.map(|entry| {
        let address = u64::from_le_bytes(entry[..8].try_into().unwrap());
        let bytes = (u32::from(entry[11]) + 1) * 0x10_0000;
        let is_first = entry[8..11] == [0; 3] && address > 0;
        let fits = u128::from(address) + u128::from(bytes) <= u128::from(u64::MAX);
        (is_first && fits).then_some(Region { address, bytes })
    });
    assert_eq!(ecam::place(mcfg), places.flatten().next());
}

fuzz_target!(|data: &[u8]| {
    code(data);
    // So that a fuzzer's bytes stand behind the names.
    let (first, rest) = data.split_at(data.len() / 2);
    let parts: [&[u8]; 6] = [b"\x5b\x80HPMR", first, b"\x0dACPI0013\0", first, b"\x5b\x80EREG", rest];
    code(&parts.concat());
    table(data);
    table(&with_header(b"MCFG", data));
});
