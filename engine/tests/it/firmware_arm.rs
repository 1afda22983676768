//! Processors and nodes of Arm machines in ACPI's tables: QEMU's, and broken ones.

use crate::acpi_tables;

use acpi_tables::{cpu, entry, gicc, madt, madt_gicc, memory, srat};
use firstlight::firmware::acpi::{AcpiError, Madt, MadtGicc, Signature, Slit, Srat, SratEntry};
use firstlight::start::{AcpiNodes, NodeTables};
use firstlight::topology::{NodeInfo, TopologyRange, TopologyStorage};

const MADT: &[u8] = machine!("QEMU_virt.apic.bin");
const SRAT: &[u8] = machine!("QEMU_virt.srat.bin");
const SLIT: &[u8] = machine!("QEMU_virt.slit.bin");

#[test]
fn processors_of_a_virtual_machine() {
    let table = Madt::parse(MADT).unwrap();
    let cpus: Vec<_> = table.giccs().map(Result::unwrap).collect();
    let expected = |at: u32| MadtGicc {
        processor_uid: at,
        mpidr: at.into(),
        enabled: true,
        online_capable: false,
    };
    assert_eq!(cpus, [0, 1, 2, 3, 4, 5, 6, 7].map(expected));
    // No APIC.
    assert_eq!(table.cpus().count(), 0);
}

#[test]
fn nodes_of_a_virtual_machine() {
    let slit = Slit::parse(SLIT).unwrap();
    assert_eq!(slit.distance(0, 1), Some(31));
    let tables = AcpiNodes {
        srat: Some(SRAT),
        slit: Some(SLIT),
        cpus: 1,
    };
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 2], [TopologyRange::EMPTY; 2]);
    let storage = TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    };
    let mut distances = [0; 4];
    let topology = tables
        .topology(storage, &mut distances, &mut |seen| panic!("{seen}"))
        .unwrap();
    let cpus: Vec<_> = topology.nodes().iter().map(|node| node.cpus).collect();
    assert_eq!(cpus, [3, 5]);
    let rows = topology.ranges().iter();
    let rows: Vec<_> = rows
        .map(|row| {
            (
                row.range.start().get() >> 30,
                row.range.bytes() >> 30,
                row.node.0,
            )
        })
        .collect();
    assert_eq!(rows, [(1, 3, 0), (4, 1, 1)]);
}

#[test]
fn identifiers_have_all_their_bits() {
    let table = madt(&[
        madt_gicc(u32::MAX, 0x81_0102_0003, 8),
        cpu(1, 2, 1),
        madt_gicc(7, u64::MAX, 1),
    ]);
    let cpus: Vec<_> = Madt::parse(&table).unwrap().giccs().flatten().collect();
    let gicc_of = |processor_uid, mpidr, enabled| MadtGicc {
        processor_uid,
        mpidr,
        enabled,
        online_capable: !enabled,
    };
    assert_eq!(
        cpus,
        [
            gicc_of(u32::MAX, 0x81_0102_0003, false),
            gicc_of(7, u64::MAX, true)
        ]
    );
    let table = srat(
        3,
        &[gicc(0x1234_5678, u32::MAX, 1), memory(9, 0, 1 << 30, 1)],
    );
    assert_eq!(
        Srat::parse(&table).unwrap().entries().next(),
        Some(Ok(SratEntry::Cpu {
            apic_id: u32::MAX,
            domain: 0x1234_5678,
            enabled: true
        }))
    );
}

#[test]
fn short_entries_are_errors_and_the_rest_is_read() {
    // ACPI 5.0 had 40 bytes, without MPIDR.
    let table = madt(&[entry(11, &[0; 38]), madt_gicc(1, 1, 1)]);
    let read: Vec<_> = Madt::parse(&table).unwrap().giccs().collect();
    let short = |table, offset, kind, seen_bytes, needed_bytes| AcpiError::EntryTooShort {
        table,
        offset,
        kind,
        seen_bytes,
        needed_bytes,
    };
    assert_eq!(read[0], Err(short(Signature::MADT, 44, 11, 40, 76)));
    assert_eq!((read[1].unwrap().mpidr, read.len()), (1, 2));
    let table = srat(3, &[entry(3, &[0; 15]), gicc(1, 2, 1)]);
    let read: Vec<_> = Srat::parse(&table).unwrap().entries().collect();
    assert_eq!(read[0], Err(short(Signature::SRAT, 48, 3, 17, 18)));
    assert_eq!(read.len(), 2);
}
