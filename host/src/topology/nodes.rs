//! NUMA nodes, their CPUs, memory and distances, from `/sys/devices/system/node`.

use super::map;
use super::text::{self, SourceError};
use std::path::Path;

/// A NUMA node as the running kernel numbers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemNode {
    /// The kernel's number; numbers may have gaps.
    pub id: u32,
    /// Its CPUs, ascending; empty for a memory-only node.
    pub cpus: Vec<u32>,
    /// Distances to the online nodes, in ascending order of node.
    pub distances: Vec<u32>,
    /// Bytes that the kernel manages there (`MemTotal` of the node).
    pub total_bytes: u64,
    /// Its memory (first byte, last byte) in whole memory blocks; empty where
    /// the kernel has no memory blocks.
    pub ranges: Vec<(u64, u64)>,
}

/// The online nodes, ascending.
///
/// # Errors
/// [`SourceError`] when the kernel shows no nodes or they are malformed.
pub fn nodes(root: &Path) -> Result<Vec<SystemNode>, SourceError> {
    let folder = root.join("sys/devices/system/node");
    let online = text::read_list(&folder.join("online"))?;
    if online.is_empty() {
        return Err(SourceError::Empty {
            path: folder,
            expected: "online nodes",
        });
    }
    let block_bytes = map::block_size_bytes(root).ok();
    online
        .iter()
        .map(|id| node(&folder.join(format!("node{id}")), *id, block_bytes))
        .collect()
}

fn node(folder: &Path, id: u32, block_bytes: Option<u64>) -> Result<SystemNode, SourceError> {
    let blocks = map::numbered(folder, "memory")?;
    let ranges = block_bytes
        .and_then(|bytes| map::runs(&blocks, bytes))
        .unwrap_or_default();
    Ok(SystemNode {
        id,
        cpus: text::read_list(&folder.join("cpulist"))?,
        distances: distances(&folder.join("distance"))?,
        total_bytes: total_bytes(&folder.join("meminfo"))?,
        ranges,
    })
}

fn distances(path: &Path) -> Result<Vec<u32>, SourceError> {
    let content = text::read_text(path)?;
    let numbers: Option<Vec<u32>> = content
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    numbers.ok_or_else(|| SourceError::malformed(path, 1, content.trim(), "decimal distances"))
}

/// `MemTotal:  4548812 kB` of a `meminfo`, a node's or the machine's, in bytes.
///
/// # Errors
/// [`SourceError`] when it cannot be read, or has no sensible `MemTotal`.
pub fn total_bytes(path: &Path) -> Result<u64, SourceError> {
    let content = text::read_text(path)?;
    for (index, line) in content.lines().enumerate() {
        let Some((_, value)) = line.split_once("MemTotal:") else {
            continue;
        };
        let kib = value
            .trim()
            .strip_suffix(" kB")
            .and_then(|kib| kib.parse::<u64>().ok());
        return kib
            .and_then(|kib| kib.checked_mul(1024))
            .ok_or_else(|| SourceError::malformed(path, index + 1, line, "a number of kB"));
    }
    Err(SourceError::Empty {
        path: path.into(),
        expected: "MemTotal",
    })
}

/// The CPUs that are online, from `/sys/devices/system/cpu/online`.
///
/// # Errors
/// [`SourceError`] when it cannot be read or is malformed.
pub fn online_cpus(root: &Path) -> Result<Vec<u32>, SourceError> {
    text::read_list(&root.join("sys/devices/system/cpu/online"))
}
