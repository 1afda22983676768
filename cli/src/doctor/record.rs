//! The run record of a boot of which there is a kernel log and nothing else; the reader is
//! the [lab's](firstlight_lab::boot_log::records).

use crate::boot::render;
use crate::failure::Failure;
use crate::output::Output;
use firstlight_lab::boot_log;

/// Prints the record of boot `boot` of the log `content`.
pub(super) fn print(
    name: &str,
    content: &[u8],
    boot: u32,
    full: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut records = boot_log::records(name, content);
    let count = records.len();
    let at = boot as usize - 1;
    if at >= count {
        return Err(Failure::Usage(format!(
            "--boot {boot}: {name} has {count}; expected a number from 1 to {count}"
        )));
    }
    let mut record = records.swap_remove(at);
    if count > 1 {
        let note = format!("boot {boot} of the {count} in this log");
        record.notes.insert(0, note);
    }
    output.print(&record, |record| render::report(record, full))
}
