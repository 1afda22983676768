//! Raw ACPI tables as firmware wrote them, from `/sys/firmware/acpi/tables`.

use super::text::{self, SourceError};
use std::path::Path;

/// Largest table read: a SRAT with a row for each of 2^18 CPUs stays below.
const MOST_TABLE_BYTES: u64 = 8 << 20;

/// The table with the four-letter `signature`, for example `SRAT`; `None` if
/// the machine has none. The bytes are not checked: that is the engine's work.
///
/// # Errors
/// [`SourceError`] when it is there and cannot be read: the kernel shows
/// tables to root only.
pub fn table(root: &Path, signature: &str) -> Result<Option<Vec<u8>>, SourceError> {
    let path = root.join("sys/firmware/acpi/tables").join(signature);
    match text::read_bytes(&path, MOST_TABLE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}
