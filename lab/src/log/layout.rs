//! What the kernel made of the map: node ranges, zones, spans, holes, node data.

use super::kernel_log::KernelLog;
use super::kernel_rows::{
    MovableStart, NodeRow, NodeSpan, PagesOf, Unavailable, ZonePages, ZoneRow,
};
use super::line::Line;
use super::problem::{Bad, LogProblem};
use super::rows::{Scan, Span};

/// Headings that give the rows below them their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Section {
    #[default]
    None,
    /// Movable starts in bytes.
    Movable,
    /// Movable starts in page frames.
    MovableFrames,
    /// Node ranges in page frames.
    NodeFrames,
}

const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// Reads `line` if it is about the layout.
pub(super) fn read(line: &Line<'_>, section: &mut Section, log: &mut KernelLog) -> bool {
    let heading = match &*line.text {
        "Movable zone start for each node" => Some(Section::Movable),
        "Movable zone start PFN for each node" => Some(Section::MovableFrames),
        "Early memory node ranges" | "Zone ranges:" | "Zone PFN ranges:" => Some(Section::None),
        text if text.starts_with("early_node_map[") => Some(Section::NodeFrames),
        _ => None,
    };
    if let Some(heading) = heading {
        *section = heading;
        return true;
    }
    match row(line, *section, log) {
        Ok(taken) => taken,
        Err(bad) => {
            log.problems
                .push(LogProblem::new(line.number, bad, &line.text));
            true
        }
    }
}

fn row(line: &Line<'_>, section: Section, log: &mut KernelLog) -> Result<bool, Bad> {
    let text = &*line.text;
    let number = line.number;
    let mut scan = Scan::new(text);
    // As arm64 begins lines of nodes.
    scan.eat("NUMA:");
    let first_word = scan.rest.split(' ').next();
    if scan.eat("node ") && text.contains(": [mem") {
        let node = scan.small()?;
        scan.expect(":")?;
        let span = scan.bracketed()?;
        log.note_absurd(span, line);
        log.node_ranges.push(NodeRow {
            node,
            span,
            line: number,
        });
    } else if scan.eat("Initmem setup node ") {
        let node = scan.small()?;
        log.node_spans.push(NodeSpan {
            node,
            span: node_span(&mut scan)?,
            line: number,
        });
    } else if scan.eat("Initializing node ") && text.ends_with("memoryless") {
        log.node_spans.push(NodeSpan {
            node: scan.small()?,
            span: None,
            line: number,
        });
    } else if scan.eat("NODE_DATA(") {
        let node = scan.small()?;
        scan.expect(")")?;
        // "NODE_DATA(1) on node 0" says where, not what.
        if scan.eat("allocated") {
            log.node_data.push(NodeRow {
                node,
                span: scan.bracketed()?,
                line: number,
            });
        }
    } else if scan.eat("Faking a node at") {
        log.faked_node = Some(scan.bracketed()?);
    } else if text.ends_with("pages in unavailable ranges") {
        log.unavailable.push(unavailable(scan, number)?);
    } else if scan.eat("Zeroed struct page in unavailable ranges:") {
        let pages = scan.decimal()?;
        log.unavailable.push(Unavailable {
            node: None,
            zone: None,
            pages,
            line: number,
        });
    } else if let Some(zone) = ZONES.iter().find(|zone| first_word == Some(zone)) {
        scan.eat(zone);
        return zone_row(zone, scan, line, log);
    } else {
        return section_row(line, section, log);
    }
    Ok(true)
}

/// Rows that mean something only below their heading.
fn section_row(line: &Line<'_>, section: Section, log: &mut KernelLog) -> Result<bool, Bad> {
    let mut scan = Scan::new(&line.text);
    match section {
        Section::Movable | Section::MovableFrames if scan.eat("Node ") => {
            let node = scan.small()?;
            if !scan.eat(":") {
                return Ok(false);
            }
            let value = scan.number()?;
            let start = if section == Section::Movable {
                Some(value)
            } else {
                value.checked_mul(4096)
            };
            let large = || Bad::TooLarge {
                digits: format!("page frame {value:#x}"),
                bits: 52,
            };
            let start = start.ok_or_else(large)?;
            log.movable_starts.push(MovableStart {
                node,
                start,
                line: line.number,
            });
            Ok(true)
        }
        Section::NodeFrames if line.text.contains("->") => {
            let Ok(node) = scan.small() else {
                return Ok(false);
            };
            if !scan.eat(":") {
                return Ok(false);
            }
            let span = scan.frames()?;
            log.node_ranges.push(NodeRow {
                node,
                span,
                line: line.number,
            });
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn node_span(scan: &mut Scan<'_>) -> Result<Option<Span>, Bad> {
    // arm64 says the second before, the first after it has set the node up.
    if scan.eat("as memoryless") || scan.eat("[<memory-less node>]") {
        return Ok(None);
    }
    let bracketed = scan.remainder().starts_with('[');
    let span = if bracketed {
        scan.bracketed()?
    } else {
        scan.exclusive()?
    };
    // A node without memory is printed as byte zero alone.
    Ok(Some(span).filter(|s| s.last != 0))
}

fn unavailable(mut scan: Scan<'_>, line: usize) -> Result<Unavailable, Bad> {
    let mut node = None;
    if scan.eat("On node") {
        node = Some(scan.small()?);
        scan.expect(", zone")?;
    }
    let zone = scan.word().to_owned();
    scan.eat("zone");
    scan.expect(":")?;
    Ok(Unavailable {
        node,
        zone: Some(zone),
        pages: scan.decimal()?,
        line,
    })
}

/// `DMA32    [mem 0x...-0x...]`, `Device   empty`, `DMA      0x00000010 -> 0x00001000`,
/// `Normal zone: 89391104 pages, LIFO batch:63`.
fn zone_row(
    zone: &str,
    mut scan: Scan<'_>,
    line: &Line<'_>,
    log: &mut KernelLog,
) -> Result<bool, Bad> {
    let rest = scan.remainder();
    let span = if rest == "empty" {
        None
    } else if rest.starts_with("[mem") {
        Some(scan.bracketed()?)
    } else if rest.starts_with("0x") && rest.contains("->") {
        Some(scan.frames()?)
    } else if scan.eat("zone:") {
        let pages = scan.decimal()?;
        let of = match scan.remainder() {
            "pages used for memmap" => PagesOf::Memmap,
            "pages reserved" => PagesOf::Reserved,
            text if text.starts_with("pages, LIFO batch") => PagesOf::Zone,
            _ => return Ok(false),
        };
        let (stamp_ns, line) = (line.stamp_ns, line.number);
        log.zone_pages.push(ZonePages {
            zone: zone.to_owned(),
            of,
            pages,
            stamp_ns,
            line,
        });
        return Ok(true);
    } else {
        return Ok(false);
    };
    log.zones.push(ZoneRow {
        zone: zone.to_owned(),
        span,
        line: line.number,
    });
    Ok(true)
}
