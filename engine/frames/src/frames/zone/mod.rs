//! Nodes and zones: [`Nodes`] knows the segment of each frame, and the order in which requests
//! try segments.
//!
//! *A request is served by its node, else by the nearest, from the highest zone allowed down; on
//! each node pages of the other mobility's huge frames come last.*
//!
//! Segments are kept by address, those of windows behind all others. Those of one node and zone are
//! chained in that order; the record of their zone holds the first of each chain, and its water marks. Everything lies in metadata memory, sized by the number of
//! segments and nodes.
//!
//! | file | what it is |
//! |---|---|
//! | [`segment`] | a segment with its node, zone and state |
//! | [`fallback`] | nodes from the nearest to the farthest |
//! | `count` | counts of free frames for the water marks |
//! | [`gate`] | zones in which enough stays free |
//! | [`marks`] | events when a zone's free memory crosses a water mark |
//! | [`record`] | the first segment of each zone, and its water marks |
//! | [`give`] | many blocks freed at a time |
//! | [`span`] | what a zone spans, and how much of it there is |
//! | [`windows`] | several segments over the same frames, where memory may come |
//! | `serve`, [`zeroed`] | blocks of requests for zeros: checked and zeroed, or given back; and counted |

mod count;
pub(crate) mod fallback;
pub(crate) mod gate;
pub(crate) mod give;
pub(crate) mod marks;
pub(crate) mod record;
pub(crate) mod segment;
mod serve;
pub(crate) mod span;
pub(crate) mod windows;
pub(crate) mod zeroed;

use core::fmt;

use super::error::BlockError;
use super::hooks::Hooks;
use super::request::{Request, ZoneChoice};
use super::search::{self, BlockRequest, Hints, Pass};
use super::segment::Segment;
use super::segment::calls::Calls;
use super::segment::give::{Refused, Why};
use super::segment::pinned::Pinned;
use super::segment::statistics::Statistics;
use super::word::geometry::{Block, HUGE_ORDER, blocks};
use super::word::{Known, Mobility};
use crate::addr::{Frame, FrameRange, Order};
use crate::layout::Layout;
use crate::node::{NodeId, ZoneKind};
use crate::sync::{AtomicBool, AtomicU64, Ordering, pause};
use gate::Gate;
use record::{ZoneTable, Zones};
use segment::{NONE, ZoneSegment};

/// Passes of a request for a page, at most. Two that agree prove that there is none.
const PAGE_PASSES: u32 = 64;
/// Passes of a request for a larger block, at most.
const BLOCK_PASSES: u32 = 8;

/// Passes that a request may still make. Those that met a frame that another CPU opens count by
/// themselves: that CPU writes at most 512 words, so they are worth repeating for as long as it may
/// be interrupted; but a hypervisor may have stopped it, so not for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passes {
    left: u32,
    beside_opening: u32,
}

impl Passes {
    /// Beside a CPU that opens a frame: a second and more.
    const BESIDE_OPENING: u32 = 1 << 22;

    /// So many, besides those.
    pub(crate) const fn new(left: u32) -> Self {
        Self {
            left,
            beside_opening: Self::BESIDE_OPENING,
        }
    }

    /// Whether another pass may be made.
    pub(crate) const fn is_any_left(self) -> bool {
        self.left > 0 && self.beside_opening > 0
    }

    /// A pass was made.
    pub(crate) const fn count(&mut self, met_opening: bool) {
        if met_opening {
            self.beside_opening -= 1;
        } else {
            self.left -= 1;
        }
    }
}

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The node it begins on.
    Node,
    /// All nodes the request allows.
    All,
}

/// Segments and distances between nodes.
pub(crate) struct Nodes<'m> {
    pub(crate) layout: Layout<'m>,
    /// Frames that can't be freed.
    pub(crate) pinned: &'m Pinned<'m>,
    /// Frames that were added, and a huge frame more for each segment that had none.
    pub(crate) added: AtomicU64,
    pub(crate) hooks: Option<&'m dyn Hooks>,
    /// Whether reported memory comes back zero.
    pub(crate) reported_is_zero: AtomicBool,
    pub(crate) segments: Segments<'m>,
}

/// All segments of a machine, by address and by zone, and the zones' water marks.
#[derive(Debug)]
pub(crate) struct Segments<'m> {
    /// Those that have their frames alone, and then those of windows.
    all: &'m [ZoneSegment<'m>],
    /// The first of them, by ascending address.
    fixed: &'m [ZoneSegment<'m>],
    /// Index of the largest of these, where most frames are.
    largest: usize,
    /// The others, by ascending address; those of one window have the same.
    of_windows: &'m [ZoneSegment<'m>],
    pub(crate) zones: ZoneTable<'m>,
    /// Calls that are taking a range, of any number of segments.
    pub(crate) range_calls: Calls,
}

impl<'m> Segments<'m> {
    /// Chains `all`, in ascending order but for those of windows, which come last, by node and zone.
    /// Every node number must be below the length of `zones`.
    pub(crate) fn new(all: &'m mut [ZoneSegment<'m>], zones: &'m mut [Zones]) -> Self {
        // From the last to the first, so that each chain ascends.
        let mut index = u32::try_from(all.len()).unwrap_or(NONE);
        for segment in all.iter_mut().rev() {
            index -= 1;
            let zone = &mut zones[usize::from(segment.node().0)][segment.zone() as usize];
            segment.next = core::mem::replace(&mut zone.first, index);
        }
        let all: &'m [ZoneSegment<'m>] = all;
        let (fixed, of_windows) = all.split_at(all.partition_point(|one| !one.is_of_window()));
        let sizes = fixed.iter().map(|segment| segment.frames().count());
        let largest = sizes.enumerate().max_by_key(|&(_, frames)| frames);
        Self {
            largest: largest.map_or(0, |(index, _)| index),
            all,
            fixed,
            of_windows,
            zones: ZoneTable::new(zones),
            range_calls: Calls::new(),
        }
    }

    /// How many nodes there are, numbered from 0.
    pub(crate) fn nodes(&self) -> usize {
        self.zones.nodes()
    }

    /// By ascending address, absent ones left out; those of windows last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ZoneSegment<'m>> {
        self.all.iter().filter(|segment| segment.is_present())
    }

    /// Those of `node` with memory from number `first` on, with their numbers.
    #[cfg(feature = "content")]
    pub(crate) fn of_node_from(
        &self,
        node: NodeId,
        first: usize,
    ) -> impl Iterator<Item = (usize, &ZoneSegment<'m>)> {
        let from = self.all.iter().enumerate().skip(first);
        from.filter(move |(_, one)| one.is_present() && one.node() == node)
    }

    /// The segment that covers all of `part`, absent or not.
    #[inline]
    pub(crate) fn of(&self, part: FrameRange) -> Option<&ZoneSegment<'m>> {
        let segment = self.any_at(part.start())?;
        // It starts inside.
        (part.end() <= segment.frames().end()).then_some(segment)
    }

    /// The segment that has `frame`, unless it is absent.
    #[inline]
    pub(crate) fn at(&self, frame: Frame) -> Option<&ZoneSegment<'m>> {
        let segment = self.any_at(frame)?;
        segment.is_present().then_some(segment)
    }

    /// The segment that has `frame`, absent or not.
    #[inline]
    fn any_at(&self, frame: Frame) -> Option<&ZoneSegment<'m>> {
        match self.fixed_at(frame) {
            Some(segment) => Some(segment),
            None => self.in_window_at(frame),
        }
    }

    /// The segment that `frame` lies in, if that has its frames alone.
    #[inline]
    fn fixed_at(&self, frame: Frame) -> Option<&'m ZoneSegment<'m>> {
        let mut segment = self.fixed.get(self.largest)?;
        if !segment.frames().contains(frame) {
            let starts = |segment: &ZoneSegment<'m>| segment.frames().start() <= frame;
            let after = self.fixed.partition_point(starts);
            segment = self.fixed.get(after.checked_sub(1)?)?;
        }
        segment.frames().contains(frame).then_some(segment)
    }

    #[cold]
    fn in_window_at(&self, frame: Frame) -> Option<&'m ZoneSegment<'m>> {
        let one = FrameRange::new(frame.get(), frame.get().checked_add(1)?)?;
        self.part_of_window(one).map(|(segment, _)| segment)
    }

    /// The segments of a node and zone, ascending.
    pub(crate) fn of_zone(
        &self,
        node: NodeId,
        zone: ZoneKind,
    ) -> impl Iterator<Item = &ZoneSegment<'m>> {
        let zones = self.zones.of(node);
        let head = zones.map_or(NONE, |zones| zones[zone as usize].first);
        let segment = |index: u32| self.all.get(index as usize);
        let chain = core::iter::successors(segment(head), move |at| segment(at.next));
        chain.filter(|segment| segment.is_present())
    }

    /// The segments of `node`, from the highest of `zones` down.
    pub(crate) fn on(
        &self,
        node: NodeId,
        zones: ZoneChoice,
    ) -> impl Iterator<Item = &ZoneSegment<'m>> {
        let of_zone = move |zone| self.of_zone(node, ZoneKind::ALL[zone]);
        zones.downwards().flat_map(of_zone)
    }

    /// Takes a block on `node`, from the highest of `zones` down; from huge frames of the
    /// other mobility only as the last fallback.
    fn allocate_on(
        &self,
        node: NodeId,
        zones: ZoneChoice,
        want: BlockRequest<'_>,
        gate: Option<&Gate<'_, '_>>,
        pass: &mut Pass,
    ) -> Option<Frame> {
        pass.other = false;
        let found = if want.known.is_some() {
            self.zeroed_on(node, zones, want, gate, pass)
        } else {
            self.first_on(node, zones, gate, |segment, hints| {
                search::any(segment, hints, want, pass)
            })
        };
        if found.is_some() || !pass.other {
            return found;
        }
        let found = self.first_on(node, zones, gate, |segment, hints| {
            search::any_of_other(segment, hints, want)
        });
        pass.changed |= found.is_none();
        found
    }

    /// Takes a block for a request for zeros: in each zone first what is known to be zero.
    #[cold]
    fn zeroed_on(
        &self,
        node: NodeId,
        zones: ZoneChoice,
        want: BlockRequest<'_>,
        gate: Option<&Gate<'_, '_>>,
        pass: &mut Pass,
    ) -> Option<Frame> {
        zones.each().find_map(|zone| {
            let known = self.first_on(node, zone, gate, |segment, hints| {
                search::known::any_known(segment, hints, want)
            });
            known.or_else(|| {
                self.first_on(node, zone, gate, |segment, hints| {
                    search::any_past_hint(segment, hints, want, pass)
                })
            })
        })
    }

    /// The first result of `find` in the segments of `node`, from the highest of `zones` down.
    fn first_on(
        &self,
        node: NodeId,
        zones: ZoneChoice,
        gate: Option<&Gate<'_, '_>>,
        mut find: impl FnMut(&Segment<'m>, &Hints) -> Option<Frame>,
    ) -> Option<Frame> {
        let of_node = self.zones.of(node)?;
        for zone in zones.downwards() {
            let mut at = of_node[zone].first;
            if at == NONE || !gate.is_none_or(|gate| gate.allows(node, ZoneKind::ALL[zone])) {
                continue;
            }
            while let Some(segment) = self.all.get(at as usize) {
                at = segment.next;
                if let Some(online) = segment.online()
                    && let Some(found) = find(online, &segment.hints)
                {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Takes a block at the hint of the first segment on `node` in `zones` that has memory; no search.
    #[inline(always)]
    fn allocate_at_hint(
        &self,
        node: NodeId,
        zones: ZoneChoice,
        want: BlockRequest<'_>,
    ) -> Option<Frame> {
        let of_node = self.zones.of(node)?;
        for zone in zones.downwards() {
            let mut at = of_node[zone].first;
            while at != NONE {
                let segment = self.all.get(at as usize)?;
                // Nothing may have come to a window yet.
                if let Some(online) = segment.online() {
                    return search::at_hint(online, &segment.hints, want);
                }
                at = segment.next;
            }
        }
        None
    }

    /// Takes a block from the first of `nodes` that has one.
    ///
    /// A pass that found nothing is repeated: two in a row that read the same words, no word
    /// being changed and no call in flight, prove a moment between the two at which nothing was
    /// free. Beside other CPUs that never pause, or never end what they began, the number of passes is
    /// bounded.
    pub(crate) fn allocate(
        &self,
        nodes: impl Iterator<Item = NodeId> + Clone,
        zones: ZoneChoice,
        want: BlockRequest<'_>,
        gate: Option<&Gate<'_, '_>>,
    ) -> Option<Frame> {
        let mut before = None;
        let mut left = Passes::new(if want.order == 0 {
            PAGE_PASSES
        } else {
            BLOCK_PASSES
        });
        while left.is_any_left() {
            let mut pass = Pass::default();
            pass.begin_calls(&self.range_calls, u64::MAX);
            for node in nodes.clone() {
                let found = self.allocate_on(node, zones, want, gate, &mut pass);
                if found.is_some() {
                    return found;
                }
            }
            if pass.proves(before) {
                return None;
            }
            if pass.changed {
                pause();
            }
            left.count(pass.opening);
            before = Some(pass);
        }
        None
    }
}

impl fmt::Debug for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes")
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

impl<'m> Nodes<'m> {
    /// Whole huge frames that were added: where it changes, CPUs look anew where they fill their
    /// lists from.
    pub(crate) fn added_huges(&self) -> u64 {
        // Acquire: what was added before is seen. Pairs with `Frames::add`.
        self.added.load(Ordering::Acquire) >> HUGE_ORDER
    }

    /// Nodes in the order of fallback of a request on `from`.
    pub(crate) fn fallback(&self, from: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let nodes = u32::try_from(self.segments.nodes()).unwrap_or(u32::MAX);
        fallback::by_distance(from, nodes, |a, b| self.layout.distance(a, b))
    }

    /// Those of them that a request may have, `first` first, which it may.
    pub(crate) fn allowed(
        &self,
        first: NodeId,
        request: &Request,
        reach: Reach,
    ) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let mask = request.nodes();
        let is_allowed = move |node: &NodeId| mask.is_none_or(|mask| mask.contains(*node));
        let is_one = reach == Reach::Node || request.is_only_node();
        let most = if is_one { 1 } else { usize::MAX };
        self.fallback(first).filter(is_allowed).take(most)
    }

    /// Takes the block of a request from node `first`; from others too, nearest first, if the
    /// `reach` and the request say so.
    pub(crate) fn allocate(&self, first: NodeId, request: &Request, reach: Reach) -> Option<Frame> {
        let gate = Gate::new(&self.segments.zones, request, request.order().frames());
        let want = BlockRequest::of(request, None);
        let frame = self.search_from(first, request, want, reach, gate.as_ref())?;
        self.count_taken(frame, request.order());
        Some(frame)
    }

    /// Takes what is wanted for a request next to the last one, if that is free; none where marks count.
    #[inline(always)]
    pub(crate) fn allocate_at_hint(
        &self,
        first: NodeId,
        request: &Request,
        want: BlockRequest<'_>,
    ) -> Option<Frame> {
        if self.segments.zones.has_marks() {
            return None;
        }
        (self.segments).allocate_at_hint(first, request.zones(), want)
    }

    /// Takes the block of a request for zeros; `known` notes which parts of it are.
    pub(crate) fn allocate_zeroed(
        &self,
        first: NodeId,
        request: &Request,
        reach: Reach,
        known: &Known,
    ) -> Option<Frame> {
        let want = BlockRequest::of(request, Some(known));
        let gate = Gate::new(&self.segments.zones, request, request.order().frames());
        let frame = self.search_from(first, request, want, reach, gate.as_ref())?;
        self.count_taken(frame, request.order());
        Some(frame)
    }

    /// Takes what is wanted for a request from this node in one pass: what other CPUs hold for a moment is not
    /// waited for.
    pub(crate) fn take_once(
        &self,
        node: NodeId,
        request: &Request,
        want: BlockRequest<'_>,
    ) -> Option<Frame> {
        let gate = Gate::new(&self.segments.zones, request, want.frames().into());
        let pass = &mut Pass::default();
        (self.segments).allocate_on(node, request.zones(), want, gate.as_ref(), pass)
    }

    #[inline(never)]
    fn search_from(
        &self,
        first: NodeId,
        request: &Request,
        want: BlockRequest<'_>,
        reach: Reach,
        gate: Option<&Gate<'_, '_>>,
    ) -> Option<Frame> {
        let (zones, segments) = (request.zones(), &self.segments);
        let found = segments.allocate_on(first, zones, want, gate, &mut Pass::default());
        if found.is_some() {
            return found;
        }
        segments.allocate(self.allowed(first, request, reach), zones, want, gate)
    }

    /// Takes a huge frame of a zone for a request for zeros that is known to be zero, if a short search
    /// finds one; `known` notes whether it is, or comes back so.
    pub(crate) fn take_known_huge(
        &self,
        node: NodeId,
        zone: ZoneKind,
        request: &Request,
        known: &Known,
    ) -> Option<Frame> {
        let want = BlockRequest {
            known: Some(known),
            ..BlockRequest::block(HUGE_ORDER, request.mobility())
        };
        let gate = Gate::new(&self.segments.zones, request, 1 << HUGE_ORDER);
        let zone = ZoneChoice::only(zone);
        let frame = self
            .segments
            .first_on(node, zone, gate.as_ref(), |segment, hints| {
                search::known::any_known(segment, hints, want)
            })?;
        self.count_taken(frame, Order::HUGE);
        Some(frame)
    }

    /// Where a request for zeros notes what is known of a block it takes.
    pub(crate) fn known(&self) -> Known {
        Known::new(self.reported_is_zero.load(Ordering::Relaxed))
    }

    /// How many frames a request may take from a segment together with others, as far as water
    /// marks go. None of zeros: these are taken one by one.
    pub(crate) fn most_allowed(&self, request: &Request, segment: &ZoneSegment<'m>) -> u64 {
        if request.is_zeroed() {
            return 0;
        }
        let gate = Gate::new(&self.segments.zones, request, 0);
        gate.map_or(u64::MAX, |gate| gate.most(segment.node(), segment.zone()))
    }

    /// Blocks of `order` are about to leave the shared levels.
    #[inline]
    pub(crate) fn prepare(&self, blocks: &[Frame], order: Order) {
        if let Some(hooks) = self.hooks {
            hooks.prepare(blocks, order);
        }
    }

    /// All frames of a range are about to leave the shared levels.
    pub(crate) fn prepare_range(&self, range: FrameRange) {
        if let Some(hooks) = self.hooks {
            for block in blocks(range) {
                if let Some(order) = Order::new(block.order) {
                    hooks.prepare(&[block.start], order);
                }
            }
        }
    }

    /// Memory of the highest zone up to `highest`, on the nearest node to `node` that has any.
    pub(crate) fn nearest(&self, node: NodeId, highest: ZoneKind) -> Option<&ZoneSegment<'m>> {
        let zones = ZoneChoice::up_to(highest);
        // All memory of a segment may be offline.
        #[cfg(feature = "hotplug")]
        {
            let has_memory = |segment: &&ZoneSegment<'m>| segment.managed_frames() > 0;
            let first = |node| self.segments.on(node, zones).find(has_memory);
            if let Some(found) = self.fallback(node).find_map(first) {
                return Some(found);
            }
        }
        let first = |node| self.segments.on(node, zones).next();
        self.fallback(node).find_map(first)
    }

    /// The free memory of some segments.
    pub(crate) fn sum<'a>(segments: impl Iterator<Item = &'a ZoneSegment<'m>>) -> Statistics
    where
        'm: 'a,
    {
        segments.map(ZoneSegment::statistics).sum()
    }

    /// The segment that covers all of `part`, and its tables.
    // Else whether a free calls it depends on code elsewhere: 17 instructions.
    #[inline(always)]
    fn segment_of(&self, part: FrameRange) -> Option<(&ZoneSegment<'m>, &Segment<'m>)> {
        let segment = self.segments.of(part)?;
        Some((segment, segment.online()?))
    }

    /// The segment that covers the block that starts at `frame`.
    #[inline(always)]
    fn segment_of_block(
        &self,
        frame: Frame,
        order: Order,
    ) -> Result<(&ZoneSegment<'m>, &Segment<'m>, Block), BlockError> {
        if !frame.is_aligned(order) {
            return Err(BlockError::Misaligned { frame, order });
        }
        let block = Block {
            start: frame,
            order: order.get(),
        };
        let found = self.segment_of(block.range());
        let (segment, online) = found.ok_or(BlockError::OutsideMemory { frame, order })?;
        Ok((segment, online, block))
    }

    /// Frees a block.
    // Always: it has one caller.
    #[inline(always)]
    pub(crate) fn free(&self, frame: Frame, order: Order) -> Result<(), BlockError> {
        let (segment, online, block) = self.segment_of_block(frame, order)?;
        let freed = self.freed(segment, order.frames(), online.give_part(block.range()));
        freed.map_err(|why| Self::refused(frame, order, why))
    }

    /// Frees a block, or frames of one huge frame; `false` if they lie in no segment or are not all allocated.
    pub(crate) fn free_part(&self, part: FrameRange) -> bool {
        let Some((segment, online)) = self.segment_of(part) else {
            return false;
        };
        let freed = self.freed(segment, part.count(), online.give_part(part));
        freed.is_ok()
    }

    fn refused(frame: Frame, order: Order, why: Why) -> BlockError {
        match why {
            Why::NotAllocated => BlockError::NotAllocated { frame, order },
            Why::Reserved => BlockError::Reserved { frame, order },
        }
    }

    /// Counts what was freed of so many frames.
    #[inline(always)]
    fn freed(
        &self,
        segment: &ZoneSegment<'m>,
        all: u64,
        freed: Result<(), Refused>,
    ) -> Result<(), Why> {
        let frames = match freed {
            Ok(()) => all,
            Err(Refused { given_frames, .. }) => given_frames,
        };
        if frames > 0 {
            self.count(segment, frames.cast_signed());
        }
        freed.map_err(|Refused { why, .. }| why)
    }

    /// Takes `range`, if it is a block, and free.
    pub(crate) fn take_block(&self, range: FrameRange) -> bool {
        let Some(order) = Order::of_block(range.count()) else {
            return false;
        };
        let Ok((segment, online, block)) = self.segment_of_block(range.start(), order) else {
            return false;
        };
        let is_taken = online.take_at(block, Mobility::Unmovable).is_ok();
        if is_taken {
            self.count(segment, -order.frames().cast_signed());
            self.prepare(&[range.start()], order);
        }
        is_taken
    }
}
