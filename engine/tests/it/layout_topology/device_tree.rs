//! Nodes and distances of a device tree.

use crate::fdt_blob;
use firstlight::firmware::fdt::Fdt;
use firstlight::node::NodeId;
use firstlight::topology::{
    NodeInfo, TopologyBuilder, TopologyError, TopologyRange, TopologyStorage, add_tree,
    set_tree_distances,
};

#[test]
fn nodes_of_a_device_tree() {
    let blob = fdt_blob::virt();
    let tree = Fdt::parse(&blob).unwrap();
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 2], [TopologyRange::EMPTY; 2]);
    let storage = TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    };
    let mut builder = TopologyBuilder::new(storage);
    add_tree(&mut builder, &tree, &mut |notice| panic!("{notice}")).unwrap();
    let mut topology = builder.finish(&mut |notice| panic!("{notice}"));
    let mut distances = [0; 4];
    set_tree_distances(&mut topology, &tree, &mut distances, &mut |notice| {
        panic!("{notice}")
    })
    .unwrap();
    assert_eq!(
        topology
            .nodes()
            .iter()
            .map(|node| node.cpus)
            .collect::<Vec<_>>(),
        [1, 1]
    );
    let rows: Vec<_> = topology
        .ranges()
        .iter()
        .map(|row| (row.range.start().get(), row.node.0, row.hotplug))
        .collect();
    assert_eq!(rows, [(0x4000_0000, 0, false), (0x8000_0000, 1, true)]);
    // The tree states one direction only.
    assert_eq!(topology.distance(NodeId(1), NodeId(0)), 20);
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 2], [TopologyRange::EMPTY; 1]);
    let storage = TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    };
    let mut builder = TopologyBuilder::new(storage);
    let full = add_tree(&mut builder, &tree, &mut |_| {}).unwrap_err();
    assert_eq!(
        full.to_string(),
        "topology ranges: storage for 1 entries is too small: 2 are needed"
    );
}

#[test]
fn distances_of_a_device_tree() {
    let rows: [u32; 18] = [5, 5, 10, 5, 7, 31, 7, 9, 41, 9, 7, 42, 5, 9, 10, 6, 5, 30];
    let matrix: Vec<u8> = rows.iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut blob = fdt_blob::Blob::new();
    blob.begin("").begin("distance-map");
    blob.property("compatible", b"numa-distance-map-v1\0")
        .property("distance-matrix", &matrix);
    blob.end().end();
    let blob = blob.finish();
    let tree = Fdt::parse(&blob).unwrap();
    let mut nodes = [NodeInfo::EMPTY; 3];
    let mut builder = TopologyBuilder::new(TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut [],
    });
    for domain in [5, 7, 9] {
        builder.node_of(domain).unwrap();
    }
    let mut topology = builder.finish(&mut |_| {});
    let (mut distances, mut left_out) = ([0; 9], Vec::new());
    set_tree_distances(&mut topology, &tree, &mut distances, &mut |notice| {
        left_out.push(notice.to_string());
    })
    .unwrap();
    let row = |from| [0, 1, 2].map(|to| topology.distance(NodeId(from), NodeId(to)));
    assert_eq!(
        [row(0), row(1), row(2)],
        [[10, 31, 20], [31, 10, 41], [20, 42, 10]]
    );
    assert_eq!(
        left_out,
        [
            "device tree: distance 10 from node 5 to node 9 left out", // only a node itself is as near
            "device tree: distance 30 from node 6 to node 5 left out", // there is no node 6
        ]
    );
}

/// Nodes, each with its number and CPUs; the nodes of ranges; what was reported.
type Read = (Vec<(Option<u32>, u32)>, Vec<u16>, Vec<String>);

/// What is read of CPUs and memory with these `numa-node-id`s, with so many slots for nodes.
fn numbered(
    cpus: &[Option<u32>],
    memory: &[Option<u32>],
    slots: usize,
) -> Result<Read, TopologyError> {
    let mut blob = fdt_blob::Blob::new();
    blob.begin("").begin("cpus");
    blob.cells("#address-cells", &[1])
        .cells("#size-cells", &[0]);
    for (at, id) in (0u32..).zip(cpus) {
        blob.begin(&format!("cpu@{at:x}")).cells("reg", &[at]);
        if let Some(id) = id {
            blob.cells("numa-node-id", &[*id]);
        }
        blob.end();
    }
    blob.end();
    for (at, id) in (1u32..).zip(memory) {
        blob.begin(&format!("memory@{at:x}"));
        blob.cells("reg", &[at, 0, 1 << 20]);
        if let Some(id) = id {
            blob.cells("numa-node-id", &[*id]);
        }
        blob.end();
    }
    let blob = blob.end().finish();
    let tree = Fdt::parse(&blob).unwrap();
    let (mut nodes, mut ranges) = (vec![NodeInfo::EMPTY; slots], [TopologyRange::EMPTY; 8]);
    let mut builder = TopologyBuilder::new(TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    });
    let mut said = Vec::new();
    add_tree(&mut builder, &tree, &mut |notice| {
        said.push(notice.to_string());
    })?;
    let topology = builder.finish(&mut |notice| panic!("{notice}"));
    let nodes = topology.nodes().iter().map(|node| (node.domain, node.cpus));
    let ranges = topology.ranges().iter().map(|row| row.node.0);
    Ok((nodes.collect(), ranges.collect(), said))
}

#[test]
fn nodes_have_the_numbers_the_tree_gives_them() {
    let (nodes, ranges, said) = numbered(&[Some(2), Some(0)], &[Some(3), Some(0)], 4).unwrap();
    // Nothing is on node 1, and CPUs come before memory, but neither moves a number.
    assert_eq!(nodes, [(Some(0), 1), (None, 0), (Some(2), 1), (Some(3), 0)]);
    assert_eq!(ranges, [3, 0]);
    assert_eq!(said, [""; 0]);

    let (nodes, ranges, _) = numbered(&[None, Some(1)], &[None, Some(1)], 4).unwrap();
    assert_eq!(nodes, [(None, 1), (Some(1), 1)]);
    assert_eq!(ranges, [1]);
    let (nodes, ..) = numbered(&[None], &[None], 4).unwrap();
    assert_eq!(nodes, [(Some(0), 1)]);
}

#[test]
fn a_node_number_without_a_slot_is_an_error_and_an_impossible_one_is_none() {
    let error = numbered(&[Some(0)], &[Some(4)], 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "topology nodes: storage for 4 entries is too small: 5 are needed"
    );
    for id in [1 << 16, u32::MAX] {
        let (nodes, ranges, said) = numbered(&[Some(id)], &[Some(id), Some(0)], 4).unwrap();
        assert_eq!(nodes, [(Some(0), 1)]);
        assert_eq!(ranges, [0]);
        assert_eq!(said.len(), 2);
        assert!(said[0].ends_with("numa-node-id is too large"), "{said:?}");
    }
}
