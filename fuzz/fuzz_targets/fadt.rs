//! The FADT: the timer that a plain look at the bytes finds, and a port with
//! all four bytes inside I/O space.
#![no_main]

use firstlight::firmware::acpi::{Fadt, PmTimer};
use firstlight_fuzz::with_header;
use libfuzzer_sys::fuzz_target;

/// The little-endian number in `bytes` bytes at `offset`; zero past the end.
fn number(table: &[u8], offset: usize, bytes: usize) -> u64 {
    let field = table.get(offset..offset + bytes).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn expected(table: &[u8]) -> Option<PmTimer> {
    let flags = number(table, 112, 4);
    let generic = number(table, 212, 8);
    let generic = (table.len() >= 220 && table[208] == 1 && table[210] == 0).then_some(generic);
    let plain = (table[91] != 0).then_some(number(table, 76, 4));
    let mut ports = [generic, plain].into_iter().flatten();
    let port = ports.find(|port| (1..=0xfffc).contains(port))?;
    let port = u16::try_from(port).expect("it was compared");
    let bits = if flags >> 8 & 1 == 1 { 32 } else { 24 };
    (flags >> 20 & 1 == 0).then_some(PmTimer { port, bits })
}

fuzz_target!(|data: &[u8]| {
    if let Ok(fadt) = Fadt::parse(data) {
        assert!(data.len() >= 116);
        let _ = (fadt.pm_timer(), fadt.checksum_fault());
    }
    let table = with_header(b"FACP", data);
    match Fadt::parse(&table) {
        Ok(fadt) => assert_eq!(fadt.pm_timer(), expected(&table)),
        Err(_) => assert!(table.len() < 116),
    }
});
