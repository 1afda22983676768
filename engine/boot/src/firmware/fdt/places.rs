//! Memory and CPUs of a tree: their places and NUMA nodes.

use core::iter::{Chain, Flatten};
use core::option::IntoIter;

use super::error::FdtError;
use super::node::{Node, Pairs};
use super::walk::Roles;
use super::{Fdt, RESERVATION_BYTES};
use crate::firmware::bytes::{u32_be, u64_be};

/// A range of memory, unchecked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdtMemory {
    /// First byte.
    pub start: u64,
    /// Length in bytes; start plus length may wrap.
    pub bytes: u64,
    /// `numa-node-id`, if given.
    pub node: Option<u32>,
    /// Whether memory may come and go here.
    pub hotpluggable: bool,
}

/// Where a reservation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// At an address.
    Fixed {
        /// First byte.
        start: u64,
        /// Length in bytes; start plus length may wrap.
        bytes: u64,
    },
    /// Anywhere in memory.
    Anywhere {
        /// Length in bytes.
        bytes: u64,
        /// Alignment in bytes, if given; not checked.
        align: Option<u64>,
    },
}

/// Memory that is taken, or that is not to be touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdtReserved<'a> {
    /// The node's name; empty in the reservation block.
    pub name: &'a [u8],
    /// Where.
    pub placement: Placement,
    /// The kernel must not even map it.
    pub no_map: bool,
    /// The kernel may use it for what can be moved away.
    pub reusable: bool,
}

/// A processor, or one thread of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdtCpu {
    /// Hardware id.
    pub id: u64,
    /// `numa-node-id`, if given.
    pub node: Option<u32>,
    /// Whether its status is okay; if not, it may be startable all the same.
    pub enabled: bool,
}

/// A row of the distance map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdtDistance {
    /// From this NUMA node
    pub from: u32,
    /// to this one.
    pub to: u32,
    /// Relative distance; 10 is local.
    pub distance: u32,
}

/// What a node with (address, size) pairs yields: they, or why it cannot.
type Spread<'a> = Chain<IntoIter<Result<(u64, u64), FdtError>>, Flatten<IntoIter<Pairs<'a>>>>;

fn spread<'a>(pairs: Result<Pairs<'a>, FdtError>) -> Spread<'a> {
    let (error, pairs) = match pairs {
        Ok(pairs) => (None, Some(pairs)),
        Err(error) => (Some(Err(error)), None),
    };
    error.into_iter().chain(pairs.into_iter().flatten())
}

impl<'a> Fdt<'a> {
    /// The memory nodes' ranges, in the tree's order; disabled nodes are left
    /// out. After an error the others still come.
    pub fn memory(&self) -> impl Iterator<Item = Result<FdtMemory, FdtError>> + Clone + use<'a> {
        self.located_memory().map(|(_, memory)| memory)
    }

    /// The memory nodes' ranges, as [`Self::memory`], with where the node is.
    pub(crate) fn located_memory(
        &self,
    ) -> impl Iterator<Item = (usize, Result<FdtMemory, FdtError>)> + Clone + use<'a> {
        let nodes = self.nodes_for(Roles::MEMORY).filter(Node::enabled);
        nodes.flat_map(|node| {
            let offset = node.offset();
            let hotpluggable = node.property("hotpluggable").is_some();
            let id = node.number("numa-node-id");
            // A crash kernel's memory is named beside the machine's.
            let pairs = ["linux,usable-memory", "reg"]
                .into_iter()
                .find_map(|property| Some(node.pairs(property, node.property(property)?, true)))
                .ok_or(FdtError::Missing {
                    node: node.offset(),
                    property: "reg",
                });
            spread(id.and(pairs)).map(move |pair| {
                let memory = pair.and_then(|(start, bytes)| {
                    Ok(FdtMemory {
                        start,
                        bytes,
                        node: id?,
                        hotpluggable,
                    })
                });
                (offset, memory)
            })
        })
    }

    /// The reservation block, then the enabled children of `/reserved-memory`.
    pub fn reserved(
        &self,
    ) -> impl Iterator<Item = Result<FdtReserved<'a>, FdtError>> + Clone + use<'a> {
        let block = self
            .reservations
            .chunks_exact(RESERVATION_BYTES)
            .filter_map(|entry| {
                let placement = Placement::Fixed {
                    start: u64_be(entry, 0)?,
                    bytes: u64_be(entry, 8)?,
                };
                Some(Ok(FdtReserved {
                    name: &[],
                    placement,
                    no_map: false,
                    reusable: false,
                }))
            });
        let children = self.nodes_for(Roles::RESERVED).filter(Node::enabled);
        block.chain(children.flat_map(|node| {
            let name = node.name();
            let (no_map, reusable) = (
                node.property("no-map").is_some(),
                node.property("reusable").is_some(),
            );
            let fixed = node
                .property("reg")
                .map(|value| node.pairs("reg", value, true));
            let anywhere = if fixed.is_none() {
                Some(anywhere(&node))
            } else {
                None
            };
            let fixed = fixed.into_iter().flatten();
            let fixed =
                fixed.map(|pair| pair.map(|(start, bytes)| Placement::Fixed { start, bytes }));
            let all = fixed.chain(anywhere);
            all.map(move |placement| {
                Ok(FdtReserved {
                    name,
                    placement: placement?,
                    no_map,
                    reusable,
                })
            })
        }))
    }

    /// The CPUs, one for each id a CPU node has, in the tree's order.
    pub fn cpus(&self) -> impl Iterator<Item = Result<FdtCpu, FdtError>> + Clone + use<'a> {
        self.located_cpus().map(|(_, cpu)| cpu)
    }

    /// The CPUs, as [`Self::cpus`], with where the node is.
    pub(crate) fn located_cpus(
        &self,
    ) -> impl Iterator<Item = (usize, Result<FdtCpu, FdtError>)> + Clone + use<'a> {
        self.nodes_for(Roles::CPU).flat_map(|node| {
            let offset = node.offset();
            let enabled = node.enabled();
            let id = node.number("numa-node-id");
            let pairs = node
                .property("reg")
                .map(|value| node.pairs("reg", value, false));
            let pairs = pairs.ok_or(FdtError::Missing {
                node: node.offset(),
                property: "reg",
            });
            spread(id.and(pairs)).map(move |pair| {
                let cpu = pair.and_then(|(cpu, _)| {
                    Ok(FdtCpu {
                        id: cpu,
                        node: id?,
                        enabled,
                    })
                });
                (offset, cpu)
            })
        })
    }

    /// The distance map's rows; nothing when there is no map.
    pub fn distances(
        &self,
    ) -> impl Iterator<Item = Result<FdtDistance, FdtError>> + Clone + use<'a> {
        self.nodes_for(Roles::DISTANCES).flat_map(|node| {
            let property = "distance-matrix";
            let matrix = node.property(property).unwrap_or_default();
            let rows = matrix.chunks_exact(12);
            let cut = (!rows.remainder().is_empty() || matrix.is_empty()).then_some(Err(
                FdtError::PropertySize {
                    node: node.offset(),
                    property,
                    seen_bytes: matrix.len(),
                    unit_bytes: 12,
                },
            ));
            let row = |row| {
                Some(Ok(FdtDistance {
                    from: u32_be(row, 0)?,
                    to: u32_be(row, 4)?,
                    distance: u32_be(row, 8)?,
                }))
            };
            rows.filter_map(row).chain(cut)
        })
    }
}

/// A reservation that names a size and leaves the place open.
fn anywhere(node: &Node<'_>) -> Result<Placement, FdtError> {
    let property = "size";
    let missing = FdtError::Missing {
        node: node.offset(),
        property,
    };
    let bytes = node.size_of(property)?.ok_or(missing)?;
    Ok(Placement::Anywhere {
        bytes,
        align: node.size_of("alignment")?,
    })
}
