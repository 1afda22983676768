//! Which memory is on which node: [`NodeTables`], and those of ACPI and device trees.
#![deny(unsafe_code)]

use core::fmt::Display;

use crate::addr::{PHYS_END, PhysRange};
use crate::early::{EarlyError, EarlyMemory};
use crate::firmware::acpi::{AcpiError, Slit, Srat};
use crate::firmware::fdt::{Fdt, Placement};
use crate::topology::{Topology, TopologyBuilder, TopologyError, TopologyStorage};
use crate::topology::{add_srat, add_tree, set_slit, set_tree_distances};

/// Tables that name nodes. [`OneNode`], [`AcpiNodes`] and [`TreeNodes`] are those of the
/// engine; a kernel with other tables implements it. What is not used is not linked.
pub trait NodeTables {
    /// Reads the tables into a topology, which is still to be
    /// [applied](Topology::apply). What cannot be read is reported and left out.
    ///
    /// # Errors
    /// [`TopologyError::Full`] when storage is too small.
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        distances: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError>;

    /// Reserves memory that the tables call in use.
    ///
    /// # Errors
    /// [`EarlyError::Full`] when storage is too small.
    fn reserve(
        &self,
        _early: &mut EarlyMemory<'_>,
        _log: &mut dyn FnMut(&dyn Display),
    ) -> Result<(), EarlyError> {
        Ok(())
    }
}

/// A machine of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneNode {
    /// Its CPUs.
    pub cpus: u32,
}

impl NodeTables for OneNode {
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        _distances: &'s mut [u8],
        _log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError> {
        Topology::single(storage.nodes, self.cpus)
    }
}

/// ACPI's tables, as bytes. There is one node where the SRAT is missing or names none.
#[derive(Clone, Copy, Debug)]
pub struct AcpiNodes<'b> {
    /// The system resource affinity table: CPUs and memory of each node.
    pub srat: Option<&'b [u8]>,
    /// The system locality information table: distances between the SRAT's nodes.
    pub slit: Option<&'b [u8]>,
    /// CPUs of the one node, where the SRAT names none.
    pub cpus: u32,
}

impl AcpiNodes<'_> {
    /// No tables, one CPU.
    pub const NONE: Self = Self {
        srat: None,
        slit: None,
        cpus: 1,
    };
}

impl NodeTables for AcpiNodes<'_> {
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        distances: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError> {
        let Some(srat) = self.srat.and_then(|table| read(Srat::parse(table), log)) else {
            return Topology::single(storage.nodes, self.cpus);
        };
        let mut builder = TopologyBuilder::new(storage);
        add_srat(&mut builder, srat.entries(), &mut |seen| log(&seen))?;
        let mut topology = finish(builder, self.cpus, log)?;
        // A single node is as far from itself as the default has it.
        let slit = self.slit.filter(|_| topology.nodes().len() > 1);
        if let Some(slit) = slit.and_then(|table| read(Slit::parse(table), log)) {
            set_slit(&mut topology, &slit, distances, &mut |seen| log(&seen))?;
        }
        Ok(topology)
    }
}

/// A device tree: CPUs, memory and distances of nodes, and what it reserves at an address.
///
/// What it reserves without an address is the kernel's to allocate
/// ([`Fdt::reserved`]); ranges that must not be mapped are no memory in its map.
#[derive(Clone, Copy, Debug)]
pub struct TreeNodes<'b>(pub Fdt<'b>);

impl NodeTables for TreeNodes<'_> {
    fn topology<'s>(
        &self,
        storage: TopologyStorage<'s>,
        distances: &'s mut [u8],
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<Topology<'s>, TopologyError> {
        let Self(tree) = self;
        let mut builder = TopologyBuilder::new(storage);
        add_tree(&mut builder, tree, &mut |seen| log(&seen))?;
        let mut topology = finish(builder, 0, log)?;
        if topology.nodes().len() > 1 && tree.distances().next().is_some() {
            set_tree_distances(&mut topology, tree, distances, &mut |seen| log(&seen))?;
        }
        Ok(topology)
    }

    fn reserve(
        &self,
        early: &mut EarlyMemory<'_>,
        log: &mut dyn FnMut(&dyn Display),
    ) -> Result<(), EarlyError> {
        for reserved in self.0.reserved() {
            match reserved.map(|reserved| (reserved.no_map, reserved.placement)) {
                Ok((false, Placement::Fixed { start, bytes })) => {
                    let end = start.saturating_add(bytes).min(PHYS_END);
                    let range = PhysRange::new(start, end).unwrap_or_default();
                    early.reserve(range, "device tree reservation")?;
                }
                Ok(_) => {}
                Err(error) => log(&error),
            }
        }
        Ok(())
    }
}

/// The topology of the rows so far; of one node with `cpus` where they name none.
fn finish<'s>(
    mut builder: TopologyBuilder<'s>,
    cpus: u32,
    log: &mut dyn FnMut(&dyn Display),
) -> Result<Topology<'s>, TopologyError> {
    if builder.is_empty() {
        let node = builder.node_of(0)?;
        builder.add_cpus(node, cpus);
    }
    Ok(builder.finish(&mut |seen| log(&seen)))
}

/// A table that can be read; the error is reported.
fn read<T>(parsed: Result<T, AcpiError>, log: &mut dyn FnMut(&dyn Display)) -> Option<T> {
    parsed.inspect_err(|error| log(error)).ok()
}
