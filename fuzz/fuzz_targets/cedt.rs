//! The CEDT: the same windows as a plain walk finds, in the same order, and advice that divides them all.
#![no_main]

use firstlight::firmware::acpi::{AcpiError, Cedt, CedtWindow};
use firstlight_fuzz::with_header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(cedt) = Cedt::parse(data) {
        assert!(cedt.windows().count() <= data.len());
    }
    let table = with_header(b"CEDT", data);
    let Ok(cedt) = Cedt::parse(&table) else {
        assert!(table.len() < 36);
        return;
    };
    let mut windows = cedt.windows();
    let mut advised = None;
    let mut offset = 36;
    let mut broken = false;
    while offset < table.len() {
        let rest = &table[offset..];
        let length = rest
            .get(2..4)
            .map(|two| usize::from(two[0]) | usize::from(two[1]) << 8);
        let Some(length) = length.filter(|length| (4..=rest.len()).contains(length)) else {
            broken = true;
            break;
        };
        if rest[0] == 1 {
            match windows.next().expect("no window is passed over") {
                Err(AcpiError::EntryTooShort {
                    offset: at,
                    seen_bytes,
                    needed_bytes,
                    ..
                }) => {
                    assert_eq!((at, usize::from(seen_bytes)), (offset, length));
                    assert!(seen_bytes < needed_bytes);
                }
                Err(error) => panic!("{error}"),
                Ok(CedtWindow { base, bytes }) => {
                    let number = |at: usize| {
                        u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| rest[at + byte]))
                    };
                    assert_eq!((base, bytes), (number(8), number(16)));
                    if bytes > 0 {
                        advised = Some(advised.unwrap_or(0) | base | bytes);
                    }
                }
            }
        }
        offset += length;
    }
    assert_eq!(broken, windows.next().is_some_and(|last| last.is_err()));
    assert!(windows.next().is_none());
    match (cedt.advised_bytes(), advised) {
        (None, None) => {}
        (Some(advice), Some(bits)) => {
            assert!(advice.is_power_of_two() && bits % advice == 0);
            assert!(bits >> advice.trailing_zeros() & 1 == 1 || advice == 1 << 52);
        }
        other => panic!("{other:?}"),
    }
});
