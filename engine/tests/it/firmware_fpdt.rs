//! The FPDT and the table of this boot that it points to, made by hand: records in any order, lengths that
//! cannot be, addresses that lead nowhere.

use crate::acpi_tables;

use acpi_tables::sealed;
use firstlight::addr::PhysAddr;
use firstlight::firmware::MemoryImage;
use firstlight::firmware::acpi::{AcpiError, BootTimes, Fpdt, Signature};

/// Where the table of this boot is.
const AT: u64 = 0x7fee_d000;
const TIMES: [u64; 5] = [3_000, 1 << 40, (1 << 40) + 1, 1 << 41, u64::MAX];

/// A record: kind, length and revision before its content.
fn record(kind: u16, content: &[u8]) -> Vec<u8> {
    let [low, high] = kind.to_le_bytes();
    [&[low, high, content.len() as u8 + 4, 1], content].concat()
}

fn pointer(kind: u16, address: u64) -> Vec<u8> {
    record(kind, &[&[0; 4][..], &address.to_le_bytes()].concat())
}

fn times(times: [u64; 5]) -> Vec<u8> {
    let times = times.map(u64::to_le_bytes);
    record(2, &[&[0; 4], times.as_flattened()].concat())
}

fn fpdt(records: &[Vec<u8>]) -> Vec<u8> {
    sealed(b"FPDT", 1, &records.concat())
}

/// Name and length before the records.
fn fbpt(records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let length = records.len() as u32 + 8;
    [&b"FBPT"[..], &length.to_le_bytes(), &records].concat()
}

fn pointed(records: &[Vec<u8>]) -> Result<Option<u64>, AcpiError> {
    let table = fpdt(records);
    let fpdt = Fpdt::parse(&table).unwrap();
    assert_eq!(fpdt.checksum_fault(), None);
    fpdt.boot_table()
}

fn read(table: &[u8]) -> Result<Option<BootTimes>, AcpiError> {
    BootTimes::read(&MemoryImage::new(PhysAddr::new(AT), table), AT)
}

/// The times of `TIMES`.
fn expected() -> BootTimes {
    let [reset_end_ns, rest @ ..] = TIMES;
    let [load_image_ns, start_image_ns, exit_entered_ns, exit_left_ns] = rest.map(Some);
    BootTimes {
        reset_end_ns,
        load_image_ns,
        start_image_ns,
        exit_entered_ns,
        exit_left_ns,
    }
}

#[test]
fn the_first_pointer_to_a_boots_table_counts() {
    let vendor = || record(0x3000, &[7; 200]);
    let suspend = || pointer(1, 0x1000);
    let rows = [
        (vec![], None),
        (vec![suspend(), vendor()], None),
        (vec![pointer(0, AT)], Some(AT)),
        (
            vec![vendor(), suspend(), pointer(0, AT), pointer(0, 1)],
            Some(AT),
        ),
        (vec![pointer(0, u64::MAX)], Some(u64::MAX)),
        (vec![pointer(0, 0)], None),
        // A later revision may be longer.
        (vec![[pointer(0, AT), vec![9; 8]].concat()], Some(AT)),
    ];
    for (mut records, address) in rows {
        if let [record] = &mut records[..] {
            record[2] = record.len() as u8;
        }
        assert_eq!(pointed(&records), Ok(address));
    }
}

#[test]
fn a_boots_times_are_read_and_zero_is_none() {
    assert_eq!(read(&fbpt(&[times(TIMES)])), Ok(Some(expected())));
    // Other records before, other memory behind.
    let mut table = fbpt(&[record(0x1002, &[1; 60]), times(TIMES)]);
    table.extend([0xff; 100]);
    assert_eq!(read(&table), Ok(Some(expected())));
    // Of firmware that is not UEFI.
    let not_uefi = BootTimes {
        reset_end_ns: 0,
        load_image_ns: None,
        start_image_ns: None,
        exit_entered_ns: None,
        exit_left_ns: None,
    };
    assert_eq!(read(&fbpt(&[times([0; 5])])), Ok(Some(not_uefi)));
    for without in [vec![], vec![record(3, &[0; 44])]] {
        assert_eq!(read(&fbpt(&without)), Ok(None));
    }
}

#[test]
fn a_record_of_wrong_length_is_an_error() {
    // Kind, bytes of the record, length it claims, least length.
    let short = [
        (0, 16, 15, 16),
        (0, 16, 0, 16),
        (1, 16, 3, 4),
        (0x3000, 16, 0, 4),
    ];
    for (kind, bytes, claimed, needed_bytes) in short {
        let mut record = record(kind, &vec![0; bytes - 4]);
        record[2] = claimed;
        let error = AcpiError::EntryTooShort {
            table: Signature::FPDT,
            offset: 36,
            kind: u8::try_from(kind).unwrap_or(255),
            seen_bytes: claimed.into(),
            needed_bytes,
        };
        assert_eq!(pointed(&[record, pointer(0, AT)]), Err(error));
    }
    let mut times = times(TIMES);
    times[2] = 47;
    let error = AcpiError::EntryTooShort {
        table: Signature::FBPT,
        offset: 8,
        kind: 2,
        seen_bytes: 47,
        needed_bytes: 48,
    };
    assert_eq!(read(&fbpt(&[times.clone()])), Err(error));
    times[2] = 49;
    let error = AcpiError::EntryPastEnd {
        table: Signature::FBPT,
        offset: 8,
        seen_bytes: 49,
        left_bytes: 48,
    };
    assert_eq!(read(&fbpt(&[times])), Err(error));
}

#[test]
fn what_is_no_table_of_a_boot_is_refused() {
    let table = fbpt(&[times(TIMES)]);
    let unreadable = |address, bytes| {
        Err(AcpiError::Unreadable {
            table: Signature::FBPT,
            address,
            bytes,
        })
    };
    let memory = MemoryImage::new(PhysAddr::new(AT), &table);
    for address in [0, AT - 1, AT + 56, u64::MAX - 7, u64::MAX] {
        assert_eq!(BootTimes::read(&memory, address), unreadable(address, 8));
    }
    let with_length = |length: u32| {
        let mut table = table.clone();
        table[4..8].copy_from_slice(&length.to_le_bytes());
        read(&table)
    };
    assert_eq!(with_length(57), unreadable(AT, 57));
    assert_eq!(with_length(u32::MAX), unreadable(AT, u32::MAX.into()));
    for length in 0..8 {
        let error = AcpiError::Truncated {
            table: Signature::FBPT,
            seen_bytes: length.into(),
            needed_bytes: 8,
        };
        assert_eq!(with_length(length), Err(error));
    }
    let mut other = table.clone();
    other[..4].copy_from_slice(b"S3PT");
    let error = AcpiError::WrongSignature {
        expected: Signature::FBPT,
        seen: Signature(*b"S3PT"),
    };
    assert_eq!(read(&other), Err(error));
}

#[test]
fn every_truncation_is_an_error_or_has_no_times() {
    let with_length = |table: &[u8], length: usize| {
        let mut part = table[..length].to_vec();
        part[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        part
    };
    let table = fpdt(&[pointer(1, 0x1000), pointer(0, AT)]);
    for length in 0..table.len() {
        let cut = Fpdt::parse(&table[..length]);
        assert!(matches!(cut, Err(AcpiError::Truncated { .. })), "{length}");
        if length >= 36 {
            let part = with_length(&table, length);
            let address = Fpdt::parse(&part).unwrap().boot_table();
            match length {
                36 | 52 => assert_eq!(address, Ok(None)),
                _ => assert!(matches!(address, Err(AcpiError::EntryPastEnd { .. }))),
            }
        }
    }
    let table = fbpt(&[record(0x1002, &[1; 12]), times(TIMES)]);
    for length in 0..table.len() {
        let cut = read(&table[..length]);
        assert!(matches!(cut, Err(AcpiError::Unreadable { .. })), "{length}");
        if length >= 8 {
            let times = read(&with_length(&table, length));
            match length {
                8 | 24 => assert_eq!(times, Ok(None)),
                _ => assert!(matches!(times, Err(AcpiError::EntryPastEnd { .. }))),
            }
        }
    }
}
