//! A hand-over table: what is read is sorted, disjoint, in whole pages of memory there can be,
//! and what is written of it is read again; early memory has all of it or is as before.
#![no_main]

use firstlight::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use firstlight::early::{Allocation, EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::preserve::{self, Draft, HEADER_BYTES, Preserved, PreservedRange, RANGE_BYTES};
use libfuzzer_sys::fuzz_target;
use std::num::NonZeroU64;

const AT: PhysAddr = PhysAddr::new(0x10_0000);
const NONCE: NonZeroU64 = NonZeroU64::new(7).unwrap();

/// Fields of the header made right where the first byte says so, the checksum last.
fn sealed(how: u8, data: &[u8]) -> Vec<u8> {
    let mut table = data.to_vec();
    if how & 1 == 0 || table.len() < HEADER_BYTES {
        return table;
    }
    table[..12].copy_from_slice(b"FLHANDOV\x02\0\x01\0");
    let ranges = (table.len() - HEADER_BYTES) / RANGE_BYTES;
    let length = HEADER_BYTES + ranges * RANGE_BYTES;
    table[16..20].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
    table[20..24].copy_from_slice(&u32::try_from(ranges).unwrap().to_le_bytes());
    table[24..32].copy_from_slice(&AT.get().to_le_bytes());
    table[32..40].copy_from_slice(&NONCE.get().to_le_bytes());
    table[41..48].fill(0);
    for range in table[HEADER_BYTES..length].chunks_mut(RANGE_BYTES) {
        if how & 2 != 0 {
            // Small pages, so that ranges meet memory and each other.
            range[0] = 0;
            range[1] &= 0xf0;
            range[3..8].fill(0);
            range[8] = 0;
            range[9] &= 0xf0;
            range[10..16].fill(0);
            range[30..32].fill(0);
        }
    }
    table[12..16].fill(0);
    // Bit by bit, not by the code under test.
    let crc = table[..length].iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1))
        })
    });
    table[12..16].copy_from_slice(&(!crc).to_le_bytes());
    table
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    let mut table = sealed(how, data);
    let read = preserve::read(&table, AT, Some(NONCE));
    let ranges: Option<Vec<PreservedRange>> = read.ok().map(|table| table.ranges().collect());
    if let Err(error) = read {
        assert!(error.to_string().len() < 500);
    }
    for range in ranges.iter().flatten() {
        let (start, end) = (range.range.start().get(), range.range.end().get());
        assert!(start < end && end <= PHYS_END);
        assert!(start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0);
    }
    if let Some(ranges) = &ranges {
        assert!(ranges.is_sorted_by(|one, other| one.range.end() <= other.range.start()));
        let mut place = vec![0; HEADER_BYTES + ranges.len() * RANGE_BYTES];
        let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
        ranges
            .iter()
            .rev()
            .for_each(|range| draft.add(*range).unwrap());
        let merged: u64 = draft.ranges().map(|range| range.range.bytes()).sum();
        assert_eq!(merged, ranges.iter().map(|range| range.range.bytes()).sum());
        let bytes = draft.finish();
        assert!(preserve::read(&place[..bytes], AT, Some(NONCE)).is_ok());
    }

    let (mut memory, mut reserved) = ([EarlyRegion::EMPTY; 4], [EarlyRegion::EMPTY; 16]);
    let mut owners = [Allocation::EMPTY; 8];
    let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
    let span = |start, end| PhysRange::new(start, end).unwrap();
    early.add(span(0, 0xe0_0000), EarlyFlags::NONE).unwrap();
    early.reserve(span(0x10_0000, 0x20_0000), "kernel").unwrap();
    let before = early.reserved().to_vec();
    let accepted = Preserved::accept(&mut table, AT, Some(NONCE), &mut early);
    match accepted {
        Ok(mut preserved) => {
            let ranges = ranges.unwrap();
            assert!(ranges.iter().all(|range| early.is_reserved(range.range)));
            assert!(preserved.left().eq(ranges.iter().copied()));
            let mut released = Vec::new();
            preserved.release(|range| released.push(range));
            assert_eq!(released, ranges);
        }
        Err(_) => assert_eq!(early.reserved(), before),
    }
    assert!(preserve::read(&table, AT, Some(NONCE)).is_err());
});
