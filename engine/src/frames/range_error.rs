//! What is refused of ranges, and why: [`RangeError`], [`ContiguousError`].

use core::fmt;

use super::Request;
use super::error::HeldByCpus;
use crate::addr::{Frame, FrameRange};
use crate::node::NodeId;

/// A range can't be claimed or freed as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// There is a hole in the range, or it reaches beyond memory. Nothing changed.
    OutsideMemory {
        /// The range asked for.
        range: FrameRange,
        /// Its first frame that is not memory.
        frame: Frame,
    },
    /// Claimed, but not all of it is free. Nothing changed.
    InUse {
        /// The range asked for.
        range: FrameRange,
        /// Its first frame seen in use: allocated, reserved, isolated, or held at that
        /// moment by another call. Where another CPU was faster just then, the
        /// first frame of the block it took a part of.
        frame: Frame,
    },
    /// Freed, but not all of it was allocated: freed twice, or too much.
    ///
    /// Nothing changed, unless another CPU freed a part of it at the same
    /// moment: then what lies before `frame` may have been freed. No frame is
    /// ever freed twice.
    NotAllocated {
        /// The range asked for.
        range: FrameRange,
        /// Its first frame seen free; where another CPU was faster just then,
        /// the first frame of the block it freed a part of.
        frame: Frame,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideMemory { range, frame } => {
                write!(f, "{range}: {frame} is not memory: expected no hole")
            }
            Self::InUse { range, frame } => {
                write!(f, "{range} claimed, but {frame} is in use or isolated")
            }
            Self::NotAllocated { range, frame } => write!(
                f,
                "{range} freed, but {frame} is not allocated: freed twice, or too long a range?"
            ),
        }
    }
}

impl core::error::Error for RangeError {}

/// A request for frames in a row could not be met; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContiguousError {
    /// No allowed node and zone had so many frames in a row, so aligned.
    OutOfMemory {
        /// How many frames in a row.
        frames: u64,
        /// Start is a multiple of this and of the request's order.
        align_frames: u64,
        /// Where.
        request: Request,
        /// Frames that lie in the magazines of other CPUs which were asked for
        /// them and have not given them back yet.
        held_by_cpus: u64,
    },
    /// Zero frames asked for.
    NoFrames,
    /// The alignment is not a power of two.
    BadAlignment {
        /// What was asked for.
        align_frames: u64,
    },
    /// There is no such node.
    NoSuchNode {
        /// The node asked for.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
}

impl fmt::Display for ContiguousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory {
                frames,
                align_frames,
                request,
                held_by_cpus,
            } => {
                let align = (*align_frames).max(request.order().frames());
                write!(
                    f,
                    "out of memory: no {frames:#x} free frames in a row from a multiple of {align:#x} on"
                )?;
                write!(f, ", {}{}", request.place(), HeldByCpus(*held_by_cpus))
            }
            Self::NoFrames => write!(f, "no frames asked for: expected at least one"),
            Self::BadAlignment { align_frames } => write!(
                f,
                "an alignment of {align_frames:#x} frames: expected a power of two"
            ),
            Self::NoSuchNode { node, nodes } => write!(
                f,
                "{node} asked for, but there are {nodes} nodes, numbered from 0"
            ),
        }
    }
}

impl core::error::Error for ContiguousError {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::addr::Order;
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
        let used = RangeError::InUse { range, frame };
        assert!(
            used.to_string()
                .ends_with("frame 0x11 is in use or isolated")
        );
        let none = ContiguousError::OutOfMemory {
            frames: 0x300,
            align_frames: 1,
            request: Request::new(Order::HUGE).on(NodeId(1)).exactly(),
            held_by_cpus: 0,
        };
        assert_eq!(
            none.to_string(),
            "out of memory: no 0x300 free frames in a row from a multiple of 0x200 on, \
             on node 1 itself in zone Normal or below"
        );
    }
}
