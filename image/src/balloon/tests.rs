//! The driver beside a device in the test's hands.

use super::*;
use crate::virtio::fake::{Fake, Manner, patience};
extern crate std;
use std::vec::Vec;

/// Where the shared memory would be.
const AT: u64 = 0x30_0000;
const ALL: u64 = feature::STATISTICS | feature::REPORTING;

fn fake(shared: &SharedMemory, offered: u64) -> Fake<'_> {
    let queues = 2 + (offered & 0b10_1010).count_ones() as usize;
    let rings = match offered & feature::STATISTICS {
        // Then the queue of reports is the third.
        0 => [0, 1, 3, 3, 3],
        _ if offered & feature::FREE_PAGE_HINT != 0 => [0, 1, 2, 0, 3],
        _ => [0, 1, 2, 3, 3],
    };
    let rings = rings[..queues].iter().map(|ring| &shared.rings[*ring]);
    Fake::new(offered, rings.collect())
}

fn balloon<'s>(shared: &'s SharedMemory, fake: &Fake<'s>) -> Balloon<'s, Fake<'s>> {
    Balloon::new(fake.clone(), patience(), shared, AT).unwrap()
}

fn ranges(count: u64) -> Vec<FreeRange> {
    let range = |at| FreeRange {
        address: at << 21,
        bytes: 2 << 20,
    };
    (0..count).map(range).collect()
}

#[test]
fn queues_have_the_numbers_of_what_is_offered() {
    for (offered, queues, reporting) in [
        (0, &[0, 1][..], None),
        (feature::STATISTICS, &[0, 1, 2], None),
        (feature::REPORTING, &[0, 1, 2], Some(2)),
        (ALL, &[0, 1, 2, 3], Some(3)),
        (ALL | feature::FREE_PAGE_HINT, &[0, 1, 2, 4], Some(4)),
    ] {
        let shared = SharedMemory::new();
        let fake = fake(&shared, offered);
        let mut balloon = balloon(&shared, &fake);
        assert_eq!(fake.seen.borrow().queues, queues, "{offered:#x}");
        assert_eq!(balloon.reports(), reporting.is_some());
        let report = balloon.report(ranges(1));
        let Some(reporting) = reporting else {
            let features = feature::REPORTING;
            assert_eq!(report, Err(VirtioError::NotOffered { features }));
            continue;
        };
        assert_eq!(report, Ok(()));
        assert_eq!(fake.seen.borrow().chains[0].0, reporting);
        // What nobody asked for is not chosen.
        assert_eq!(fake.seen.borrow().chosen & feature::FREE_PAGE_HINT, 0);
    }
}

#[test]
fn pages_go_and_come_back() {
    let shared = SharedMemory::new();
    let fake = fake(&shared, ALL);
    let mut balloon = balloon(&shared, &fake);
    fake.seen.borrow_mut().config[0] = 1500;
    assert_eq!(balloon.target(), Ok(1500));
    balloon.inflate(0x100, 1500).unwrap();
    assert_eq!(
        (balloon.pages(), fake.seen.borrow().config[1]),
        (1500, 1500)
    );
    let sizes: Vec<_> = fake
        .seen
        .borrow()
        .chains
        .iter()
        .map(|c| (c.0, c.1[0]))
        .collect();
    let address = AT + SharedMemory::PAGES;
    let chain = |queue, bytes| {
        let device_writes = false;
        (
            queue,
            Buffer {
                address,
                bytes,
                device_writes,
            },
        )
    };
    assert_eq!(sizes, [chain(0, 4096), chain(0, 4 * 476)]);
    assert_eq!(shared.pages[475].load(Relaxed), 0x100 + 1499);
    balloon.deflate(0x100, 1500).unwrap();
    assert_eq!((balloon.pages(), fake.seen.borrow().config[1]), (0, 0));
    assert_eq!(fake.seen.borrow().chains[3].0, 1);
}

/// A giant frame of pages of 64 KiB has 16 GiB, a device's buffer 32 bits of length.
#[test]
fn a_range_that_is_longer_than_a_buffer_is_several() {
    let shared = SharedMemory::new();
    let fake = fake(&shared, ALL);
    let mut balloon = balloon(&shared, &fake);
    let range = FreeRange {
        address: 1 << 40,
        bytes: (16 << 30) + (2 << 20),
    };
    balloon.report([range]).unwrap();
    let seen = fake.seen.borrow();
    let buffers = seen.chains.iter().flat_map(|(_, buffers)| buffers);
    let mut end = range.address;
    for buffer in buffers {
        assert_eq!(buffer.address, end);
        assert!(buffer.bytes > 0);
        end += u64::from(buffer.bytes);
    }
    assert_eq!(end, range.address + range.bytes);
}

#[test]
fn reports_are_chains_that_the_device_writes() {
    let shared = SharedMemory::new();
    let fake = fake(&shared, ALL);
    let mut balloon = balloon(&shared, &fake);
    balloon.report(ranges(70)).unwrap();
    let seen = fake.seen.borrow();
    let lengths: Vec<_> = seen.chains.iter().map(|(_, chain)| chain.len()).collect();
    assert_eq!(lengths, [32, 32, 6]);
    let all = seen.chains.iter().flat_map(|(_, chain)| chain);
    for (buffer, range) in all.zip(ranges(70)) {
        assert!(buffer.device_writes);
        assert_eq!(
            (buffer.address, buffer.bytes.into()),
            (range.address, range.bytes)
        );
    }
}

#[test]
fn statistics_are_shown_when_the_host_wants_them() {
    let shared = SharedMemory::new();
    let fake = fake(&shared, ALL);
    fake.seen.borrow_mut().keeps.push(2);
    let mut balloon = balloon(&shared, &fake);
    let statistics = |free_bytes| Statistics {
        free_bytes,
        total_bytes: 2,
        available_bytes: 3,
    };
    assert_eq!(balloon.show(statistics(1)), Ok(true));
    assert_eq!(balloon.show(statistics(9)), Ok(false));
    assert_eq!(fake.seen.borrow().chains[0].1[0].bytes, 30);
    let bytes = |free: u8| {
        let mut bytes = [0; 30];
        for (at, byte) in [(0, 4), (2, free), (10, 5), (12, 2), (20, 6), (22, 3)] {
            bytes[at] = byte;
        }
        bytes
    };
    let shown = || core::array::from_fn(|at| shared.statistics_byte(at));
    assert_eq!(shown(), bytes(1));
    fake.answer_kept();
    assert_eq!(balloon.show(statistics(9)), Ok(true));
    assert_eq!(shown(), bytes(9));
}

#[test]
fn devices_that_refuse_are_errors() {
    let shared = SharedMemory::new();
    let new = |fake: &Fake<'_>| {
        let error = Balloon::new(fake.clone(), patience(), &shared, AT).map(|_| ());
        assert_eq!(fake.seen.borrow().status & 4, 0, "it was started");
        error
    };
    let old = fake(&shared, ALL);
    old.seen.borrow_mut().offered = ALL;
    let features = crate::virtio::VERSION_1;
    assert_eq!(new(&old), Err(VirtioError::NotOffered { features }));
    let refusing = fake(&shared, ALL);
    refusing.seen.borrow_mut().refuses_features = true;
    let features = features | ALL;
    assert_eq!(new(&refusing), Err(VirtioError::NotAccepted { features }));
    let short = fake(&shared, ALL);
    short.seen.borrow_mut().capacity = 16;
    assert_eq!(
        new(&short),
        Err(VirtioError::Queue {
            queue: 0,
            capacity: 16,
            needed: 32
        })
    );
}

#[test]
fn devices_that_fail_are_reset_and_are_errors() {
    for (manner, expected) in [
        (Manner::Silent, "has not answered on queue 3 for 1 ms"),
        (Manner::NeedsReset, "needs a reset"),
        (Manner::Vanishes, "needs a reset (status 0x00)"),
        (Manner::Lies, "answered 77 on queue 3"),
        (Manner::Dead, "has not completed a reset"),
    ] {
        let shared = SharedMemory::new();
        let fake = fake(&shared, ALL);
        let mut balloon = balloon(&shared, &fake);
        fake.seen.borrow_mut().manner = manner;
        let error = balloon.report(ranges(3)).unwrap_err();
        let text = std::format!("{error}");
        assert!(text.contains(expected), "{manner:?}: {text}");
        assert_eq!(fake.seen.borrow().resets, 2, "{manner:?}");
        assert_eq!(balloon.is_released(), manner != Manner::Dead);
        if manner == Manner::Dead {
            // It completes its reset later.
            fake.seen.borrow_mut().status = 0;
            assert!(balloon.is_released());
        }
        // It works no more until there is a new driver.
        fake.seen.borrow_mut().manner = Manner::Answers;
        let again = balloon.report(ranges(1));
        assert_eq!(again, Err(VirtioError::NeedsReset { status: 0 }));
        let mut again = Balloon::new(fake.clone(), patience(), &shared, AT).unwrap();
        assert_eq!(again.report(ranges(1)), Ok(()));
    }
}

#[test]
fn a_device_that_another_party_resets_is_an_error() {
    let shared = SharedMemory::new();
    let fake = fake(&shared, ALL);
    let mut balloon = balloon(&shared, &fake);
    fake.seen.borrow_mut().status = 0;
    let error = Err(VirtioError::NeedsReset { status: 0 });
    assert_eq!(balloon.inflate(1, 1), error);
    assert_eq!(balloon.target().map(|_| ()), error);
}
