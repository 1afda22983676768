//! How far nodes are from each other.

use crate::node::NodeId;
use crate::store::Full;

use super::{LOCAL_DISTANCE, REMOTE_DISTANCE, Topology, TopologyError, TopologyPart};

impl<'s> Topology<'s> {
    /// Takes the distances from a function of two node numbers; `None` keeps the default.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_distances(
        &mut self,
        storage: &'s mut [u8],
        distance: impl Fn(usize, usize) -> Option<u8>,
    ) -> Result<(), TopologyError> {
        self.distances = square(self.nodes.len(), storage, distance)?;
        Ok(())
    }

    /// Takes the distances from a function of two proximity domains; `None` keeps the default.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_domain_distances(
        &mut self,
        storage: &'s mut [u8],
        distance: impl Fn(u32, u32) -> Option<u8>,
    ) -> Result<(), TopologyError> {
        let domain = |node: usize| self.nodes.get(node)?.domain;
        let known = |from: usize, to: usize| distance(domain(from)?, domain(to)?);
        self.distances = square(self.nodes.len(), storage, known)?;
        Ok(())
    }

    /// Sets the distance from one node to another, one way; without a table, or such nodes, nothing.
    pub fn set_distance(&mut self, from: NodeId, to: NodeId, distance: u8) {
        let side = self.nodes.len();
        let (from, to) = (usize::from(from.0), usize::from(to.0));
        if to >= side {
            return;
        }
        if let Some(slot) = self.distances.get_mut(from * side + to) {
            *slot = distance;
        }
    }
}

/// Fills a square of `side` nodes, row by row.
fn square(
    side: usize,
    storage: &mut [u8],
    distance: impl Fn(usize, usize) -> Option<u8>,
) -> Result<&mut [u8], TopologyError> {
    let capacity = storage.len();
    let needed = side.saturating_mul(side);
    let Some(matrix) = storage.get_mut(..needed) else {
        let full = Full { capacity, needed };
        return Err(TopologyError::Full {
            part: TopologyPart::Distances,
            full,
        });
    };
    for (at, slot) in matrix.iter_mut().enumerate() {
        let (row, column) = (at / side, at % side);
        let default = if row == column {
            LOCAL_DISTANCE
        } else {
            REMOTE_DISTANCE
        };
        *slot = distance(row, column).unwrap_or(default);
    }
    Ok(matrix)
}
