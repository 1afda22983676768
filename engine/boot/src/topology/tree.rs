//! Nodes and their distances from a flattened device tree.

use super::{LOCAL_DISTANCE, TableNotice, Topology, TopologyBuilder, TopologyError};
use crate::firmware::fdt::{Fdt, FdtDistance, FdtError};
use crate::node::NodeId;

/// Reads the `numa-node-id` of CPUs and memory in a device tree. These are the nodes'
/// numbers, as Linux takes them; numbers that are left out become empty nodes. CPUs that are on
/// no node are counted on node 0; memory that is on none is left to
/// [`Topology::apply`]. A number from 65,536 on is reported and
/// taken as none.
///
/// # Errors
/// [`TopologyError::Full`] when a store is too small: for nodes it says how many the
/// number at hand needs, for ranges how many the whole tree needs.
pub fn add_tree(
    builder: &mut TopologyBuilder<'_>,
    tree: &Fdt<'_>,
    report: &mut dyn FnMut(TableNotice),
) -> Result<(), TopologyError> {
    let mut without_node = 0;
    for (at, cpu) in tree.located_cpus() {
        match cpu {
            Ok(cpu) if !cpu.enabled => {}
            Ok(cpu) => match numbered(builder, at, cpu.node, report)? {
                Some(node) => builder.add_cpus(node, 1),
                None => without_node += 1,
            },
            Err(error) => report(TableNotice::Tree { error }),
        }
    }
    let rows = tree
        .memory()
        .flatten()
        .filter(|row| row.node.is_some_and(|id| u16::try_from(id).is_ok()))
        .count();
    builder.must_fit(rows)?;
    for (at, row) in tree.located_memory() {
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                report(TableNotice::Tree { error });
                continue;
            }
        };
        let Some(node) = numbered(builder, at, row.node, report)? else {
            continue;
        };
        let seen = &mut |seen| report(TableNotice::Row(seen));
        builder.add_row(node, row.start, row.bytes, row.hotpluggable, seen)?;
    }
    if without_node > 0 {
        if builder.is_empty() {
            builder.pin(NodeId(0), 0)?;
        }
        builder.add_cpus(NodeId(0), without_node);
    }
    Ok(())
}

/// The node with the number `id`, which the tree's node at `at` gives.
fn numbered(
    builder: &mut TopologyBuilder<'_>,
    at: usize,
    id: Option<u32>,
    report: &mut dyn FnMut(TableNotice),
) -> Result<Option<NodeId>, TopologyError> {
    let Some(id) = id else { return Ok(None) };
    let Ok(number) = u16::try_from(id) else {
        let error = FdtError::TooWide {
            node: at,
            property: "numa-node-id",
        };
        report(TableNotice::Tree { error });
        return Ok(None);
    };
    let node = NodeId(number);
    builder.pin(node, id)?;
    Ok(Some(node))
}

/// Takes the distances from a device tree's map; an impossible
/// row is left out. A row holds for the way back too, unless another row gives that.
///
/// # Errors
/// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
pub fn set_tree_distances<'s>(
    topology: &mut Topology<'s>,
    tree: &Fdt<'_>,
    storage: &'s mut [u8],
    report: &mut dyn FnMut(TableNotice),
) -> Result<(), TopologyError> {
    topology.set_distances(storage, |_, _| None)?;
    for mirrored in [true, false] {
        for row in tree.distances() {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    if mirrored {
                        report(TableNotice::Tree { error });
                    }
                    continue;
                }
            };
            let (from, to) = if mirrored {
                (row.to, row.from)
            } else {
                (row.from, row.to)
            };
            let nodes = topology.node_of(from).zip(topology.node_of(to));
            match (nodes, tree_distance(&row)) {
                (Some((from, to)), Some(distance)) => topology.set_distance(from, to, distance),
                _ if mirrored => report(TableNotice::TreeDistance { row }),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A row's distance, if it is possible.
fn tree_distance(row: &FdtDistance) -> Option<u8> {
    let distance = u8::try_from(row.distance).ok()?;
    let local = distance == LOCAL_DISTANCE;
    (distance >= LOCAL_DISTANCE && local == (row.from == row.to)).then_some(distance)
}
