//! Which zone memory comes to: [`Frames::add_to`], [`Frames::online_to`], [`OnlinePolicy`].
//!
//! *Decided when memory comes, not at boot.* A window has tables for the zones of every node whose
//! memory may come there ([`windows`](super::zone::windows)), so neighbours may be of different nodes
//! and zones, down to huge frames.

use core::fmt;

use super::add::AddError;
use super::find::Frames;
#[cfg(feature = "hotplug")]
use super::offline::{OfflineError, is_whole};
#[cfg(feature = "hotplug")]
use super::range;
use super::word::Content;
use super::zone::segment::ZoneSegment;
#[cfg(feature = "hotplug")]
use crate::addr::FrameRange;
use crate::addr::{Frame, PhysRange};
use crate::node::{NodeId, NodeZone, ZoneKind};

/// Memory can't come to a zone, or can't move there. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// There is no such node.
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// How many there are, numbered from 0.
        nodes: usize,
    },
    /// Memory of this node and zone can't be there: [`Frames::zones_at`] says which can.
    NotHere {
        /// The range.
        range: PhysRange,
        /// Its first frame that can't.
        frame: Frame,
        /// What was wanted.
        wanted: NodeZone,
        /// What memory there is by itself.
        usual: NodeZone,
    },
    /// The memory can't be added.
    Add(AddError),
    /// The memory can't come online, or wait offline.
    #[cfg(feature = "hotplug")]
    Offline(OfflineError),
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { node, nodes } => {
                write!(
                    f,
                    "{node} does not exist: there are {nodes} nodes, from 0 on"
                )
            }
            Self::NotHere {
                range,
                frame,
                wanted,
                usual,
            } => write!(
                f,
                "{range} can't be of {wanted}: there are no tables for that at {frame}, which is of {usual} by itself"
            ),
            Self::Add(error) => error.fmt(f),
            #[cfg(feature = "hotplug")]
            Self::Offline(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ZoneError {}

impl From<AddError> for ZoneError {
    fn from(error: AddError) -> Self {
        Self::Add(error)
    }
}

#[cfg(feature = "hotplug")]
impl From<OfflineError> for ZoneError {
    fn from(error: OfflineError) -> Self {
        Self::Offline(error)
    }
}

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
    /// Memory that came, of this node and zone: all of `range` is free there from now on. As
    /// [`Frames::add_with`], which takes the window's own node and zone.
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Content, Frames, ZoneError};
    /// # use firstlight_frames::node::{NodeId, NodeZone, ZoneKind};
    /// /// A DIMM of node 0 that is to go again some time.
    /// fn plugged(frames: &Frames<'_>, dimm: PhysRange) -> Result<(), ZoneError> {
    ///     let of = NodeZone { node: NodeId(0), zone: ZoneKind::Movable };
    ///     frames.add_to(dimm, of, Content::Unknown)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ZoneError::NoSuchNode`]; [`ZoneError::NotHere`]; [`ZoneError::Add`], as
    /// [`Frames::add`].
    pub fn add_to(
        &self,
        range: PhysRange,
        of: NodeZone,
        content: Content,
    ) -> Result<(), ZoneError> {
        self.must_fit(range, of)?;
        let frames = self.unpin(range, Some(of), ZoneSegment::is_memory_from_start)?;
        let freed = self.free_new(frames, Some(of), content);
        freed.map_err(|frame| AddError::FreedMeanwhile { range, frame }.into())
    }

    /// Memory of `node` that came, and is used as the policy says; the node and zone it is of, or will
    /// be of when it comes online.
    ///
    /// ```
    /// # use firstlight_frames::addr::PhysRange;
    /// # use firstlight_frames::frames::{Content, Frames, OnlinePolicy, ZoneError};
    /// # use firstlight_frames::node::NodeId;
    /// /// A DIMM of `node`, with the policy of the command line.
    /// fn plugged(
    ///     frames: &Frames<'_>, dimm: PhysRange, node: NodeId, policy: OnlinePolicy,
    /// ) -> Result<(), ZoneError> {
    ///     let of = frames.add_by_policy(dimm, node, policy, Content::Unknown)?;
    ///     println!("{dimm} came: {of}");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Frames::zone_by_policy`], [`Frames::add_to`] and [`Frames::add_offline`].
    #[cfg(feature = "hotplug")]
    pub fn add_by_policy(
        &self,
        range: PhysRange,
        node: NodeId,
        policy: OnlinePolicy,
        content: Content,
    ) -> Result<NodeZone, ZoneError> {
        let of = self.zone_by_policy(range, node, policy)?;
        match policy {
            OnlinePolicy::Offline => self.add_offline(range, of)?,
            _ => self.add_to(range, of, content)?,
        }
        Ok(of)
    }

    /// The node and zone of memory of `node` that comes with this policy, before it does: for what has
    /// to know first, such as its descriptors.
    ///
    /// # Errors
    /// [`ZoneError::NoSuchNode`]; [`ZoneError::NotHere`]; [`AddError::OutsideSpan`] where no memory
    /// may come, [`AddError::NoTables`] where it is announced without tables.
    pub fn zone_by_policy(
        &self,
        range: PhysRange,
        node: NodeId,
        policy: OnlinePolicy,
    ) -> Result<NodeZone, ZoneError> {
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

    /// The nodes and zones that memory at `frame` may be of; first what it is by itself. None where
    /// no memory may be, and where firmware announces some but there are no tables for it:
    /// [`Frames::zone_by_policy`] tells these apart.
    ///
    /// ```
    /// # use firstlight_frames::addr::Frame;
    /// # use firstlight_frames::frames::Frames;
    /// # use firstlight_frames::node::ZoneKind;
    /// /// Whether memory that comes to `frame` can be made to go again.
    /// fn may_be_movable(frames: &Frames<'_>, frame: Frame) -> bool {
    ///     frames.zones_at(frame).any(|of| of.zone == ZoneKind::Movable)
    /// }
    /// ```
    pub fn zones_at(&self, frame: Frame) -> impl Iterator<Item = NodeZone> {
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
    fn must_fit(&self, range: PhysRange, of: NodeZone) -> Result<(), ZoneError> {
        let segments = &self.nodes.segments;
        let (node, nodes) = (of.node, segments.nodes());
        if usize::from(node.0) >= nodes {
            return Err(ZoneError::NoSuchNode { node, nodes });
        }
        let mut left = range.inner_frames();
        while segments.next_home(&mut left, Some(of)).is_some() {}
        match segments.homes_at(left.start()).next() {
            Some(usual) if !left.is_empty() => Err(ZoneError::NotHere {
                range,
                frame: left.start(),
                wanted: of,
                usual: usual.node_zone(),
            }),
            // What lies in no segment is refused by the calls that follow.
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "hotplug")]
impl<'m> Frames<'m> {
    /// Memory that came, and waits offline to be of this node and zone, or of another zone of the
    /// node ([`Frames::online_to`]). Costs a step a huge frame.
    ///
    /// # Errors
    /// As [`Frames::add_to`]; [`ZoneError::Offline`] if it does not consist of huge frames, or another
    /// call changes what is offline.
    pub fn add_offline(&self, range: PhysRange, of: NodeZone) -> Result<(), ZoneError> {
        let (frames, one) = self.begin_any(range)?;
        self.must_fit(range, of)?;
        let next_home = |left: &mut FrameRange| self.nodes.segments.next_home(left, Some(of));
        let mut left = frames;
        while let Some((segment, part)) = next_home(&mut left) {
            if segment.is_memory_from_start() {
                let frame = part.start();
                return Err(AddError::Present { range, frame }.into());
            }
            if !is_whole(part) {
                // A huge frame that crosses the end of a window could never come online.
                return Err(OfflineError::Misaligned { range }.into());
            }
        }
        if !left.is_empty() {
            return Err(self.no_tables(range, left.start()).into());
        }
        // From here on no other call adds it.
        let held = one.hold(frames);
        held.map_err(|frame| AddError::Present { range, frame })?;
        if let Some(frame) = self.first_offline(frames) {
            return Err(AddError::Present { range, frame }.into());
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
    /// # use firstlight_frames::frames::{Frames, ZoneError};
    /// # use firstlight_frames::node::ZoneKind;
    /// /// What a kernel's tool asks for: `echo online_movable > .../state`.
    /// fn online_movable(frames: &Frames<'_>, block: PhysRange) -> Result<(), ZoneError> {
    ///     frames.online_to(block, ZoneKind::Movable)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ZoneError::NotHere`]; [`ZoneError::Offline`], as [`Frames::online`].
    pub fn online_to(&self, range: PhysRange, zone: ZoneKind) -> Result<(), ZoneError> {
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
            return Err(ZoneError::NotHere {
                range,
                frame: part.start(),
                wanted: NodeZone { zone, ..usual },
                usual,
            });
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
