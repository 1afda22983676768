//! What a kernel says when it has initialised the memory it had put off: [`DeferredRow`].
//!
//! | form | when |
//! |---|---|
//! | `kswapd 0 initialised deferred memory in 188ms` | a trial of 2015 |
//! | `node 0 initialised, 23398907 pages in 292ms` | 4.2 to 5.8 |
//! | `node 0 deferred pages initialised in 12ms` | 5.9 and later |

use super::kernel_log::KernelLog;
use super::kernel_rows::DeferredRow;
use super::line::Line;
use super::problem::{Bad, LogProblem};
use super::rows::Scan;

/// Reads `line` if it reports deferred initialisation.
pub(super) fn read(line: &Line<'_>, log: &mut KernelLog) -> bool {
    let mut scan = Scan::new(&line.text);
    let ours = (scan.eat("node ") || scan.eat("kswapd "))
        && line.text.contains(" initialised")
        && scan.remainder().starts_with(|c: char| c.is_ascii_digit());
    if !ours {
        return false;
    }
    match row(&mut scan, line) {
        Ok(row) => log.deferred.push(row),
        Err(bad) => log
            .problems
            .push(LogProblem::new(line.number, bad, &line.text)),
    }
    true
}

fn row(scan: &mut Scan<'_>, line: &Line<'_>) -> Result<DeferredRow, Bad> {
    let node = scan.small()?;
    let mut pages = None;
    if scan.eat("initialised,") {
        pages = Some(scan.decimal()?);
        scan.expect("pages in")?;
    } else if !scan.eat("deferred pages initialised in") {
        scan.expect("initialised deferred memory in")?;
    }
    let milliseconds = scan.decimal()?;
    scan.expect("ms")?;
    Ok(DeferredRow {
        node,
        pages,
        milliseconds,
        stamp_ns: line.stamp_ns,
        line: line.number,
    })
}
