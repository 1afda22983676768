//! What the frames of memory are: [`Extent`] and its [`ExtentKind`], [`ZoneSegment`].

use crate::addr::FrameRange;
use crate::early::EarlyFlags;
use crate::node::{NodeId, ZoneKind};

/// What the frames of an extent are.
///
/// Where several kinds meet in a frame the stricter one holds: no-map,
/// driver-managed and preserved memory stays so whatever is reserved of it, and
/// what is reserved of unaccepted memory is reserved for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ExtentKind {
    /// Free: the frame allocator hands it out from the start.
    #[default]
    Usable,
    /// A confidential guest must accept it before the first touch; free afterwards.
    Unaccepted,
    /// Reserved for boot only: allocated from the start, freed later or never.
    Freeable,
    /// Reserved for ever: the kernel's image, tables, descriptors.
    Reserved,
    /// Must not be mapped.
    NoMap,
    /// A driver found it and manages it.
    DriverManaged,
    /// Holds what a previous kernel left there for this one.
    Preserved,
    /// No memory yet: firmware announces that some may be plugged in here.
    Absent,
}

impl ExtentKind {
    /// What memory with these flags is while nothing of it is reserved.
    pub(super) const fn of_memory(flags: EarlyFlags) -> Self {
        if flags.contains(EarlyFlags::NOMAP) {
            Self::NoMap
        } else if flags.contains(EarlyFlags::DRIVER_MANAGED) {
            Self::DriverManaged
        } else if flags.contains(EarlyFlags::PRESERVED) {
            Self::Preserved
        } else if flags.contains(EarlyFlags::UNACCEPTED) {
            Self::Unaccepted
        } else {
            Self::Usable
        }
    }

    /// Whether the frame allocator may own such frames, now or later.
    pub const fn may_become_free(self) -> bool {
        matches!(self, Self::Usable | Self::Unaccepted | Self::Freeable)
    }
}

/// Frames in a row of one node, one zone and one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Their zone.
    pub zone: ZoneKind,
    /// What they are.
    pub kind: ExtentKind,
}

impl Extent {
    /// No frames.
    pub const EMPTY: Self = Self {
        frames: FrameRange::EMPTY,
        node: NodeId(0),
        zone: ZoneKind::Normal,
        kind: ExtentKind::Usable,
    };
}

/// Frames in a row of one node and one zone, whatever they are: what the frame
/// allocator keeps tables for, and the memory map descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSegment {
    /// The frames; never empty.
    pub frames: FrameRange,
    /// Their node.
    pub node: NodeId,
    /// Their zone.
    pub zone: ZoneKind,
}
