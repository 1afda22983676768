//! Affinity as kernels print it: [`SratRow`] for memory, [`SratCpu`] for processors.
//!
//! | form | since |
//! |---|---|
//! | `SRAT: Node 0 PXM 0 100000-80000000` | before 3.5; the end is outside |
//! | `SRAT: Node 0 PXM 0 [mem 0x00100000-0x7fffffff] hotplug` | 3.5 |
//! | `ACPI: SRAT: Node 0 PXM 0 [mem 0x00100000-0x7fffffff] hotplug non-volatile` | 4.12 |
//! | `SRAT: PXM 0 -> APIC 0x00 -> Node 0` | until 6.8 |
//! | `ACPI: NUMA: SRAT: PXM 0 -> MPIDR 0x80000001 -> Node 0` | arm64 |

use super::kernel_log::KernelLog;
use super::kernel_rows::{NodeOverlap, SratCpu, SratRow};
use super::line::Line;
use super::problem::{Bad, LogProblem};
use super::rows::Scan;

/// Reads `line` if it speaks of affinity.
pub(super) fn read(line: &Line<'_>, log: &mut KernelLog) -> bool {
    let mut scan = Scan::new(&line.text);
    scan.eat("ACPI:");
    scan.eat("NUMA:");
    let done = if scan.eat("SRAT: Node ") {
        memory(&mut scan, line.number).map(|(row, unknown)| {
            if !unknown.is_empty() {
                let what = format!("{unknown:?} means nothing to this reader; row kept without it");
                log.problems
                    .push(LogProblem::new(line.number, what, &line.text));
            }
            log.note_absurd(row.span, line);
            log.srat_memory.push(row);
        })
    } else if scan.eat("SRAT: PXM ") {
        cpu(&mut scan, line.number).map(|cpu| log.srat_cpus.extend(cpu))
    } else if line.text.starts_with("node ") && line.text.contains(" overlaps with node ") {
        overlap(&line.text, line.number).map(|row| log.node_overlaps.push(row))
    } else {
        return false;
    };
    if let Err(bad) = done {
        log.problems
            .push(LogProblem::new(line.number, bad, &line.text));
    }
    true
}

fn memory<'a>(scan: &mut Scan<'a>, line: usize) -> Result<(SratRow, &'a str), Bad> {
    let node = scan.small()?;
    scan.expect("PXM")?;
    let domain = scan.small()?;
    let bracketed = scan.remainder().starts_with('[');
    let span = if bracketed {
        scan.bracketed()?
    } else {
        scan.exclusive()?
    };
    let (mut hotplug, mut non_volatile) = (false, false);
    loop {
        if scan.eat("hotplug") {
            hotplug = true;
        } else if scan.eat("non-volatile") {
            non_volatile = true;
        } else {
            break;
        }
    }
    let row = SratRow {
        node,
        domain,
        span,
        hotplug,
        non_volatile,
        line,
    };
    Ok((row, scan.remainder()))
}

/// `None` for a processor that the kernel put on no node.
fn cpu(scan: &mut Scan<'_>, line: usize) -> Result<Option<SratCpu>, Bad> {
    let domain = scan.small()?;
    scan.expect("->")?;
    let hardware_id = if scan.eat("MPIDR") {
        scan.number()?
    } else {
        scan.expect("APIC")?;
        let id = scan.number()?;
        let large = |_| Bad::TooLarge {
            digits: format!("APIC identifier {id:#x}"),
            bits: 32,
        };
        u32::try_from(id).map_err(large)?.into()
    };
    scan.expect("-> Node")?;
    if scan.eat("-1") {
        return Ok(None);
    }
    Ok(Some(SratCpu {
        node: scan.small()?,
        domain,
        hardware_id,
        line,
    }))
}

fn overlap(text: &str, line: usize) -> Result<NodeOverlap, Bad> {
    let mut scan = Scan::new(text);
    let mut side = |word| {
        scan.expect(word)?;
        Ok((scan.small()?, scan.bracketed()?))
    };
    let one = side("node")?;
    Ok(NodeOverlap {
        one,
        other: side("overlaps with node")?,
        line,
    })
}
