//! Nodes from an SRAT, their distances from a SLIT.

use super::{LOCAL_DISTANCE, TableNotice, Topology, TopologyBuilder, TopologyError};
use crate::firmware::acpi::{AcpiError, Slit, SlitFault, SratEntry};

/// Reads an SRAT in place: one pass for its CPUs, one for its memory.
///
/// ```
/// use firstlight_boot::firmware::acpi::{AcpiError, SratEntry};
/// use firstlight_boot::topology::*;
///
/// let cpu = |domain| SratEntry::Cpu { apic_id: 0, domain, enabled: true };
/// let memory = |domain, base| SratEntry::Memory {
///     domain, base, bytes: 1 << 30, enabled: true, hotplug: false, non_volatile: false,
/// };
/// let entries = [memory(7, 1 << 32), memory(3, 0), cpu(3), cpu(3)];
/// let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 4], [TopologyRange::EMPTY; 4]);
/// let storage = TopologyStorage { nodes: &mut nodes, ranges: &mut ranges };
/// let mut builder = TopologyBuilder::new(storage);
/// add_srat(&mut builder, entries.into_iter().map(Ok), &mut |notice| panic!("{notice}"))?;
/// let topology = builder.finish(&mut |notice| panic!("{notice}"));
/// assert_eq!(topology.nodes()[0].domain, Some(3)); // CPUs are numbered first
/// assert_eq!(topology.nodes()[0].cpus, 2);
/// assert_eq!(topology.nodes()[1].domain, Some(7));
/// # Ok::<(), TopologyError>(())
/// ```
///
/// # Errors
/// [`TopologyError::Full`] when a store is too small; for ranges it says how
/// many the whole table needs.
pub fn add_srat(
    builder: &mut TopologyBuilder<'_>,
    entries: impl Iterator<Item = Result<SratEntry, AcpiError>> + Clone,
    report: &mut dyn FnMut(TableNotice),
) -> Result<(), TopologyError> {
    let mut rows = 0;
    for entry in entries.clone() {
        match entry {
            Ok(SratEntry::Cpu {
                domain,
                enabled: true,
                ..
            }) => {
                let node = builder.node_of(domain)?;
                builder.add_cpus(node, 1);
            }
            Ok(SratEntry::Memory { enabled: true, .. }) => rows += 1,
            Ok(_) => {}
            Err(error) => report(TableNotice::Srat { error }),
        }
    }
    builder.must_fit(rows)?;
    for entry in entries {
        if let Ok(SratEntry::Memory {
            domain,
            base,
            bytes,
            enabled: true,
            hotplug,
            ..
        }) = entry
        {
            let node = builder.node_of(domain)?;
            builder.add_row(node, base, bytes, hotplug, &mut |seen| report(seen.into()))?;
        }
    }
    Ok(())
}

/// Takes the distances from a SLIT, unless one of them is impossible: then the
/// defaults stay for all. Domains past its last locality get the defaults.
///
/// # Errors
/// [`TopologyError::Full`] if `storage` has fewer bytes than the nodes squared.
pub fn set_slit<'s>(
    topology: &mut Topology<'s>,
    slit: &Slit<'_>,
    storage: &'s mut [u8],
    report: &mut dyn FnMut(TableNotice),
) -> Result<(), TopologyError> {
    if let Some(fault) = slit_fault(slit) {
        let used = matches!(fault, SlitFault::Asymmetric { .. });
        report(TableNotice::Slit { fault, used });
        if !used {
            return Ok(());
        }
    }
    let place = |domain: u32| usize::try_from(domain).ok();
    topology.set_domain_distances(storage, |from, to| slit.distance(place(from)?, place(to)?))
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
