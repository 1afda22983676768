//! The SRAT: the same entries as a plain walk finds, in the same order, with
//! the width of a proximity domain that the revision gives.
#![no_main]

use firstlight::firmware::acpi::{AcpiError, Srat, SratEntry};
use firstlight_fuzz::{walk, with_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(srat) = Srat::parse(data) {
        assert!(srat.entries().count() <= data.len());
    }
    let table = with_header(b"SRAT", data);
    let Ok(srat) = Srat::parse(&table) else {
        assert!(table.len() < 48);
        return;
    };
    let wide = srat.revision() >= 2;
    assert_eq!(srat.revision(), table[8]);
    let (entries, broken) = walk(&table, 48);
    let mut read = srat.entries();
    for (kind, offset, length) in entries {
        let word =
            |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| table[offset + at + byte]));
        match read.next().expect("no entry is passed over") {
            Err(AcpiError::EntryTooShort { needed_bytes, .. }) => {
                assert!(u16::from(length) < needed_bytes)
            }
            Err(error) => panic!("{error}"),
            Ok(SratEntry::Other {
                kind: seen,
                offset: at,
                bytes,
            }) => {
                assert_eq!((seen, at, bytes), (kind, offset, length));
                assert!(kind > 3);
            }
            Ok(SratEntry::Cpu {
                apic_id,
                domain,
                enabled,
            }) if kind == 0 => {
                assert_eq!(apic_id, u32::from(table[offset + 3]));
                assert_eq!(domain & 0xff, u32::from(table[offset + 2]));
                assert_eq!(domain >> 8, if wide { word(8) >> 8 } else { 0 });
                assert_eq!(enabled, word(4) & 1 == 1);
            }
            Ok(SratEntry::Cpu {
                apic_id,
                domain,
                enabled,
            }) if kind == 3 => {
                assert_eq!(
                    (apic_id, domain, enabled),
                    (word(6), word(2), word(10) & 1 == 1)
                );
            }
            Ok(SratEntry::Cpu {
                apic_id,
                domain,
                enabled,
            }) => {
                assert_eq!(
                    (kind, apic_id, domain, enabled),
                    (2, word(8), word(4), word(12) & 1 == 1)
                );
            }
            Ok(SratEntry::Memory {
                domain,
                base,
                bytes,
                enabled,
                ..
            }) => {
                let mask = if wide { u32::MAX } else { 0xff };
                assert_eq!((kind, domain), (1, word(2) & mask));
                assert_eq!(base, u64::from(word(8)) | u64::from(word(12)) << 32);
                assert_eq!(bytes, u64::from(word(16)) | u64::from(word(20)) << 32);
                assert_eq!(enabled, word(28) & 1 == 1);
            }
        }
    }
    assert_eq!(broken, read.next().is_some_and(|last| last.is_err()));
    assert!(read.next().is_none());
});
