//! The command line's memory words against what Linux makes of them.

use firstlight::addr::{Frame, PAGE_BYTES};
use firstlight::cmdline::{BadNumber, CommandLine, CommandNotice, Fault, MemoryChange};
use firstlight::layout::{CoreSize, LayoutPolicy};
use firstlight::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
use proptest::prelude::*;

fn changes(text: &str) -> Vec<Result<MemoryChange, Fault>> {
    let line = CommandLine::new(text.as_bytes());
    line.memory_changes()
        .map(|change| change.map_err(|bad| bad.fault))
        .collect()
}

fn add(start: u64, bytes: u64, kind: MemoryKind) -> Result<MemoryChange, Fault> {
    Ok(MemoryChange::Add {
        entry: MapEntry::new(start, bytes, kind),
    })
}

#[test]
fn every_form_is_read() {
    let limit = |bytes| Ok(MemoryChange::Limit { bytes });
    let number = |bad| Err(Fault::Number(bad));
    for (text, want) in [
        ("quiet ro", vec![]),
        ("mem=6G", vec![limit(6 << 30)]),
        ("mem=6G mem=0x1000", vec![limit(6 << 30), limit(0x1000)]),
        ("mem", vec![Err(Fault::NoValue)]),
        ("mem=", vec![number(BadNumber::Missing)]),
        ("mem=0", vec![Err(Fault::Zero)]),
        ("mem=nopentium", vec![number(BadNumber::Missing)]),
        ("mem=1Gx", vec![limit(1 << 30), Err(Fault::Trailing)]),
        (
            "mem=99999999999999999999",
            vec![number(BadNumber::TooLarge)],
        ),
        (
            "memmap=64M$0x140000000",
            vec![add(0x1_4000_0000, 64 << 20, MemoryKind::Reserved)],
        ),
        (
            "memmap=4G!12G",
            vec![add(12 << 30, 4 << 30, MemoryKind::Persistent)],
        ),
        (
            "memmap=1M#2M",
            vec![add(2 << 20, 1 << 20, MemoryKind::AcpiReclaimable)],
        ),
        ("memmap=3G", vec![limit(3 << 30)]),
        (
            "memmap=exactmap,640K@0,1G@1M",
            vec![
                Ok(MemoryChange::Exact),
                add(0, 640 << 10, MemoryKind::Usable),
                add(1 << 20, 1 << 30, MemoryKind::Usable),
            ],
        ),
        (
            "memmap=\"1M@2M\"",
            vec![add(2 << 20, 1 << 20, MemoryKind::Usable)],
        ),
        (
            "memmap=1M@2Mjunk",
            vec![
                add(2 << 20, 1 << 20, MemoryKind::Usable),
                Err(Fault::Trailing),
            ],
        ),
        (
            "memmap=,1M@2M",
            vec![
                number(BadNumber::Missing),
                add(2 << 20, 1 << 20, MemoryKind::Usable),
            ],
        ),
        ("memmap=1M@", vec![number(BadNumber::Missing)]),
        ("memmap", vec![Err(Fault::NoValue)]),
        (
            "memmap=1M%2M-1+2",
            vec![Ok(MemoryChange::Retype {
                start: 2 << 20,
                bytes: 1 << 20,
                from: MemoryKind::Usable,
                to: MemoryKind::Reserved,
            })],
        ),
        (
            "memmap=1M%2M+12",
            vec![add(2 << 20, 1 << 20, MemoryKind::Persistent)],
        ),
        (
            "memmap=1M%2M-4",
            vec![Ok(MemoryChange::Remove {
                start: 2 << 20,
                bytes: 1 << 20,
                only: Some(MemoryKind::AcpiNvs),
            })],
        ),
        (
            "memmap=1M%2M",
            vec![Ok(MemoryChange::Remove {
                start: 2 << 20,
                bytes: 1 << 20,
                only: None,
            })],
        ),
        ("memmap=1M%2M-1+2x", vec![Err(Fault::Form)]),
        ("memmap=1M%2M-x", vec![number(BadNumber::Missing)]),
    ] {
        assert_eq!(changes(text), want, "{text:?}");
    }
}

/// Usable ranges after `text` acted on 16 GiB as QEMU lays it out.
fn usable_after(text: &str) -> (Vec<(u64, u64)>, usize) {
    let entries = [
        MapEntry::new(0, 0x9_fc00, MemoryKind::Usable),
        MapEntry::new(0xf_0000, 0x1_0000, MemoryKind::Reserved),
        MapEntry::new(0x10_0000, 0xbfee_0000, MemoryKind::Usable),
        MapEntry::new(0xbffe_0000, 0x2_0000, MemoryKind::Reserved),
        MapEntry::new(0x1_0000_0000, 0x3_4000_0000, MemoryKind::Usable),
    ];
    let (mut scratch, mut regions) = ([ScratchEntry::default(); 8], [Region::default(); 32]);
    let mut map =
        MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap();
    let mut bad = 0;
    let line = CommandLine::new(text.as_bytes());
    line.change_map(&mut map, &mut |notice| {
        bad += usize::from(matches!(notice, CommandNotice::Word(_)));
    })
    .unwrap();
    map.validate().unwrap();
    let ends = map
        .usable()
        .map(|region| (region.range.start().get(), region.range.end().get()));
    (ends.collect(), bad)
}

#[test]
fn the_map_changes_as_in_linux() {
    let low = (0, 0x9_fc00 / PAGE_BYTES * PAGE_BYTES);
    let below_4g = (0x10_0000, 0xbffe_0000);
    for (text, want) in [
        (
            "mem=6G",
            vec![low, below_4g, (0x1_0000_0000, 0x1_8000_0000)],
        ),
        (
            "mem=6G mem=8G",
            vec![low, below_4g, (0x1_0000_0000, 0x1_8000_0000)],
        ),
        ("mem=1M", vec![low]),
        (
            "memmap=64M$0x140000000",
            vec![
                low,
                below_4g,
                (0x1_0000_0000, 0x1_4000_0000),
                (0x1_4400_0000, 0x4_4000_0000),
            ],
        ),
        (
            "memmap=4G!12G",
            vec![
                low,
                below_4g,
                (0x1_0000_0000, 0x3_0000_0000),
                (0x4_0000_0000, 0x4_4000_0000),
            ],
        ),
        ("memmap=exactmap,1G@1G", vec![(1 << 30, 2 << 30)]),
        (
            "mem=6G memmap=exactmap memmap=1G@8G",
            vec![(8 << 30, 9 << 30)],
        ),
        // Added usable memory does not free what firmware reserves ...
        (
            "mem=1M memmap=1G@0xbff00000",
            vec![low, (0xbff0_0000, 0xbffe_0000), (0xc000_0000, 0xfff0_0000)],
        ),
        // ... but a change of type does.
        (
            "mem=1M memmap=0x20000%0xbffe0000-2+1",
            vec![low, (0xbffe_0000, 0xc000_0000)],
        ),
        ("memmap=exactmap", vec![]),
    ] {
        assert_eq!(usable_after(text), (want, 0), "{text:?}");
    }
}

#[test]
fn the_last_amount_wins() {
    let policy = |text: &str| {
        let mut faults = Vec::new();
        let line = CommandLine::new(text.as_bytes());
        let policy = line.layout_policy(LayoutPolicy::DEFAULT, &mut |bad| faults.push(bad.fault));
        assert_eq!(policy.dma_end, Frame::new((16 << 20) / PAGE_BYTES));
        let got = (
            policy.kernelcore,
            policy.movablecore,
            policy.kernelcore_mirror,
            policy.movable_node,
        );
        (got, faults)
    };
    let frames = |bytes: u64| Some(CoreSize::Frames(bytes / PAGE_BYTES));
    for (text, want, faults) in [
        ("", (None, None, false, false), vec![]),
        (
            "kernelcore=2G",
            (frames(2 << 30), None, false, false),
            vec![],
        ),
        (
            "kernelcore=2G kernelcore=50%",
            (Some(CoreSize::Percent(50)), None, false, false),
            vec![],
        ),
        (
            "kernelcore=50% kernelcore=2G",
            (frames(2 << 30), None, false, false),
            vec![],
        ),
        ("kernelcore=mirror", (None, None, true, false), vec![]),
        (
            "kernelcore=mirror kernelcore=1M",
            (frames(1 << 20), None, true, false),
            vec![],
        ),
        (
            "movable_node movablecore=25%",
            (None, Some(CoreSize::Percent(25)), false, true),
            vec![],
        ),
        (
            "movablecore=4Gx",
            (None, frames(4 << 30), false, false),
            vec![Fault::Trailing],
        ),
        (
            "movablecore=150%",
            (None, Some(CoreSize::Percent(150)), false, false),
            vec![Fault::Percent],
        ),
        (
            "kernelcore",
            (None, None, false, false),
            vec![Fault::NoValue],
        ),
        (
            "kernelcore=x",
            (None, None, false, false),
            vec![Fault::Number(BadNumber::Missing)],
        ),
    ] {
        assert_eq!(policy(text), (want, faults), "{text:?}");
    }
}

proptest! {
    /// Whatever bytes stand on the command line: no panic, every item reported once.
    #[test]
    fn any_bytes_are_read(text in prop::collection::vec(any::<u8>(), 0..80)) {
        let line = CommandLine::new(&text);
        prop_assert!(line.words().count() <= text.len());
        prop_assert!(line.memory_changes().count() <= 2 * text.len());
        line.layout_policy(LayoutPolicy::DEFAULT, &mut |bad| drop(bad.to_string()));
    }

    /// Bytes that look like memory words act on a map without breaking it.
    #[test]
    fn any_memory_words_leave_a_valid_map(text in "((mem|memmap)=[0-9a-fxXKMGTPE@#$!%+,-]{0,24} ?){0,6}") {
        usable_after(&text);
    }
}
