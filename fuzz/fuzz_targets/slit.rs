//! The SLIT: every distance is the byte of the table it must be, none lies
//! outside, and the faults are those a plain look finds.
#![no_main]

use firstlight::firmware::acpi::Slit;
use firstlight_fuzz::with_header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Slit::parse(data).map(|slit| slit.faults().count());
    let table = with_header(b"SLIT", data);
    let claimed = table
        .get(36..44)
        .map(|bytes| bytes.try_into().map(u64::from_le_bytes));
    let claimed = claimed.map_or(0, |claimed| claimed.expect("eight bytes"));
    let Ok(slit) = Slit::parse(&table) else {
        assert!(table.len() < 44 || u128::from(claimed).pow(2) > (table.len() - 44) as u128);
        return;
    };
    let count = slit.localities();
    assert_eq!(count as u64, claimed);
    let at = |from: usize, to: usize| table[44 + from * count + to];
    let mut faults = 0;
    for from in 0..count {
        for to in 0..count {
            assert_eq!(slit.distance(from, to), Some(at(from, to)));
            let wrong = match from == to {
                true => at(from, to) != 10,
                false => at(from, to) < 10 || from < to && at(from, to) != at(to, from),
            };
            faults += usize::from(wrong);
        }
    }
    assert_eq!(slit.faults().count(), faults);
    for outside in [count, count + 1, usize::MAX] {
        assert_eq!(slit.distance(outside, 0), None);
        assert_eq!(slit.distance(0, outside), None);
    }
    assert_eq!(slit.trailing_bytes() + 44 + count * count, table.len());
});
