//! ACPI tables: those of real machines byte for byte, and odd ones made by hand.

use crate::acpi_tables;

use acpi_tables::{cpu, entry, madt, memory, sealed, srat, x2apic};
use firstlight::firmware::acpi::{
    AcpiError, Madt, MadtCpu, Signature, Slit, Srat, SratEntry, Table,
};

const R820_SRAT: &[u8] = machine!("PowerEdge_R820.srat.bin");
const R820_SLIT: &[u8] = machine!("PowerEdge_R820.slit.bin");
const H8DGU_SRAT: &[u8] = machine!("H8DGU.srat.bin");
const PROLIANT_SRAT: &[u8] = machine!("ProLiant_DL360_G7.srat.bin");
const X8DTT_SRAT: &[u8] = machine!("X8DTT.srat.bin");
const X99_SRAT: &[u8] = machine!("X99.srat.bin");
const X99_MSCT: &[u8] = machine!("X99.msct.bin");

/// (domain, base, bytes) of the enabled ranges, and for each domain the number
/// of enabled CPUs, and the number of CPUs that are not.
type Summary = (Vec<(u32, u64, u64)>, Vec<(u32, usize)>, usize);

fn summary(table: &[u8]) -> Summary {
    let srat = Srat::parse(table).unwrap();
    assert_eq!(srat.checksum_fault(), None);
    let (mut ranges, mut cpus, mut absent) = (Vec::new(), std::collections::BTreeMap::new(), 0);
    for entry in srat.entries() {
        match entry.unwrap() {
            SratEntry::Cpu {
                domain,
                enabled: true,
                ..
            } => *cpus.entry(domain).or_insert(0) += 1,
            SratEntry::Cpu { .. } => absent += 1,
            SratEntry::Memory {
                domain,
                base,
                bytes,
                enabled: true,
                hotplug,
                non_volatile,
            } => {
                assert!(!hotplug && !non_volatile);
                ranges.push((domain, base, bytes));
            }
            SratEntry::Memory { .. } => {}
            SratEntry::Other { kind, .. } => panic!("kind {kind}"),
        }
    }
    (ranges, cpus.into_iter().collect(), absent)
}

#[test]
fn real_srats() {
    let (ranges, cpus, absent) = summary(R820_SRAT);
    assert_eq!(
        ranges,
        [
            (1, 0, 0x4_4000_0000),
            (2, 0x4_4000_0000, 0x4_0000_0000),
            (3, 0x8_4000_0000, 0x4_0000_0000),
            (4, 0xc_4000_0000, 0x4_0000_0000),
        ]
    );
    assert_eq!(
        (cpus, absent),
        (vec![(1, 20), (2, 20), (3, 20), (4, 20)], 16)
    );

    let (ranges, cpus, absent) = summary(H8DGU_SRAT);
    assert_eq!(
        ranges,
        [
            (0, 0, 0xa_0000),
            (0, 0x10_0000, 0xdff0_0000),
            (0, 0x1_0000_0000, 0x8_2000_0000),
            (3, 0x9_2000_0000, 0x9_0000_0000),
        ]
    );
    assert_eq!((cpus, absent), (vec![(0, 6), (1, 6), (2, 6), (3, 6)], 0));

    let (ranges, cpus, absent) = summary(PROLIANT_SRAT);
    assert_eq!(
        ranges,
        [
            (0, 0, 0xe000_0000),
            (0, 0x1_0000_0000, 0x17_2000_0000),
            (1, 0x18_2000_0000, 0x18_0000_0000)
        ]
    );
    assert_eq!((cpus, absent), (vec![(0, 8), (1, 8)], 48));

    let (ranges, cpus, absent) = summary(X8DTT_SRAT);
    assert_eq!(ranges.len(), 4);
    assert_eq!(ranges[3], (1, 0x6_4000_0000, 0x6_0000_0000));
    assert_eq!((cpus, absent), (vec![(0, 8), (1, 8)], 0));

    let (ranges, cpus, absent) = summary(X99_SRAT);
    assert_eq!(
        ranges,
        [(0, 0, 0x8000_0000), (0, 0x1_0000_0000, 0x3_8000_0000)]
    );
    assert_eq!((cpus, absent), (vec![(0, 20)], 172));
}

#[test]
fn another_table_is_refused_by_name() {
    let seen = Signature(*b"MSCT");
    let expected = Signature::SRAT;
    let error = Srat::parse(X99_MSCT).unwrap_err();
    assert_eq!(error, AcpiError::WrongSignature { expected, seen });
    assert_eq!(error.to_string(), "expected table SRAT, found \"MSCT\"");
    assert!(Madt::parse(X99_MSCT).is_err() && Slit::parse(X99_MSCT).is_err());
    assert_eq!(Table::parse(X99_MSCT).unwrap().signature(), seen);
}

#[test]
fn every_table_cut_at_every_byte_is_an_error() {
    for table in [
        R820_SRAT,
        R820_SLIT,
        H8DGU_SRAT,
        X99_SRAT,
        &madt(&[cpu(0, 0, 1)]),
    ] {
        for length in 0..table.len() {
            let cut = &table[..length];
            assert!(matches!(
                Srat::parse(cut),
                Err(AcpiError::Truncated { .. } | AcpiError::WrongSignature { .. })
            ));
            assert!(Slit::parse(cut).is_err() && Madt::parse(cut).is_err());
        }
    }
}

#[test]
fn every_srat_whose_length_says_it_is_cut_ends_in_an_error_or_at_an_entry() {
    for length in 48..H8DGU_SRAT.len() {
        let mut table = H8DGU_SRAT[..length].to_vec();
        table[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        let entries: Vec<_> = Srat::parse(&table).unwrap().entries().collect();
        let whole: usize = entries
            .iter()
            .map(|entry| match entry {
                Ok(SratEntry::Cpu { .. }) => 16,
                Ok(SratEntry::Memory { .. }) => 40,
                Ok(SratEntry::Other { .. }) => unreachable!(),
                Err(_) => 0,
            })
            .sum();
        let failed = matches!(entries.last(), Some(Err(AcpiError::EntryPastEnd { .. })));
        assert_eq!(failed, 48 + whole != length, "{length}");
        assert_eq!(
            entries.iter().filter(|entry| entry.is_err()).count(),
            usize::from(failed)
        );
    }
}

#[test]
fn bytes_after_the_table_are_not_read() {
    let table = [H8DGU_SRAT, &[0xff; 100]].concat();
    assert_eq!(summary(&table), summary(H8DGU_SRAT));
}

#[test]
fn a_wrong_checksum_is_reported_and_tolerated() {
    let mut table = H8DGU_SRAT.to_vec();
    table[9] = table[9].wrapping_add(3);
    let srat = Srat::parse(&table).unwrap();
    assert_eq!(
        srat.checksum_fault().unwrap().to_string(),
        "SRAT: bytes add up to 0x03, expected 0; used all the same"
    );
    assert_eq!(srat.entries().count(), 28);
}

#[test]
fn domains_have_eight_bits_before_revision_2_and_32_after() {
    let entries = [
        entry(0, &[0x78, 7, 1, 0, 0, 0, 0, 0x56, 0x34, 0x12, 0, 0, 0, 0]),
        memory(0x1234_5678, 0, 1, 1),
    ];
    let domains = |revision| -> Vec<u32> {
        let table = srat(revision, &entries);
        let entries = Srat::parse(&table).unwrap().entries();
        entries
            .map(|entry| match entry.unwrap() {
                SratEntry::Cpu { domain, .. } | SratEntry::Memory { domain, .. } => domain,
                SratEntry::Other { .. } => unreachable!(),
            })
            .collect()
    };
    assert_eq!(domains(1), [0x78, 0x78]);
    assert_eq!(domains(2), [0x1234_5678, 0x1234_5678]);
    assert_eq!(domains(3), [0x1234_5678, 0x1234_5678]);
}

#[test]
fn memory_flags_and_the_largest_numbers() {
    let entries = [
        memory(u32::MAX, u64::MAX, u64::MAX, 0b111),
        memory(0, 5 << 50, 1 << 50, 0),
    ];
    let table = srat(3, &entries);
    let read: Vec<_> = Srat::parse(&table)
        .unwrap()
        .entries()
        .map(Result::unwrap)
        .collect();
    let (base, bytes) = (u64::MAX, u64::MAX);
    let all = SratEntry::Memory {
        domain: u32::MAX,
        base,
        bytes,
        enabled: true,
        hotplug: true,
        non_volatile: true,
    };
    assert_eq!(read[0], all);
    assert!(matches!(
        read[1],
        SratEntry::Memory {
            base: 0x14_0000_0000_0000,
            enabled: false,
            ..
        }
    ));
}

#[test]
fn the_length_of_an_entry_is_the_entrys_own() {
    // Longer than today's format, and unknown kinds, are skipped whole.
    let mut long = x2apic(5, 9, 1);
    long[1] = 30;
    long.extend([0xee; 6]);
    let entries = [long, entry(5, &[0; 30]), entry(200, &[]), cpu(1, 2, 1)];
    let table = srat(3, &entries);
    let read: Vec<_> = Srat::parse(&table).unwrap().entries().collect();
    assert_eq!(
        read,
        [
            Ok(SratEntry::Cpu {
                apic_id: 9,
                domain: 5,
                enabled: true
            }),
            Ok(SratEntry::Other {
                kind: 5,
                offset: 78,
                bytes: 32
            }),
            Ok(SratEntry::Other {
                kind: 200,
                offset: 110,
                bytes: 2
            }),
            Err(AcpiError::EntryTooShort {
                table: Signature::SRAT,
                offset: 112,
                kind: 0,
                seen_bytes: 8,
                needed_bytes: 16
            }),
        ]
    );
}

#[test]
fn entries_shorter_than_their_kind_are_errors_and_the_next_is_read() {
    for (kind, full) in [(0, 16u8), (1, 40), (2, 24)] {
        for length in 2..full {
            let table = srat(
                3,
                &[entry(kind, &vec![0; length as usize - 2]), x2apic(1, 1, 1)],
            );
            let read: Vec<_> = Srat::parse(&table).unwrap().entries().collect();
            let short = AcpiError::EntryTooShort {
                table: Signature::SRAT,
                offset: 48,
                kind,
                seen_bytes: length.into(),
                needed_bytes: full.into(),
            };
            assert_eq!(
                read,
                [
                    Err(short),
                    Ok(SratEntry::Cpu {
                        apic_id: 1,
                        domain: 1,
                        enabled: true
                    })
                ]
            );
        }
    }
}

#[test]
fn a_length_of_zero_or_one_ends_the_walk_with_an_error() {
    for length in [0, 1] {
        let bad = vec![0, length, 0, 0];
        let table = srat(3, &[x2apic(1, 1, 1), bad.clone(), x2apic(2, 2, 1)]);
        let read: Vec<_> = Srat::parse(&table).unwrap().entries().collect();
        assert_eq!(read.len(), 2);
        assert!(matches!(
            read[1],
            Err(AcpiError::EntryTooShort {
                offset: 72,
                needed_bytes: 2,
                ..
            })
        ));
        let table = madt(&[bad]);
        assert_eq!(
            Madt::parse(&table)
                .unwrap()
                .cpus()
                .filter(Result::is_err)
                .count(),
            1
        );
    }
}

#[test]
fn madt_cpus_of_both_kinds() {
    let lapic = |uid, id, flags| entry(0, &[uid, id, flags, 0, 0, 0]);
    let x2 = |id: u32, flags: u32, uid: u32| {
        entry(
            9,
            &[
                &[0, 0][..],
                &id.to_le_bytes(),
                &flags.to_le_bytes(),
                &uid.to_le_bytes(),
            ]
            .concat(),
        )
    };
    let io_apic = entry(1, &[8, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    let table = madt(&[
        lapic(1, 0, 1),
        io_apic,
        lapic(2, 0xff, 0),
        x2(0x1_0000, 2, 300),
        entry(9, &[0; 13]),
    ]);
    let read: Vec<_> = Madt::parse(&table).unwrap().cpus().collect();
    let cpu = |apic_id, processor_uid, enabled, online_capable| {
        Ok(MadtCpu {
            apic_id,
            processor_uid,
            enabled,
            online_capable,
        })
    };
    assert_eq!(
        read[..3],
        [
            cpu(0, 1, true, false),
            cpu(0xff, 2, false, false),
            cpu(0x1_0000, 300, false, true)
        ]
    );
    assert!(matches!(
        read[3],
        Err(AcpiError::EntryTooShort {
            kind: 9,
            seen_bytes: 15,
            needed_bytes: 16,
            ..
        })
    ));
    assert_eq!(read.len(), 4);
}

#[test]
fn lengths_shorter_than_the_header_are_refused() {
    for length in 0..48u32 {
        let mut table = sealed(b"SRAT", 3, &[0; 200]);
        table[4..8].copy_from_slice(&length.to_le_bytes());
        let error = Srat::parse(&table).unwrap_err();
        assert!(
            matches!(
                error,
                AcpiError::Truncated {
                    table: Signature::SRAT,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn four_thousand_cpus_in_one_pass() {
    let (madt, srat) = acpi_tables::large_machine(4096, 64);
    let mut cpus = 0;
    for (id, cpu) in (0..).zip(Madt::parse(&madt).unwrap().cpus()) {
        let cpu = cpu.unwrap();
        assert_eq!(cpu.apic_id, id);
        cpus += usize::from(cpu.enabled);
    }
    assert_eq!(cpus, 4096);
    let mut per_domain = [0; 64];
    for entry in Srat::parse(&srat).unwrap().entries() {
        match entry.unwrap() {
            SratEntry::Cpu {
                apic_id,
                domain,
                enabled: true,
            } => {
                assert_eq!(domain, apic_id / 64);
                per_domain[domain as usize] += 1;
            }
            SratEntry::Memory {
                domain,
                base,
                bytes,
                ..
            } => assert_eq!(base, u64::from(domain) * bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(per_domain, [64; 64]);
}
