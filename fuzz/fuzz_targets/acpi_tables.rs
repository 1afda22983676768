//! From RSDP to a table through hostile memory: what is found lies inside the
//! image and has the right name, and every root entry is told of at most twice.
#![no_main]

use firstlight::addr::PhysAddr;
use firstlight::firmware::MemoryImage;
use firstlight::firmware::acpi::{BootTimes, Fpdt, Rsdp, Signature, Tables};
use libfuzzer_sys::fuzz_target;

const BASE: u64 = 0x1000;

/// The fuzzer's RSDP with its signature and both checksums made right.
fn mended(bytes: &[u8; 36]) -> [u8; 36] {
    let mut rsdp = *bytes;
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[20..24].copy_from_slice(&36u32.to_le_bytes());
    for (at, length) in [(8, 20), (32, 36)] {
        rsdp[at] = 0;
        rsdp[at] = rsdp[..length]
            .iter()
            .fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    }
    rsdp
}

fuzz_target!(|data: &[u8]| {
    let Some((head, image)) = data.split_first_chunk::<36>() else {
        assert!(Rsdp::parse(data).is_err() || data.len() >= 20);
        return;
    };
    let _ = Rsdp::parse(data);
    let rsdp = Rsdp::parse(&mended(head)).expect("a mended RSDP is one");
    let memory = MemoryImage::new(PhysAddr::new(BASE), image);
    let mut faults = 0usize;
    let Ok(tables) = Tables::open(memory, &rsdp, &mut |_| faults += 1) else {
        return;
    };
    assert!(faults <= 3);
    let entries = tables.iter().count();
    assert!(entries <= image.len() / 4);
    for wanted in [
        Signature::MADT,
        Signature::SRAT,
        Signature::SLIT,
        Signature::FADT,
        Signature::CEDT,
        Signature::FPDT,
    ] {
        let mut faults = 0usize;
        let found = tables.find(wanted, &mut |_| faults += 1);
        assert!(faults <= 2 * entries + 1);
        let Some(table) = found else { continue };
        assert_eq!(table.signature(), wanted);
        let (inside, bytes) = (image.as_ptr_range(), table.bytes().as_ptr_range());
        assert!(inside.start <= bytes.start && bytes.end <= inside.end);
        let length = u32::from_le_bytes([4, 5, 6, 7].map(|at| table.bytes()[at]));
        assert_eq!(length as usize, table.bytes().len());
        if let Ok(fpdt) = Fpdt::parse(table.bytes())
            && let Ok(Some(address)) = fpdt.boot_table()
        {
            let _ = BootTimes::read(&memory, address);
        }
    }
});
