//! What the names of files in a folder of records say: [`Kind`], and which files belong together.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What the cells of a matrix are, in its folder.
const CELLS: &str = "cells.json";
/// Copies of what Slurm was given, a folder beside them.
const SLURM: &str = "slurm";
/// Endings of what is packed.
const PACKED: [&str; 3] = ["gz", "xz", "zst"];
/// Bytes of a file by which it is taken for a record or a log, whatever its name.
const MOST_PEEKED: u64 = 64 << 10;

/// What is in a file, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Lines,
    Log,
    Failed,
    Other,
}

/// What is in a file of this name.
pub(super) fn kind(path: &Path) -> Kind {
    let ending = |path: &Path| path.extension()?.to_str().map(str::to_owned);
    match ending(&unpacked(path)).as_deref() {
        Some("json") => Kind::Json,
        Some("jsonl") => Kind::Lines,
        Some("failed") => Kind::Failed,
        Some("log" | "txt" | "dmesg") => Kind::Log,
        _ => Kind::Other,
    }
}

/// The name of a file without the ending of what is packed.
fn unpacked(path: &Path) -> PathBuf {
    let is_packed = path
        .extension()
        .is_some_and(|is| PACKED.iter().any(|ending| is == *ending));
    match is_packed {
        true => path.with_extension(""),
        false => path.to_owned(),
    }
}

/// The file that has the name of `path` and another ending, packed or not.
pub(super) fn beside(path: &Path, ending: &str) -> Option<PathBuf> {
    let plain = unpacked(path).with_extension(ending);
    let packed = PACKED.map(|ending| {
        let mut name = plain.clone().into_os_string();
        name.push(".");
        name.push(ending);
        PathBuf::from(name)
    });
    [plain]
        .into_iter()
        .chain(packed)
        .find(|path| path.is_file())
}

/// Whether a boot that failed was made again after it, or the record is of a boot before it:
/// the later of the two counts.
pub(super) fn is_outdated(path: &Path, by: &str) -> bool {
    let at = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let other = beside(path, by).and_then(|other| at(&other));
    match by {
        "json" => other > at(path),
        _ => other.is_some() && other >= at(path),
    }
}

/// Whether a file of another name holds what should have been read.
pub(super) fn is_a_boot(path: &Path) -> bool {
    let mut start = Vec::new();
    let file = fs::File::open(path).and_then(|file| file.take(MOST_PEEKED).read_to_end(&mut start));
    let is_text = file.is_ok() && !start.contains(&0);
    let has = |text: &str| {
        start
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    is_text && (has("\"firstlight.run/") || has("Linux version "))
}

/// Whether a file of a matrix is no document.
pub(super) fn is_of_a_matrix(path: &Path) -> bool {
    let of_slurm = path.parent().filter(|folder| folder.ends_with(SLURM));
    path.ends_with(CELLS) || of_slurm.is_some_and(|folder| folder.with_file_name(CELLS).is_file())
}
