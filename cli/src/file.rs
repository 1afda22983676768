//! Files a machine is described in: read with a bound, refused with a reason.

use crate::failure::Failure;
use crate::text::{bytes, plural};
use std::fs;
use std::io::Read;
use std::path::Path;

/// Largest log or table read, in bytes.
const MOST_FILE_BYTES: u64 = 256 << 20;

/// The whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::unreadable(path, &error);
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut content = Vec::new();
    file.take(MOST_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(unreadable)?;
    if content.len() as u64 > MOST_FILE_BYTES {
        let most = bytes(MOST_FILE_BYTES);
        return Err(Failure::Machine(format!(
            "{} is larger than {most}, too large for a log",
            path.display()
        )));
    }
    Ok(content)
}

/// Why the log `name` describes no machine.
pub(crate) fn no_map(name: &str, content: &[u8]) -> Failure {
    let lines = plural(content.split(|byte| *byte == b'\n').count() as u64, "line");
    Failure::Machine(format!(
        "{name} has no memory map: looked in {lines} for \"BIOS-e820:\" rows, \"user:\" rows, \
         \"reserve setup_data:\" rows, \"Early memory node ranges\" and \"SRAT: Node\" rows"
    ))
}
