//! How far nodes are from each other: from a SLIT, a device tree, or a function.

use crate::firmware::acpi::{Slit, SlitFault};
use crate::firmware::fdt::{Fdt, FdtDistance};
use crate::store::Full;

use super::{
    LOCAL_DISTANCE, REMOTE_DISTANCE, Topology, TopologyError, TopologyNotice, TopologyPart,
};

impl<'s> Topology<'s> {
    /// Takes the distances from a SLIT, unless one of them is impossible: then the
    /// defaults stay for all. Domains past its last locality get the defaults.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_slit(
        &mut self,
        slit: &Slit<'_>,
        storage: &'s mut [u8],
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        if let Some(fault) = slit_fault(slit) {
            let used = matches!(fault, SlitFault::Asymmetric { .. });
            report(TopologyNotice::Slit { fault, used });
            if !used {
                return Ok(());
            }
        }
        let domain = |node: usize| usize::try_from(self.nodes.get(node)?.domain?).ok();
        let known = |from: usize, to: usize| slit.distance(domain(from)?, domain(to)?);
        self.distances = square(self.nodes.len(), storage, known)?;
        Ok(())
    }

    /// Takes the distances from a device tree's map; an impossible
    /// row is left out. A row holds for the way back too, unless another row gives that.
    ///
    /// # Errors
    /// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
    pub fn set_tree_distances(
        &mut self,
        tree: &Fdt<'_>,
        storage: &'s mut [u8],
        report: &mut dyn FnMut(TopologyNotice),
    ) -> Result<(), TopologyError> {
        let side = self.nodes.len();
        let matrix = square(side, storage, |_, _| None)?;
        for mirrored in [true, false] {
            for row in tree.distances() {
                let row = match row {
                    Ok(row) => row,
                    Err(error) => {
                        if mirrored {
                            report(TopologyNotice::Tree { error });
                        }
                        continue;
                    }
                };
                let (from, to) = if mirrored {
                    (row.to, row.from)
                } else {
                    (row.from, row.to)
                };
                let nodes = self.node_of(from).zip(self.node_of(to));
                match (nodes, tree_distance(&row)) {
                    (Some((from, to)), Some(distance)) => {
                        let at = usize::from(from.0) * side + usize::from(to.0);
                        if let Some(slot) = matrix.get_mut(at) {
                            *slot = distance;
                        }
                    }
                    _ if mirrored => report(TopologyNotice::TreeDistance { row }),
                    _ => {}
                }
            }
        }
        self.distances = matrix;
        Ok(())
    }

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
}

/// The first fault that makes a SLIT unusable, else the first that does not.
/// Of a distance to another locality, 10 is as impossible as less: it means "local".
fn slit_fault(slit: &Slit<'_>) -> Option<SlitFault> {
    let grave = slit
        .faults()
        .find(|fault| !matches!(fault, SlitFault::Asymmetric { .. }));
    let side = slit.localities();
    let zero_way = || {
        let pairs = (0..side).flat_map(|from| (0..side).map(move |to| (from, to)));
        let mut pairs = pairs.filter(|(from, to)| from != to);
        let (from, to) =
            pairs.find(|&(from, to)| slit.distance(from, to) == Some(LOCAL_DISTANCE))?;
        Some(SlitFault::BelowLocal {
            from,
            to,
            seen: LOCAL_DISTANCE,
        })
    };
    grave.or_else(zero_way).or_else(|| slit.faults().next())
}

/// A row's distance, if it is possible.
fn tree_distance(row: &FdtDistance) -> Option<u8> {
    let distance = u8::try_from(row.distance).ok()?;
    let local = distance == LOCAL_DISTANCE;
    (distance >= LOCAL_DISTANCE && local == (row.from == row.to)).then_some(distance)
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
