//! The FADT's timer: tables of two virtual machines byte for byte, and the same
//! tables with one field changed.

use crate::acpi_tables;

use acpi_tables::seal;
use firstlight::addr::PhysAddr;
use firstlight::firmware::acpi::{AcpiError, Fadt, PmTimer, Signature};

const PC: &[u8] = machine!("QEMU_pc.facp.bin");
const Q35: &[u8] = machine!("QEMU_q35.facp.bin");

const fn timer(port: u16, bits: u32) -> Option<PmTimer> {
    Some(PmTimer { port, bits })
}

/// What the timer of `table` is once `fields` are overwritten.
fn changed(table: &[u8], fields: &[(usize, &[u8])]) -> Option<PmTimer> {
    let mut table = table.to_vec();
    for (offset, bytes) in fields {
        table[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    seal(&mut table);
    let fadt = Fadt::parse(&table).unwrap();
    assert_eq!(fadt.checksum_fault(), None);
    fadt.pm_timer()
}

#[test]
fn virtual_machines_of_both_ages() {
    for (table, bytes) in [(PC, 116), (Q35, 244)] {
        assert_eq!(table.len(), bytes);
        let fadt = Fadt::parse(table).unwrap();
        assert_eq!(fadt.checksum_fault(), None);
        assert!(!fadt.hardware_reduced());
        assert_eq!(fadt.pm_timer(), timer(0x608, 24));
    }
}

#[test]
fn the_address_of_the_dsdt_in_64_bits_counts_where_there_is_one() {
    let changed = |table: &[u8], fields: &[(usize, u8)]| {
        let mut table = table.to_vec();
        for (offset, byte) in fields {
            table[*offset] = *byte;
        }
        let dsdt = Fadt::parse(&table).unwrap().dsdt();
        dsdt.map(PhysAddr::get)
    };
    let none = [(40, 0), (41, 0), (42, 0), (43, 0)];
    let no_wide = [(140, 0), (141, 0), (142, 0), (143, 0)];
    for table in [PC, Q35] {
        assert_eq!(changed(table, &[]), Some(0x3fe_0040));
    }
    assert_eq!(changed(PC, &none), None);
    assert_eq!(changed(Q35, &none), Some(0x3fe_0040));
    assert_eq!(changed(Q35, &[(144, 1)]), Some(0x1_03fe_0040));
    assert_eq!(changed(Q35, &no_wide), Some(0x3fe_0040));
    assert_eq!(changed(Q35, &[none, no_wide].concat()), None);
}

#[test]
fn a_flag_gives_the_timer_32_bits() {
    assert_eq!(changed(PC, &[(113, &[0x81])]), timer(0x608, 32));
    assert_eq!(changed(Q35, &[(113, &[0x81])]), timer(0x608, 32));
}

#[test]
fn hardware_reduced_machines_have_none() {
    for table in [PC, Q35] {
        assert_eq!(changed(table, &[(114, &[0x10])]), None);
    }
}

#[test]
fn zero_is_no_port_and_no_length_is_no_timer() {
    assert_eq!(changed(PC, &[(76, &[0; 4])]), None);
    assert_eq!(changed(PC, &[(91, &[0])]), None);
    // Either address is enough where both exist.
    assert_eq!(changed(Q35, &[(76, &[0; 4])]), timer(0x608, 24));
    assert_eq!(changed(Q35, &[(208, &[0; 12])]), timer(0x608, 24));
    assert_eq!(changed(Q35, &[(76, &[0; 4]), (208, &[0; 12])]), None);
}

#[test]
fn the_generic_address_wins_where_it_is_a_port() {
    let plain: (usize, &[u8]) = (76, &[0x08, 0x04]);
    let at = |address: u64| address.to_le_bytes();
    assert_eq!(changed(Q35, &[plain, (212, &at(0x808))]), timer(0x808, 24));
    let unusable: [&[(usize, &[u8])]; 4] = [
        &[(208, &[0])],          // in memory
        &[(210, &[8])],          // inside a wider register
        &[(212, &at(0x1_0608))], // past the last port
        &[(212, &at(1 << 32))],
    ];
    for fields in unusable {
        assert_eq!(
            changed(Q35, &[fields, &[plain]].concat()),
            timer(0x408, 24),
            "{fields:?}"
        );
    }
}

#[test]
fn all_four_ports_must_exist() {
    let plain = |port: u32| changed(PC, &[(76, &port.to_le_bytes())]);
    assert_eq!(plain(0xfffc), timer(0xfffc, 24));
    for port in [0xfffd, 0xffff, 0x1_0000, 0x1_0608, u32::MAX] {
        assert_eq!(plain(port), None, "{port:#x}");
    }
}

#[test]
fn what_lies_past_the_end_is_absent() {
    // The generic address names another port than the plain one, so that it
    // shows which was read.
    let mut table = Q35.to_vec();
    table[212..214].copy_from_slice(&0x808u16.to_le_bytes());
    for length in 0..=table.len() {
        let mut cut = table[..length].to_vec();
        if length >= 8 {
            cut[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        }
        let fadt = Fadt::parse(&cut);
        match length {
            0..116 => assert!(
                matches!(fadt, Err(AcpiError::Truncated { .. })),
                "{length}: {fadt:?}"
            ),
            116..220 => assert_eq!(fadt.unwrap().pm_timer(), timer(0x608, 24), "{length}"),
            _ => assert_eq!(fadt.unwrap().pm_timer(), timer(0x808, 24), "{length}"),
        }
    }
}

#[test]
fn another_table_is_refused_and_a_wrong_sum_is_reported() {
    let mut table = PC.to_vec();
    table[9] ^= 1;
    let fadt = Fadt::parse(&table).unwrap();
    assert!(fadt.checksum_fault().is_some());
    assert_eq!(fadt.pm_timer(), timer(0x608, 24));
    table[..4].copy_from_slice(b"APIC");
    let (expected, seen) = (Signature::FADT, Signature::MADT);
    let error = Fadt::parse(&table).unwrap_err();
    assert_eq!(error, AcpiError::WrongSignature { expected, seen });
}
