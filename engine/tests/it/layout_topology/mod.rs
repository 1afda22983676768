//! Topologies from real and from hostile tables.

mod device_tree;
mod properties;

use std::path::Path;

use firstlight::addr::{PHYS_END, PhysAddr, PhysRange};
use firstlight::early::{EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::firmware::acpi::{AcpiError, Slit, Srat, SratEntry};
use firstlight::node::NodeId;
use firstlight::start::{BootSlots, BootStorage};
use firstlight::topology::{
    NodeInfo, OneNodeReason, TableNotice, Topology, TopologyBuilder, TopologyError, TopologyNotice,
    TopologyPart, TopologyRange, TopologyStorage, Trust, add_srat, set_slit,
};

fn table(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/machines/acpi");
    std::fs::read(folder.join(name)).unwrap()
}

/// Memory, and the node of each piece after the topology is applied.
type Pieces = Vec<(u64, u64, u16)>;

struct Applied {
    pieces: Pieces,
    hotplug: Vec<(u64, u64)>,
    nodes: Vec<NodeInfo>,
    notices: Vec<TopologyNotice>,
}

fn apply(
    entries: impl Iterator<Item = Result<SratEntry, AcpiError>> + Clone,
    memory: &[(u64, u64)],
    reserved: &[(u64, u64)],
    trust: Trust,
) -> Applied {
    let mut notices = Vec::new();
    let mut storage = BootStorage::<256, 64>::EMPTY;
    let slots = BootSlots::from(&mut storage);
    let mut builder = TopologyBuilder::new(slots.topology);
    add_srat(&mut builder, entries, &mut |notice| match notice {
        TableNotice::Row(notice) => notices.push(notice),
        other => panic!("{other}"),
    })
    .unwrap();
    let mut topology = builder.finish(&mut |notice| notices.push(notice));
    let mut early = EarlyMemory::new(slots.memory, slots.reserved, slots.owners);
    for &(start, end) in memory {
        early
            .add(PhysRange::new(start, end).unwrap(), EarlyFlags::NONE)
            .unwrap();
    }
    for &(start, end) in reserved {
        early
            .reserve(PhysRange::new(start, end).unwrap(), "test")
            .unwrap();
    }
    topology
        .apply(&mut early, trust, &mut |notice| notices.push(notice))
        .unwrap();
    let ends = |region: &EarlyRegion| (region.range.start().get(), region.range.end().get());
    Applied {
        pieces: early
            .memory()
            .iter()
            .map(|region| (ends(region).0, ends(region).1, region.node.unwrap().0))
            .collect(),
        hotplug: early
            .memory()
            .iter()
            .filter(|region| region.flags.contains(EarlyFlags::HOTPLUG))
            .map(ends)
            .collect(),
        nodes: topology.nodes().to_vec(),
        notices,
    }
}

fn cpu(domain: u32) -> SratEntry {
    SratEntry::Cpu {
        apic_id: 0,
        domain,
        enabled: true,
    }
}

fn memory(domain: u32, base: u64, end: u64) -> SratEntry {
    SratEntry::Memory {
        domain,
        base,
        bytes: end.wrapping_sub(base),
        enabled: true,
        hotplug: false,
        non_volatile: false,
    }
}

fn window(domain: u32, base: u64, end: u64) -> SratEntry {
    SratEntry::Memory {
        domain,
        base,
        bytes: end - base,
        enabled: true,
        hotplug: true,
        non_volatile: false,
    }
}

fn ok(entries: &[SratEntry]) -> impl Iterator<Item = Result<SratEntry, AcpiError>> + Clone + '_ {
    entries.iter().copied().map(Ok)
}

const STRICT: Trust = Trust::AllOrNothing {
    unclaimed_bytes: 1 << 20,
};
const G: u64 = 1 << 30;

/// With a 2 GiB hole below 4 GiB, as firmware leaves one.
fn holed(bytes: u64) -> Vec<(u64, u64)> {
    vec![
        (0x1000, 0x9_f000),
        (0x10_0000, 2 * G),
        (4 * G, bytes + 2 * G),
    ]
}

#[test]
fn domains_that_start_at_1_become_nodes_from_0() {
    let bytes = table("PowerEdge_R820.srat.bin");
    let srat = Srat::parse(&bytes).unwrap();
    for trust in [Trust::Repair, STRICT] {
        let applied = apply(
            srat.entries(),
            &[(0x1000, 2 * G), (4 * G, 65 * G)],
            &[],
            trust,
        );
        assert_eq!(applied.notices, []);
        let nodes: Vec<_> = applied
            .nodes
            .iter()
            .map(|node| (node.domain, node.cpus))
            .collect();
        assert_eq!(nodes, [1, 2, 3, 4].map(|domain| (Some(domain), 20)));
        let g = |gigabytes: u64| gigabytes << 30;
        let want = [
            (0x1000, g(2), 0),
            (g(4), g(17), 0),
            (g(17), g(33), 1),
            (g(33), g(49), 2),
            (g(49), g(65), 3),
        ];
        assert_eq!(applied.pieces, want);
    }
}

#[test]
fn distances_go_by_domain() {
    let (srat, slit) = (
        table("PowerEdge_R820.srat.bin"),
        table("PowerEdge_R820.slit.bin"),
    );
    let (srat, slit) = (Srat::parse(&srat).unwrap(), Slit::parse(&slit).unwrap());
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 4], [TopologyRange::EMPTY; 16]);
    let mut builder = TopologyBuilder::new(TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    });
    add_srat(&mut builder, srat.entries(), &mut |_| {}).unwrap();
    let mut topology = builder.finish(&mut |_| {});
    let mut distances = [0; 16];
    let unknown = topology.distance(NodeId(0), NodeId(2));
    set_slit(&mut topology, &slit, &mut distances, &mut |notice| {
        panic!("{notice}")
    })
    .unwrap();
    let row = |from| [0, 1, 2, 3].map(|to| topology.distance(NodeId(from), NodeId(to)));
    assert_eq!(
        (unknown, row(0), row(1)),
        (20, [10, 20, 30, 20], [20, 10, 20, 30])
    );
    assert_eq!(topology.distance(NodeId(9), NodeId(0)), 20);
    assert_eq!(topology.distance(NodeId(9), NodeId(9)), 10);
    // No such node: the first of the next row stays.
    topology.set_distance(NodeId(0), NodeId(4), 99);
    assert_eq!(topology.distance(NodeId(1), NodeId(0)), 20);
}

/// A SLIT with these distances, row by row.
fn slit_bytes(side: u64, distances: &[u8]) -> Vec<u8> {
    let mut bytes = table("X99.slit.bin");
    bytes.truncate(36);
    bytes.extend(side.to_le_bytes());
    bytes.extend(distances);
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn impossible_distances_are_not_used() {
    for (distances, used, reported) in [
        ([10, 21, 21, 10], true, false),
        ([10, 21, 31, 10], true, true),
        ([11, 21, 21, 10], false, true),
        ([10, 9, 21, 10], false, true),
        ([10, 10, 10, 10], false, true),
        ([0, 0, 0, 0], false, true),
        ([10, 255, 255, 10], true, false),
    ] {
        let bytes = slit_bytes(2, &distances);
        let slit = Slit::parse(&bytes).unwrap();
        let mut nodes = [NodeInfo::EMPTY; 2];
        let mut builder = TopologyBuilder::new(TopologyStorage {
            nodes: &mut nodes,
            ranges: &mut [],
        });
        builder.node_of(0).unwrap();
        builder.node_of(1).unwrap();
        let mut topology = builder.finish(&mut |_| {});
        let (mut storage, mut notices) = ([0; 4], Vec::new());
        set_slit(&mut topology, &slit, &mut storage, &mut |notice| {
            notices.push(notice.to_string());
        })
        .unwrap();
        let want = if used { distances[1] } else { 20 };
        assert_eq!(
            topology.distance(NodeId(0), NodeId(1)),
            want,
            "{distances:?}"
        );
        assert_eq!(!notices.is_empty(), reported, "{distances:?} {notices:?}");
    }
}

#[test]
fn other_real_tables() {
    for (name, memory, nodes, last) in [
        // 72 GiB; nodes 1 and 2 have CPUs and no memory.
        (
            "H8DGU",
            vec![(0x1000, 0xdfe9_0000), (4 * G, 0x12_2000_0000)],
            [6, 6, 6, 6].as_slice(),
            3,
        ),
        (
            "ProLiant_DL360_G7",
            vec![(0x1000, 0xdf60_0000), (4 * G, 0x30_1fff_f000)],
            &[8, 8],
            1,
        ),
        ("X8DTT", holed(0xc_4000_0000 - 2 * G), &[8, 8], 1),
        ("X99", holed(16 * G), &[20], 0),
    ] {
        let bytes = table(&format!("{name}.srat.bin"));
        let applied = apply(Srat::parse(&bytes).unwrap().entries(), &memory, &[], STRICT);
        assert_eq!(applied.notices, [], "{name}");
        assert_eq!(
            applied
                .nodes
                .iter()
                .map(|node| node.cpus)
                .collect::<Vec<_>>(),
            nodes,
            "{name}"
        );
        assert_eq!(applied.pieces.last().unwrap().2, last, "{name}");
        let bytes: u64 = applied.pieces.iter().map(|piece| piece.1 - piece.0).sum();
        assert_eq!(
            bytes,
            memory.iter().map(|row| row.1 - row.0).sum::<u64>(),
            "{name}"
        );
    }
}

#[test]
fn memory_between_two_ranges_of_a_node_is_its_own() {
    let entries = [
        memory(0, 0, G),
        memory(0, 2 * G, 3 * G),
        memory(1, 3 * G, 4 * G),
    ];
    let applied = apply(ok(&entries), &[(0, 4 * G)], &[], STRICT);
    assert_eq!(applied.pieces, [(0, 3 * G, 0), (3 * G, 4 * G, 1)]);
    assert_eq!(applied.notices, []);
}

#[test]
fn memory_without_a_node_goes_to_a_neighbour_or_removes_the_nodes() {
    let entries = [memory(0, G, 2 * G), memory(1, 3 * G, 4 * G)];
    let map = [(0, 4 * G), (6 * G, 7 * G)];
    let repaired = apply(ok(&entries), &map, &[], Trust::Repair);
    assert_eq!(
        repaired.pieces,
        [(0, 3 * G, 0), (3 * G, 4 * G, 1), (6 * G, 7 * G, 1)]
    );
    let reported = |start, end, node| TopologyNotice::Unclaimed {
        range: PhysRange::new(start, end).unwrap(),
        given: NodeId(node),
    };
    assert_eq!(
        repaired.notices,
        [
            reported(0, G, 0),
            reported(2 * G, 3 * G, 0),
            reported(6 * G, 7 * G, 1)
        ]
    );

    let strict = apply(ok(&entries), &map, &[], STRICT);
    assert_eq!(strict.pieces, [(0, 4 * G, 0), (6 * G, 7 * G, 0)]);
    assert_eq!(strict.nodes.len(), 1);
    let reason = OneNodeReason::Unclaimed { bytes: 3 * G };
    assert_eq!(strict.notices, [TopologyNotice::OneNode { reason }]);

    // Less than 1 MiB is forgiven.
    let little = apply(
        ok(&entries),
        &[(G, 2 * G + 0xf_f000), (3 * G, 4 * G)],
        &[],
        STRICT,
    );
    assert_eq!(little.pieces, [(G, 2 * G + 0xf_f000, 0), (3 * G, 4 * G, 1)]);
}

#[test]
fn overlapping_nodes_are_resolved_or_dropped() {
    let entries = [
        cpu(0),
        cpu(1),
        cpu(1),
        memory(0, 4 * G, 8 * G),
        memory(1, 6 * G, 16 * G),
    ];
    let repaired = apply(ok(&entries), &[(4 * G, 16 * G)], &[], Trust::Repair);
    assert_eq!(repaired.pieces, [(4 * G, 8 * G, 0), (8 * G, 16 * G, 1)]);
    let range = PhysRange::new(6 * G, 8 * G).unwrap();
    assert_eq!(
        repaired.notices,
        [TopologyNotice::Contested {
            range,
            kept: NodeId(0),
            lost: NodeId(1)
        }]
    );

    let strict = apply(ok(&entries), &[(4 * G, 16 * G)], &[], STRICT);
    assert_eq!(strict.pieces, [(4 * G, 16 * G, 0)]);
    assert_eq!(
        strict
            .nodes
            .iter()
            .map(|node| node.cpus)
            .collect::<Vec<_>>(),
        [3]
    );
}

#[test]
fn a_node_that_holds_reserved_memory_cannot_be_unplugged() {
    let entries = [
        memory(0, 0, G),
        window(0, G, 2 * G),
        window(1, 2 * G, 4 * G),
    ];
    let free = apply(ok(&entries), &[(0, 3 * G)], &[], Trust::Repair);
    assert_eq!(free.hotplug, [(G, 2 * G), (2 * G, 3 * G)]);
    let taken = apply(
        ok(&entries),
        &[(0, 3 * G)],
        &[(0, 0x10_0000)],
        Trust::Repair,
    );
    assert_eq!(taken.hotplug, [(2 * G, 3 * G)]);
    let range = PhysRange::new(G, 2 * G).unwrap();
    assert_eq!(
        taken.notices,
        [TopologyNotice::NotRemovable {
            range,
            node: NodeId(0)
        }]
    );
}

#[test]
fn absurd_rows_are_clipped_or_left_out() {
    let entries = [
        memory(0, 0, 2 * G),
        memory(1, 5 * G, 5 * G),
        memory(2, 2 * G, PHYS_END + 5),
        memory(3, u64::MAX - 5, 3), // wraps
        SratEntry::Memory {
            domain: 9,
            base: 0,
            bytes: G,
            enabled: false,
            hotplug: false,
            non_volatile: false,
        },
        SratEntry::Other {
            kind: 77,
            offset: 0,
            bytes: 3,
        },
    ];
    let applied = apply(ok(&entries), &[(0, 3 * G)], &[], Trust::Repair);
    assert_eq!(applied.pieces, [(0, 2 * G, 0), (2 * G, 3 * G, 2)]);
    assert_eq!(applied.nodes.len(), 4);
    assert!(matches!(
        applied.notices[..],
        [
            TopologyNotice::Empty {
                node: NodeId(1),
                ..
            },
            TopologyNotice::Clipped {
                node: NodeId(2),
                ..
            },
            TopologyNotice::Clipped {
                node: NodeId(3),
                ..
            }
        ]
    ));
}

#[test]
fn a_border_inside_a_page_tears_no_frame() {
    // Both rows name the byte 2 GiB + 0x800 as their border.
    let entries = [memory(0, 0, 2 * G + 0x800), memory(1, 2 * G + 0x800, 3 * G)];
    let applied = apply(ok(&entries), &[(0, 3 * G)], &[], Trust::Repair);
    assert_eq!(applied.pieces, [(0, 2 * G, 0), (2 * G, 3 * G, 1)]);
    let unaligned = |notice: &&TopologyNotice| matches!(notice, TopologyNotice::Unaligned { .. });
    assert_eq!(applied.notices.iter().filter(unaligned).count(), 2);
    assert!(
        applied.notices[0]
            .to_string()
            .contains("begins or ends inside a page")
    );
}

#[test]
fn storage_too_small_says_how_much_is_needed() {
    let entries: Vec<_> = (0..6)
        .map(|at| memory(at / 2, u64::from(at) * G, u64::from(at + 1) * G))
        .collect();
    let full = |nodes: &mut [NodeInfo], ranges: &mut [TopologyRange]| {
        let mut builder = TopologyBuilder::new(TopologyStorage { nodes, ranges });
        match add_srat(&mut builder, ok(&entries), &mut |_| {}) {
            Err(TopologyError::Full { part, full }) => Some((part, full.needed)),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    };
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 3], [TopologyRange::EMPTY; 6]);
    assert_eq!(
        full(&mut nodes, &mut ranges[..5]),
        Some((TopologyPart::Ranges, 6))
    );
    assert_eq!(
        full(&mut nodes[..2], &mut ranges),
        Some((TopologyPart::Nodes, 3))
    );
    assert_eq!(full(&mut nodes, &mut ranges), None);
    assert!(Topology::single(&mut [], 1).is_err());
}

/// 512 nodes and 4,096 CPUs: nodes are counted, CPUs leave nothing else behind.
#[test]
fn hundreds_of_nodes_and_thousands_of_cpus() {
    let cpus = (0..4096).map(|at| cpu(1000 - at % 512));
    let rows = (0..512).map(|at| memory(1000 - at, u64::from(at) * G, u64::from(at + 1) * G));
    let (mut nodes, mut ranges) = (vec![NodeInfo::EMPTY; 512], vec![TopologyRange::EMPTY; 512]);
    let mut builder = TopologyBuilder::new(TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    });
    let rows = cpus.chain(rows).map(Ok);
    add_srat(&mut builder, rows, &mut |notice| panic!("{notice}")).unwrap();
    let topology = builder.finish(&mut |notice| panic!("{notice}"));
    assert!(topology.nodes().iter().all(|node| node.cpus == 8));
    assert_eq!(topology.node_of(1000 - 215), Some(NodeId(215)));
    assert_eq!(
        topology.node_at(PhysAddr::new(215 * G + 5)),
        Some(NodeId(215))
    );
}
