//! All steps in one call: what is in use is never allocated, storage that is too small says
//! what is enough, tables that cannot be read leave one node.

use crate::acpi_tables;
use crate::fdt_blob;
use crate::kit;

use acpi_tables::{memory, slit, srat, x2apic};
use firstlight::addr::{Order, PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::early::{Allocation, Direction, EarlyError, EarlyRequest};
use firstlight::firmware::e820;
use firstlight::firmware::fdt::Fdt;
use firstlight::frames::{BlockError, Frames};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight::node::NodeId;
use firstlight::start::{
    AcpiNodes, Boot, BootSizes, BootSlots, BootStorage, NodeTables, OneNode, StartError,
    StaticStorage, StorageNeeded, TreeNodes, start,
};
use firstlight::store::Full;
use kit::{GIB, HUGE_BYTES, MIB, Uninitialised, page, range};
use proptest::prelude::*;
use std::mem::MaybeUninit;

const KERNEL: PhysRange = range_of(8 * HUGE_BYTES, 12 * HUGE_BYTES);
const INITRD: PhysRange = range_of(32 * HUGE_BYTES, 33 * HUGE_BYTES);

/// Where whole pages below 640 KiB end, of which firmware has 1 KiB.
const LOW_END: u64 = 0x9_fc00 / PAGE_BYTES * PAGE_BYTES;

const fn range_of(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).unwrap()
}

fn usable(start: u64, bytes: u64) -> MapEntry {
    MapEntry::new(start, bytes, MemoryKind::Usable)
}

/// A machine of 3 GiB; node 1 begins at 4 GiB.
fn boot(nodes: &dyn NodeTables) -> Boot<'_, [MapEntry; 3]> {
    Boot {
        reserved: &[(KERNEL, "kernel")],
        freeable: &[(INITRD, "initial RAM disk")],
        nodes,
        ..Boot::new([
            usable(4 * GIB, GIB),
            usable(0, 0x9_fc00),
            usable(MIB, 2 * GIB - MIB),
        ])
    }
}

/// Two nodes of one CPU each.
fn two_nodes() -> Vec<u8> {
    let cpus = [x2apic(7, 0, 1), x2apic(9, 1, 1)];
    let rows = [memory(7, 0, 2 * GIB, 1), memory(9, 4 * GIB, GIB, 1)];
    srat(3, &[cpus, rows].concat())
}

/// Slots that live as long as the test.
fn leaked<const RANGES: usize, const NODES: usize>() -> &'static mut BootStorage<RANGES, NODES> {
    Box::leak(Box::new(BootStorage::EMPTY))
}

fn started(boot: Boot<'_, [MapEntry; 3]>) -> (Frames<'static>, Vec<String>) {
    let mut log = Vec::new();
    let platform: &Uninitialised = Box::leak(Box::default());
    let frames = start(boot, leaked::<32, 2>(), platform, &mut |seen| {
        log.push(seen.to_string());
    });
    (frames.unwrap(), log)
}

#[test]
fn what_is_in_use_is_never_allocated() {
    let (frames, log) = started(boot(&OneNode { cpus: 3 }));
    assert_eq!(frames.layout().nodes()[0].cpus, 3);
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("does not fill its page"), "{log:?}");
    let all: Vec<_> = core::iter::from_fn(|| frames.allocate(page()).ok()).collect();
    let in_use = [range(0, PAGE_BYTES), KERNEL, INITRD];
    let met = |frame| in_use.iter().any(|range| range.contains(frame));
    assert!(!all.iter().any(|frame| met(frame.addr())));
    let tables = frames.metadata().reserved_bytes;
    let taken: u64 = in_use.iter().map(|range| range.bytes()).sum();
    let usable = LOW_END + 2 * GIB - MIB + GIB;
    assert_eq!(all.len() as u64 * PAGE_BYTES, usable - taken - tables);

    // For boot only, and for ever.
    frames.free(INITRD.start().frame(), Order::HUGE).unwrap();
    let refused = frames.free(KERNEL.start().frame(), Order::HUGE);
    assert!(
        matches!(refused, Err(BlockError::Reserved { .. })),
        "{refused:?}"
    );
}

#[test]
fn nodes_and_distances_come_from_acpi() {
    let (srat, slit) = (two_nodes(), slit(10, &[10; 100]));
    let mut good = vec![10; 100];
    (good[79], good[97]) = (31, 31);
    (0..100)
        .filter(|at| at % 11 != 0 && ![79, 97].contains(at))
        .for_each(|at| good[at] = 40);
    let good = acpi_tables::slit(10, &good);
    let nodes = |slit| AcpiNodes {
        srat: Some(&srat),
        slit,
        cpus: 1,
    };
    for (slit, distance, notices) in [
        (None, 20, 1),
        (Some(&good[..]), 31, 1),
        (Some(&slit[..]), 20, 2),
    ] {
        let (frames, log) = started(boot(&nodes(slit)));
        let layout = frames.layout();
        assert_eq!(layout.nodes().len(), 2);
        assert_eq!(layout.nodes()[1].domain, 9);
        assert_eq!(layout.distance(NodeId(0), NodeId(1)), distance);
        assert_eq!(log.len(), notices, "{log:?}");
        let there = frames.allocate(page().only_on(NodeId(1))).unwrap();
        assert!(there.addr().get() >= 4 * GIB);
    }
}

#[test]
fn tables_that_cannot_be_read_leave_one_node() {
    let whole = two_nodes();
    let empty = srat(3, &[]);
    for (table, said) in [
        (&whole[..40], "SRAT: 40 bytes"),
        (b"SLIT", ""),
        (&empty, ""),
    ] {
        let nodes = AcpiNodes {
            srat: Some(table),
            slit: Some(b"SLIT"),
            cpus: 5,
        };
        let (frames, log) = started(boot(&nodes));
        assert_eq!(frames.layout().nodes().len(), 1);
        assert_eq!(frames.layout().nodes()[0].cpus, 5);
        assert!(log.iter().any(|line| line.contains(said)), "{log:?}");
    }
}

#[test]
fn a_device_tree_has_nodes_and_memory_in_use() {
    let blob = fdt_blob::virt();
    let tree = Fdt::parse(&blob).unwrap();
    let boot = Boot {
        nodes: &TreeNodes(tree),
        ..Boot::new(tree.map_entries().unwrap())
    };
    let mut storage = BootStorage::<8, 2>::EMPTY;
    let layout = boot.layout(&mut storage, &mut |_| {}).unwrap();
    let nodes: Vec<_> = layout
        .nodes()
        .iter()
        .map(|node| (node.cpus, node.present_frames))
        .collect();
    assert_eq!(
        nodes,
        [(1, (GIB - MIB) / PAGE_BYTES), (1, GIB / PAGE_BYTES)]
    );
    assert_eq!(layout.distance(NodeId(0), NodeId(1)), 20);
    let reserved = range(0x4800_0000, 0x4801_0000);
    assert!(layout.early().is_reserved(reserved));
    assert_eq!(
        layout.owner_of(reserved.start().frame()),
        Some("device tree reservation")
    );
}

#[test]
fn between_the_steps_a_kernel_allocates() {
    let mut storage = BootStorage::<16, 2>::EMPTY;
    let table = two_nodes();
    let nodes = AcpiNodes {
        srat: Some(&table),
        ..AcpiNodes::NONE
    };
    let mut boot = boot(&OneNode { cpus: 1 })
        .early(&mut storage, &mut |_| {})
        .unwrap();
    assert_eq!(boot.map.usable_bytes(), LOW_END + 3 * GIB - MIB);
    boot.early
        .reserve(range(32 * MIB, 33 * MIB), "page tables")
        .unwrap();
    // Tables that can be read only now.
    boot.nodes = &nodes;
    let layout = boot.layout(&mut |_| {}).unwrap();
    assert_eq!(layout.nodes().len(), 2);
    assert_eq!(
        layout.owner_of(range(32 * MIB, 33 * MIB).start().frame()),
        Some("page tables")
    );
}

#[test]
fn a_kernel_that_maps_memory_itself_has_its_tables_before_there_are_frames() {
    let modules = (0..5u64).map(|at| (range((32 + 2 * at) * MIB, (33 + 2 * at) * MIB), "module"));
    let mut tables = Vec::new();
    let memory = boot(&OneNode { cpus: 1 })
        .early(leaked::<32, 2>(), &mut |_| {})
        .unwrap()
        .with_early(|early| {
            early.reserve_all(modules.clone())?;
            early.set_limit(PhysAddr::new(64 * MIB));
            early.set_direction(Direction::BottomUp);
            let table = EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "page tables");
            for _ in 0..300 {
                tables.push(early.allocate(&table)?);
            }
            Ok::<(), EarlyError>(())
        })
        .unwrap();
    assert!(tables.iter().all(|table| table.end().get() <= 64 * MIB));
    // Limit and direction hold for the call alone: the allocator's tables are high again.
    assert_eq!(memory.early.limit(), PhysAddr::new(u64::MAX));
    assert_eq!(memory.early.direction(), Direction::TopDown);
    let layout = memory.layout(&mut |_| {}).unwrap();
    let platform: &Uninitialised = Box::leak(Box::default());
    let frames = Frames::build(layout, platform).unwrap();
    for range in tables
        .iter()
        .copied()
        .chain(modules.map(|(range, _)| range))
    {
        let refused = frames.free(range.start().frame(), Order::PAGE);
        assert!(
            matches!(refused, Err(BlockError::Reserved { .. })),
            "{refused:?}"
        );
    }
    let own = |taken: &&Allocation| taken.owner() == "frame allocator tables";
    let early = frames.layout().early();
    assert!(
        early
            .owners()
            .iter()
            .filter(own)
            .all(|taken| taken.range.start().get() >= 64 * MIB)
    );
}

#[test]
fn what_fails_while_memory_is_mapped_ends_the_way_up() {
    let memory = boot(&OneNode { cpus: 1 })
        .early(leaked::<32, 2>(), &mut |_| {})
        .unwrap();
    let error = memory.with_early(|early| {
        early.set_limit(PhysAddr::new(4096));
        early
            .allocate(&EarlyRequest::new(PAGE_BYTES, PAGE_BYTES, "page tables"))
            .map(drop)
    });
    let error = error.map(drop).unwrap_err();
    assert!(matches!(error, EarlyError::NoSpace { .. }), "{error}");
    // Too many modules: the error says how many slots are enough.
    let memory = boot(&OneNode { cpus: 1 })
        .early(leaked::<8, 2>(), &mut |_| {})
        .unwrap();
    let modules = (1..30u64).map(|at| (range(at * 3 * MIB, at * 3 * MIB + 4096), "module"));
    let error = memory.with_early(|early| early.reserve_all(modules));
    let error = StartError::from(error.map(drop).unwrap_err());
    assert_eq!(error.storage_needed(), Some(StorageNeeded::Ranges(9)));
}

#[test]
fn without_memory_there_is_no_start_and_the_error_says_what_was_there() {
    let mut storage = BootStorage::<4, 1>::EMPTY;
    let entries = [e820::typed(0, 0x5000, 3), e820::typed(GIB, 0x3000, 2)];
    let error = Boot::new(entries)
        .layout(&mut storage, &mut |_| {})
        .unwrap_err();
    let StartError::NoMemory { bytes } = error else {
        panic!("{error:?}");
    };
    assert_eq!(bytes[MemoryKind::AcpiReclaimable.rank()], 0x5000);
    assert_eq!(bytes[MemoryKind::Reserved.rank()], 0x3000);
    assert_eq!(
        error.to_string(),
        "memory map: no usable memory, expected some; 32768 bytes are of other kinds"
    );
    assert_eq!(error.storage_needed(), None);
}

#[test]
fn storage_that_is_too_small_says_what_is_needed() {
    let table = two_nodes();
    let nodes = AcpiNodes {
        srat: Some(&table),
        ..AcpiNodes::NONE
    };
    let error = boot(&nodes).layout(leaked::<32, 1>(), &mut |_| {});
    let error = error.map(drop).unwrap_err();
    assert_eq!(error.storage_needed(), Some(StorageNeeded::Nodes(2)));
    assert_eq!(
        error.to_string(),
        "topology nodes: storage for 1 entries is too small: 2 are needed; \
         NODES of BootStorage must be at least 2"
    );
    let error = boot(&nodes)
        .layout(leaked::<2, 2>(), &mut |_| {})
        .map(drop)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory map scratch: storage for 2 entries is too small: 3 are needed; \
         RANGES of BootStorage must be at least 3"
    );
}

/// A static of it would not lie there if one of its bytes were not zero; they are looked at besides, in a
/// static that nothing has written.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn static_storage_is_zero_and_takes_no_space_in_the_file() {
    static STORAGE: StaticStorage<7, 3> = StaticStorage::new();
    assert!(kit::zero::holds(&raw const STORAGE));
    let first = (&raw const STORAGE).cast::<u8>();
    // SAFETY: inside the static, whose bytes all come from the file or are zero, padding too: nothing
    // has written to it. Volatile: the compiler supposes nothing of padding.
    let byte = |at: usize| unsafe { first.add(at).read_volatile() };
    let not_zero: Vec<usize> = (0..size_of_val(&STORAGE))
        .filter(|&at| byte(at) != 0)
        .collect();
    assert_eq!(not_zero, []);
}

#[test]
fn storage_in_a_static_is_the_first_callers() {
    static STORAGE: StaticStorage<16, 1> = StaticStorage::new();
    let entries = [usable(0, 64 * MIB)];
    let layout = Boot::new(entries).layout(STORAGE.take().unwrap(), &mut |_| {});
    let again = STORAGE.take().unwrap_err();
    assert_eq!(
        again.to_string(),
        "storage was taken before: memory is started once"
    );
    assert_eq!(again.storage_needed(), None);
    assert_eq!(layout.unwrap().early().memory_bytes(), 64 * MIB);
}

/// Storage of this size, out of memory that begins `skip` bytes behind an aligned address.
fn carved(sizes: BootSizes, skip: usize) -> Result<BootSlots<'static>, Full> {
    let words = Box::leak(Box::new_uninit_slice(sizes.bytes() / 16 + 2));
    let first = std::ptr::from_mut::<[MaybeUninit<u128>]>(words).cast::<MaybeUninit<u8>>();
    // SAFETY: bytes of leaked memory, which has 16 bytes more than are used.
    let bytes = unsafe { std::slice::from_raw_parts_mut(first.add(skip), sizes.bytes()) };
    BootSlots::carve(bytes, sizes)
}

#[test]
fn storage_is_carved_out_of_memory_that_begins_anywhere() {
    for skip in 0..16 {
        for sizes in [
            BootSizes::new(5, 3),
            BootSizes::new(1, 1).without_distances(),
        ] {
            let slots = carved(sizes, skip).unwrap();
            assert_eq!(slots.distances.len(), sizes.distances);
            assert_eq!(slots.layout.zones.len(), 4 * sizes.nodes);
            let lists = [slots.scratch.len(), slots.map.len(), slots.owners.len()];
            assert_eq!(lists, [sizes.ranges; 3]);
            assert!(slots.memory.iter().all(|region| region.range.is_empty()));
        }
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let sizes = BootSizes::new(64, 4);
    let mut memory = [MaybeUninit::uninit(); 64];
    let full = BootSlots::carve(&mut memory, sizes).map(drop).unwrap_err();
    assert_eq!((full.capacity, full.needed), (64, sizes.bytes()));
    assert_eq!(
        StartError::from(full).to_string(),
        format!(
            "storage of 64 bytes is too small: {} are needed",
            sizes.bytes()
        )
    );
    for absurd in [BootSizes::new(usize::MAX, 1), BootSizes::new(1, usize::MAX)] {
        assert_eq!(absurd.bytes(), usize::MAX);
        assert!(BootSlots::carve(&mut memory, absurd).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever the machine, following the errors ends, and ends with an allocator.
    #[test]
    fn the_storage_an_error_names_is_enough_in_the_end(
        pieces in prop::collection::vec((1..64u64, 1..64u64, 0..5u32), 1..12),
        holes in prop::collection::vec((0..800u64, 1..8u64), 0..6),
    ) {
        let (mut entries, mut rows) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (gap, mib, domain) in pieces {
            let (start, bytes) = ((at + gap) * MIB, mib * MIB);
            entries.push(usable(start, bytes));
            rows.push(memory(domain * 3, start, bytes, 1));
            at += gap + mib;
        }
        let table = srat(3, &rows);
        let reserved: Vec<_> = holes
            .iter()
            .map(|(start, mib)| (range(start * MIB, (start + mib) * MIB), "hole"))
            .collect();
        let (mut ranges, mut nodes) = (1, 1);
        for round in 0.. {
            prop_assert!(round < 40, "{ranges} ranges, {nodes} nodes are not enough");
            let boot = Boot {
                reserved: &reserved,
                nodes: &AcpiNodes { srat: Some(&table), ..AcpiNodes::NONE },
                ..Boot::new(entries.iter().copied())
            };
            let slots = carved(BootSizes::new(ranges, nodes), 0).unwrap();
            let platform: &Uninitialised = Box::leak(Box::default());
            let error = match start(boot, slots, platform, &mut |_| {}) {
                Ok(frames) => {
                    frames.validate().unwrap();
                    break;
                }
                Err(error) => error,
            };
            match error.storage_needed() {
                Some(StorageNeeded::Ranges(needed)) => {
                    prop_assert!(needed > ranges, "{error}");
                    ranges = needed;
                }
                Some(StorageNeeded::Nodes(needed)) => {
                    prop_assert!(needed > nodes, "{error}");
                    nodes = needed;
                }
                // All of a small machine is reserved.
                None => break,
            }
        }
    }
}
