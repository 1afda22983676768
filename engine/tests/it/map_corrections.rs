//! Each correction a memory map makes: what it says and what it leaves.

use firstlight::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use firstlight::map::{
    Attributes, Correction, MapEntry, MapError, MemoryKind, MemoryMap, Region, ScratchEntry,
};

fn reported(entries: &[MapEntry]) -> (Vec<String>, Vec<String>) {
    let mut scratch = vec![ScratchEntry::default(); entries.len()];
    let mut regions = vec![Region::default(); 5 * entries.len()];
    let mut corrections = Vec::new();
    let mut report = |correction: Correction| corrections.push(correction.to_string());
    let map = MemoryMap::build(
        entries.iter().copied(),
        &mut scratch,
        &mut regions,
        &mut report,
    )
    .unwrap();
    map.validate().unwrap();
    let regions = map
        .regions()
        .iter()
        .map(|region| format!("{region} #{}", region.source))
        .collect();
    (regions, corrections)
}

fn usable(start: u64, bytes: u64) -> MapEntry {
    MapEntry::new(start, bytes, MemoryKind::Usable)
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "pages of 4 KiB"
)]
fn empty_and_wrapping_entries() {
    let (regions, corrections) = reported(&[
        usable(0x5000, 0),
        usable(u64::MAX, 0),
        usable(u64::MAX, u64::MAX),
        usable(PHYS_END - 0x1000, u64::MAX),
        MapEntry::new(u64::MAX, 1, MemoryKind::Reserved),
    ]);
    assert_eq!(
        regions,
        ["[0x000ffffffffff000-0x000fffffffffffff] usable #3"]
    );
    assert_eq!(
        corrections,
        [
            "entry 0: no bytes at 0x5000, dropped",
            "entry 1: no bytes at 0xffffffffffffffff, dropped",
            "entry 2: 0xffffffffffffffff bytes from 0xffffffffffffffff run past 2^64, clipped",
            "entry 2: [0xffffffffffffffff-0xffffffffffffffff] lies past the end of physical memory at 0x10000000000000, clipped",
            "entry 3: 0xffffffffffffffff bytes from 0xffffffffff000 run past 2^64, clipped",
            "entry 3: [0x0010000000000000-0xffffffffffffffff] lies past the end of physical memory at 0x10000000000000, clipped",
            "entry 4: [0xffffffffffffffff-0xffffffffffffffff] lies past the end of physical memory at 0x10000000000000, clipped",
        ]
    );
}

#[test]
fn an_entry_of_all_addresses_is_clipped_without_wrapping() {
    let entry = MapEntry::inclusive(0, u64::MAX, MemoryKind::Reserved).unwrap();
    let (regions, corrections) = reported(&[entry]);
    assert_eq!(
        regions,
        ["[0x0000000000000000-0x000fffffffffffff] reserved #0"]
    );
    assert_eq!(corrections.len(), 1);
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "pages of 4 KiB"
)]
fn a_hole_punched_by_a_stricter_entry_is_reported_once() {
    let (regions, corrections) = reported(&[
        usable(0, 0x10_0000),
        MapEntry::new(0x1000, 0x2000, MemoryKind::Reserved),
        MapEntry::new(0x2000, 0x3000, MemoryKind::AcpiNvs),
    ]);
    assert_eq!(
        regions,
        [
            "[0x0000000000000000-0x0000000000000fff] usable #0",
            "[0x0000000000001000-0x0000000000002fff] reserved #1",
            "[0x0000000000003000-0x0000000000004fff] ACPI NVS #2",
            "[0x0000000000005000-0x00000000000fffff] usable #0",
        ]
    );
    assert_eq!(
        corrections,
        [
            "entry 0: [0x0000000000001000-0x0000000000002fff] usable overlaps entry 1, now reserved",
            "entry 2: [0x0000000000002000-0x0000000000002fff] ACPI NVS overlaps entry 1, now reserved",
            "entry 0: [0x0000000000003000-0x0000000000004fff] usable overlaps entry 2, now ACPI NVS",
        ]
    );
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "pages of 4 KiB"
)]
fn entries_that_meet_inside_a_page_fill_it_together() {
    let (regions, corrections) = reported(&[usable(0x800, 0x2000), usable(0, 0x800)]);
    assert_eq!(
        regions,
        [
            "[0x0000000000000000-0x0000000000001fff] usable #1",
            "[0x0000000000002000-0x00000000000027ff] reserved #0"
        ]
    );
    assert_eq!(
        corrections,
        [
            "entry 0: [0x0000000000002000-0x00000000000027ff] usable does not fill its page, now reserved"
        ]
    );
}

#[test]
fn a_piece_of_a_page_is_kept_as_reserved() {
    let (regions, corrections) = reported(&[
        usable(0x1200, 0x400),
        MapEntry::new(0x2200, 0x400, MemoryKind::AcpiNvs),
    ]);
    assert_eq!(
        regions,
        [
            "[0x0000000000001200-0x00000000000015ff] reserved #0",
            "[0x0000000000002200-0x00000000000025ff] ACPI NVS #1"
        ]
    );
    assert_eq!(corrections.len(), 1);
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "pages of 4 KiB"
)]
fn repeated_entries_count_once_and_their_attributes_are_cautious() {
    let mirrored = Attributes {
        more_reliable: true,
        ..Attributes::NONE
    };
    let (regions, corrections) = reported(&[
        usable(0, 0x4000).with_attributes(mirrored),
        usable(0x2000, 0x4000),
        usable(0x8000, 0x1000),
    ]);
    assert_eq!(
        regions,
        [
            "[0x0000000000000000-0x0000000000001fff] usable (more reliable) #0",
            "[0x0000000000002000-0x0000000000005fff] usable #1",
            "[0x0000000000008000-0x0000000000008fff] usable #2",
        ]
    );
    assert_eq!(
        corrections,
        ["entry 1: [0x0000000000002000-0x0000000000003fff] repeats entry 0, counted once"]
    );
}

#[test]
#[cfg_attr(
    any(feature = "page-16k", feature = "page-64k"),
    ignore = "pages of 4 KiB"
)]
fn devices_keep_their_borders_and_plain_memory_does_not() {
    let pmem = |start| MapEntry::new(start, 0x1000, MemoryKind::Persistent);
    let (regions, corrections) = reported(&[
        pmem(0x1000),
        pmem(0x2000),
        usable(0x3000, 0x1000),
        usable(0x4000, 0x1000),
    ]);
    assert_eq!(
        regions,
        [
            "[0x0000000000001000-0x0000000000001fff] persistent #0",
            "[0x0000000000002000-0x0000000000002fff] persistent #1",
            "[0x0000000000003000-0x0000000000004fff] usable #2",
        ]
    );
    assert!(corrections.is_empty());
}

#[test]
fn ten_thousand_nested_entries_need_no_more_than_their_storage() {
    // Each inside the one before, of alternating kinds: the worst for a sweep.
    let count: u64 = if cfg!(miri) { 100 } else { 10_000 };
    let entries: Vec<MapEntry> = (0..count)
        .map(|depth| {
            let kind = if depth % 2 == 0 {
                MemoryKind::Usable
            } else {
                MemoryKind::Reserved
            };
            MapEntry::new(
                depth * PAGE_BYTES,
                (2 * count - 2 * depth) * PAGE_BYTES,
                kind,
            )
        })
        .collect();
    let (regions, corrections) = reported(&entries);
    // The second entry covers all but the first and the last page of the first.
    assert_eq!(regions.len(), 3);
    assert!(corrections.len() < 3 * entries.len());
}

#[test]
fn scratch_too_small_says_how_much_is_needed() {
    let entries = [usable(0, 0x1000), usable(0x1000, 0), usable(0x2000, 0x1000)];
    let mut regions = [Region::default(); 8];
    let mut scratch = [ScratchEntry::default(); 1];
    let error =
        MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap_err();
    let MapError::Scratch(full) = error else {
        panic!("{error}")
    };
    assert_eq!((full.capacity, full.needed), (1, 2));
    assert_eq!(
        error.to_string(),
        "memory map scratch: storage for 1 entries is too small: 2 are needed"
    );
}

#[test]
fn a_command_line_limit_and_an_exact_map() {
    let entries = [
        usable(0, 0x10_0000),
        MapEntry::new(0x10_0000, PAGE_BYTES, MemoryKind::Reserved),
        usable(0x20_0000, 0x10_0000),
    ];
    let mut scratch = [ScratchEntry::default(); 3];
    let mut regions = [Region::default(); 8];
    let mut map =
        MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap();
    assert_eq!(map.end(), PhysAddr::new(0x30_0000));
    // mem=2560K
    let above = PhysRange::new(0x28_0000, u64::MAX).unwrap();
    assert_eq!(
        map.remove(above, Some(MemoryKind::Usable), &mut |_| {}),
        Ok(0x8_0000)
    );
    assert_eq!(map.end(), PhysAddr::new(0x28_0000));
    assert_eq!(map.bytes_of(MemoryKind::Reserved), PAGE_BYTES);
    // memmap=exactmap memmap=64K@1M, of pages of 4 KiB
    map.remove(PhysRange::new(0, u64::MAX).unwrap(), None, &mut |_| {})
        .unwrap();
    assert!(map.regions().is_empty());
    assert_eq!(map.end(), PhysAddr::ZERO);
    assert_eq!(
        map.add(usable(0x10_0000, 16 * PAGE_BYTES), &mut |_| {}),
        Ok(16 * PAGE_BYTES)
    );
    assert_eq!(
        map.usable().next().map(|region| region.source),
        Some(Region::OVERRIDE)
    );
    // memmap=4K$1M: the stricter wins whatever comes first
    assert_eq!(
        map.add(
            MapEntry::new(0x10_0000, PAGE_BYTES, MemoryKind::Reserved),
            &mut |_| {}
        ),
        Ok(PAGE_BYTES)
    );
    assert_eq!(map.add(usable(0x10_0000, PAGE_BYTES), &mut |_| {}), Ok(0));
    assert_eq!(map.usable_bytes(), 15 * PAGE_BYTES);
}

#[test]
fn stored_regions_are_checked() {
    let region = |start, end| Region {
        range: PhysRange::new(start, end).unwrap(),
        kind: MemoryKind::Usable,
        ..Region::default()
    };
    let mut good = [
        region(0, PAGE_BYTES),
        region(2 * PAGE_BYTES, 3 * PAGE_BYTES),
    ];
    assert!(MemoryMap::from_sorted(&mut good, 2).is_ok());
    assert!(MemoryMap::from_sorted(&mut good, 3).is_err());
    for mut bad in [
        [
            region(2 * PAGE_BYTES, 3 * PAGE_BYTES),
            region(0, PAGE_BYTES),
        ],
        [
            region(0, PAGE_BYTES),
            region(PAGE_BYTES, 3 * PAGE_BYTES / 2),
        ],
        [
            region(0, 2 * PAGE_BYTES),
            region(PAGE_BYTES, 3 * PAGE_BYTES),
        ],
    ] {
        assert!(matches!(
            MemoryMap::from_sorted(&mut bad, 2),
            Err(MapError::Unsorted { index: 1, .. })
        ));
    }
}
