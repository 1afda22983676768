//! What `firstlight` alone says: where each kind of reader begins.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Three doors, in 60 columns.
const TEXT: &str = "\
Firstlight: memory that is ready when it is needed

  firstlight demo              four steps that show it

My virtual machines start slowly
  firstlight bench pool        as root: what it would bring
  firstlight pool --help       how to keep some ready

My machine boots slowly
  dmesg | firstlight doctor -  where its time went
  firstlight doctor A.log B.log

I write a kernel
  firstlight boot              the engine on a bare machine
  firstlight up                and on this machine's map

All commands: firstlight --help
";

/// Prints them. A pipe that is closed early has read enough.
pub(crate) fn show() -> ExitCode {
    match io::stdout().write_all(TEXT.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(3),
        _ => ExitCode::SUCCESS,
    }
}
