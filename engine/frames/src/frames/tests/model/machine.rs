//! An allocator beside its model: [`Machine`]; what is checked of all that it hands out and refuses, after each step,
//! and at the end.

extern crate std;

use core::mem::take;
use std::vec::Vec;

use super::content::Contents;
use super::plain::{ABSENT, FREE, Model, OFFLINE, numbers, pieces};
use super::steps::Via;
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::tests::kit::{Extent, frames};
use crate::frames::word::geometry::{GIANT_ORDER, HUGE_ORDER};
use crate::frames::{
    AllocError, BlockError, Cpu, CpuError, Frames, Isolation, Request, Statistics, ZoneMarks,
    ZoneSpan,
};
use crate::node::{NodeId, NodeZone, ZoneKind};

/// Where memory may come and go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comes {
    Nowhere,
    /// To all of the span, each frame to one zone.
    ToSpan,
    /// To a window, of two nodes, to zone Normal or Movable.
    ToWindow,
}

pub(super) struct Machine {
    pub(super) frames: &'static Frames<'static>,
    pub(super) model: Model,
    /// The node of each CPU, and those that are open.
    pub(super) homes: &'static [u16],
    pub(super) cpus: Vec<Option<Cpu<'static, 'static>>>,
    /// What was allocated, and by which call.
    pub(super) held: Vec<(FrameRange, u32)>,
    pub(super) isolations: Vec<(FrameRange, Isolation<'static, 'static>)>,
    pub(super) comes: Comes,
    pub(super) marks: &'static [ZoneMarks],
    /// Where something begins or ends.
    pub(super) borders: Vec<Frame>,
    pub(super) content: Option<Contents>,
    pub(super) at_start: Statistics,
}

impl Machine {
    // ---- Calls -------------------------------------------------------------------

    /// The CPU that a call goes through, which is opened if there is memory.
    pub(super) fn cpu(&mut self, via: Via) -> Option<&mut Cpu<'static, 'static>> {
        let Via::Cpu(cpu) = via else {
            return None;
        };
        if self.cpus[cpu].is_none() {
            match self.frames.cpu(cpu, NodeId(self.homes[cpu])) {
                Err(CpuError::NoMemory) => return None,
                opened => self.cpus[cpu] = Some(opened.unwrap()),
            }
        }
        self.cpus[cpu].as_mut()
    }

    pub(super) fn drain(&mut self) {
        let cpus = self.cpus.iter_mut().flatten();
        cpus.for_each(|cpu| cpu.drain().unwrap());
    }

    /// Frames cached by all CPUs, or by all but that of a call.
    pub(super) fn cached(&self, but: Via) -> u64 {
        let others = self.cpus.iter().enumerate();
        let others = others.filter(|&(cpu, _)| Via::Cpu(cpu) != but);
        let others = others.filter_map(|(_, cpu)| cpu.as_ref());
        others.map(Cpu::cached_frames).sum()
    }

    /// Whether a frame is free in the model, and in no CPU's cache.
    pub(super) fn is_seen_free(&self, frame: u64) -> bool {
        let is_seen = || self.frames.is_allocated(Frame::new(frame)) == Some(false);
        self.model.is(frame, FREE) && (self.cached(Via::Shared) == 0 || is_seen())
    }

    /// Whether the shared levels have it to hand out.
    pub(super) fn is_available(&self, frame: u64) -> bool {
        self.is_seen_free(frame) && !self.model.is_isolated(frame)
    }

    /// What is free, and what is known of it: read only where content is modelled.
    pub(super) fn before(&self) -> Statistics {
        let seen = self.content.as_ref().map(|_| self.frames.statistics());
        seen.unwrap_or_default()
    }

    /// A new call has these frames, which were free.
    pub(super) fn hold(&mut self, range: FrameRange) {
        let owner = self.model.allocate(range);
        let owner = owner.unwrap_or_else(|| panic!("{range} was not free"));
        self.held.push((range, owner));
    }

    /// These frames were handed out; of one node and zone that the request may have, if there is one.
    pub(super) fn receive(
        &mut self,
        range: FrameRange,
        request: Option<(Via, Request)>,
        before: &Statistics,
    ) {
        if let Some((_, request)) = request {
            let of = self.model.zone_of(range);
            let of = of.unwrap_or_else(|| panic!("{range} is of no zone, or of two"));
            let may = request.allows(of.node) && request.zones().contains(of.zone);
            assert!(may, "{request:?} got {range}, of {of}");
        }
        let mut huges = self.model.huges(range);
        let is_isolated = huges.any(|huge| self.model.is_isolated(huge.start().get()));
        assert!(!is_isolated, "{range} is isolated");
        self.hold(range);
        if let Some(content) = &mut self.content {
            let known = [before, &self.frames.statistics()].map(|seen| content.known(seen));
            content.receive(range, request, known);
        }
    }

    /// There were no such frames: none are free outside of caches, and the error says how much these hold.
    pub(super) fn refused(
        &mut self,
        error: AllocError,
        (via, request): (Via, Request),
        (count, align): (u64, u64),
        before: &Statistics,
    ) {
        if let AllocError::OutOfMemory { held_by_cpus, .. } = error {
            assert_eq!(held_by_cpus, self.cached(via));
            assert_eq!(self.cpu(via).map_or(0, |cpu| cpu.cached_frames()), 0);
            for of in self.zones() {
                let may = request.allows(of.node) && request.zones().contains(of.zone);
                let is_available = |frame| self.is_available(frame);
                let has_some = may && self.model.has_space(of, (count, align), is_available);
                assert!(!has_some, "{request:?} of {count:#x} was refused: of {of}");
            }
        } else {
            assert!(matches!(error, AllocError::NotZeroed { .. }), "{error}");
        }
        if let Some(content) = self.content.as_mut().filter(|_| via == Via::Shared) {
            content.refused(error, request, count, [before, &self.frames.statistics()]);
        }
    }

    fn zones(&self) -> impl Iterator<Item = NodeZone> + use<> {
        let nodes = (0..=u16::MAX).take(self.frames.nodes.segments.nodes());
        let of = |node| ZoneKind::ALL.map(|zone| NodeZone { node, zone });
        nodes.map(NodeId).flat_map(of)
    }

    /// Frees a block.
    pub(super) fn free(&mut self, via: Via, frame: Frame, order: Order) -> Result<(), BlockError> {
        match self.cpu(via) {
            Some(cpu) => cpu.free(frame, order),
            None => self.frames.free(frame, order),
        }
    }

    /// A part of what is held is free from now on.
    pub(super) fn give(&mut self, at: usize, part: FrameRange) {
        let (held, owner) = self.held.swap_remove(at);
        assert!(self.model.are(held, owner), "{held} has another owner");
        self.model.turn(part, FREE);
        for (start, end) in [(held.start(), part.start()), (part.end(), held.end())] {
            if start < end {
                self.held.push((frames(start.get(), end.get()), owner));
            }
        }
    }

    /// All of `range`, which was allocated, was freed: by a call that may have it or not.
    pub(super) fn forget(&mut self, range: FrameRange) {
        let is_in = |(held, _): &(FrameRange, _)| !held.intersect(range).is_empty();
        while let Some(at) = self.held.iter().position(is_in) {
            self.give(at, self.held[at].0.intersect(range));
        }
        // What was reserved.
        if !self.model.are(range, FREE) {
            for frame in numbers(range) {
                self.model.turn(frames(frame, frame + 1), FREE);
            }
        }
    }

    // ---- Checks --------------------------------------------------------------------

    /// What is free, held and cached adds up; with `recount`, all counts are recounted.
    pub(super) fn check(&self, recount: bool) {
        let seen = self.frames.statistics();
        assert_eq!(seen.cached_frames, self.cached(Via::Shared));
        // What is isolated and cached is in use.
        let is_exact = seen.cached_frames == 0 || self.isolations.is_empty();
        let free = seen.free_frames + seen.cached_frames;
        assert!(!is_exact || free == self.model.available(), "{free}");
        if recount {
            self.frames.validate().unwrap();
            assert!(self.frames.nodes.segments.range_calls.snapshot().is_quiet());
        }
        for (range, isolation) in self.isolations.iter().filter(|_| is_exact) {
            let seen = (isolation.first_in_use(), isolation.frames_in_use());
            assert_eq!(seen, self.in_use(*range));
        }
        for huge in pieces(self.model.span).filter(|_| self.comes == Comes::ToWindow) {
            let (at, first) = (huge.start().get(), huge.start());
            assert_eq!(self.frames.zone_of(first), self.model.zone_of(huge));
            assert_eq!(self.frames.is_offline(first), self.model.is(at, OFFLINE));
        }
        if self.comes != Comes::Nowhere {
            let is_counted = recount && seen.cached_frames == 0;
            self.zones().for_each(|of| self.check_zone(of, is_counted));
        }
        if let Some(content) = &self.content {
            content.check(self);
        }
    }

    /// The first frame that is in use of what is isolated in `range`, and how many are.
    pub(super) fn in_use(&self, range: FrameRange) -> (Option<Frame>, u64) {
        let all = self.model.huges(range).flat_map(numbers);
        let mut used = all.filter(|&frame| !self.model.is(frame, FREE));
        let first = used.next().map(Frame::new);
        let rest = used.count() as u64;
        (first, rest + u64::from(first.is_some()))
    }

    /// What a zone of a window spans; how much a zone has, and how much of that its water marks count as free.
    fn check_zone(&self, of: NodeZone, is_counted: bool) {
        let is_here = |extent: &&Extent| (NodeId(extent.1), extent.2) == (of.node, of.zone);
        let extents = || self.model.extents.iter().filter(is_here);
        let pieces = || extents().flat_map(|extent| pieces(extent.0));
        let pieces = || pieces().filter(|piece| self.model.zone_of(*piece) == Some(of));
        let is_present = |at| !self.model.is_any(at, &[ABSENT, OFFLINE]);
        let zone = self.frames.zone(of.node, of.zone);
        if self.comes == Comes::ToWindow {
            let there = || pieces().filter(|piece| is_present(piece.start().get()));
            let start = there().next().map_or(0, |piece| piece.start().get());
            let end = there().last().map_or(0, |piece| piece.end().get());
            let count = there().map(|piece| piece.count()).sum();
            let expected = ZoneSpan {
                spanned: frames(start, end),
                present_frames: count,
                managed_frames: count,
            };
            assert_eq!(zone.span(), expected, "{of}");
        }
        if is_counted {
            let (mut managed, mut free, mut isolated) = (0, 0, 0);
            for frame in pieces().flat_map(numbers) {
                let is_free = self.model.is(frame, FREE);
                managed += u64::from(is_free || is_present(frame));
                free += u64::from(is_free);
                isolated += u64::from(is_free && self.model.is_isolated(frame));
            }
            let seen = zone.statistics();
            let seen = (seen.managed_frames, seen.free_frames);
            assert_eq!(seen, (managed, free - isolated), "{of}");
            // They count what is isolated until it is taken.
            let mut marks = self.marks.iter();
            let marks = marks.find(|marks| marks.zone() == (of.node, of.zone));
            let marked = marks.map_or(free, ZoneMarks::free_frames);
            assert_eq!(marked, free, "{of}");
        }
    }

    /// Everything is given back, and has merged; each frame is what the model says.
    pub(super) fn end(mut self) {
        self.isolations.clear();
        self.model.set_isolated(self.model.span, false);
        self.cpus.clear();
        if self.content.is_some() {
            self.take_all_zero();
        }
        self.check(true);
        for frame in numbers(self.model.span).filter(|_| self.comes != Comes::Nowhere) {
            let at = Frame::new(frame);
            let is_free = self.frames.is_allocated(at) == Some(false);
            let seen = (is_free, self.frames.is_offline(at));
            let expected = (self.model.is(frame, FREE), self.model.is(frame, OFFLINE));
            assert_eq!(seen, expected, "{at}");
        }
        for (range, owner) in take(&mut self.held) {
            assert!(self.model.are(range, owner), "{range} has another owner");
            self.frames.free_frames(range).unwrap();
            self.model.turn(range, FREE);
        }
        self.check(true);
        // What is known of content may be lost, and what was reserved may be free.
        let levels = |seen: &Statistics| [seen.free_giants, seen.free_huges, seen.partial_huges];
        let (seen, all) = (self.frames.statistics(), self.at_start);
        let is_all = seen.free_frames == all.free_frames;
        assert!(!is_all || levels(&seen) == levels(&all), "{seen:?}");
    }

    /// All that is believed to be zero is found without a kernel that zeroes, and is.
    fn take_all_zero(&mut self) {
        let known = |on: &Self| {
            let content = on.content.as_ref().expect("content is modelled");
            content.truth().zeroes = false;
            content.known(&on.frames.statistics())
        };
        for order in [GIANT_ORDER, GIANT_ORDER - 1, 12, HUGE_ORDER, 5, 1, 0] {
            let order = Order::new(order).unwrap();
            let request = (Via::Shared, Request::new(order).zeroed());
            while known(self) > 0 {
                let before = self.before();
                match self.frames.allocate(request.1) {
                    Ok(start) => {
                        let block = FrameRange::of(start, order.frames());
                        self.receive(block, Some(request), &before);
                    }
                    Err(AllocError::NotZeroed { .. } | AllocError::OutOfMemory { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(known(self), 0, "a page that is known to be zero is found");
    }
}
