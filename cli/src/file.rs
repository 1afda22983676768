//! Files a machine is described in: read with a bound, refused with a reason.

use crate::failure::Failure;
use crate::text::plural;
use std::path::Path;

/// The whole file, unpacked.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    firstlight_lab::file::read(path).map_err(|error| Failure::Io(error.to_string()))
}

/// Why the log `name` describes no machine.
pub(crate) fn no_map(name: &str, content: &[u8]) -> Failure {
    let lines = plural(content.split(|byte| *byte == b'\n').count() as u64, "line");
    Failure::Machine(format!(
        "{name} has no memory map: looked in {lines} for \"BIOS-e820:\" rows, \"user:\" rows, \
         \"reserve setup_data:\" rows, \"Early memory node ranges\" and \"SRAT: Node\" rows"
    ))
}
