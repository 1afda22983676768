//! The early allocator's own trace, printed with `memblock=debug`:
//! [`MemblockEvent`] a line, and [`MemblockDump`] for the state printed in between.

use super::kernel_log::KernelLog;
use super::kernel_rows::{
    MemblockAction, MemblockDump, MemblockEvent, MemblockRequest, MemblockRow,
};
use super::line::Line;
use super::problem::{Bad, LogProblem};
use super::rows::Scan;

/// Reads `line` if it belongs to the trace.
pub(super) fn read(line: &Line<'_>, log: &mut KernelLog) -> bool {
    let text = &*line.text;
    let mut scan = Scan::new(text);
    let done = if text.starts_with("MEMBLOCK configuration") {
        log.memblock_dumps.push(MemblockDump {
            line: line.number,
            ..MemblockDump::default()
        });
        Ok(true)
    } else if text.starts_with("memblock_") {
        event(&mut scan, line, log)
    } else if let Some((reserved, at)) = dump_row_start(text) {
        row(&mut Scan::new(&text[at..]), line.number).map(|row| {
            match log.memblock_dumps.last_mut() {
                Some(dump) if reserved => dump.reserved.push(row),
                Some(dump) => dump.memory.push(row),
                None => {
                    let what = "a range of a memblock dump without its heading; left out";
                    log.problems.push(LogProblem::new(line.number, what, text));
                }
            }
            true
        })
    } else {
        return false;
    };
    done.unwrap_or_else(|bad| {
        log.problems.push(LogProblem::new(line.number, bad, text));
        true
    })
}

/// `memory[0x0]` or `reserved[0x0]`: which, and where the range starts.
fn dump_row_start(text: &str) -> Option<(bool, usize)> {
    let reserved = text.starts_with("reserved[0x");
    if !reserved && !text.starts_with("memory[0x") {
        return None;
    }
    Some((reserved, text.find(']')? + 1))
}

fn event(scan: &mut Scan<'_>, line: &Line<'_>, log: &mut KernelLog) -> Result<bool, Bad> {
    let function = scan.word();
    if !scan.eat(":") {
        return Ok(false);
    }
    let what = if scan.remainder().starts_with('[') {
        let span = scan.bracketed()?;
        match function {
            "memblock_add" | "memblock_add_node" => MemblockAction::Add(span),
            "memblock_remove" => MemblockAction::Remove(span),
            "memblock_reserve" | "memblock_reserve_kern" => MemblockAction::Reserve(span),
            "memblock_free" | "memblock_phys_free" => MemblockAction::Free(span),
            _ => return Ok(false),
        }
    } else if function.contains("alloc") {
        MemblockAction::Request(request(function, scan)?)
    } else {
        return Ok(false);
    };
    if scan.eat("flags") {
        scan.number()?;
    }
    let caller = scan.remainder().to_owned();
    log.memblock.push(MemblockEvent {
        what,
        caller,
        line: line.number,
    });
    Ok(true)
}

fn request(function: &str, scan: &mut Scan<'_>) -> Result<MemblockRequest, Bad> {
    let bytes = scan.decimal()?;
    scan.expect("bytes align=")?;
    let align = scan.number()?;
    let mut node = None;
    if scan.eat("nid=") && !scan.eat("-1") {
        node = Some(scan.small()?);
    }
    scan.expect("from=")?;
    let from = scan.number()?;
    scan.expect("max_addr=")?;
    let max = scan.number()?;
    Ok(MemblockRequest {
        function: function.to_owned(),
        bytes,
        align,
        node,
        from,
        max,
    })
}

fn row(scan: &mut Scan<'_>, line: usize) -> Result<MemblockRow, Bad> {
    let span = scan.bracketed()?;
    scan.eat(",");
    scan.number()?;
    scan.expect("bytes")?;
    let node = if scan.eat("on node") {
        Some(scan.small()?)
    } else {
        None
    };
    let flags = if scan.eat("flags:") {
        scan.number()?
    } else {
        0
    };
    Ok(MemblockRow {
        span,
        node,
        flags,
        line,
    })
}
