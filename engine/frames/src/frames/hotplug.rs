//! Which zone memory is added to: [`Frames::zone_by_policy`], [`Frames::online_to`], [`OnlinePolicy`].
//!
//! *Decided when memory comes, not at boot.* A window has tables for the zones of every node whose
//! memory may come there ([`windows`](super::zone::windows)), so neighbours may be of different nodes
//! and zones, down to huge frames.

use super::find::Frames;
use super::hotplug_error::{HotplugError, Refusal};
#[cfg(feature = "hotplug")]
use super::offline::is_whole;
#[cfg(feature = "hotplug")]
use super::range;
#[cfg(feature = "hotplug")]
use super::word::Content;
use super::zone::segment::ZoneSegment;
#[cfg(feature = "hotplug")]
use crate::addr::FrameRange;
use crate::addr::{Frame, PhysRange};
use crate::node::{NodeId, NodeZone, ZoneKind};

/// What becomes of memory that comes, as Linux's `memhp_default_state=` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnlinePolicy {
    /// It waits offline, until [`Frames::online`] or [`Frames::online_to`].
    Offline,
    /// It is free in the zone that its window has by itself.
    #[default]
    Online,
    /// It is free in the zone of its addresses, for anything.
    OnlineKernel,
    /// It is free in zone Movable, so that it can go again.
    OnlineMovable,
}

impl OnlinePolicy {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Offline,
        Self::Online,
        Self::OnlineKernel,
        Self::OnlineMovable,
    ];

    /// Its name on Linux's command line.
    ///
    /// ```
    /// use firstlight_frames::frames::OnlinePolicy;
    /// let named = |name| OnlinePolicy::ALL.into_iter().find(|one| one.name() == name);
    /// assert_eq!(named("online_movable"), Some(OnlinePolicy::OnlineMovable));
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Online => "online",
            Self::OnlineKernel => "online_kernel",
            Self::OnlineMovable => "online_movable",
        }
    }
}

impl<'m> Frames<'m> {
    /// The node and zone of memory of `node` that comes with this policy, before it does: for what has
    /// to know first, such as its descriptors, and for [`NewMemory::of`](super::NewMemory::of).
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Frames, HotplugError, NewMemory, OnlinePolicy};
    /// # use firstlight_frames::node::NodeId;
    /// /// A DIMM of `node`, free in the zone of the policy.
    /// fn plugged(
    ///     frames: &Frames<'_>, dimm: PhysRange, node: NodeId, policy: OnlinePolicy,
    /// ) -> Result<(), HotplugError> {
    ///     let of = frames.zone_by_policy(dimm, node, policy)?;
    ///     println!("{dimm} is of {of}");
    ///     frames.add(NewMemory::new(dimm).of(of))
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::NoSuchNode`]; [`Refusal::NotHere`]; [`Refusal::OutsideSpan`] where no memory
    /// may be added, [`Refusal::NoTables`] where it is announced without tables.
    pub fn zone_by_policy(
        &self,
        range: PhysRange,
        node: NodeId,
        policy: OnlinePolicy,
    ) -> Result<NodeZone, HotplugError> {
        let frame = range.inner_frames().start();
        let mut zones = self.zones_at(frame).filter(|of| of.node == node);
        let of = match policy {
            OnlinePolicy::Offline | OnlinePolicy::Online => zones.next(),
            OnlinePolicy::OnlineKernel => zones.find(|of| of.zone != ZoneKind::Movable),
            OnlinePolicy::OnlineMovable => zones.find(|of| of.zone == ZoneKind::Movable),
        };
        let usual = || self.zones_at(frame).next();
        let usual = of
            .or_else(usual)
            .ok_or_else(|| self.no_tables(range, frame))?;
        let zone = match policy {
            OnlinePolicy::OnlineMovable => ZoneKind::Movable,
            _ => usual.zone,
        };
        let of = of.unwrap_or(NodeZone { node, zone });
        self.must_fit(range, of)?;
        Ok(of)
    }

    /// The nodes and zones that memory at `frame` may be of; first what it is by itself.
    fn zones_at(&self, frame: Frame) -> impl Iterator<Item = NodeZone> {
        let homes = self.nodes.segments.homes_at(frame);
        homes.map(ZoneSegment::node_zone)
    }

    /// The node and zone that `frame` is of, offline or not; `None` if it is no memory.
    ///
    /// ```
    /// # use firstlight_frames::addr::Frame;
    /// # use firstlight_frames::frames::Frames;
    /// # use firstlight_frames::node::NodeId;
    /// fn node(frames: &Frames<'_>, frame: Frame) -> Option<NodeId> {
    ///     Some(frames.zone_of(frame)?.node)
    /// }
    /// ```
    pub fn zone_of(&self, frame: Frame) -> Option<NodeZone> {
        let segment = self.nodes.segments.at(frame)?;
        #[cfg(feature = "hotplug")]
        let is_offline = || self.is_offline(frame);
        #[cfg(not(feature = "hotplug"))]
        let is_offline = || false;
        let is_memory =
            segment.is_memory_from_start() || !segment.pinned().run(frame).1 || is_offline();
        is_memory.then(|| segment.node_zone())
    }

    /// All of `range` may be of this node and zone.
    pub(super) fn must_fit(&self, range: PhysRange, of: NodeZone) -> Result<(), HotplugError> {
        let segments = &self.nodes.segments;
        let (node, nodes) = (of.node, segments.nodes());
        if usize::from(node.0) >= nodes {
            return Err(HotplugError::of(range, Refusal::NoSuchNode { node, nodes }));
        }
        let mut left = range.inner_frames();
        while segments.next_home(&mut left, Some(of)).is_some() {}
        match segments.homes_at(left.start()).next() {
            Some(usual) if !left.is_empty() => {
                let usual = usual.node_zone();
                let why = Refusal::NotHere { wanted: of, usual };
                Err(HotplugError::at(range, left.start(), why))
            }
            // What lies in no segment is refused by the calls that follow.
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "hotplug")]
impl<'m> Frames<'m> {
    /// Memory that waits offline.
    pub(super) fn add_offline(
        &self,
        range: PhysRange,
        of: Option<NodeZone>,
    ) -> Result<(), HotplugError> {
        let (frames, one) = self.begin_any(range)?;
        if let Some(of) = of {
            self.must_fit(range, of)?;
        }
        let next_home = |left: &mut FrameRange| self.nodes.segments.next_home(left, of);
        let mut left = frames;
        while let Some((segment, part)) = next_home(&mut left) {
            if segment.is_memory_from_start() {
                let frame = part.start();
                return Err(HotplugError::at(range, frame, Refusal::Present));
            }
            if !is_whole(part) {
                // A huge frame that crosses the end of a window could never come online.
                return Err(HotplugError::of(range, Refusal::Misaligned));
            }
        }
        if !left.is_empty() {
            return Err(self.no_tables(range, left.start()));
        }
        // From here on no other call adds it.
        let held = one.hold(frames);
        held.map_err(|frame| HotplugError::at(range, frame, Refusal::Present))?;
        if let Some(frame) = self.first_offline(frames) {
            return Err(HotplugError::at(range, frame, Refusal::Present));
        }
        let mut left = frames;
        while let Some((segment, part)) = next_home(&mut left) {
            segment.populate_offline(part);
        }
        one.count(frames.count().cast_signed());
        Ok(())
    }

    /// Brings `range`, all of which is offline, back in this zone of its node: all of it is free from
    /// now on. Memory of the start keeps its zone.
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Frames, HotplugError};
    /// # use firstlight_frames::node::ZoneKind;
    /// /// What a kernel's tool asks for: `echo online_movable > .../state`.
    /// fn online_movable(frames: &Frames<'_>, block: PhysRange) -> Result<(), HotplugError> {
    ///     frames.online_to(block, ZoneKind::Movable)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Refusal::NotHere`]; as [`Frames::online`].
    pub fn online_to(&self, range: PhysRange, zone: ZoneKind) -> Result<(), HotplugError> {
        let (frames, one) = self.begin(range)?;
        self.must_be_offline(range, frames)?;
        let segments = &self.nodes.segments;
        // Where it is offline, and where it goes.
        let next_move = |left: &mut FrameRange| {
            let mut rest = *left;
            let (from, part) = segments.next_part(&mut rest)?;
            let node = from.node();
            let is_it = |to: &&ZoneSegment<'m>| to.node_zone() == NodeZone { node, zone };
            let to = segments.homes_at(part.start()).find(is_it)?;
            *left = rest;
            Some((from, to, part))
        };
        let mut left = frames;
        while next_move(&mut left).is_some() {}
        if let Some((from, part)) = segments.next_part(&mut left) {
            let usual = from.node_zone();
            let wanted = NodeZone { zone, ..usual };
            let why = Refusal::NotHere { wanted, usual };
            return Err(HotplugError::at(range, part.start(), why));
        }
        let next_home = |left: &mut FrameRange| next_move(left).map(|(_, to, part)| (to, part));
        let unpinned = self.nodes.unpin(frames, || Ok(()), &next_home);
        unpinned.map_err(|why| self.not_unpinned(range, why))?;
        let mut left = frames;
        while let Some((_, to, part)) = next_move(&mut left) {
            if to.populate(part, Content::Unknown) {
                self.nodes.count(to, part.count().cast_signed());
            } else {
                // As `online`.
                let _ = range::free_with(&self.nodes, part, Content::Unknown);
            }
            let others = segments.homes_at(part.start());
            let others = others.filter(|other| !core::ptr::eq(*other, to));
            let moved: u64 = others.map(|other| other.remove_offline(part)).sum();
            // What was offline in the segment itself.
            to.count_offline(-(part.count() - moved).cast_signed());
        }
        one.count(-frames.count().cast_signed());
        self.count_moved(frames);
        Ok(())
    }
}
