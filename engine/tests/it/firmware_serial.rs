//! Serial ports in ACPI's tables, and how firmware of Arm machines is called: QEMU's tables, and the same changed.

use crate::acpi_tables;

use acpi_tables::{seal, sealed};
use firstlight::firmware::acpi::{AcpiError, Dbg2, Fadt, SerialKind, SerialPort, Signature, Spcr};
use firstlight::firmware::psci::PsciConduit;

const SPCR: &[u8] = machine!("QEMU_virt.spcr.bin");
const DBG2: &[u8] = machine!("QEMU_virt.dbg2.bin");
const FADT: &[u8] = machine!("QEMU_virt.facp.bin");
const FADT_OF_PC: &[u8] = machine!("QEMU_pc.facp.bin");

const PL011: SerialPort = SerialPort {
    kind: SerialKind::Pl011,
    is_io: false,
    address: 0x900_0000,
    stride: 4,
    width: 4,
};

#[test]
fn the_port_of_a_virtual_machine() {
    let spcr = Spcr::parse(SPCR).unwrap();
    assert_eq!((spcr.port(), spcr.checksum_fault()), (Some(PL011), None));
    let dbg2 = Dbg2::parse(DBG2).unwrap();
    let ports: Vec<_> = dbg2.ports().collect();
    assert_eq!((ports, dbg2.checksum_fault()), (vec![Ok(PL011)], None));
}

/// The port of an SPCR of `revision` with this interface type and address.
fn port(
    revision: u8,
    kind: u8,
    [space, bits, offset, access]: [u8; 4],
    address: u64,
) -> Option<SerialPort> {
    let body = [
        &[kind, 0, 0, 0, space, bits, offset, access][..],
        &address.to_le_bytes(),
        &[0; 28],
    ];
    Spcr::parse(&sealed(b"SPCR", revision, &body.concat()))
        .unwrap()
        .port()
}

#[test]
fn registers_are_as_wide_and_as_far_apart_as_the_table_says() {
    let of = |is_io, stride, width| {
        Some(SerialPort {
            kind: SerialKind::Uart16550,
            is_io,
            address: 0x3f8,
            stride,
            width,
        })
    };
    for (revision, kind, address, expected) in [
        (2, 0, [1, 8, 0, 0], of(true, 1, 1)),
        (2, 0, [1, 8, 0, 1], of(true, 1, 1)),
        (2, 1, [0, 8, 0, 1], of(false, 1, 1)),
        (2, 0x12, [0, 32, 0, 3], of(false, 4, 4)),
        (2, 0x12, [0, 32, 0, 1], of(false, 4, 1)),
        (2, 0, [0, 8, 0, 3], of(false, 4, 4)),
        (2, 0, [0, 16, 0, 0], of(false, 2, 2)),
        (2, 0, [0, 0, 0, 200], of(false, 1, 1)),
        // The first revision knows no other kind.
        (1, 3, [1, 8, 0, 0], of(true, 1, 1)),
    ] {
        assert_eq!(
            port(revision, kind, address, 0x3f8),
            expected,
            "{kind} {address:?}"
        );
    }
    for kind in [3, 0xd, 0xe] {
        for access in 0..=4 {
            assert_eq!(port(2, kind, [0, 8, 0, access], PL011.address), Some(PL011));
        }
    }
    let other = port(4, 0x15, [0, 32, 0, 3], 1).unwrap();
    assert_eq!(other.kind, SerialKind::Other(0x15));
}

#[test]
fn no_address_and_other_spaces_are_no_port() {
    assert_eq!(port(2, 3, [0, 32, 0, 3], 0), None);
    for space in [2, 3, 10, 0x7f, 255] {
        assert_eq!(port(2, 0, [space, 8, 0, 1], 0x3f8), None);
    }
}

/// A device of a DBG2: kind and subtype, addresses, and bytes behind the 22 of its head.
fn device(kinds: [u16; 2], addresses: u8, offset: u16, more: &[u8]) -> Vec<u8> {
    let mut device = vec![0; 22];
    device.extend(more);
    let length = u16::try_from(device.len()).unwrap();
    device[1..3].copy_from_slice(&length.to_le_bytes());
    device[3] = addresses;
    device[12..14].copy_from_slice(&kinds[0].to_le_bytes());
    device[14..16].copy_from_slice(&kinds[1].to_le_bytes());
    device[18..20].copy_from_slice(&offset.to_le_bytes());
    device
}

fn dbg2(count: u32, devices: &[Vec<u8>]) -> Vec<u8> {
    let head = [44_u32.to_le_bytes(), count.to_le_bytes()].concat();
    sealed(b"DBG2", 0, &[head, devices.concat()].concat())
}

const ADDRESS: [u8; 12] = [0, 32, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0];

#[test]
fn devices_that_are_no_serial_ports_are_passed_over() {
    let table = dbg2(
        5,
        &[
            device([0x8001, 0], 1, 22, &ADDRESS), // FireWire
            device([0x8000, 3], 0, 22, &ADDRESS), // no address
            device([0x8000, 3], 1, 23, &ADDRESS), // an address that is cut
            device([0x8000, 3], 1, 26, &[&[0; 4][..], &ADDRESS].concat()),
            device([0x8000, 0x12], 2, 22, &ADDRESS),
        ],
    );
    let ports: Vec<_> = Dbg2::parse(&table)
        .unwrap()
        .ports()
        .map(Result::unwrap)
        .collect();
    let kinds: Vec<_> = ports.iter().map(|port| port.kind).collect();
    assert_eq!(kinds, [SerialKind::Pl011, SerialKind::Uart16550]);
    // As many as the table says.
    let table = dbg2(
        4,
        &[
            device([0x8000, 3], 1, 22, &ADDRESS),
            device([0x8000, 3], 1, 22, &ADDRESS),
        ],
    );
    let ports: Vec<_> = Dbg2::parse(&table).unwrap().ports().collect();
    assert_eq!(ports[..2], [Ok(PL011), Ok(PL011)]);
    assert!(matches!(
        ports[2..],
        [Err(AcpiError::EntryPastEnd { left_bytes: 0, .. })]
    ));
}

#[test]
fn devices_that_are_cut_are_errors() {
    let short = |length: u16| {
        let mut device = device([0x8000, 3], 1, 22, &[]);
        device.truncate(length.max(3).into());
        device[1..3].copy_from_slice(&length.to_le_bytes());
        let table = dbg2(2, &[device, self::device([0x8000, 3], 1, 22, &ADDRESS)]);
        Dbg2::parse(&table).unwrap().ports().collect::<Vec<_>>()
    };
    for length in 0..22 {
        let ports = short(length);
        let error = AcpiError::EntryTooShort {
            table: Signature::DBG2,
            offset: 44,
            kind: 0,
            seen_bytes: length,
            needed_bytes: 22,
        };
        assert_eq!(ports[0], Err(error));
        // What does not say where the next one is ends the list.
        assert_eq!(
            ports.get(1),
            (length >= 3).then_some(&Ok(PL011)),
            "{length}"
        );
    }
    let mut table = DBG2.to_vec();
    for offset in [0x2d, 80, 86, 87, 88, u32::MAX] {
        table[36..40].copy_from_slice(&offset.to_le_bytes());
        let mut ports = Dbg2::parse(&table).unwrap().ports();
        assert!(matches!(ports.next(), Some(Err(_))), "{offset}");
        assert_eq!(ports.next(), None);
    }
}

#[test]
fn tables_are_read_at_every_length() {
    for (table, least) in [(SPCR, 52), (DBG2, 44)] {
        for length in 0..table.len() {
            let mut cut = table[..length].to_vec();
            if length >= 8 {
                cut[4..8].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            }
            let is_read = match table[0] {
                b'S' => Spcr::parse(&cut)
                    .map(|table| assert_eq!(table.port(), Some(PL011)))
                    .is_ok(),
                _ => Dbg2::parse(&cut)
                    .map(|table| assert!(table.ports().all(|port| port.is_err())))
                    .is_ok(),
            };
            assert_eq!(is_read, length >= least, "{length}");
        }
    }
}

#[test]
fn firmware_is_called_as_flags_say() {
    let of = |table: &[u8], flags: Option<u8>| {
        let mut table = table.to_vec();
        if let Some(flags) = flags {
            table[129] = flags;
            seal(&mut table);
        }
        Fadt::parse(&table).unwrap().psci()
    };
    assert_eq!(of(FADT, None), Some(PsciConduit::Hvc));
    assert_eq!(of(FADT, Some(1)), Some(PsciConduit::Smc));
    assert_eq!(of(FADT, Some(2)), None);
    assert_eq!(of(FADT, Some(0)), None);
    // Too old to have them.
    assert_eq!(of(FADT_OF_PC, None), None);
}
