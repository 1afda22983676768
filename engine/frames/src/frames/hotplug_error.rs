//! Why memory is not added, taken offline, brought online, removed or isolated: [`HotplugError`].

use core::fmt;

use super::word::geometry::HUGE_FRAMES;
use crate::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use crate::node::{NodeId, NodeZone};

/// Memory can't be added, adopted, isolated, taken offline, brought online or removed. Nothing
/// changed, unless the [`Refusal`] says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotplugError {
    /// The range of the call.
    pub range: PhysRange,
    /// The first frame of it that is at fault; where that is none in particular, its first.
    pub frame: Frame,
    /// What is wrong there.
    pub why: Refusal,
}

impl HotplugError {
    /// Of all of a range.
    pub(super) const fn of(range: PhysRange, why: Refusal) -> Self {
        let frame = Frame::new(range.start().get() / PAGE_BYTES);
        Self { range, frame, why }
    }

    /// Of a frame of a range.
    pub(super) const fn at(range: PhysRange, frame: Frame, why: Refusal) -> Self {
        Self { range, frame, why }
    }
}

/// What is wrong with the frame of a [`HotplugError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not of whole pages (to be added or adopted), or not of whole huge frames; or empty.
    /// An isolation may also begin and end where memory does.
    Misaligned,
    /// Outside of where memory may be added: the span of [`Frames::over`](super::Frames::over), or
    /// a window of the layout.
    OutsideSpan,
    /// Firmware announces that memory may be added there, but there are no tables for it: the layout's
    /// share of memory for tables ([`Layout::with_window_share`](crate::layout::Layout::with_window_share))
    /// ends before, or early memory had no space for them in one piece. Never without the feature
    /// `hotplug`, which has [`Refusal::OutsideSpan`] instead.
    NoTables {
        /// Bytes of tables that windows would need, from the first window on up to the end of the
        /// range.
        needed_bytes: u64,
    },
    /// There is no such node.
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
    /// Memory of this node and zone can't be there: there are no tables for it.
    NotHere {
        /// What was requested.
        wanted: NodeZone,
        /// What memory there is by itself.
        usual: NodeZone,
    },
    /// To be added, but memory already, or offline.
    Present,
    /// Memory of another node or zone, in a huge frame of which the range has a part.
    OtherZone,
    /// The list of what is absent is full: it needs space for `capacity + 1` ranges.
    ListFull {
        /// Ranges it has space for, one fewer than it needs.
        capacity: usize,
    },
    /// Another call freed it before it was memory; the rest is added or adopted.
    FreedMeanwhile,
    /// No memory now: never added, or removed; to be isolated, also offline.
    NotMemory,
    /// Another call takes memory offline, brings it online or removes it.
    Busy,
    /// Isolated already, or for a moment by another call, which is then refused itself.
    Isolated,
    /// In use.
    InUse {
        /// How many frames of the range are.
        frames: u64,
        /// What holds the first.
        holder: Holder,
        /// Frames that CPUs cache which have not drained, in the range or elsewhere.
        held_by_cpus: u64,
        /// Frames that workers have and give back soon, in the range or elsewhere.
        in_work: u64,
    },
    /// To go offline, but offline already.
    Offline,
    /// To come online or be removed, but not offline.
    NotOffline,
    /// Memory from the start: it can be offline, and is not removed.
    FromStart,
}

/// What holds a frame that keeps its range from going offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is reserved for ever: tables, descriptors, the kernel's image.
    Reserved {
        /// For what: the owner that early memory was given; `None` if its log had no space.
        owner: Option<&'static str>,
    },
    /// It is allocated; or cached by a CPU that has not drained its cache; or a worker has it.
    Allocation,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { owner: Some(owner) } => write!(f, "reserved for ever, for {owner}"),
            Self::Reserved { owner: None } => f.write_str("reserved for ever"),
            Self::Allocation => f.write_str("allocated"),
        }
    }
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { range, frame, why } = self;
        write!(f, "{range} is left as it is: ")?;
        match why {
            Refusal::Misaligned => write!(
                f,
                "expected one page or more to be added, in multiples of {PAGE_BYTES} bytes; else one huge frame or more, in multiples of {HUGE_FRAMES:#x} frames"
            ),
            Refusal::OutsideSpan => write!(f, "{frame} is outside of where memory may be added"),
            Refusal::NoTables { needed_bytes } => write!(
                f,
                "memory is announced at {frame}, but without tables; {needed_bytes} bytes of tables would be needed"
            ),
            Refusal::NoSuchNode { node, nodes } => write!(
                f,
                "{node} does not exist: there are {nodes} nodes, from 0 on"
            ),
            Refusal::NotHere { wanted, usual } => write!(
                f,
                "there are no tables for {wanted} at {frame}, which is of {usual} by itself"
            ),
            Refusal::Present => write!(f, "{frame} is memory already"),
            Refusal::OtherZone => write!(
                f,
                "{frame} in a huge frame at its end is of another node or zone; expected that, or multiples of {} MiB",
                Order::HUGE.bytes() >> 20
            ),
            Refusal::ListFull { capacity } => write!(
                f,
                "the list of absent ranges has space for {capacity}, and needs {}",
                capacity + 1
            ),
            Refusal::FreedMeanwhile => write!(
                f,
                "but for what was added of it: {frame} was freed at that moment, before it was memory"
            ),
            Refusal::NotMemory => write!(f, "{frame} is not memory now: expected memory"),
            Refusal::Busy => f.write_str("another call changes what is offline; try again"),
            Refusal::Isolated => write!(f, "{frame} is isolated; end that first"),
            Refusal::InUse {
                frames,
                holder,
                held_by_cpus,
                in_work,
            } => {
                match frames {
                    1 => write!(f, "1 frame is in use, {frame}, {holder}")?,
                    _ => write!(
                        f,
                        "{frames} frames are in use, the first is {frame}, {holder}"
                    )?,
                }
                if *held_by_cpus > 0 {
                    let s = if *held_by_cpus == 1 { "" } else { "s" };
                    write!(f, "; CPUs still cache {held_by_cpus} frame{s}")?;
                }
                if *in_work > 0 {
                    write!(f, "; workers have {in_work} frames and give them back soon")?;
                }
                let them = if *frames == 1 { "it" } else { "them" };
                write!(f, ": move or free {them}, then try again")
            }
            Refusal::Offline => write!(f, "{frame} is offline already"),
            Refusal::NotOffline => write!(f, "{frame} is not offline; take it offline first"),
            Refusal::FromStart => write!(f, "{frame} was memory from the start"),
        }
    }
}

impl core::error::Error for HotplugError {}
