//! The early allocator's own trace, printed with `memblock=debug`:
//! [`MemblockEvent`] a line, and [`MemblockDump`] for the state printed in between.

use super::problem::{Bad, LogProblem};
use super::rows::{Scan, Span};
use super::{KernelLog, Line};

/// One event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemblockEvent {
    /// What happened.
    pub what: MemblockAction,
    /// The code that asked, `function+0x12/0x34`.
    pub caller: String,
    /// Line number.
    pub line: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemblockAction {
    /// Memory was added.
    Add(Span),
    /// Memory was taken away.
    Remove(Span),
    /// A range was reserved, by a caller who named it or by an allocation.
    Reserve(Span),
    /// A reserved range was given back.
    Free(Span),
    /// Memory was asked for; the reservation that follows is the answer.
    Request(MemblockRequest),
}

/// An allocation as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemblockRequest {
    /// The function called, `memblock_alloc_try_nid` and its like.
    pub function: String,
    /// Bytes wanted.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Node wanted; `None` for any (printed as -1).
    pub node: Option<u32>,
    /// Lowest address.
    pub from: u64,
    /// Address not to be crossed; 0 for "what can be accessed".
    pub max: u64,
}

/// The whole state, as `MEMBLOCK configuration` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemblockDump {
    /// The memory ranges.
    pub memory: Vec<MemblockRow>,
    /// The reserved ranges.
    pub reserved: Vec<MemblockRow>,
    /// Line number of the heading.
    pub line: usize,
}

/// One range of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemblockRow {
    /// The addresses.
    pub span: Span,
    /// The node, once known.
    pub node: Option<u32>,
    /// Flags as printed: 1 hotplug, 2 mirror, 4 nomap, 8 driver managed, 16 no-init.
    pub flags: u64,
    /// Line number.
    pub line: usize,
}

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
