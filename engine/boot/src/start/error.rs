//! Why there is no allocator: [`StartError`].
#![deny(unsafe_code)]

use core::fmt;

use crate::early::EarlyError;
use crate::firmware::e820::PartialEntry;
use crate::firmware::efi::EfiError;
use crate::firmware::fdt::FdtError;
use crate::firmware::pvh::PvhError;
use crate::frames::BuildError;
use crate::layout::{LayoutError, LayoutPart};
use crate::map::{MapError, MemoryKind};
use crate::node::ZoneKind;
use crate::store::Full;
use crate::topology::{TopologyError, TopologyPart};

/// Why a machine's memory did not come up: the error of a step.
///
/// It is made from the errors of firmware's parsers too, so that a function that reads the
/// tables and calls [`start`](super::start) has one error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The PC's memory map cannot be read.
    E820(PartialEntry),
    /// The EFI memory map cannot be read.
    Efi(EfiError),
    /// The PVH start info cannot be read.
    Pvh(PvhError),
    /// The device tree cannot be read.
    Fdt(FdtError),
    /// Memory for [`BootSlots::carve`](super::BootSlots::carve) is too small; in bytes.
    Storage(Full),
    /// [`StaticStorage`](super::StaticStorage) is taken once: memory was started before.
    StorageTaken,
    /// There is no memory map.
    Map(MapError),
    /// The memory map has no memory, usable or unaccepted.
    NoMemory {
        /// What it has instead: bytes by kind, in the order of [`MemoryKind::ALL`].
        bytes: [u64; MemoryKind::COUNT],
    },
    /// Memory could not be added or reserved.
    Early(EarlyError),
    /// Nodes could not be read or applied.
    Topology(TopologyError),
    /// Memory could not be laid out.
    Layout(LayoutError),
    /// The allocator could not be built.
    Frames(BuildError),
}

/// Storage that would be enough for what was seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageNeeded {
    /// `RANGES` of [`BootStorage`](super::BootStorage), at least.
    Ranges(usize),
    /// `NODES` of it, at least.
    Nodes(usize),
}

impl fmt::Display for StorageNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranges(needed) => write!(f, "RANGES of BootStorage must be at least {needed}"),
            Self::Nodes(needed) => write!(f, "NODES of BootStorage must be at least {needed}"),
        }
    }
}

impl StartError {
    /// The storage that is needed, if storage was too small. Later steps may need more.
    ///
    /// ```
    /// use firstlight_frames::map::{MapEntry, MemoryKind};
    /// use firstlight_boot::start::{Boot, BootStorage, StorageNeeded};
    /// let entries = [0, 1, 2].map(|at| MapEntry::new(at << 30, 1 << 20, MemoryKind::Usable));
    /// let mut storage = BootStorage::<2, 1>::EMPTY;
    /// let error = Boot::new(entries).layout(&mut storage, &mut |_| {}).unwrap_err();
    /// assert_eq!(error.storage_needed(), Some(StorageNeeded::Ranges(3)));
    /// ```
    pub const fn storage_needed(&self) -> Option<StorageNeeded> {
        Some(match self {
            Self::Map(MapError::Scratch(full) | MapError::Regions(full))
            | Self::Early(EarlyError::Full { full, .. })
            | Self::Frames(BuildError::NoSpace {
                cause: EarlyError::Full { full, .. },
                ..
            })
            | Self::Topology(
                TopologyError::Full {
                    part: TopologyPart::Ranges,
                    full,
                }
                | TopologyError::Early(EarlyError::Full { full, .. }),
            )
            | Self::Layout(LayoutError::Full {
                part: LayoutPart::Ranges,
                full,
            }) => StorageNeeded::Ranges(full.needed),
            Self::Topology(TopologyError::Full {
                part: TopologyPart::Nodes,
                full,
            })
            | Self::Layout(LayoutError::Full {
                part: LayoutPart::Nodes,
                full,
            }) => StorageNeeded::Nodes(full.needed),
            Self::Topology(TopologyError::Full {
                part: TopologyPart::Distances,
                full,
            }) => StorageNeeded::Nodes(full.needed.isqrt()),
            Self::Layout(LayoutError::Full {
                part: LayoutPart::Zones,
                full,
            }) => StorageNeeded::Nodes(full.needed.div_ceil(ZoneKind::ALL.len())),
            _ => return None,
        })
    }

    /// The step that failed, and its error.
    fn cause(&self) -> Option<(&'static str, &(dyn core::error::Error + 'static))> {
        Some(match self {
            Self::NoMemory { .. } | Self::Storage(_) | Self::StorageTaken => return None,
            // The first five, and topology's, name what they are about.
            Self::E820(error) => ("", error),
            Self::Efi(error) => ("", error),
            Self::Pvh(error) => ("", error),
            Self::Fdt(error) => ("", error),
            Self::Map(error) => ("", error),
            Self::Early(error) => ("early memory: ", error),
            Self::Topology(error) => ("", error),
            Self::Layout(error) => ("layout: ", error),
            Self::Frames(error) => ("frame allocator: ", error),
        })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory { bytes } => {
                let mapped: u64 = bytes.iter().sum();
                write!(
                    f,
                    "memory map: no usable memory, expected some; {mapped} bytes are of other kinds"
                )?;
            }
            Self::Storage(Full { capacity, needed }) => {
                write!(
                    f,
                    "storage of {capacity} bytes is too small: {needed} are needed"
                )?;
            }
            Self::StorageTaken => {
                f.write_str("storage was taken before: memory is started once")?;
            }
            _ => {
                if let Some((step, error)) = self.cause() {
                    write!(f, "{step}{error}")?;
                }
            }
        }
        match self.storage_needed() {
            Some(needed) => write!(f, "; {needed}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for StartError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.cause().map(|(_, error)| error)
    }
}

/// `?` on the error of a step.
macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {
        $(impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    PartialEntry => E820,
    EfiError => Efi,
    PvhError => Pvh,
    FdtError => Fdt,
    Full => Storage,
    MapError => Map,
    EarlyError => Early,
    TopologyError => Topology,
    LayoutError => Layout,
    BuildError => Frames,
}
