//! What all CPUs share: [`Shared`], the nodes and the way to drain other CPUs' caches.

use super::drain::Cpus;
use crate::addr::{Frame, FrameRange};
use crate::frames::error::{AllocError, RangeError};
use crate::frames::range;
use crate::frames::request::Request;
use crate::frames::zone::Nodes;
use crate::node::NodeId;

/// All memory, and all CPUs that may cache some of it.
#[derive(Debug)]
pub(crate) struct Shared<'m> {
    pub(crate) nodes: Nodes<'m>,
    pub(crate) cpus: Cpus<'m>,
}

/// The CPU that allocates.
pub(crate) trait Own {
    /// How many of the slots are its own.
    const SLOTS: usize;

    /// Drains its own cache; whether there was anything.
    fn drain(&mut self) -> bool;
}

/// A call that goes past all caches.
pub(crate) struct NoCache;

impl Own for NoCache {
    const SLOTS: usize = 0;

    fn drain(&mut self) -> bool {
        false
    }
}

impl Shared<'_> {
    /// The node a request looks at first.
    fn first_node(&self, near: NodeId, request: &Request) -> Result<NodeId, AllocError> {
        let nodes = self.nodes.segments.nodes();
        let node = request.node().unwrap_or(near);
        if usize::from(node.0) < nodes {
            Ok(node)
        } else {
            Err(AllocError::NoSuchNode { node, nodes })
        }
    }

    /// Takes a block, nearest to `near` where the request prefers no node. When there is none,
    /// the caller's own cache is drained, then those of other CPUs.
    pub(crate) fn allocate(
        &self,
        near: NodeId,
        request: Request,
        own: &mut impl Own,
    ) -> Result<Frame, AllocError> {
        let first = self.first_node(near, &request)?;
        let frames = request.order().frames();
        self.find(&request, own, || self.nodes.allocate(first, &request))
            .map_err(|held_by_cpus| AllocError::OutOfMemory {
                request,
                frames,
                align_frames: frames,
                held_by_cpus,
            })
    }

    /// Takes frames in a row, likewise.
    pub(crate) fn allocate_frames(
        &self,
        near: NodeId,
        frames: u64,
        align_frames: u64,
        request: Request,
        own: &mut impl Own,
    ) -> Result<FrameRange, AllocError> {
        let first = self.first_node(near, &request)?;
        let align_frames = align_frames.max(request.order().frames());
        let find =
            || range::contiguous::allocate(&self.nodes, first, frames, align_frames, &request);
        self.find(&request, own, find)
            .map_err(|held_by_cpus| AllocError::OutOfMemory {
                request,
                frames,
                align_frames,
                held_by_cpus,
            })
    }

    /// What `find` finds, at the latest after all caches were drained; else how much CPUs
    /// cache whose drain is pending.
    fn find<T>(
        &self,
        request: &Request,
        own: &mut impl Own,
        find: impl Fn() -> Option<T>,
    ) -> Result<T, u64> {
        if let Some(found) = find() {
            return Ok(found);
        }
        self.find_drained(request, own, find)
    }

    #[cold]
    fn find_drained<T, O: Own>(
        &self,
        request: &Request,
        own: &mut O,
        find: impl Fn() -> Option<T>,
    ) -> Result<T, u64> {
        if !request.may_drain() {
            return Err(0);
        }
        if own.drain()
            && let Some(found) = find()
        {
            return Ok(found);
        }
        if self.cpus.slots.len() <= O::SLOTS {
            return Err(0);
        }
        let pending = self.cpus.drain_any();
        // Also if no CPU caches anything: it may have come back since the last search.
        find().ok_or(pending)
    }

    /// Takes all frames of `range`, or none of them.
    pub(crate) fn allocate_range(&self, range: FrameRange) -> Result<(), RangeError> {
        let mut taken = range::allocate(&self.nodes.segments, range);
        if matches!(taken, Err(RangeError::InUse { .. })) && !self.cpus.slots.is_empty() {
            // Also if no CPU caches anything: it may have come back since the first look.
            self.cpus.drain_any();
            taken = range::allocate(&self.nodes.segments, range);
        }
        taken?;
        self.nodes.count_range(range, -1);
        Ok(())
    }
}
