//! This machine, as the running kernel shows it.
//!
//! [`Machine::discover`] gathers the memory map ([`map`]), nodes and CPUs
//! ([`nodes`]) and raw ACPI tables ([`acpi`]). Each has sources of falling
//! quality; the best one this user may read is used, and every step down is
//! reported in [`Machine::notes`]. All readers have the root of the file tree as a
//! parameter, so that a synthetic one is read the same way; its content is checked,
//! never trusted ([`SourceError`]).

pub mod acpi;
pub mod map;
pub mod nodes;
mod text;

pub use map::MapRow;
pub use nodes::SystemNode;
pub use text::SourceError;

use std::fmt;
use std::path::Path;

/// Where the memory map came from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapSource {
    /// The firmware's own map.
    Firmware,
    /// The kernel's map after its own corrections.
    Iomem,
    /// Memory blocks: right to 128 MiB or so.
    Blocks,
    /// A single total.
    Total,
}

impl MapSource {
    /// The file it came from.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Firmware => "/sys/firmware/memmap",
            Self::Iomem => "/proc/iomem",
            Self::Blocks => "/sys/devices/system/memory",
            Self::Total => "/proc/meminfo",
        }
    }

    /// Whether addresses are those of the real map, or a guess.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Firmware | Self::Iomem)
    }
}

impl fmt::Display for MapSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.path())
    }
}

/// Everything that this machine's kernel reports.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The memory map, unchecked, in the source's order.
    pub map: Vec<MapRow>,
    /// Where the map came from.
    pub map_source: MapSource,
    /// The nodes; empty when the kernel shows none.
    pub nodes: Vec<SystemNode>,
    /// The CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// The raw System Resource Affinity Table.
    pub srat: Option<Vec<u8>>,
    /// The raw System Locality Information Table.
    pub slit: Option<Vec<u8>>,
    /// The raw Multiple APIC Description Table.
    pub madt: Option<Vec<u8>>,
    /// Sources that could not be read and their replacements, in words.
    pub notes: Vec<String>,
}

type MapReader = fn(&Path) -> Result<Vec<MapRow>, SourceError>;

/// The sources of a memory map, best first.
const MAP_READERS: [(MapSource, MapReader); 4] = [
    (MapSource::Firmware, map::firmware),
    (MapSource::Iomem, map::iomem),
    (MapSource::Blocks, map::blocks),
    (MapSource::Total, map::total),
];

impl Machine {
    /// The machine whose file tree begins at `root`: `/` for this one.
    ///
    /// # Errors
    /// The last [`SourceError`] when no source of a memory map can be read;
    /// everything else has a fallback and a note.
    pub fn discover(root: &Path) -> Result<Self, SourceError> {
        let mut notes = Vec::new();
        let (map, map_source) = memory_map(root, &mut notes)?;
        let nodes = nodes::nodes(root).unwrap_or_else(|error| {
            notes.push(format!("{error}; took the machine for one node"));
            Vec::new()
        });
        let cpus = nodes::online_cpus(root).unwrap_or_else(|error| {
            notes.push(format!("{error}; counted the CPUs this process may use"));
            crate::threads::allowed_cpus().unwrap_or_else(|_| vec![0])
        });
        let mut table = |signature| {
            acpi::table(root, signature).unwrap_or_else(|error| {
                let root = if error.needs_root() {
                    ", run as root to have it used"
                } else {
                    ""
                };
                notes.push(format!("{error}{root}"));
                None
            })
        };
        let (srat, slit, madt) = (table("SRAT"), table("SLIT"), table("APIC"));
        Ok(Self {
            map,
            map_source,
            nodes,
            cpus,
            srat,
            slit,
            madt,
            notes,
        })
    }
}

/// The best map there is, with a note if it is not one of the exact ones.
fn memory_map(
    root: &Path,
    notes: &mut Vec<String>,
) -> Result<(Vec<MapRow>, MapSource), SourceError> {
    let mut refused = Vec::new();
    let mut root_helps = false;
    for (source, read) in MAP_READERS {
        match read(root) {
            Ok(map) => {
                if !source.is_exact() {
                    let why = refused.join("; ");
                    let advice = if root_helps {
                        "; run as root for the real map"
                    } else {
                        ""
                    };
                    notes.push(format!("{why}. Used {source}, an approximation{advice}"));
                } else if root_helps {
                    notes.push(format!("{}. Used {source}", refused.join("; ")));
                }
                return Ok((map, source));
            }
            Err(error) if source == MapSource::Total => return Err(error),
            Err(error) => {
                root_helps |= error.needs_root();
                refused.push(error.to_string());
            }
        }
    }
    unreachable!("the last reader of the list returns")
}
