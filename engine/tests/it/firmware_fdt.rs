//! The flattened device tree: trees made to order, then broken in every way.

use crate::fdt_blob;

use fdt_blob::{Blob, virt};
use firstlight::addr::PhysRange;
use firstlight::firmware::fdt::{
    Fdt, FdtCpu, FdtDistance, FdtError, FdtMemory, MAX_DEPTH, Placement,
};
use firstlight::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};

#[test]
fn memory_and_nodes_of_a_virtual_machine() {
    let blob = virt();
    let fdt = Fdt::parse(&blob).unwrap();
    let memory: Vec<_> = fdt.memory().map(Result::unwrap).collect();
    let expected = |start, node, hotpluggable| FdtMemory {
        start,
        bytes: 0x4000_0000,
        node,
        hotpluggable,
    };
    assert_eq!(
        memory,
        [
            expected(0x4000_0000, Some(0), false),
            expected(0x8000_0000, Some(1), true)
        ]
    );
    let cpus: Vec<_> = fdt.cpus().map(Result::unwrap).collect();
    let cpu = |id, node, enabled| FdtCpu { id, node, enabled };
    assert_eq!(
        cpus,
        [
            cpu(0, Some(0), true),
            cpu(1, Some(1), true),
            cpu(0x100, None, false)
        ]
    );
    let distances: Vec<_> = fdt.distances().map(Result::unwrap).collect();
    let row = |from, to, distance| FdtDistance { from, to, distance };
    assert_eq!(distances, [row(0, 0, 10), row(0, 1, 20), row(1, 1, 10)]);
    assert_eq!(fdt.boot_cpu(), 1);
}

#[test]
fn reservations_of_both_sorts() {
    let blob = virt();
    let fdt = Fdt::parse(&blob).unwrap();
    let reserved: Vec<_> = fdt.reserved().map(Result::unwrap).collect();
    let fixed = |start, bytes| Placement::Fixed { start, bytes };
    assert_eq!(reserved[0].placement, fixed(0x4800_0000, 0x1_0000));
    assert_eq!(
        (reserved[1].name, reserved[1].placement),
        (&b"secure@50000000"[..], fixed(0x5000_0000, 0x10_0000))
    );
    assert!(reserved[1].no_map && !reserved[1].reusable);
    let (bytes, align) = (0x400_0000, Some(0x20_0000));
    assert_eq!(reserved[2].placement, Placement::Anywhere { bytes, align });
    assert!(reserved[2].reusable && !reserved[2].no_map);
    assert_eq!(reserved.len(), 3);
}

#[test]
fn the_map_of_a_tree_has_a_hole_where_nothing_may_be_mapped() {
    let blob = virt();
    let entries: Vec<MapEntry> = Fdt::parse(&blob).unwrap().map_entries().unwrap().collect();
    let mut scratch = [ScratchEntry::default(); 8];
    let mut regions = [Region::default(); 8];
    let map =
        MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {}).unwrap();
    assert_eq!(map.usable_bytes(), 0x7ff0_0000);
    let no_map = map
        .regions()
        .iter()
        .find(|region| region.kind == MemoryKind::Reserved)
        .unwrap();
    assert_eq!(
        no_map.range,
        PhysRange::new(0x5000_0000, 0x5010_0000).unwrap()
    );
}

#[test]
fn widths_come_from_the_parent_and_default_to_two_and_one() {
    let mut blob = Blob::new();
    blob.begin("")
        .begin("memory")
        .cells("reg", &[1, 2, 3, 4, 5, 6])
        .end()
        .end();
    let bytes = blob.finish();
    let memory: Vec<_> = Fdt::parse(&bytes)
        .unwrap()
        .memory()
        .map(Result::unwrap)
        .collect();
    let ranges: Vec<_> = memory
        .iter()
        .map(|memory| (memory.start, memory.bytes))
        .collect();
    assert_eq!(ranges, [(0x1_0000_0002, 3), (0x4_0000_0005, 6)]);

    let mut blob = Blob::new();
    blob.begin("")
        .cells("#address-cells", &[3])
        .cells("#size-cells", &[4]);
    blob.begin("memory@0")
        .cells("reg", &[0, 7, 8, 0, 0, 9, 10, 1, 0, 0, 0, 0, 0, 1])
        .end()
        .end();
    let bytes = blob.finish();
    let memory: Vec<_> = Fdt::parse(&bytes).unwrap().memory().collect();
    assert_eq!(
        memory[0].map(|memory| (memory.start, memory.bytes)),
        Ok((0x7_0000_0008, 0x9_0000_000a))
    );
    assert!(matches!(
        memory[1],
        Err(FdtError::TooWide {
            property: "reg",
            ..
        })
    ));
}

#[test]
fn memory_is_known_by_name_or_type_and_only_under_the_root() {
    let mut blob = Blob::new();
    blob.begin("");
    blob.begin("memory-controller@0")
        .cells("reg", &[0, 0, 1])
        .end();
    blob.begin("ram@0")
        .text("device_type", "memory")
        .cells("reg", &[0, 1, 1])
        .end();
    blob.begin("memory@2")
        .text("status", "disabled")
        .cells("reg", &[0, 2, 1])
        .end();
    blob.begin("memory@3")
        .text("status", "okay")
        .cells("reg", &[0, 3, 1])
        .cells("linux,usable-memory", &[0, 9, 1])
        .end();
    blob.begin("soc")
        .begin("memory@4")
        .cells("reg", &[0, 4, 1])
        .end()
        .end();
    blob.end();
    let bytes = blob.finish();
    let starts: Vec<_> = Fdt::parse(&bytes)
        .unwrap()
        .memory()
        .map(|memory| memory.unwrap().start)
        .collect();
    assert_eq!(starts, [1, 9]);
}

#[test]
fn values_of_the_wrong_size_are_errors_and_the_rest_is_read() {
    let mut blob = Blob::new();
    blob.begin("");
    blob.begin("memory@0").cells("reg", &[0, 1, 1, 7]).end();
    blob.begin("memory@1").end();
    blob.begin("memory@2")
        .cells("reg", &[0, 2, 1])
        .text("numa-node-id", "none")
        .end();
    blob.begin("memory@3").cells("reg", &[0, 3, 1]).end();
    blob.end();
    let bytes = blob.finish();
    let fdt = Fdt::parse(&bytes).unwrap();
    let memory: Vec<_> = fdt.memory().collect();
    assert_eq!(memory[0].map(|memory| memory.start), Ok(1));
    assert!(matches!(
        memory[1],
        Err(FdtError::PropertySize {
            property: "reg",
            seen_bytes: 16,
            unit_bytes: 12,
            ..
        })
    ));
    assert!(matches!(
        memory[2],
        Err(FdtError::Missing {
            property: "reg",
            ..
        })
    ));
    assert!(matches!(
        memory[3],
        Err(FdtError::PropertySize {
            property: "numa-node-id",
            seen_bytes: 5,
            ..
        })
    ));
    assert_eq!(memory[4].map(|memory| memory.start), Ok(3));
    assert_eq!(memory.len(), 5);
    assert_eq!(fdt.map_entries().err(), memory[1].err());
}

#[test]
fn absurd_widths_are_errors() {
    for (address, size) in [(0, 1), (1, 0), (5, 1), (1, 5), (u32::MAX, u32::MAX)] {
        let mut blob = Blob::new();
        blob.begin("")
            .cells("#address-cells", &[address])
            .cells("#size-cells", &[size]);
        blob.begin("memory").cells("reg", &[0; 12]).end();
        blob.begin("reserved-memory")
            .cells("#address-cells", &[address])
            .cells("#size-cells", &[size]);
        blob.begin("pool").cells("reg", &[0; 12]).end();
        blob.end().end();
        let bytes = blob.finish();
        let fdt = Fdt::parse(&bytes).unwrap();
        let memory: Vec<_> = fdt.memory().collect();
        assert!(
            matches!(memory[..], [Err(FdtError::Cells { .. })]),
            "{memory:?}"
        );
        assert!(matches!(
            fdt.reserved().next(),
            Some(Err(FdtError::Cells { .. }))
        ));
    }
}

#[test]
fn a_tree_cut_at_every_byte_is_an_error() {
    let blob = virt();
    for length in 0..blob.len() {
        assert!(
            matches!(Fdt::parse(&blob[..length]), Err(FdtError::Truncated { .. })),
            "{length}"
        );
        // Cut so, with a header that agrees.
        let mut cut = blob[..length].to_vec();
        if length >= 8 {
            cut[4..8].copy_from_slice(&(length as u32).to_be_bytes());
        }
        assert!(Fdt::parse(&cut).is_err(), "{length}");
    }
}

#[test]
fn every_changed_word_of_the_header_is_survived() {
    let blob = virt();
    for at in (0..40).step_by(4) {
        for value in [
            0,
            1,
            3,
            16,
            17,
            39,
            40,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_fff0,
            u32::MAX,
        ] {
            let mut bytes = blob.clone();
            bytes[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
            if let Ok(fdt) = Fdt::parse(&bytes) {
                // What may change freely: trailing space, version, boot CPU.
                let ranges = fdt.memory().count() + fdt.cpus().count() + fdt.reserved().count();
                assert!(ranges <= 8 + 40, "{at}");
            }
        }
    }
    let with = |at: usize, value: u32| {
        let mut bytes = blob.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        Fdt::parse(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, 0xedfe_0dd0), FdtError::BadMagic { .. }));
    assert!(matches!(
        with(8, u32::MAX),
        FdtError::Block {
            what: "structure",
            ..
        }
    ));
    assert!(matches!(
        with(8, 0x3a),
        FdtError::Block {
            what: "structure",
            ..
        }
    ));
    assert!(matches!(
        with(12, u32::MAX),
        FdtError::Block {
            what: "strings",
            ..
        }
    ));
    assert!(matches!(
        with(16, 4),
        FdtError::Block {
            what: "reservations",
            ..
        }
    ));
    assert!(matches!(
        with(20, 15),
        FdtError::Version { version: 15, .. }
    ));
    assert!(matches!(
        with(24, 18),
        FdtError::Version {
            last_compatible: 18,
            ..
        }
    ));
    assert!(matches!(with(36, 4), FdtError::Ended { .. }));
    assert!(matches!(
        with(16, blob.len() as u32 / 8 * 8 - 8),
        FdtError::ReservationsUnterminated
    ));
}

#[test]
fn structures_that_do_not_nest() {
    let parse = |blob: &mut Blob| Fdt::parse(&blob.finish()).map(drop);
    let unbalanced = |offset| Err(FdtError::Unbalanced { offset });
    assert_eq!(parse(&mut Blob::new()), unbalanced(0));
    assert_eq!(parse(Blob::new().begin("")), unbalanced(8));
    assert_eq!(parse(Blob::new().end()), unbalanced(0));
    assert_eq!(
        parse(Blob::new().begin("").end().begin("").end()),
        unbalanced(12)
    );
    assert_eq!(parse(Blob::new().begin("").end().end()), unbalanced(12));
    assert_eq!(
        parse(Blob::new().cells("x", &[])),
        Err(FdtError::StrayProperty { offset: 0 })
    );
    let late = parse(Blob::new().begin("").begin("a").end().cells("x", &[]).end());
    assert_eq!(late, Err(FdtError::StrayProperty { offset: 20 }));
    assert_eq!(
        parse(Blob::new().begin("").word(7)),
        Err(FdtError::BadToken { offset: 8, seen: 7 })
    );
    let mut no_name = Blob::new();
    no_name.begin("").word(3).word(0).word(0xffff_fff0);
    assert_eq!(
        parse(&mut no_name),
        Err(FdtError::PropertyName {
            offset: 8,
            seen: 0xffff_fff0
        })
    );
    let mut past_end = Blob::new();
    past_end
        .begin("")
        .cells("x", &[])
        .word(3)
        .word(u32::MAX)
        .word(0);
    assert!(matches!(
        parse(&mut past_end),
        Err(FdtError::Ended { offset: 20 })
    ));
}

#[test]
fn depth_is_bounded() {
    for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false), (10_000, false)] {
        let mut blob = Blob::new();
        for _ in 0..depth {
            blob.begin("");
        }
        for _ in 0..depth {
            blob.end();
        }
        let bytes = blob.finish();
        match Fdt::parse(&bytes) {
            Ok(fdt) => assert!(fits && fdt.nodes().count() == depth),
            Err(error) => assert!(
                !fits && matches!(error, FdtError::TooDeep { offset } if offset == 8 * MAX_DEPTH)
            ),
        }
    }
}

#[test]
fn one_endless_string_costs_no_more_than_a_short_one() {
    // 20,000 properties, each named by a string of 200,000 bytes: comparing
    // whole names would be four thousand million steps.
    let count = if cfg!(miri) { 50 } else { 20_000 };
    let mut blob = Blob::new();
    blob.begin("").begin("memory@0");
    let name = "x".repeat(10 * count);
    for _ in 0..count {
        blob.cells(&name, &[]);
    }
    blob.end().end();
    let bytes = blob.finish();
    let fdt = Fdt::parse(&bytes).unwrap();
    assert_eq!(fdt.memory().filter(Result::is_err).count(), 1);
}
