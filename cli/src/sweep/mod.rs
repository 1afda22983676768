//! `firstlight sweep`: how long descriptors take with one thread, two, and so
//! on. [`host`] measures on this machine, [`guest`] in a virtual one, [`linux`] boots
//! a Linux with more and more CPUs; the record
//! and its table are the [lab's](firstlight_lab::sweep).

mod guest;
mod host;
mod linux;
mod options;

pub(crate) use options::Options;

use crate::failure::Failure;
use crate::output::Output;

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    if let (Some(kernel), Some(guest)) = (&options.kernel, &options.guest) {
        let record = linux::sweep(options, guest, kernel)?;
        output.print::<_, Failure>(&record, |record| record.table())?;
        return match record.failed.first() {
            None => Ok(()),
            Some(first) => Err(Failure::Guests(format!("a boot failed, {first}"))),
        };
    }
    let record = match &options.guest {
        Some(guest) => guest::sweep(options, guest)?,
        None => host::sweep(options)?,
    };
    output.print(&record, |record| record.table())
}
