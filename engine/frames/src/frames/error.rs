//! Errors of requests, blocks and ranges.

use core::fmt;

use super::request::Request;
use crate::addr::{Frame, FrameRange, Order};
use crate::early::EarlyError;
use crate::node::NodeId;

/// A request could not be met; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// No node, zone or fallback had so many frames in a row, so aligned.
    OutOfMemory {
        /// The request.
        request: Request,
        /// How many frames in a row.
        frames: u64,
        /// The first is a multiple of this.
        align_frames: u64,
        /// Frames that other CPUs cache, or are about to, and whose drain is pending; some of
        /// them might do.
        held_by_cpus: u64,
        /// Frames that a worker has borrowed and gives back soon: see
        /// [`Frames::borrow_free`](super::Frames::borrow_free).
        in_work: u64,
    },
    /// There is no such node.
    NoSuchNode {
        /// The node of the request.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
    /// A request for zeros found free memory, but none known to be zero, and
    /// [`Hooks::zero`](super::Hooks::zero) zeroes none.
    NotZeroed {
        /// The request.
        request: Request,
    },
    /// A request for no frames.
    NoFrames,
    /// The alignment is not a power of two.
    BadAlignment {
        /// That of the request.
        align_frames: u64,
    },
    /// This CPU's cache can't be used, through a [`PerCpu`](super::PerCpu).
    Cpu(CpuError),
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfMemory {
                request,
                frames,
                align_frames,
                held_by_cpus,
                in_work,
            } => {
                let (order, place) = (request.order(), request.place());
                let held = Held {
                    by_cpus: held_by_cpus,
                    in_work,
                };
                if frames == order.frames() && align_frames == frames {
                    write!(f, "out of memory: no free block of {order} {place}{held}")
                } else {
                    write!(
                        f,
                        "out of memory: no {frames:#x} free frames in a row from a multiple of {align_frames:#x} on, {place}{held}"
                    )
                }
            }
            Self::NoSuchNode { node, nodes } => write!(
                f,
                "{node} requested, but there are {nodes} nodes, numbered from 0"
            ),
            Self::NotZeroed { request } => write!(
                f,
                "zeros requested {}, but what is free may hold anything and no hook zeroes it: expected `Hooks::zero`",
                request.place()
            ),
            Self::NoFrames => write!(f, "a request for no frames: expected at least one"),
            Self::BadAlignment { align_frames } => write!(
                f,
                "an alignment of {align_frames:#x} frames: expected a power of two"
            ),
            Self::Cpu(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AllocError {}

impl From<CpuError> for AllocError {
    fn from(error: CpuError) -> Self {
        Self::Cpu(error)
    }
}

impl AllocError {
    /// Frames that other CPUs cache and have not drained yet: a reason to try again, after
    /// [`Frames::request_drain`](super::Frames::request_drain).
    pub const fn held_by_cpus(&self) -> u64 {
        match *self {
            Self::OutOfMemory { held_by_cpus, .. } => held_by_cpus,
            _ => 0,
        }
    }
}

/// The end of a message: "; 3 frames are cached by CPUs ...", or not at all if none are.
struct Held {
    by_cpus: u64,
    in_work: u64,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_cpus, in_work } = self;
        if *by_cpus > 0 {
            write!(
                f,
                "; {by_cpus} frames are cached by CPUs that have not drained yet: try again"
            )?;
        }
        if *in_work > 0 {
            write!(
                f,
                "; {in_work} frames are with a worker that gives them back soon: try again"
            )?;
        }
        Ok(())
    }
}

/// A block can't be freed. Nothing changed, unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The frame is no multiple of the block's size.
    Misaligned {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Not all of the block is memory of one node and zone.
    OutsideMemory {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Freed, but not all of it was allocated: freed twice, or with too large an order.
    ///
    /// Only if two CPUs free overlapping blocks at the same moment can a part
    /// of the later one have been freed; no frame is ever freed twice.
    NotAllocated {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Some of it is reserved for ever (the allocator's own tables, the kernel's image, memory
    /// that must not be touched), was never added, or, in a window, is memory of another zone than
    /// its first frame.
    Reserved {
        /// First frame of the block.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// Found free when a CPU's cache was flushed: it had been freed twice. The call did its
    /// own work nevertheless.
    FreedTwice {
        /// First frame of the block that was freed twice; not that of the call.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// This CPU's cache can't be used, through a [`PerCpu`](super::PerCpu).
    Cpu(CpuError),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { frame, order } => write!(
                f,
                "{frame} can't start a block of {order}: expected a multiple of {:#x}",
                order.frames()
            ),
            Self::OutsideMemory { frame, order } => {
                write!(f, "{frame} with {order} is not memory of one node and zone")
            }
            Self::NotAllocated { frame, order } => write!(
                f,
                "{frame} with {order} freed, but it is not all allocated: freed twice, or with the wrong order?"
            ),
            Self::Reserved { frame, order } => write!(
                f,
                "{frame} with {order} freed, but some of it is reserved for ever, was never added, or is of another zone"
            ),
            Self::FreedTwice { frame, order } => write!(
                f,
                "{frame} with {order} was freed twice: found free when a cache was flushed, or a worker gave it back"
            ),
            Self::Cpu(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BlockError {}

impl From<CpuError> for BlockError {
    fn from(error: CpuError) -> Self {
        Self::Cpu(error)
    }
}

/// A range can't be allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// There is a hole in the range, or it reaches beyond memory. Nothing changed.
    OutsideMemory {
        /// The range.
        range: FrameRange,
        /// Its first frame that is not memory.
        frame: Frame,
    },
    /// To be allocated, but not all of it is free. Nothing changed.
    InUse {
        /// The range.
        range: FrameRange,
        /// Its first frame seen in use: allocated, reserved, isolated, or held at that
        /// moment by another call. Where another CPU was faster just then, the
        /// first frame of the block it took a part of.
        frame: Frame,
    },
    /// Freed, but some of it is reserved for ever, or was never added. Nothing changed.
    Reserved {
        /// The range.
        range: FrameRange,
        /// Its first frame that is.
        frame: Frame,
    },
    /// Freed, but not all of it was allocated: freed twice, or too much.
    ///
    /// Nothing changed, unless another CPU freed a part of it at the same
    /// moment: then what lies before `frame` may have been freed. No frame is
    /// ever freed twice.
    NotAllocated {
        /// The range.
        range: FrameRange,
        /// Its first frame seen free; where another CPU was faster just then,
        /// the first frame of the block it freed a part of.
        frame: Frame,
    },
    /// Found free when a CPU's cache was flushed: it had been freed twice. The call did its
    /// own work nevertheless.
    FreedTwice {
        /// First frame of the block that was freed twice; not that of the call.
        frame: Frame,
        /// Its order.
        order: Order,
    },
    /// This CPU's cache can't be used, through a [`PerCpu`](super::PerCpu). Nothing changed.
    Cpu(CpuError),
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideMemory { range, frame } => {
                write!(f, "{range}: {frame} is not memory: expected no hole")
            }
            Self::InUse { range, frame } => {
                write!(
                    f,
                    "{range} can't be allocated: {frame} is in use or isolated"
                )
            }
            Self::Reserved { range, frame } => {
                write!(
                    f,
                    "{range} freed, but {frame} is reserved for ever, or was never added"
                )
            }
            Self::NotAllocated { range, frame } => write!(
                f,
                "{range} freed, but {frame} is not allocated: freed twice, or too long a range?"
            ),
            Self::FreedTwice { frame, order } => BlockError::FreedTwice {
                frame: *frame,
                order: *order,
            }
            .fmt(f),
            Self::Cpu(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RangeError {}

impl From<CpuError> for RangeError {
    fn from(error: CpuError) -> Self {
        Self::Cpu(error)
    }
}

impl RangeError {
    /// The first frame that is not as it was expected.
    pub const fn frame(&self) -> Option<Frame> {
        match *self {
            Self::OutsideMemory { frame, .. }
            | Self::InUse { frame, .. }
            | Self::Reserved { frame, .. }
            | Self::NotAllocated { frame, .. }
            | Self::FreedTwice { frame, .. } => Some(frame),
            Self::Cpu(_) => None,
        }
    }
}

/// A CPU can't have a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// There is no cache of this number.
    NoSuchCpu {
        /// Its number.
        cpu: usize,
        /// How many were provided, numbered from 0.
        cpus: usize,
    },
    /// The cache of a [`PerCpu`](super::PerCpu) is none of those that
    /// [`Frames::provide_cpus`](super::Frames::provide_cpus) got, or it got none yet.
    NotProvided,
    /// Another [`Cpu`](super::Cpu) has the cache.
    Taken,
    /// No memory was added yet.
    NoMemory,
    /// Called in a handler that interrupted a call with this CPU's cache.
    InCall,
    /// There is no such node.
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCpu { cpu, cpus } => write!(
                f,
                "no cache for CPU {cpu}: {cpus} were provided, numbered from 0"
            ),
            Self::NotProvided => write!(
                f,
                "the CPU's cache was not provided: expected it in the list of all CPUs"
            ),
            Self::Taken => write!(f, "the CPU's cache is in use already"),
            Self::InCall => write!(
                f,
                "the CPU's cache is in use by the call that was interrupted: expected interrupts to be off around calls, or no call in a handler"
            ),
            Self::NoMemory => write!(f, "no memory to cache: expected some to be added first"),
            Self::NoSuchNode { node, nodes } => write!(
                f,
                "{node} requested, but there are {nodes} nodes, numbered from 0"
            ),
        }
    }
}

impl core::error::Error for CpuError {}

/// The allocator could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The layout has no memory at all.
    NoMemory,
    /// Early memory had no space for the metadata.
    NoSpace {
        /// Bytes of metadata that were needed in one piece.
        needed_bytes: u64,
        /// The node they describe.
        node: NodeId,
        /// The error of early memory.
        cause: EarlyError,
    },
    /// The tables would not fit into the address space.
    TooLarge {
        /// Contiguous ranges of memory of one node and zone.
        segments: usize,
        /// Nodes.
        nodes: usize,
    },
    /// The memory provided for the tables is too small.
    TooSmall {
        /// Bytes that are needed.
        needed_bytes: u64,
        /// Bytes provided.
        bytes: u64,
    },
    /// The platform has no pointer to early-allocated metadata.
    NotMapped {
        /// First byte of the metadata.
        start: crate::addr::PhysAddr,
        /// Its length.
        bytes: u64,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => write!(f, "no usable memory: there is nothing to allocate from"),
            Self::NoSpace {
                needed_bytes,
                node,
                cause,
            } => write!(
                f,
                "no space for the {needed_bytes} bytes that describe the frames of {node}: {cause}"
            ),
            Self::TooLarge { segments, nodes } => write!(
                f,
                "the tables for {segments} segments of memory on {nodes} nodes exceed the address space"
            ),
            Self::TooSmall {
                needed_bytes,
                bytes,
            } => write!(
                f,
                "{bytes} bytes provided for the allocator's tables: expected {needed_bytes}"
            ),
            Self::NotMapped { start, bytes } => {
                write!(
                    f,
                    "the platform can't reach the {bytes} bytes of metadata at {start}"
                )
            }
        }
    }
}

impl core::error::Error for BuildError {}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn errors_say_what_was_seen_where() {
        let range = FrameRange::new(0x10, 0x20).unwrap();
        let frame = Frame::new(0x11);
        let hole = RangeError::OutsideMemory { range, frame };
        assert_eq!(
            hole.to_string(),
            "frames 0x10..0x20: frame 0x11 is not memory: expected no hole"
        );
        let used = RangeError::InUse { range, frame }.to_string();
        assert!(used.ends_with("frame 0x11 is in use or isolated"));
        let request = Request::new(Order::HUGE).only_on(NodeId(1));
        let none = AllocError::OutOfMemory {
            request,
            frames: 0x300,
            align_frames: 0x200,
            held_by_cpus: 0,
            in_work: 0,
        };
        assert_eq!(
            none.to_string(),
            "out of memory: no 0x300 free frames in a row from a multiple of 0x200 on, \
             on node 1 itself in zone Normal or below"
        );
    }
}
