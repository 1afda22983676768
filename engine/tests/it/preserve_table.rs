//! Hand-over tables: what is written is read, what is damaged is refused, and what is refused
//! leaves early memory as it was.

use firstlight::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use firstlight::early::{
    Allocation, EarlyError, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest,
};
use firstlight::node::NodeId;
use firstlight::preserve::{
    self, Draft, HEADER_BYTES, PreserveError, Preserved, PreservedRange, RANGE_BYTES, RangeFault,
};
use proptest::prelude::*;
use std::num::NonZeroU64;

const PAGE: u64 = PAGE_BYTES;
const AT: PhysAddr = PhysAddr::new(256 * PAGE);
/// What both kernels know of the restart.
const NONCE: NonZeroU64 = NonZeroU64::new(0x5eed_0000_0000_0001).unwrap();

fn pages(from: u64, to: u64) -> PhysRange {
    PhysRange::new(from * PAGE, to * PAGE).unwrap()
}

fn range(from: u64, to: u64, owner: u32) -> PreservedRange {
    PreservedRange {
        range: pages(from, to),
        owner,
        tag: u64::from(owner) << 40,
        node: Some(NodeId(1)),
    }
}

/// The numbers of its pages.
fn indices(range: PhysRange) -> std::ops::Range<usize> {
    let index = |at: PhysAddr| usize::try_from(at.get() / PAGE).unwrap();
    index(range.start())..index(range.end())
}

/// A table of these ranges.
fn table(ranges: &[PreservedRange]) -> Vec<u8> {
    let mut place = vec![0; HEADER_BYTES + ranges.len() * RANGE_BYTES];
    let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
    ranges.iter().for_each(|range| draft.add(*range).unwrap());
    let bytes = draft.finish();
    place.truncate(bytes);
    place
}

/// With the checksum made right again.
fn resealed(mut table: Vec<u8>) -> Vec<u8> {
    table[12..16].fill(0);
    // Bit by bit, not by the code under test.
    let crc = table.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1))
        })
    });
    table[12..16].copy_from_slice(&(!crc).to_le_bytes());
    table
}

/// A table with one range whose fields are as given, and a right checksum.
fn forged(entries: &[(u64, u64)]) -> Vec<u8> {
    let whole: Vec<_> = (0..)
        .zip(entries)
        .map(|(at, _)| range(8 * at, 8 * at + 1, 1))
        .collect();
    let mut table = table(&whole);
    for (at, (start, bytes)) in entries.iter().enumerate() {
        let entry = &mut table[HEADER_BYTES + at * RANGE_BYTES..];
        entry[..8].copy_from_slice(&start.to_le_bytes());
        entry[8..16].copy_from_slice(&bytes.to_le_bytes());
    }
    resealed(table)
}

/// 256 pages of memory on a machine whose kernel has pages 0x10 to 0x20.
fn with_early<R>(slots: usize, test: impl FnOnce(&mut EarlyMemory<'_>) -> R) -> R {
    let mut memory = vec![EarlyRegion::EMPTY; 8];
    let mut reserved = vec![EarlyRegion::EMPTY; slots];
    let mut owners = vec![Allocation::EMPTY; slots];
    let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
    early.add(pages(0, 256), EarlyFlags::NONE).unwrap();
    early.reserve(pages(16, 32), "kernel").unwrap();
    test(&mut early)
}

type State = (Vec<EarlyRegion>, Vec<EarlyRegion>, Vec<Allocation>);

fn state(early: &EarlyMemory<'_>) -> State {
    (
        early.memory().to_vec(),
        early.reserved().to_vec(),
        early.owners().to_vec(),
    )
}

/// The reason for which the table is refused; memory must be as it was.
#[track_caller]
fn refused(mut table: Vec<u8>, early: &mut EarlyMemory<'_>) -> PreserveError {
    let before = state(early);
    let error = Preserved::accept(&mut table, AT, Some(NONCE), early).unwrap_err();
    assert_eq!(state(early), before, "{error}");
    // It counts once.
    let again = preserve::read(&table, AT, Some(NONCE)).unwrap_err();
    assert!(again == error || again.is_absent(), "{again}");
    error
}

#[test]
fn every_changed_bit_is_found() {
    let tables = [
        table(&[]),
        table(&[range(64, 65, 1)]),
        table(&[range(64, 70, 1), range(80, 81, 2), range(96, 200, 0)]),
    ];
    for table in tables {
        for bit in 0..table.len() * 8 {
            // What comes after a table must not make it longer.
            for after in [0, 0xff] {
                let mut damaged = table.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                damaged.resize(table.len() + 4 * RANGE_BYTES, after);
                let error = preserve::read(&damaged, AT, Some(NONCE)).unwrap_err();
                let fits = match bit / 8 {
                    0..8 => matches!(error, PreserveError::Foreign { .. }),
                    8..10 => matches!(error, PreserveError::Version { .. }),
                    10..12 => matches!(error, PreserveError::Algorithm { .. }),
                    16..24 => matches!(error, PreserveError::Length { .. }),
                    _ => matches!(error, PreserveError::Checksum { .. }),
                };
                assert!(fits, "bit {bit}: {error}");
                with_early(64, |early| refused(damaged, early));
            }
        }
    }
}

#[test]
fn a_forged_table_is_refused_with_a_reason() {
    let good = table(&[range(64, 70, 1), range(80, 81, 2)]);
    let longer = {
        let mut place = vec![0; 4096];
        let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
        for at in 0..100 {
            draft.add(range(40 + 2 * at, 41 + 2 * at, 1)).unwrap();
        }
        draft.finish();
        place.truncate(1000);
        place
    };
    let first = 64 * PAGE;
    let cases = [
        (Vec::new(), "a place of 0 bytes, expected 48 or more"),
        (vec![0; 47], "a place of 47 bytes, expected 48 or more"),
        (vec![0; 48], "there is none"),
        (
            [&b"FLHANDOVER"[..], &[0; 38]].concat(),
            "of version 21061, expected 2",
        ),
        (
            vec![0xff; 64],
            "begins with \"\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\", expected \"FLHANDOV\"",
        ),
        (longer, "4048 bytes in a place of 1000"),
        (good[..64].to_vec(), "128 bytes in a place of 64"),
        (
            forged(&[(first, 0)]),
            &format!("range 0, 0x0 bytes at {first:#x}: no bytes"),
        ),
        (
            forged(&[(first + 1, PAGE)]),
            &format!(
                "range 0, {PAGE:#x} bytes at {:#x}: expected multiples of {PAGE:#x}",
                first + 1
            ),
        ),
        (
            forged(&[(first, PAGE - 1)]),
            &format!(
                "range 0, {:#x} bytes at {first:#x}: expected multiples of {PAGE:#x}",
                PAGE - 1
            ),
        ),
        (forged(&[(u64::MAX - PAGE + 1, PAGE)]), "expected an end at"),
        (forged(&[(PHYS_END - PAGE, 2 * PAGE)]), "expected an end at"),
        (forged(&[(first, !(PAGE - 1))]), "expected an end at"),
        (
            forged(&[(first, 2 * PAGE), (65 * PAGE, PAGE)]),
            &format!(
                "range 1, {PAGE:#x} bytes at {:#x}: expected ascending ranges that share nothing with",
                first + PAGE
            ),
        ),
        (
            forged(&[(66 * PAGE, PAGE), (first, PAGE)]),
            &format!("range 1, {PAGE:#x} bytes at {first:#x}: expected ascending ranges"),
        ),
        (
            resealed({
                let mut table = good.clone();
                table[HEADER_BYTES + 30] = 1;
                table
            }),
            &format!(
                "range 0, {:#x} bytes at {first:#x}: 0x1 in its last field, expected zero",
                6 * PAGE
            ),
        ),
        (
            resealed({
                let mut table = good.clone();
                table[25] ^= 1;
                table
            }),
            &format!("written for {:#x}, found at {AT}", AT.get() + 0x100),
        ),
        (
            resealed({
                let mut table = good.clone();
                table[32] ^= 3;
                table
            }),
            "of restart 0x5eed000000000002, expected that of restart 0x5eed000000000001",
        ),
        (
            resealed({
                let mut table = good.clone();
                table[40] = 2;
                table
            }),
            "flags 0x2, expected 0 or 1",
        ),
    ];
    for (table, words) in cases {
        let error = with_early(64, |early| refused(table, early)).to_string();
        assert!(error.contains(words), "{error}, expected {words}");
    }
    assert!(preserve::read(&resealed(good), AT, Some(NONCE)).is_ok());
}

/// What a kernel that was killed left in memory is no hand-over to one that a loader starts.
#[test]
fn a_cold_start_takes_no_table() {
    let mut left = table(&[range(64, 70, 1)]);
    with_early(64, |early| {
        let before = state(early);
        let error = Preserved::accept(&mut left, AT, None, early).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("of restart 0x5eed000000000001, expected none after a cold start"),
            "{error}"
        );
        assert_eq!(state(early), before);
    });
    // It counts once, here too.
    assert!(
        preserve::read(&left, AT, Some(NONCE))
            .unwrap_err()
            .is_absent()
    );
}

#[test]
fn content_that_changed_is_found_by_its_checksum() {
    let sum = |range: PhysRange| range.start().get() * 3 + range.bytes();
    let changed = |range: PhysRange| sum(range) + u64::from(range.start().get() == 80 * PAGE);
    let mut place = vec![0; 4096];
    let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
    let all = [range(64, 70, 1), range(80, 81, 2), range(90, 99, 2)];
    all.iter().for_each(|range| draft.add(*range).unwrap());
    draft.finish_with(sum);
    let plain = table(&all);
    with_early(64, |early| {
        let mut preserved = Preserved::accept(&mut place, AT, Some(NONCE), early).unwrap();
        assert_eq!(preserved.check_content(sum), Ok(()));
        let (seen, expected) = (changed(all[1].range), sum(all[1].range));
        let error = PreserveError::Content {
            index: 1,
            range: all[1].range,
            seen,
            expected,
        };
        assert_eq!(preserved.check_content(changed), Err(error));
        // What was taken is its owner's.
        assert_eq!(preserved.take(2).count(), 2);
        assert_eq!(preserved.check_content(changed), Ok(()));
    });
    with_early(64, |early| {
        let mut plain = plain;
        let preserved = Preserved::accept(&mut plain, AT, Some(NONCE), early).unwrap();
        assert_eq!(preserved.check_content(sum), Err(PreserveError::Unverified));
    });
    // CRC-32C of RFC 3720's vector.
    assert_eq!(preserve::checksum(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn memory_that_is_not_there_to_give_is_refused() {
    let refused_by = |ranges: &[PreservedRange], change: &dyn Fn(&mut EarlyMemory<'_>)| {
        with_early(64, |early| {
            change(early);
            match refused(table(ranges), early) {
                PreserveError::Early { index, error } => (index, error),
                other => panic!("{other}"),
            }
        })
    };
    let first = range(64, 70, 1);
    let none = |_: &mut EarlyMemory<'_>| {};
    let kernel = range(31, 33, 1);
    let owner = "kernel";
    assert_eq!(
        refused_by(&[kernel, first], &none),
        (
            0,
            EarlyError::InUse {
                range: kernel.range,
                owner
            }
        )
    );
    assert_eq!(refused_by(&[range(16, 17, 1), first], &none).0, 0);
    let beyond = range(255, 257, 1);
    assert_eq!(
        refused_by(&[first, beyond], &none),
        (
            1,
            EarlyError::NotMemory {
                range: beyond.range
            }
        )
    );
    assert_eq!(refused_by(&[first, range(1000, 1001, 1)], &none).0, 1);
    // Reserved by firmware below, and allocated too soon.
    let firmware =
        |early: &mut EarlyMemory<'_>| early.reserve(pages(69, 70), "ACPI table").unwrap();
    assert_eq!(refused_by(&[first], &firmware).0, 0);
    let late = |early: &mut EarlyMemory<'_>| {
        early
            .allocate(&EarlyRequest::new(PAGE, PAGE, "page tables"))
            .unwrap();
    };
    let top = range(250, 256, 1);
    let owner = "page tables";
    assert_eq!(
        refused_by(&[first, top], &late),
        (
            1,
            EarlyError::InUse {
                range: top.range,
                owner
            }
        )
    );
    for flags in [
        EarlyFlags::NOMAP,
        EarlyFlags::UNACCEPTED,
        EarlyFlags::DRIVER_MANAGED,
    ] {
        let set = |early: &mut EarlyMemory<'_>| early.set_flags(pages(65, 66), flags).unwrap();
        assert_eq!(
            refused_by(&[first], &set),
            (
                0,
                EarlyError::Unusable {
                    range: first.range,
                    flags
                }
            )
        );
    }
}

#[test]
fn more_ranges_than_fit_are_refused() {
    // The table: at the place of three ranges a fourth does not fit.
    let mut place = vec![0; HEADER_BYTES + 3 * RANGE_BYTES + RANGE_BYTES - 1];
    let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
    for at in [64, 80, 72] {
        draft.add(range(at, at + 1, 1)).unwrap();
    }
    let before: Vec<_> = draft.ranges().collect();
    let error = draft.add(range(66, 67, 1)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("storage for 3 entries is too small: 4 are needed")
    );
    assert!(draft.ranges().eq(before));
    // One that needs no slot does.
    draft.add(range(65, 66, 1)).unwrap();
    let bytes = draft.finish();
    assert_eq!(
        preserve::read(&place[..bytes], AT, Some(NONCE))
            .unwrap()
            .ranges()
            .len(),
        3
    );

    // Early memory: half of its slots are for the rest of the boot.
    let many: Vec<_> = (0..8)
        .map(|at| range(64 + 2 * at, 65 + 2 * at, 1))
        .collect();
    with_early(16, |early| {
        let error = refused(table(&many), early);
        let PreserveError::Early {
            index: 7,
            error: EarlyError::Full { full, .. },
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!((full.capacity, full.needed), (16, 18));
        let preserved = Preserved::accept(&mut table(&many[..7]), AT, Some(NONCE), early).map(drop);
        assert_eq!(preserved, Ok(()));
    });
}

#[test]
fn a_draft_refuses_what_a_reader_would() {
    let mut place = vec![0; 4096];
    let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
    draft.add(range(64, 70, 1)).unwrap();
    let empty = PreservedRange {
        range: PhysRange::EMPTY,
        ..range(0, 1, 1)
    };
    let unaligned = PhysRange::new(80 * PAGE, 80 * PAGE + 5).unwrap();
    let unaligned = PreservedRange {
        range: unaligned,
        ..empty
    };
    let far = PhysRange::new(PHYS_END - PAGE, PHYS_END + PAGE).unwrap();
    let far = PreservedRange {
        range: far,
        ..empty
    };
    let before: Vec<_> = draft.ranges().collect();
    for (new, wanted) in [
        (empty, RangeFault::Empty),
        (unaligned, RangeFault::Unaligned),
        (far, RangeFault::Overflow),
        (range(60, 65, 1), RangeFault::Overlap(pages(64, 70))),
        (range(69, 71, 2), RangeFault::Overlap(pages(64, 70))),
        (range(64, 70, 1), RangeFault::Overlap(pages(64, 70))),
        (range(0, 200, 1), RangeFault::Overlap(pages(64, 70))),
    ] {
        match draft.add(new).unwrap_err() {
            PreserveError::Range { fault, .. } => assert_eq!(fault, wanted),
            other => panic!("{other}"),
        }
        assert!(draft.ranges().eq(before.iter().copied()));
    }
}

#[test]
fn ranges_that_touch_are_one_only_if_they_are_alike() {
    let first = range(64, 65, 1);
    let tagged = PreservedRange {
        tag: 7,
        ..range(65, 66, 1)
    };
    let elsewhere = PreservedRange {
        node: None,
        ..range(66, 67, 1)
    };
    let same = range(67, 68, 1);
    let all = [first, tagged, elsewhere, same];
    let table = table(&all);
    assert!(
        preserve::read(&table, AT, Some(NONCE))
            .unwrap()
            .ranges()
            .eq(all)
    );
}

#[test]
fn what_is_no_table_is_not_written_to() {
    with_early(64, |early| {
        let mut place = [0xa5; 4096];
        assert!(Preserved::accept(&mut place, AT, Some(NONCE), early).is_err());
        assert_eq!(place, [0xa5; 4096]);
    });
}

#[test]
fn a_draft_ends_the_table_that_was_there() {
    let mut place = table(&[range(64, 65, 1)]);
    assert!(preserve::read(&place, AT, Some(NONCE)).is_ok());
    assert_eq!(Draft::new(&mut place, AT, NONCE).unwrap().ranges().len(), 0);
    assert!(
        preserve::read(&place, AT, Some(NONCE))
            .unwrap_err()
            .is_absent()
    );
}

#[test]
fn a_range_that_closes_a_gap_keeps_those_above() {
    for above in 0..4 {
        let above: Vec<_> = (0..above)
            .map(|at| range(80 + 2 * at, 81 + 2 * at, 1))
            .collect();
        let ends = [range(64, 66, 1), range(70, 72, 1)];
        let added = [&ends[..], &above, &[range(66, 70, 1)]].concat();
        let table = table(&added);
        let expected = [&[range(64, 72, 1)], &above[..]].concat();
        assert!(
            preserve::read(&table, AT, Some(NONCE))
                .unwrap()
                .ranges()
                .eq(expected)
        );
    }
}

/// First page, pages and owner of each range: sparse over all of memory, or so dense that many touch and close gaps.
fn model() -> impl Strategy<Value = Vec<(u64, u64, u32)>> {
    let sparse = prop::collection::vec((40u64..250, 1u64..12, 1u32..4), 0..24);
    let dense = prop::collection::vec((40u64..72, 1u64..4, 1u32..3), 0..40);
    prop_oneof![sparse, dense]
}

proptest! {
    #[test]
    fn what_is_written_is_taken_by_its_owners(wanted in model(), takers in prop::collection::vec(1u32..4, 0..4)) {
        let mut place = vec![0; 4096];
        let mut draft = Draft::new(&mut place, AT, NONCE).unwrap();
        let mut owner_of = vec![0; 256];
        for (from, count, owner) in wanted {
            let to = (from + count).min(256);
            let span = indices(pages(from, to));
            let free = owner_of[span.clone()].iter().all(|owner| *owner == 0);
            let added = draft.add(range(from, to, owner));
            prop_assert_eq!(added.is_ok(), free);
            if free {
                owner_of[span].fill(owner);
            }
        }
        // As few ranges as there can be.
        let runs = owner_of.chunk_by(|one, other| one == other).filter(|run| run[0] != 0).count();
        prop_assert_eq!(draft.ranges().len(), runs);
        let bytes = draft.finish();
        prop_assert_eq!(bytes, HEADER_BYTES + runs * RANGE_BYTES);

        with_early(128, |early| {
            let free_bytes = |early: &EarlyMemory<'_>| early.free_ranges().map(|free| free.range.bytes()).sum::<u64>();
            let before = free_bytes(early);
            let mut preserved = Preserved::accept(&mut place, AT, Some(NONCE), early).unwrap();
            let owned = owner_of.iter().filter(|owner| **owner != 0).count() as u64;
            prop_assert_eq!(free_bytes(early), before - owned * PAGE);
            // No allocation gets any of it.
            while let Ok(page) = early.allocate(&EarlyRequest::new(PAGE, PAGE, "more")) {
                prop_assert!(owner_of[indices(page)] == [0]);
            }
            let mut left = owner_of.clone();
            for taker in takers {
                for taken in preserved.take(taker) {
                    prop_assert_eq!((taken.owner, taken.tag, taken.node), (taker, u64::from(taker) << 40, Some(NodeId(1))));
                    for owner in &mut left[indices(taken.range)] {
                        prop_assert_eq!(core::mem::take(owner), taker);
                    }
                }
            }
            let mut released = vec![0; 256];
            preserved.release(|range| released[indices(range.range)].fill(range.owner));
            prop_assert_eq!(&released, &left);
            prop_assert_eq!(preserved.left().count(), 0);
            Ok(())
        })?;
        // A second kernel finds nothing.
        prop_assert!(preserve::read(&place, AT, Some(NONCE)).unwrap_err().is_absent());
    }

    #[test]
    fn whatever_lies_there_is_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), named: bool) {
        if named && bytes.len() >= 12 {
            bytes[..12].copy_from_slice(b"FLHANDOV\x02\0\x01\0");
        }
        let _ = preserve::read(&bytes, AT, Some(NONCE)).map_err(|error| error.to_string());
        with_early(16, |early| { let _ = Preserved::accept(&mut bytes, AT, Some(NONCE), early).map(drop); });
    }
}
