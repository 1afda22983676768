//! Random rows: every byte gets a node.

use crate::layout_topology::{STRICT, apply, cpu, memory, ok};
use firstlight::addr::{PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::firmware::acpi::SratEntry;
use firstlight::node::NodeId;
use firstlight::start::{BootSlots, BootStorage};
use firstlight::topology::{TopologyBuilder, TopologyNotice, Trust};
use proptest::prelude::*;

fn entry() -> impl Strategy<Value = SratEntry> {
    let address = prop_oneof![
        8 => (0..64u64).prop_map(|at| at << 28),
        1 => any::<u64>(),
        1 => (0..64u64).prop_map(|at| (at << 28) + 0xfff),
    ];
    let row = (
        0..6u32,
        address,
        prop_oneof![4 => (0..20u64).prop_map(|n| n << 28), 1 => any::<u64>()],
        any::<bool>(),
    );
    prop_oneof![
        1 => (0..8u32).prop_map(cpu),
        3 => row.prop_map(|(domain, base, bytes, hotplug)| SratEntry::Memory {
            domain, base, bytes, enabled: true, hotplug, non_volatile: false,
        }),
    ]
}

proptest! {
    /// Whatever the table says: every byte of memory gets one node that exists, and none is lost.
    #[test]
    fn every_byte_gets_a_node(
        entries in prop::collection::vec(entry(), 0..12),
        rows in prop::collection::vec((0..64u64, 1..8u64), 1..10),
        strict in any::<bool>(),
    ) {
        let rows: Vec<_> = rows.into_iter().map(|(start, len)| (start << 28, (start + len) << 28)).collect();
        let trust = if strict { STRICT } else { Trust::Repair };
        let applied = apply(ok(&entries), &rows, &[(0, PAGE_BYTES)], trust);
        let mut at = 0;
        for &(start, end, node) in &applied.pieces {
            prop_assert!(at <= start && start < end);
            prop_assert!(usize::from(node) < applied.nodes.len());
            at = end;
        }
        let covered = |addr: u64| rows.iter().any(|row| row.0 <= addr && addr < row.1);
        for block in 0..80u64 {
            let addr = (block << 28) + 5;
            let held = applied.pieces.iter().filter(|piece| piece.0 <= addr && addr < piece.1).count();
            prop_assert_eq!(held, usize::from(covered(addr)));
        }
        // Where exactly one node lists a whole block, and nothing was wrong, it is that node's.
        if applied.notices.is_empty() {
            for entry in &entries {
                if let &SratEntry::Memory { domain, base, bytes, .. } = entry {
                    let node = applied.nodes.iter().position(|info| info.domain == Some(domain)).unwrap();
                    for piece in &applied.pieces {
                        let inside = base <= piece.0 && piece.1 <= base + bytes;
                        prop_assert!(!inside || usize::from(piece.2) == node);
                    }
                }
            }
        }
        for notice in applied.notices {
            prop_assert!(!notice.to_string().is_empty());
        }
    }
}

proptest! {
    /// However rows overlap, ranges ascend and are disjoint, and a byte is of the row that
    /// starts lowest of those that have it; of two nodes that claim a byte one is reported.
    #[test]
    fn overlapping_rows_become_disjoint_ranges(
        rows in prop::collection::vec((0..4u16, 0..24u64, 1..16u64), 1..12),
    ) {
        let mut storage = BootStorage::<16, 4>::EMPTY;
        let mut builder = TopologyBuilder::new(BootSlots::from(&mut storage).topology);
        for node in 0..4 {
            builder.pin(NodeId(node), node.into()).unwrap();
        }
        for &(node, start, pages) in &rows {
            let range = PhysRange::new(start * PAGE_BYTES, (start + pages) * PAGE_BYTES).unwrap();
            builder.add_memory(NodeId(node), range, false).unwrap();
        }
        let mut contested = false;
        let topology = builder.finish(&mut |notice| {
            contested |= matches!(notice, TopologyNotice::Contested { .. });
        });
        let mut end = 0;
        for row in topology.ranges() {
            prop_assert!(end <= row.range.start().get() && !row.range.is_empty());
            end = row.range.end().get();
        }
        let mut claimed_twice = false;
        for page in 0..40u64 {
            let has = |row: &&(u16, u64, u64)| (row.1..row.1 + row.2).contains(&page);
            let claims: Vec<_> = rows.iter().filter(has).collect();
            let lowest = claims.iter().map(|row| row.1).min();
            let node = topology.node_at(PhysAddr::new(page * PAGE_BYTES));
            prop_assert_eq!(node.is_some(), lowest.is_some());
            claimed_twice |= claims.iter().any(|row| row.0 != claims[0].0);
            // Rows that start together may be of several nodes.
            let owners = claims.iter().filter(|row| Some(row.1) == lowest);
            let owners: Vec<_> = owners.map(|row| NodeId(row.0)).collect();
            prop_assert!(node.is_none_or(|node| owners.contains(&node)), "{:?} {:?}", node, claims);
        }
        prop_assert_eq!(contested, claimed_twice);
    }
}

#[test]
fn every_range_without_a_node_gets_one() {
    // Pieces 0, 1, 2, ... of a page each; pieces 3, 4 and 5 touch. Nodes have 2, 5 and 9.
    let piece = |at: u64| {
        let start = at * 0x10_0000;
        (
            start,
            if (3..5).contains(&at) {
                start + 0x10_0000
            } else {
                start + PAGE_BYTES
            },
        )
    };
    let pieces: Vec<_> = (0..12).map(piece).collect();
    let node_row = |node, at| {
        let (start, end) = piece(at);
        memory(node, start, end)
    };
    let rows = [node_row(0, 2), node_row(1, 5), node_row(0, 9)];
    let applied = apply(rows.into_iter().map(Ok), &pieces, &[], Trust::Repair);
    let nodes: Vec<_> = (0..12)
        .map(|at| {
            let (start, end) = piece(at);
            let holds = |piece: &&(u64, u64, u16)| piece.0 <= start && end <= piece.1;
            applied.pieces.iter().find(holds).unwrap().2
        })
        .collect();
    assert_eq!(nodes, [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0]);
}
