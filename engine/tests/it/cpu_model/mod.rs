//! CPUs with caches against the plainest model: one `bool` a frame, whether it is held.
//!
//! After every step frames free, held and cached must add up. A refusal is checked: no block
//! that would do is free outside the caches of CPUs with a pending drain, and the error reports
//! how much these cache. A double free must be reported exactly once.
//! `FIRSTLIGHT_MODEL_CASES` sets the number of cases.

use crate::kit;
mod steps;

use std::cell::RefCell;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{AllocError, BlockError, Cpu, Frames, RangeError, Request, Statistics};
use firstlight::node::{NodeId, ZoneKind};
use kit::{GIB, MIB, Machine, range};
use proptest::prelude::*;
use steps::{Step, Via, Wanted, steps};

const CPUS: usize = 3;

/// Memory of one node and zone.
type Extent = (FrameRange, u16, ZoneKind);

/// A machine all of whose memory is free between two cases.
struct Ground {
    frames: &'static Frames<'static>,
    extents: Vec<Extent>,
    at_start: Statistics,
    /// Whether a frame is held.
    held: Vec<bool>,
}

impl Ground {
    fn new(memory: &[(u16, u64, u64)]) -> Self {
        let rows = memory
            .iter()
            .map(|&(node, start, end)| (node, range(start, end)));
        let rows: Vec<_> = rows.collect();
        let frames = Machine::new(&rows).frames_with_cpus(CPUS);
        let extents = memory.iter().map(|&(node, start, end)| {
            let zone = match end {
                end if end <= 16 * MIB => ZoneKind::Dma,
                end if end <= 4 * GIB => ZoneKind::Dma32,
                _ => ZoneKind::Normal,
            };
            let frames = FrameRange::new(start / 4096, end / 4096).expect("ascending");
            (frames, node, zone)
        });
        let extents: Vec<Extent> = extents.collect();
        let end = extents.last().unwrap().0.end().get();
        Self {
            at_start: frames.statistics(),
            frames: Box::leak(Box::new(frames)),
            extents,
            held: vec![false; usize::try_from(end).unwrap()],
        }
    }

    /// Lists of some pages, none of huge frames; fallback from zone to zone.
    fn small() -> Self {
        Self::new(&[
            (0, MIB, 9 * MIB),
            (0, 20 * MIB, 24 * MIB),
            // A hole of 16 pages in the middle of a word of a bitmap.
            (0, 4 * GIB, 4 * GIB + 10 * MIB + 0x12_0000),
            (0, 4 * GIB + 10 * MIB + 0x13_0000, 4 * GIB + 23 * MIB),
            (1, 5 * GIB, 5 * GIB + 12 * MIB),
        ])
    }

    /// Large enough for bump blocks, and for lists of huge frames.
    fn large() -> Self {
        Self::new(&[
            (0, 4 * GIB - 64 * MIB, 4 * GIB),
            (0, 4 * GIB, 4 * GIB + 300 * MIB + 0x7000),
            (1, 5 * GIB, 5 * GIB + 260 * MIB),
        ])
    }

    /// Under Miri: a few hundred pages.
    fn sliver() -> Self {
        Self::new(&[
            (0, 8 * MIB, 8 * MIB + 0x4_0000),
            (0, 4 * GIB, 4 * GIB + 2 * MIB + 0x10_0000),
            (1, 5 * GIB, 5 * GIB + 0x18_0000),
        ])
    }

    fn is_free(&self, frame: u64) -> bool {
        self.frames.is_allocated(Frame::new(frame)) == Some(false)
    }

    fn is_held(&self, frame: u64) -> bool {
        (self.held.get(usize::try_from(frame).unwrap())).is_some_and(|&held| held)
    }

    fn blocks(extent: FrameRange, order: Order) -> impl Iterator<Item = FrameRange> {
        let size = order.frames();
        let first = extent.start().get().next_multiple_of(size);
        (first..)
            .step_by(usize::try_from(size).unwrap())
            .map_while(move |start| {
                FrameRange::new(start, start + size).filter(|block| block.end() <= extent.end())
            })
    }
}

struct Run {
    ground: Ground,
    cpus: [Option<Cpu<'static, 'static>>; CPUS],
    held: Vec<(Frame, Order)>,
}

impl Run {
    fn new(ground: Ground) -> Self {
        Self {
            ground,
            cpus: [None, None, None],
            held: Vec::new(),
        }
    }

    fn cpu(&mut self, cpu: usize) -> &mut Cpu<'static, 'static> {
        let frames = self.ground.frames;
        let node = NodeId(u16::from(cpu == 1));
        self.cpus[cpu].get_or_insert_with(|| frames.cpu(cpu, node).unwrap())
    }

    /// Frames cached by all CPUs, or by all but one.
    fn in_caches(&self, but: Via) -> u64 {
        let cpus = self.cpus.iter().enumerate();
        let others = cpus.filter(|&(cpu, _)| Some(cpu) != but);
        others
            .filter_map(|(_, cpu)| cpu.as_ref())
            .map(Cpu::cached_frames)
            .sum()
    }

    fn set(&mut self, frame: Frame, order: Order, held: bool) {
        let from = usize::try_from(frame.get()).unwrap();
        self.ground.held[from..from + usize::try_from(order.frames()).unwrap()].fill(held);
    }

    fn keep(&mut self, frame: Frame, order: Order, request: Option<Request>) {
        assert!(frame.is_aligned(order));
        let block = FrameRange::new(frame.get(), frame.get() + order.frames()).unwrap();
        let extent = self
            .ground
            .extents
            .iter()
            .find(|extent| extent.0.covers(block));
        let &(_, node, zone) = extent.expect("inside memory of one node and zone");
        if let Some(request) = request {
            assert!(zone <= request.highest_zone());
            assert!(!request.is_only_node() || request.node() == Some(NodeId(node)));
        }
        for frame in frame.get()..frame.get() + order.frames() {
            assert!(!self.ground.is_held(frame), "{frame:#x} twice");
        }
        self.set(frame, order, true);
        self.held.push((frame, order));
    }

    /// Whether there was a block.
    fn allocate(&mut self, via: Via, request: Request) -> bool {
        let found = match via {
            Some(cpu) => self.cpu(cpu).allocate(request),
            None => self.ground.frames.allocate(request),
        };
        match found {
            Ok(frame) => self.keep(frame, request.order(), Some(request)),
            Err(AllocError::OutOfMemory { held_by_cpus, .. }) => {
                assert_eq!(held_by_cpus, self.in_caches(via));
                assert!(via.is_none_or(|cpu| self.cpu(cpu).cached_frames() == 0));
                for &(frames, node, zone) in &self.ground.extents {
                    let exact = request.is_only_node() && request.node() != Some(NodeId(node));
                    if exact || zone > request.highest_zone() {
                        continue;
                    }
                    for block in Ground::blocks(frames, request.order()) {
                        let mut all = block.start().get()..block.end().get();
                        let is_there = all.all(|frame| self.ground.is_free(frame));
                        assert!(!is_there, "refused, but {block} is free");
                    }
                }
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        true
    }

    fn free_as(&mut self, via: Via, frame: Frame, order: Order) -> Result<(), BlockError> {
        match via {
            Some(cpu) => self.cpu(cpu).free(frame, order),
            None => self.ground.frames.free(frame, order),
        }
    }

    fn free(&mut self, via: Via, pick: usize, order: Order, part: u64) {
        if self.held.is_empty() {
            return;
        }
        let (mut frame, mut whole) = self.held.swap_remove(pick % self.held.len());
        let order = order.min(whole);
        let wanted =
            Frame::new(frame.get() + (part % (whole.frames() / order.frames())) * order.frames());
        // What is left of the block is held by its parts.
        while whole > order {
            let half = Order::new(whole.get() - 1).unwrap();
            let middle = Frame::new(frame.get() + half.frames());
            if wanted >= middle {
                self.held.push((frame, half));
                frame = middle;
            } else {
                self.held.push((middle, half));
            }
            whole = half;
        }
        let all = frame.get()..frame.get() + order.frames();
        assert!(
            all.clone().all(|frame| !self.ground.is_free(frame)),
            "held, but free"
        );
        self.set(frame, order, false);
        assert_eq!(self.free_as(via, frame, order), Ok(()));
    }

    fn wild(&mut self, via: Via, frame: Frame, order: Order) {
        let frame = Frame::new(frame.get() & !(order.frames() - 1));
        let mut all = frame.get()..frame.get() + order.frames();
        let inside = |frame| self.ground.frames.is_allocated(Frame::new(frame));
        // Wholly allocated, to all appearances: other steps free such blocks.
        if all.all(|frame| inside(frame) == Some(true)) {
            return;
        }
        let before = (self.ground.frames.statistics(), self.in_caches(None));
        let refused = self.free_as(via, frame, order);
        assert!(matches!(
            refused,
            Err(BlockError::NotAllocated { .. }
                | BlockError::OutsideMemory { .. }
                | BlockError::Reserved { .. })
        ));
        let now = (self.ground.frames.statistics(), self.in_caches(None));
        // A drain may have been pending: the call drains first.
        assert_eq!(before.0.free_frames + before.1, now.0.free_frames + now.1);
    }

    fn twice(&mut self, one: Via, other: Via, pick: usize) {
        let blocks = self.held.iter().enumerate();
        let mut blocks =
            blocks.filter(|(_, block)| block.1 == Order::PAGE || block.1 == Order::HUGE);
        let count = blocks.clone().count();
        let Some((at, &(frame, order))) = blocks.nth(pick % count.max(1)) else {
            return;
        };
        self.held.swap_remove(at);
        self.set(frame, order, false);
        assert_eq!(self.free_as(one, frame, order), Ok(()));
        let second = self.free_as(other, frame, order);
        let refused = Err(BlockError::NotAllocated { frame, order });
        let named = Err(BlockError::FreedTwice { frame, order });
        let mut count = usize::from(second == refused || second == named);
        assert!(count == 1 || second == Ok(()));
        for cpu in 0..CPUS {
            let drained = self.cpu(cpu).drain();
            count += usize::from(drained == named);
            assert!(drained == named || drained == Ok(()));
        }
        assert_eq!(count, 1, "{frame} with {order} was freed twice");
        for frame in frame.get()..frame.get() + order.frames() {
            assert!(self.ground.is_free(frame));
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate(via, wanted) => {
                self.allocate(via, wanted.request());
            }
            Step::Many(via, wanted, count) => {
                let order = if wanted.order % 3 == 0 { 0 } else { 9 };
                let request = Wanted { order, ..wanted }.request();
                let _ = (0..count).all(|_| self.allocate(via, request));
            }
            Step::Free(via, pick, order, part) => {
                self.free(via, pick, Order::new(order).unwrap(), part);
            }
            Step::FreeMany(via, pick, count) => {
                for more in 0..count {
                    let pick = pick.wrapping_add(more * 7919);
                    self.free(via, pick, Order::new(13).unwrap(), 0);
                }
            }
            Step::AllocateAt(frame, order) => {
                let order = Order::new(order).unwrap();
                let frame = Frame::new(frame & !(order.frames() - 1));
                let mut all = frame.get()..frame.get() + order.frames();
                let is_free = all.all(|frame| self.ground.is_free(frame));
                match self.ground.frames.allocate_range(kit::block(frame, order)) {
                    Ok(()) => self.keep(frame, order, None),
                    Err(RangeError::InUse { .. }) => assert!(!is_free),
                    Err(error) => assert!(matches!(error, RangeError::OutsideMemory { .. })),
                }
            }
            Step::Wild(via, frame, order) => {
                self.wild(via, Frame::new(frame), Order::new(order).unwrap());
            }
            Step::Twice(one, other, pick) => self.twice(one, other, pick),
            Step::Drain(cpu) => {
                assert_eq!(self.cpu(cpu).drain(), Ok(()));
                assert_eq!(self.cpu(cpu).cached_frames(), 0);
            }
            Step::Poll(cpu) => self.cpu(cpu).poll(),
            Step::Leave(cpu, node) => {
                self.cpus[cpu] = None;
                let frames = self.ground.frames;
                self.cpus[cpu] = Some(frames.cpu(cpu, NodeId(node)).unwrap());
            }
        }
    }

    fn check(&self, validate: bool) {
        let held: u64 = self.held.iter().map(|block| block.1.frames()).sum();
        let free = self.ground.frames.statistics().free_frames;
        let all = self.ground.at_start.free_frames;
        assert_eq!(free + held + self.in_caches(None), all);
        if validate {
            self.ground.frames.validate().unwrap();
        }
    }

    /// Frees all: the machine is ready for the next case.
    ///
    /// By reference: a call that gets the CPUs by value borrows their caches until it returns,
    /// and `caches` must not be freed within it.
    fn end(&mut self) {
        while !self.held.is_empty() {
            let len = self.held.len();
            self.free(Some(len % CPUS), len / 2, Order::new(13).unwrap(), 0);
        }
        self.cpus = [None, None, None];
        self.check(true);
        assert_eq!(self.ground.frames.statistics(), self.ground.at_start);
        for (frames, ..) in &self.ground.extents {
            let mut frames = frames.start().get()..frames.end().get();
            assert!(!frames.any(|frame| self.ground.is_held(frame)));
        }
    }
}

/// Runs the steps on a machine all of whose memory was freed by the case before.
fn run(steps: &[Step], kept: &RefCell<Option<Ground>>, make: fn() -> Ground) {
    let ground = kept.borrow_mut().take().unwrap_or_else(make);
    let mut run = Run::new(ground);
    for (count, step) in steps.iter().enumerate() {
        run.step(step);
        run.check(count % 8 == 0);
    }
    run.end();
    kept.replace(Some(run.ground));
}

/// The number of cases; one under Miri if that is not set.
fn config() -> ProptestConfig {
    let cases = std::env::var("FIRSTLIGHT_MODEL_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(if cfg!(miri) { 1 } else { 100 }),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn many_steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(steps(), 1..if cfg!(miri) { 8 } else { 80 })
}

#[test]
fn small_machines_agree_with_a_set_of_frames() {
    let kept = RefCell::default();
    let make = if cfg!(miri) {
        Ground::sliver
    } else {
        Ground::small
    };
    proptest!(config(), |(steps in many_steps())| run(&steps, &kept, make));
}

#[test]
fn large_machines_agree_with_a_set_of_frames() {
    let kept = RefCell::default();
    let make = if cfg!(miri) {
        Ground::sliver
    } else {
        Ground::large
    };
    proptest!(config(), |(steps in many_steps())| run(&steps, &kept, make));
}
