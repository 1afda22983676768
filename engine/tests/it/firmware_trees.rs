//! Real device trees and broken ones: what is kept in one walk is what walks would find.

use crate::fdt_blob;

use fdt_blob::{Blob, virt};
use firstlight::addr::PHYS_END;
use firstlight::firmware::fdt::{Fdt, FdtError, FdtSlot, PsciConduit};
use firstlight::start::{Boot, BootStorage, TreeNodes};
use proptest::prelude::*;

/// What the parser is to keep nodes for in these tests.
const WANTED: &[&str] = &["arm,pl011", "ns16550a", "arm,gic-v3", "sifive,test0"];

fn tree(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/machines/trees");
    std::fs::read(format!("{folder}/{name}.dtb")).unwrap()
}

const TREES: [&str; 3] = [
    "virt-aarch64-2g",
    "virt-aarch64-4-nodes",
    "virt-riscv64-2-nodes",
];

/// Every answer about a tree, as text.
fn answers(fdt: &Fdt<'_>) -> Vec<String> {
    let node = |node: firstlight::firmware::fdt::Node<'_>| {
        let name = String::from_utf8_lossy(node.name()).into_owned();
        let reg: Vec<_> = node.reg().collect();
        format!("{name} {} {} {reg:?}", node.offset(), node.depth())
    };
    let mut all = Vec::new();
    all.extend(fdt.memory().map(|row| format!("{row:?}")));
    all.extend(fdt.reserved().map(|row| format!("{row:?}")));
    all.extend(fdt.cpus().map(|row| format!("{row:?}")));
    all.extend(fdt.distances().map(|row| format!("{row:?}")));
    all.push(format!("{:?} {:?}", fdt.initrd(), fdt.timebase_hz()));
    all.push(format!("{:?} {:?}", fdt.bootargs(), fdt.psci()));
    all.extend(fdt.stdout().map(node));
    for text in WANTED.iter().chain(&["virtio,mmio"]) {
        all.extend(fdt.compatible(text).map(node));
    }
    all
}

#[test]
fn a_virtual_arm_machine_of_one_node() {
    let bytes = tree("virt-aarch64-2g");
    assert_eq!(
        Fdt::total_bytes(&bytes).map(|total| total as usize),
        Ok(bytes.len())
    );
    let mut slots = [FdtSlot::EMPTY; 8];
    let fdt = Fdt::parse_in(&bytes, &mut slots, WANTED).unwrap();
    let memory: Vec<_> = fdt.memory().map(Result::unwrap).collect();
    assert_eq!(
        memory
            .iter()
            .map(|row| (row.start, row.bytes, row.node))
            .collect::<Vec<_>>(),
        [(1 << 30, 2 << 30, None)]
    );
    assert_eq!(fdt.cpus().count(), 1);
    assert_eq!(fdt.distances().count(), 0);
    assert_eq!(fdt.psci(), Some(PsciConduit::Hvc));
    assert_eq!(fdt.bootargs(), b"console=ttyAMA0");
    let (start, end) = fdt.initrd().unwrap().unwrap();
    assert!((1 << 30..3 << 30).contains(&start) && end > start);
    assert_eq!(fdt.timebase_hz(), Ok(None));
    let serial = fdt.stdout().unwrap();
    assert_eq!(serial.name(), b"pl011@9000000");
    assert_eq!(serial.reg().collect::<Vec<_>>(), [Ok((0x900_0000, 0x1000))]);
    // Memory, the CPU, its parent, what was chosen, PSCI and the serial port.
    assert_eq!(fdt.slots_needed(), 6);
}

#[test]
fn a_virtual_arm_machine_of_four_nodes() {
    let bytes = tree("virt-aarch64-4-nodes");
    let mut slots = [FdtSlot::EMPTY; 24];
    let fdt = Fdt::parse_in(&bytes, &mut slots, WANTED).unwrap();
    let memory: Vec<_> = fdt.memory().map(Result::unwrap).collect();
    let memory: Vec<_> = memory.iter().map(|row| (row.start, row.node)).collect();
    let node = |at: u32| ((1 << 30) + (u64::from(at) << 31), Some(at));
    // QEMU puts each node before those it made earlier.
    assert_eq!(memory, [3, 2, 1, 0].map(node));
    let cpus: Vec<_> = fdt.cpus().map(Result::unwrap).collect();
    let cpus: Vec<_> = cpus.iter().map(|cpu| (cpu.id, cpu.node.unwrap())).collect();
    assert_eq!(
        cpus,
        [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (5, 2),
            (6, 3),
            (7, 3)
        ]
    );
    let distance = |from, to| {
        let mut rows = fdt.distances().map(Result::unwrap);
        rows.find(|row| (row.from, row.to) == (from, to))
            .map(|row| row.distance)
    };
    assert_eq!((distance(0, 0), distance(0, 3)), (Some(10), Some(22)));
    assert_eq!((distance(2, 3), distance(3, 2)), (Some(25), Some(25)));
    assert_eq!(fdt.compatible("arm,gic-v3").count(), 1);
}

#[test]
fn a_virtual_risc_v_machine_of_two_nodes() {
    let bytes = tree("virt-riscv64-2-nodes");
    let mut slots = [FdtSlot::EMPTY; 16];
    let fdt = Fdt::parse_in(&bytes, &mut slots, WANTED).unwrap();
    assert_eq!(fdt.timebase_hz(), Ok(Some(10_000_000)));
    assert_eq!(fdt.psci(), None);
    assert_eq!(fdt.initrd(), Ok(None));
    let ids: Vec<_> = fdt.cpus().map(|cpu| cpu.unwrap().id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    // On a bus, which the path names.
    let serial = fdt.stdout().unwrap();
    assert_eq!(
        (serial.top(), serial.name()),
        (&b"soc"[..], &b"serial@10000000"[..])
    );
    assert_eq!(serial.reg().collect::<Vec<_>>(), [Ok((0x1000_0000, 0x100))]);
    let test = fdt.compatible("sifive,test0").next().unwrap();
    assert_eq!(test.reg().next(), Some(Ok((0x10_0000, 0x1000))));
}

#[test]
fn with_any_number_of_slots_the_answers_are_the_same() {
    for bytes in TREES.map(tree).iter().chain([&virt()]) {
        let walked = Fdt::parse(bytes).unwrap();
        let expected = answers(&walked);
        let needed = Fdt::parse_in(bytes, &mut [], WANTED)
            .unwrap()
            .slots_needed();
        for count in 0..needed + 2 {
            let mut slots = vec![FdtSlot::EMPTY; count];
            let fdt = Fdt::parse_in(bytes, &mut slots, WANTED).unwrap();
            assert_eq!(answers(&fdt), expected, "{count} slots of {needed}");
            assert_eq!(fdt.slots_needed(), needed);
        }
    }
}

#[test]
fn a_console_by_alias_and_a_path_without_unit_addresses() {
    let mut blob = Blob::new();
    blob.begin("");
    blob.begin("aliases").text("uart", "/soc/bus/serial").end();
    blob.begin("chosen")
        .text("stdout-path", "uart:115200n8")
        .end();
    blob.begin("soc").begin("bus@1").begin("serial@5").end();
    blob.end().end().end();
    let bytes = blob.finish();
    let fdt = Fdt::parse(&bytes).unwrap();
    assert_eq!(fdt.stdout().unwrap().name(), b"serial@5");
    for (path, found) in [
        (&b"/soc/bus@1/serial@5"[..], true),
        (b"/soc/bus@2/serial@5", false),
        (b"/soc/serial@5", false),
        (b"/soc/bus@1/serial@5/x", false),
        (b"soc", false),
        (b"", false),
        (b"/", false),
    ] {
        assert_eq!(fdt.find(path).is_some(), found, "{}", path.escape_ascii());
    }
}

#[test]
fn an_initial_ram_disk_that_cannot_be_is_an_error_or_given_as_it_is() {
    let with = |start: &[u32], end: &[u32]| {
        let mut blob = Blob::new();
        blob.begin("").begin("chosen");
        if !start.is_empty() {
            blob.cells("linux,initrd-start", start);
        }
        if !end.is_empty() {
            blob.cells("linux,initrd-end", end);
        }
        blob.end().end();
        let bytes = blob.finish();
        Fdt::parse(&bytes).unwrap().initrd()
    };
    assert_eq!(with(&[], &[9]), Ok(None));
    assert_eq!(with(&[8], &[1, 9]), Ok(Some((8, 0x1_0000_0009))));
    assert_eq!(with(&[9], &[8]), Ok(Some((9, 8))));
    assert!(matches!(
        with(&[8], &[]),
        Err(FdtError::Missing {
            property: "linux,initrd-end",
            ..
        })
    ));
    assert!(matches!(
        with(&[1, 2, 3], &[9]),
        Err(FdtError::PropertySize { seen_bytes: 12, .. })
    ));
}

#[test]
fn references_to_each_other_and_ids_of_64_bits_are_read_as_they_are() {
    let mut blob = Blob::new();
    blob.begin("").cells("interrupt-parent", &[1]);
    blob.begin("a")
        .cells("phandle", &[1])
        .cells("interrupt-parent", &[2])
        .end();
    blob.begin("b")
        .cells("phandle", &[2])
        .cells("interrupt-parent", &[1])
        .end();
    blob.begin("cpus")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[0]);
    blob.begin("cpu@0")
        .cells("reg", &[0xffff_ffff, 0xffff_ffff])
        .end();
    blob.begin("cpu@1").cells("reg", &[0x81, 0x0102_0003]).end();
    blob.end();
    blob.begin("memory@0")
        .cells("reg", &[0x8000_0000, 0, 0x8000_0000])
        .end();
    blob.end();
    let bytes = blob.finish();
    let mut slots = [FdtSlot::EMPTY; 8];
    let fdt = Fdt::parse_in(&bytes, &mut slots, &[]).unwrap();
    let ids: Vec<_> = fdt.cpus().map(|cpu| cpu.unwrap().id).collect();
    assert_eq!(ids, [u64::MAX, 0x81_0102_0003]);
    let memory = fdt.memory().next().unwrap().unwrap();
    assert_eq!((memory.start, memory.bytes), (1 << 63, 1 << 31));
}

proptest! {
    /// Whatever is changed in a real tree, it is refused alike, or read alike with slots and
    /// without.
    #[test]
    fn changed_trees_are_read_the_same_with_slots(
        which in 0..TREES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        words in proptest::collection::vec((any::<prop::sample::Index>(), 0u32..10), 0..4),
        slots in 0usize..32,
    ) {
        let mut bytes = tree(TREES[which]);
        let length = bytes.len();
        for (at, value) in changes {
            bytes[at.index(length)] = value;
        }
        for (at, token) in words {
            let at = at.index(length / 4) * 4;
            if let Some(word) = bytes.get_mut(at..at + 4) {
                word.copy_from_slice(&token.to_be_bytes());
            }
        }
        let mut slots = vec![FdtSlot::EMPTY; slots];
        let kept = Fdt::parse_in(&bytes, &mut slots, WANTED);
        match (Fdt::parse(&bytes), kept) {
            (Ok(walked), Ok(kept)) => prop_assert_eq!(answers(&walked), answers(&kept)),
            (walked, kept) => prop_assert_eq!(walked.err(), kept.err()),
        }
    }
}

#[test]
fn memory_of_2_to_63_bytes_ends_where_addresses_do_and_that_is_reported() {
    let mut blob = Blob::new();
    blob.begin("")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[2]);
    blob.begin("memory@40000000")
        .cells("reg", &[0, 0x4000_0000, 0x8000_0000, 0])
        .cells("numa-node-id", &[0])
        .end();
    let bytes = blob.end().finish();
    let fdt = Fdt::parse(&bytes).unwrap();
    assert_eq!(fdt.memory().next().unwrap().unwrap().bytes, 1 << 63);
    let boot = Boot {
        nodes: &TreeNodes(fdt),
        ..Boot::new(fdt.map_entries().unwrap())
    };
    let (mut storage, mut said) = (BootStorage::<8, 1>::EMPTY, Vec::new());
    let layout = boot.layout(&mut storage, &mut |seen| said.push(seen.to_string()));
    let end = layout.unwrap().end();
    assert_eq!(end.addr().get(), PHYS_END);
    // Of the map and of the node.
    assert_eq!(said.len(), 2, "{said:?}");
}
