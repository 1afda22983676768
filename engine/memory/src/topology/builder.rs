//! From rows in any order to a [`Topology`]: [`TopologyBuilder`].

use crate::addr::{PAGE_BYTES, PHYS_END, PhysRange};
use crate::node::NodeId;
use crate::store::{Full, Store};

use super::domains::Domains;
use super::{NodeInfo, Topology, TopologyError, TopologyNotice, TopologyPart, TopologyRange};

/// The storage of a [`TopologyBuilder`].
#[derive(Debug)]
pub struct TopologyStorage<'s> {
    /// One slot a node.
    pub nodes: &'s mut [NodeInfo],
    /// One slot a row of memory.
    pub ranges: &'s mut [TopologyRange],
}

/// Collects what firmware says about nodes.
///
/// Nodes are numbered as Linux does it: those of an SRAT from 0 as their domains are first named,
/// which is domains of enabled CPUs in the order of the table, then domains that only have
/// memory; those of a device tree have the numbers it gives them.
#[derive(Debug)]
pub struct TopologyBuilder<'s> {
    nodes: Store<'s, NodeInfo>,
    ranges: Store<'s, TopologyRange>,
    domains: Domains,
    /// The node last looked up: rows come in runs of one domain.
    last: usize,
}

impl<'s> TopologyBuilder<'s> {
    /// No nodes yet, in `storage`.
    pub fn new(storage: TopologyStorage<'s>) -> Self {
        Self {
            nodes: Store::new(storage.nodes),
            ranges: Store::new(storage.ranges),
            domains: Domains::default(),
            last: 0,
        }
    }

    /// Whether no node has been named yet.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of proximity domain `domain`; a new one when the domain is new.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when there is no slot for another node.
    pub fn node_of(&mut self, domain: u32) -> Result<NodeId, TopologyError> {
        let is_it = |node: &NodeInfo| node.domain == Some(domain);
        if !self.nodes.get(self.last).is_some_and(is_it) {
            self.last = match self.domains.find(&self.nodes, domain) {
                Some(at) => at,
                None => {
                    let node = self.push_node()?;
                    self.domains.name(&mut self.nodes, node, domain);
                    usize::from(node.0)
                }
            };
        }
        Ok(number(self.last))
    }

    /// Makes node `node` domain `domain`, for rows whose node numbers are known; lower
    /// numbers without a domain become empty nodes.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when there is no slot for that many nodes.
    pub fn pin(&mut self, node: NodeId, domain: u32) -> Result<(), TopologyError> {
        let at = usize::from(node.0);
        if at >= self.nodes.capacity() {
            let full = Full {
                capacity: self.nodes.capacity(),
                needed: at + 1,
            };
            return Err(TopologyError::Full {
                part: TopologyPart::Nodes,
                full,
            });
        }
        while self.nodes.len() <= at {
            self.push_node()?;
        }
        self.domains.name(&mut self.nodes, node, domain);
        Ok(())
    }

    fn push_node(&mut self) -> Result<NodeId, TopologyError> {
        let at = self.nodes.len();
        let most = usize::from(u16::MAX) + 1;
        let pushed = if self.nodes.len() < most {
            self.nodes.push(NodeInfo::EMPTY)
        } else {
            Err(Full {
                capacity: most,
                needed: most + 1,
            })
        };
        match pushed {
            Ok(()) => Ok(number(at)),
            Err(full) => Err(TopologyError::Full {
                part: TopologyPart::Nodes,
                full,
            }),
        }
    }

    /// Counts `count` CPUs on `node`.
    pub fn add_cpus(&mut self, node: NodeId, count: u32) {
        if let Some(info) = self.nodes.get_mut(usize::from(node.0)) {
            info.cpus = info.cpus.saturating_add(count);
        }
    }

    /// Puts `range` on `node`, which [`Self::node_of`] or [`Self::pin`] named.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when there is no slot for another range.
    pub fn add_memory(
        &mut self,
        node: NodeId,
        range: PhysRange,
        hotplug: bool,
    ) -> Result<(), TopologyError> {
        let pushed = self.ranges.push(TopologyRange {
            range,
            node,
            hotplug,
        });
        pushed.map_err(|full| TopologyError::Full {
            part: TopologyPart::Ranges,
            full,
        })
    }

    /// Puts a row of a table on `node`: those of its bytes that physical addresses reach. Another
    /// row is reported.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when there is no slot for another range.
    pub fn add_row(
        &mut self,
        node: NodeId,
        start: u64,
        bytes: u64,
        hotplug: bool,
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        match checked(node, start, bytes, report) {
            Some(range) => self.add_memory(node, range, hotplug),
            None => Ok(()),
        }
    }

    /// Whether there are slots for `rows` more ranges.
    ///
    /// # Errors
    /// [`TopologyError::Full`] says how many are needed for all.
    pub fn must_fit(&self, rows: usize) -> Result<(), TopologyError> {
        let capacity = self.ranges.capacity();
        let needed = self.ranges.len() + rows;
        if needed <= capacity {
            return Ok(());
        }
        Err(TopologyError::Full {
            part: TopologyPart::Ranges,
            full: Full { capacity, needed },
        })
    }

    /// Moves borders inside a page frame down to its start, so that every frame is of
    /// one node, then sorts the ranges and resolves overlaps: the bytes stay with the
    /// range that starts lower.
    pub fn finish(mut self, report: &mut dyn FnMut(TopologyNotice)) -> Topology<'s> {
        if self.nodes.is_empty() {
            // Without any row there is one node, if there is a slot for it.
            let _ = self.push_node();
        }
        let ranges = self.ranges.into_slice();
        for row in ranges.iter_mut() {
            row.range = whole_frames(*row, report);
        }
        ranges.sort_unstable_by_key(|row| (row.range.start(), row.node, row.range.end()));
        let (kept, contested) = resolve_overlaps(ranges, report);
        let ranges = ranges.get_mut(..kept).unwrap_or_default();
        Topology {
            nodes: self.nodes.into_slice(),
            domains: self.domains,
            ranges,
            distances: &mut [],
            contested,
        }
    }
}

/// The number of the node at `at`: never more than 2^16 are pushed.
fn number(at: usize) -> NodeId {
    NodeId(u16::try_from(at).unwrap_or(u16::MAX))
}

/// The bytes of a firmware row that physical addresses reach, if any.
fn checked(
    node: NodeId,
    start: u64,
    bytes: u64,
    report: &mut dyn FnMut(TopologyNotice),
) -> Option<PhysRange> {
    if bytes == 0 {
        report(TopologyNotice::Empty { node, start });
        return None;
    }
    let end = start.checked_add(bytes).filter(|&end| end <= PHYS_END);
    if end.is_none() {
        report(TopologyNotice::Clipped { node, start, bytes });
    }
    PhysRange::new(start, end.unwrap_or(PHYS_END)).filter(|range| !range.is_empty())
}

/// The row's range with both ends at page frames. Both round the same way, so that
/// of two rows that meet inside a frame one gets all of it.
fn whole_frames(row: TopologyRange, report: &mut dyn FnMut(TopologyNotice)) -> PhysRange {
    let (start, end) = (row.range.start(), row.range.end());
    let (from, to) = (start.align_down(PAGE_BYTES), end.align_down(PAGE_BYTES));
    if (from, to) != (start, end) {
        report(TopologyNotice::Unaligned {
            node: row.node,
            range: row.range,
        });
    }
    PhysRange::new(from.get(), to.get()).unwrap_or_default()
}

/// Makes sorted ranges disjoint, in place; how many are left, and whether
/// two nodes claimed the same bytes.
fn resolve_overlaps(
    ranges: &mut [TopologyRange],
    report: &mut dyn FnMut(TopologyNotice),
) -> (usize, bool) {
    let mut kept = 0;
    let mut contested = false;
    // Where the ranges kept so far end. They leave no gap above the start of any row to come.
    let mut end = 0;
    for at in 0..ranges.len() {
        let Some(mut row) = ranges.get(at).copied() else {
            break;
        };
        if !row.range.is_empty() && row.range.start().get() < end {
            let below = ranges.get(..kept).unwrap_or_default();
            let first = below.partition_point(|other| other.range.end() <= row.range.start());
            let behind = below.partition_point(|other| other.range.start() < row.range.end());
            let met = below.get(first..behind).unwrap_or_default();
            // Of many the lowest and the highest are reported. Where they are of several
            // nodes, those have met before.
            let highest = met.last().filter(|_| met.len() > 1);
            for other in met.first().into_iter().chain(highest) {
                let range = row.range.intersect(other.range);
                let (kept, lost) = (other.node, row.node);
                report(if kept == lost {
                    TopologyNotice::Repeated { range, node: kept }
                } else {
                    contested = true;
                    TopologyNotice::Contested { range, kept, lost }
                });
            }
            row.range = PhysRange::new(end, row.range.end().get()).unwrap_or_default();
        }
        if row.range.is_empty() {
            continue;
        }
        if let Some(slot) = ranges.get_mut(kept) {
            *slot = row;
            kept += 1;
        }
        end = row.range.end().get();
    }
    (kept, contested)
}
