//! SPCR and DBG2: a port in memory or of I/O at the address that a plain look finds, as many of the DBG2 as it says at
//! most, and an end.
#![no_main]

use firstlight::firmware::acpi::{Dbg2, SerialPort, Spcr};
use firstlight_fuzz::with_header;
use libfuzzer_sys::fuzz_target;

fn check(table: &[u8], port: SerialPort) {
    assert!(port.address != 0 && [1, 2, 4].contains(&port.width));
    assert!(port.stride >= port.width);
    // Its address is in the table, behind its space.
    let address = port.address.to_le_bytes();
    let found = table
        .windows(12)
        .any(|bytes| bytes[0] == u8::from(port.is_io) && bytes[4..] == address);
    assert!(found);
}

fuzz_target!(|data: &[u8]| {
    if let Ok(spcr) = Spcr::parse(data) {
        let _ = (spcr.port(), spcr.checksum_fault());
    }
    let table = with_header(b"SPCR", data);
    match Spcr::parse(&table) {
        Ok(spcr) => {
            let is_there = table[40] < 2 && table[44..52] != [0; 8];
            assert_eq!(spcr.port().is_some(), is_there);
            if let Some(port) = spcr.port() {
                check(&table, port);
            }
        }
        Err(_) => assert!(table.len() < 52),
    }
    let table = with_header(b"DBG2", data);
    let Ok(dbg2) = Dbg2::parse(&table) else {
        assert!(table.len() < 44);
        return;
    };
    let said = u32::from_le_bytes([40, 41, 42, 43].map(|at| table[at]));
    let mut count = 0;
    for port in dbg2.ports() {
        count += 1;
        if let Ok(port) = port {
            check(&table, port);
        }
    }
    // Each device has three bytes at least, but the last one that is looked for.
    assert!(count <= said && count as usize <= table.len() / 3 + 1);
});
