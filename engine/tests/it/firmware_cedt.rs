//! CEDTs made by hand: windows, structures of other kinds, lengths that cannot be.

use crate::acpi_tables;

use acpi_tables::{cfmws, sealed};
use firstlight::firmware::acpi::{AcpiError, Cedt, CedtWindow, Signature};

const GIB: u64 = 1 << 30;

/// A host bridge (CHBS), which is no window.
fn bridge() -> Vec<u8> {
    let mut bytes = vec![0, 0, 32, 0];
    bytes.resize(32, 7);
    bytes
}

fn cedt(entries: &[Vec<u8>]) -> Vec<u8> {
    sealed(b"CEDT", 1, &entries.concat())
}

#[test]
fn windows_in_order_and_what_their_alignment_advises() {
    let rows = [
        (vec![], None),
        (vec![(256 * GIB, 64 * GIB)], Some(64 * GIB)),
        (vec![(256 * GIB, 64 * GIB), (65 * GIB, 2 * GIB)], Some(GIB)),
        (vec![(4 * GIB + (256 << 20), GIB)], Some(256 << 20)),
        // Empty windows advise nothing; no advice is larger than all addresses.
        (vec![(1, 0)], None),
        (vec![(0, 1 << 63)], Some(1 << 52)),
    ];
    for (windows, advice) in rows {
        let mut entries = vec![bridge()];
        for (ways, &(base, bytes)) in windows.iter().enumerate() {
            entries.extend([cfmws(base, bytes, ways), bridge()]);
        }
        let table = cedt(&entries);
        let cedt = Cedt::parse(&table).unwrap();
        assert_eq!(cedt.checksum_fault(), None);
        let seen: Vec<_> = cedt.windows().map(Result::unwrap).collect();
        let expected = windows
            .iter()
            .map(|&(base, bytes)| CedtWindow { base, bytes });
        assert_eq!(seen, expected.collect::<Vec<_>>());
        assert_eq!(cedt.advised_bytes(), advice);
    }
}

#[test]
fn a_window_too_short_is_passed_over_a_length_that_leads_nowhere_ends() {
    let mut short = cfmws(GIB, GIB, 0);
    short.truncate(35);
    short[2] = 35;
    let table = cedt(&[short, cfmws(2 * GIB, 2 * GIB, 1)]);
    let cedt_ = Cedt::parse(&table).unwrap();
    let seen: Vec<_> = cedt_.windows().collect();
    let error = AcpiError::EntryTooShort {
        table: Signature::CEDT,
        offset: 36,
        kind: 1,
        seen_bytes: 35,
        needed_bytes: 36,
    };
    let window = CedtWindow {
        base: 2 * GIB,
        bytes: 2 * GIB,
    };
    assert_eq!(seen, [Err(error), Ok(window)]);
    assert_eq!(cedt_.advised_bytes(), Some(2 * GIB));

    for length in [0u16, 3, 41, u16::MAX] {
        let mut window = cfmws(GIB, GIB, 1);
        window[2..4].copy_from_slice(&length.to_le_bytes());
        let table = cedt(&[window]);
        let seen: Vec<_> = Cedt::parse(&table).unwrap().windows().collect();
        assert!(matches!(seen[..], [Err(_)]), "{length}: {seen:?}");
    }
}

#[test]
fn every_truncation_is_an_error_or_fewer_windows() {
    let table = cedt(&[bridge(), cfmws(GIB, GIB, 2), cfmws(2 * GIB, GIB, 1)]);
    for length in 0..table.len() {
        let part = &table[..length];
        assert!(
            matches!(Cedt::parse(part), Err(AcpiError::Truncated { .. })),
            "{length}"
        );
        if length >= 36 {
            let mut part = part.to_vec();
            part[4..8].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            let windows = Cedt::parse(&part).unwrap().windows();
            let whole = windows.filter(Result::is_ok).count();
            assert!(whole <= 2 && whole * 36 <= length);
        }
    }
}
