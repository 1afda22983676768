//! Size, nodes and CPUs of a synthetic machine: [`Shape`], from text such as
//! `memory=4T,nodes=8,cpus=64`.
//!
//! The map has the holes of every PC: the end of the first 640 KiB, video and
//! option memory below 1 MiB, and devices from 3 GiB to 4 GiB. Memory is divided
//! evenly, node by node, at section boundaries; so are CPUs.

use firstlight::addr::{PAGE_BYTES, PHYS_END};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight_figures::size;
use std::fmt;
use std::str::FromStr;

/// First byte of the devices below 4 GiB.
const DEVICES_START: u64 = 3 << 30;
/// First byte after them.
const DEVICES_END: u64 = 4 << 30;
/// Nodes begin at multiples of this size, in bytes.
const SECTION_BYTES: u64 = 128 << 20;
/// Least memory of a node, in bytes.
const LEAST_NODE_BYTES: u64 = 16 << 20;
/// Most memory, in bytes: with the hole it ends below the end of physical addresses.
const MOST_BYTES: u64 = PHYS_END - DEVICES_END;
const MOST_NODES: u64 = 1024;
const MOST_CPUS: u64 = 65_536;

/// A PC of any size.
///
/// ```
/// use firstlight_bench::machine::Shape;
/// let shape: Shape = "memory=4T,nodes=8,cpus=64".parse()?;
/// assert_eq!((shape.memory_bytes, shape.nodes, shape.cpus), (4 << 40, 8, 64));
/// # Ok::<(), firstlight_bench::machine::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// All memory, in bytes.
    pub memory_bytes: u64,
    /// Nodes.
    pub nodes: u16,
    /// CPUs.
    pub cpus: u32,
}

/// A text that is no shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError(String);

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (example: memory=4T,nodes=8,cpus=64)", self.0)
    }
}

impl std::error::Error for ShapeError {}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let (mut memory, mut nodes, mut cpus) = (None, None, None);
        for word in text.split(',') {
            let Some((key, value)) = word.split_once('=') else {
                return Err(ShapeError(format!("saw {word:?}, expected key=value")));
            };
            let (slot, number) = match key {
                "memory" => (&mut memory, bytes(value)?),
                "nodes" => (&mut nodes, within(key, value, MOST_NODES)?),
                "cpus" => (&mut cpus, within(key, value, MOST_CPUS)?),
                _ => {
                    return Err(ShapeError(format!(
                        "unknown key {key:?}, expected memory, nodes or cpus"
                    )));
                }
            };
            if slot.replace(number).is_some() {
                return Err(ShapeError(format!("{key} is given twice")));
            }
        }
        let memory_bytes = memory.ok_or_else(|| ShapeError("memory is missing".into()))?;
        let nodes = nodes.unwrap_or(1);
        if memory_bytes > MOST_BYTES || memory_bytes / nodes < LEAST_NODE_BYTES {
            return Err(ShapeError(format!(
                "memory is {memory_bytes} bytes on {nodes} nodes, expected at least {} MiB a node and at most {} GiB in all",
                LEAST_NODE_BYTES >> 20,
                MOST_BYTES >> 30,
            )));
        }
        let large = |_| ShapeError(format!("{text:?} has too many nodes or CPUs"));
        Ok(Self {
            memory_bytes,
            nodes: nodes.try_into().map_err(large)?,
            cpus: cpus.unwrap_or(nodes).try_into().map_err(large)?,
        })
    }
}

/// Bytes such as `1536G`, a multiple of 4 KiB.
fn bytes(text: &str) -> Result<u64, ShapeError> {
    let whole = size::parse(text).ok();
    whole
        .filter(|bytes| bytes % PAGE_BYTES == 0)
        .ok_or_else(|| {
            ShapeError(format!(
                "memory is {text:?}, expected a whole number of K, M, G, T or P in multiples of 4K"
            ))
        })
}

fn within(key: &str, value: &str, most: u64) -> Result<u64, ShapeError> {
    let number = size::decimal(value).filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| ShapeError(format!("{key} is {value:?}, expected 1 to {most}")))
}

impl Shape {
    /// The memory map that firmware would report.
    #[must_use]
    pub fn map(&self) -> Vec<MapEntry> {
        let low_end = self.memory_bytes.min(DEVICES_START);
        let mut entries = vec![
            MapEntry::new(0, 0x9_fc00, MemoryKind::Usable),
            MapEntry::new(0x9_fc00, 0x400, MemoryKind::Reserved),
            MapEntry::new(0xf_0000, 0x1_0000, MemoryKind::Reserved),
            MapEntry::new(0x10_0000, low_end - 0x10_0000, MemoryKind::Usable),
            MapEntry::new(0xfffc_0000, 0x4_0000, MemoryKind::Reserved),
        ];
        let high = self.memory_bytes - low_end;
        if high > 0 {
            entries.push(MapEntry::new(DEVICES_END, high, MemoryKind::Usable));
        }
        entries
    }

    /// The memory of each node as firmware would report it: node, first byte, bytes.
    #[must_use]
    pub fn memory_rows(&self) -> Vec<(u16, u64, u64)> {
        let even = self.memory_bytes / u64::from(self.nodes);
        let each = if even >= SECTION_BYTES {
            even / SECTION_BYTES * SECTION_BYTES
        } else {
            even & !(PAGE_BYTES - 1)
        };
        let mut rows = Vec::new();
        let mut at = 0;
        for node in 0..self.nodes {
            let end = if node + 1 == self.nodes {
                self.memory_bytes
            } else {
                at + each
            };
            for (from, to, shift) in [
                (at, end.min(DEVICES_START), 0),
                (at.max(DEVICES_START), end, DEVICES_END - DEVICES_START),
            ] {
                if from < to {
                    rows.push((node, from + shift, to - from));
                }
            }
            at = end;
        }
        rows
    }

    /// The node of each CPU.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = u16> + use<> {
        let (nodes, cpus) = (u64::from(self.nodes), u64::from(self.cpus));
        // Below `nodes`, which has 16 bits.
        (0..cpus).map(move |cpu| u16::try_from(cpu * nodes / cpus).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_as_people_write_them() {
        let shape: Shape = "memory=4T,nodes=8,cpus=64".parse().unwrap();
        assert_eq!(
            shape,
            Shape {
                memory_bytes: 4 << 40,
                nodes: 8,
                cpus: 64
            }
        );
        let shape: Shape = "memory=1536G".parse().unwrap();
        assert_eq!(
            (shape.memory_bytes, shape.nodes, shape.cpus),
            (1536 << 30, 1, 1)
        );
        for text in [
            "memory=64GiB",
            "memory=65536m",
            "nodes=1,memory=68719476736",
        ] {
            assert_eq!(
                text.parse::<Shape>().unwrap().memory_bytes,
                64 << 30,
                "{text}"
            );
        }
    }

    #[test]
    fn nonsense_names_what_was_seen_and_expected() {
        for (text, part) in [
            ("", "key=value"),
            ("nodes=2", "memory is missing"),
            ("memory=4X", "\"4X\""),
            ("memory=1.5T", "whole number"),
            ("memory=-4T", "whole number"),
            ("memory=iB", "whole number"),
            ("memory=4iB", "whole number"),
            ("memory=4097", "multiples of 4K"),
            ("memory=99999999999999999999", "whole number"),
            ("memory=16777216T", "whole number"),
            ("memory=4P", "at most"),
            ("memory=1M", "at least 16 MiB a node"),
            ("memory=4T,nodes=0", "1 to 1024"),
            ("memory=4T,nodes=1025", "1 to 1024"),
            ("memory=4T,cpus=x", "1 to 65536"),
            ("memory=4T,memory=4T", "twice"),
            ("memory=4T,threads=4", "unknown key \"threads\""),
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
            assert!(error.contains("example: memory=4T,nodes=8,cpus=64"));
        }
    }

    #[test]
    fn rows_cover_all_memory_once() {
        for text in [
            "memory=4T,nodes=8",
            "memory=16M",
            "memory=3G,nodes=2",
            "memory=5000M,nodes=3",
            "memory=100M,nodes=6",
        ] {
            let shape: Shape = text.parse().unwrap();
            let rows = shape.memory_rows();
            assert_eq!(
                rows.iter().map(|row| row.2).sum::<u64>(),
                shape.memory_bytes,
                "{text}"
            );
            assert!(rows.is_sorted_by_key(|row| row.1));
            assert!(
                rows.windows(2)
                    .all(|pair| pair[0].1 + pair[0].2 <= pair[1].1)
            );
            assert!(
                rows.iter()
                    .all(|row| row.1 + row.2 <= DEVICES_START || row.1 >= DEVICES_END)
            );
            assert_eq!(rows.iter().map(|row| row.0).max(), Some(shape.nodes - 1));
            // They end where the map of the same machine does.
            let map = shape.map();
            let usable = map.iter().filter(|entry| entry.kind == MemoryKind::Usable);
            assert_eq!(
                rows.last().map(|row| row.1 + row.2),
                usable.map(|entry| entry.start + entry.bytes).max(),
                "{text}"
            );
        }
    }

    #[test]
    fn cpus_are_divided_evenly() {
        let shape: Shape = "memory=4T,nodes=3,cpus=7".parse().unwrap();
        assert_eq!(shape.cpu_nodes().collect::<Vec<_>>(), [0, 0, 0, 1, 1, 2, 2]);
    }
}
