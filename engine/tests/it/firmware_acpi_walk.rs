//! From the root pointer to a table, through memory that does not mean well.

use crate::acpi_tables;

use acpi_tables::{seal, sealed, srat, x2apic};
use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::firmware::MemoryImage;
use firstlight::firmware::acpi::{AcpiError, Fault, Rsdp, Signature, Srat, Table, Tables};

const BASE: u64 = 0x7000_0000;

fn rsdp(revision: u8, rsdt: u32, xsdt: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0FIRST ".to_vec();
    bytes.push(revision);
    bytes.extend(rsdt.to_le_bytes());
    bytes[8] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    if revision >= 2 {
        bytes.extend(36u32.to_le_bytes());
        bytes.extend(xsdt.to_le_bytes());
        bytes.extend([0; 4]);
        bytes[32] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    }
    bytes
}

/// An XSDT at BASE over these addresses, then an SRAT at BASE + 0x1000.
fn machine(addresses: &[u64]) -> Vec<u8> {
    let pointers: Vec<u8> = addresses
        .iter()
        .flat_map(|address| address.to_le_bytes())
        .collect();
    let mut memory = sealed(b"XSDT", 1, &pointers);
    memory.resize(0x1000, 0);
    memory.extend(srat(3, &[x2apic(0, 0, 1)]));
    memory
}

fn find(
    memory: &[u8],
    rsdp: &[u8],
    wanted: Signature,
) -> (Result<Option<usize>, AcpiError>, Vec<Fault>) {
    let image = MemoryImage::new(PhysAddr::new(BASE), memory);
    let mut faults = Vec::new();
    let rsdp = Rsdp::parse(rsdp).unwrap();
    let found = Tables::open(image, &rsdp, &mut |fault| faults.push(fault)).map(|tables| {
        tables
            .find(wanted, &mut |fault| faults.push(fault))
            .map(|table| table.bytes().len())
    });
    (found, faults)
}

#[test]
fn rsdp_of_both_revisions() {
    let old = Rsdp::parse(&rsdp(0, 0x1234, 0)).unwrap();
    assert_eq!((old.revision, old.rsdt, old.xsdt), (0, Some(0x1234), None));
    let new = Rsdp::parse(&rsdp(2, 0x1234, 0x1_0000_0000)).unwrap();
    assert_eq!(
        (new.revision, new.rsdt, new.xsdt),
        (2, Some(0x1234), Some(0x1_0000_0000))
    );
}

#[test]
fn rsdp_cut_or_changed_at_any_byte_is_refused() {
    for whole in [rsdp(0, 0x1234, 0), rsdp(2, 0x1234, 0x5678)] {
        for length in 0..whole.len() {
            let error = Rsdp::parse(&whole[..length]).unwrap_err();
            assert!(
                matches!(
                    error,
                    AcpiError::Truncated {
                        table: Signature::RSDP,
                        ..
                    }
                ),
                "{length}: {error}"
            );
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            assert!(Rsdp::parse(&bytes).is_err(), "byte {at}");
        }
    }
    let mut far = rsdp(2, 1, 1);
    far[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(
        Rsdp::parse(&far),
        Err(AcpiError::Truncated {
            needed_bytes: 0xffff_ffff,
            ..
        })
    ));
}

#[test]
fn a_table_is_found_by_name() {
    let memory = machine(&[BASE + 0x1000]);
    let (found, faults) = find(&memory, &rsdp(2, 0, BASE), Signature::SRAT);
    assert_eq!((found, faults), (Ok(Some(72)), vec![]));
    let (found, faults) = find(&memory, &rsdp(2, 0, BASE), Signature::SLIT);
    assert_eq!((found, faults), (Ok(None), vec![]));
}

#[test]
fn hostile_pointers_are_skipped_and_reported() {
    let memory = machine(&[
        0,
        BASE,
        1 << 63,
        u64::MAX,
        BASE + 0x1000 + 60,
        BASE + 0x1000,
        BASE + 0x1000,
    ]);
    let (found, faults) = find(&memory, &rsdp(2, 0x1000, BASE), Signature::SRAT);
    assert_eq!(found, Ok(Some(72)));
    let reported: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert_eq!(reported[0], "XSDT: entry 0 is zero, skipped");
    assert_eq!(
        reported[1],
        "XSDT: entry 1 points back to a root table at 0x70000000, skipped"
    );
    assert!(matches!(
        faults[2],
        Fault::Unreadable {
            index: 2,
            address: 0x8000_0000_0000_0000,
            ..
        }
    ));
    assert!(matches!(
        faults[3],
        Fault::Unreadable {
            index: 3,
            address: u64::MAX,
            ..
        }
    ));
    assert!(matches!(faults[4], Fault::Unreadable { index: 4, .. }));
    assert_eq!(
        faults[5],
        Fault::Duplicate {
            table: Signature::SRAT,
            index: 6
        }
    );
    assert_eq!(faults.len(), 6);
}

#[test]
fn a_table_longer_than_memory_is_not_used() {
    let mut memory = machine(&[BASE + 0x1000]);
    memory[0x1004..0x1008].copy_from_slice(&u32::MAX.to_le_bytes());
    let (found, faults) = find(&memory, &rsdp(2, 0, BASE), Signature::SRAT);
    assert_eq!(found, Ok(None));
    let (table, address, bytes) = (Signature::SRAT, BASE + 0x1000, 0xffff_ffff);
    let error = AcpiError::Unreadable {
        table,
        address,
        bytes,
    };
    assert_eq!(
        faults,
        [Fault::Unreadable {
            root: Signature::XSDT,
            index: 0,
            address,
            error
        }]
    );
}

#[test]
fn the_rsdt_stands_in_for_an_xsdt_that_cannot_be_read() {
    let mut memory = sealed(b"RSDT", 1, &0x7000_1000u32.to_le_bytes());
    memory.resize(0x1000, 0);
    memory.extend(srat(3, &[]));
    let base = u32::try_from(BASE).unwrap();
    let (found, faults) = find(&memory, &rsdp(2, base, 1 << 40), Signature::SRAT);
    assert_eq!(found, Ok(Some(48)));
    assert!(matches!(
        faults[..],
        [Fault::XsdtUnusable(AcpiError::Unreadable { .. })]
    ));
    // An RSDT where an XSDT should be is no XSDT.
    let (found, faults) = find(&memory, &rsdp(2, base, BASE), Signature::SRAT);
    assert_eq!(found, Ok(Some(48)));
    assert!(matches!(
        faults[..],
        [Fault::XsdtUnusable(AcpiError::WrongSignature { .. })]
    ));
    // Revision 0 has only the RSDT.
    assert_eq!(
        find(&memory, &rsdp(0, base, 0), Signature::SRAT),
        (Ok(Some(48)), vec![])
    );
}

#[test]
fn no_root_is_an_error() {
    assert_eq!(
        find(&[], &rsdp(2, 0, 0), Signature::SRAT).0,
        Err(AcpiError::NoRoot)
    );
    assert_eq!(
        find(&[], &rsdp(0, 0, 0), Signature::SRAT).0,
        Err(AcpiError::NoRoot)
    );
    let error = find(&[], &rsdp(2, 0x1000, 0x2000), Signature::SRAT)
        .0
        .unwrap_err();
    assert_eq!(
        error,
        AcpiError::Unreadable {
            table: Signature::XSDT,
            address: 0x2000,
            bytes: 36
        }
    );
}

#[test]
fn a_root_cut_inside_a_pointer_and_checksums_are_reported() {
    let mut memory = machine(&[BASE + 0x1000, BASE + 0x1000]);
    memory[4] -= 3;
    memory[0x1009] ^= 1;
    let (found, faults) = find(&memory, &rsdp(2, 0, BASE), Signature::SRAT);
    assert_eq!(found, Ok(Some(72)));
    assert!(matches!(
        faults[0],
        Fault::Checksum {
            table: Signature::XSDT,
            ..
        }
    ));
    assert_eq!(
        faults[1],
        Fault::PartialPointer {
            root: Signature::XSDT,
            bytes: 5
        }
    );
    assert!(matches!(
        faults[2],
        Fault::Checksum {
            table: Signature::SRAT,
            ..
        }
    ));
    assert_eq!(faults.len(), 3);
    seal(&mut memory[0x1000..0x1048]);
    assert_eq!(find(&memory, &rsdp(2, 0, BASE), Signature::SRAT).1.len(), 2);
}

#[test]
fn a_short_read_of_memory_is_refused() {
    let memory = machine(&[BASE + 0x1000]);
    let stingy = |range: PhysRange| {
        let start = (range.start().get() - BASE) as usize;
        memory.get(start..start + 20)
    };
    let rsdp = Rsdp::parse(&rsdp(2, 0, BASE)).unwrap();
    assert!(matches!(
        Tables::open(stingy, &rsdp, &mut |_| {}),
        Err(AcpiError::Unreadable { .. })
    ));
}

#[test]
fn every_table_found_parses() {
    let memory = machine(&[BASE + 0x1000]);
    let image = MemoryImage::new(PhysAddr::new(BASE), &memory);
    let rsdp = Rsdp::parse(&rsdp(2, 0, BASE)).unwrap();
    let tables = Tables::open(image, &rsdp, &mut |_| {}).unwrap();
    let names: Vec<_> = tables.iter().map(Result::unwrap).collect();
    assert_eq!(names, [(PhysAddr::new(BASE + 0x1000), Signature::SRAT)]);
    let table: Table<'_> = tables.find(Signature::SRAT, &mut |_| {}).unwrap();
    assert_eq!(Srat::parse(table.bytes()).unwrap().entries().count(), 1);
}
