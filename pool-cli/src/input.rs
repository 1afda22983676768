//! Files that a command line names, which may be anything.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The text of a file; `None` if it is longer than `most_bytes`, also where it has no end.
pub(crate) fn read(path: &Path, most_bytes: u64) -> io::Result<Option<String>> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(most_bytes.saturating_add(1));
    file.read_to_string(&mut text)?;
    Ok(Some(text).filter(|text| text.len() as u64 <= most_bytes))
}
