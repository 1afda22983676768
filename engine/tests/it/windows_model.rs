//! Memory that comes to windows in any zone, and changes it, against the plainest model: what each huge
//! frame is, which are isolated, and which pages are held.
//!
//! `FIRSTLIGHT_MODEL_CASES` sets the number of cases.

use crate::kit;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use firstlight::addr::{Frame, FrameRange, Order, PhysRange};
use firstlight::frames::{
    Cpu, Frames, HotplugError, Isolation, NewMemory, OnlinePolicy, Refusal, Request, WaterMarks,
    ZoneMarks, ZoneSpan,
};
use firstlight::layout::LayoutPolicy;
use firstlight::node::{NodeId, NodeZone, ZoneKind};
use kit::{GIB, MIB, Uninitialised, layout_with_windows, range};
use proptest::prelude::*;

/// The window's huge frames: some before the end of a giant frame, some behind it.
const HUGES: u64 = 10;
const FIRST: u64 = 65 * GIB / 4096 - 4 * 512;
const ZONES: [ZoneKind; 2] = [ZoneKind::Normal, ZoneKind::Movable];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Absent,
    Offline(NodeZone),
    Online(NodeZone),
}

#[derive(Clone, Debug)]
enum Step {
    Add(Range<u64>, NodeZone),
    AddOffline(Range<u64>, NodeZone),
    Offline(Range<u64>),
    Online(Range<u64>),
    OnlineTo(Range<u64>, ZoneKind),
    Remove(Range<u64>),
    Allocate(Request, bool),
    AllocateFrames(Request, u64),
    Free(usize, bool),
    Drain,
    Isolate(Range<u64>),
    End(usize, End),
}

/// How an isolation ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Drop,
    Take,
    Offline,
}

fn huges() -> impl Strategy<Value = Range<u64>> {
    // Up to one more than there are.
    (0..=HUGES, 1..=4_u64)
        .prop_map(|(start, len)| start..(start + len).min(HUGES + 1).max(start + 1))
}

fn zone() -> impl Strategy<Value = ZoneKind> {
    prop_oneof![
        9 => prop::sample::select(&ZONES[..]),
        1 => Just(ZoneKind::Dma),
    ]
}

fn node_zone() -> impl Strategy<Value = NodeZone> {
    let node = prop_oneof![9 => 0..2_u16, 1 => Just(2)];
    (node, zone()).prop_map(|(node, zone)| NodeZone {
        node: NodeId(node),
        zone,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let order = prop::sample::select(vec![0_u8, 0, 0, 3, 9, 10]);
    (order, 0..2_u16, any::<[bool; 3]>()).prop_map(|(order, node, [movable, zone, only])| {
        let mut request = Request::new(Order::new(order).unwrap()).on(NodeId(node));
        if movable {
            request = request.movable();
        }
        if zone {
            request = request.zone(ZoneKind::Movable);
        }
        if only {
            request.only_on(NodeId(node))
        } else {
            request
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (huges(), node_zone()).prop_map(|(huges, of)| Step::Add(huges, of)),
        2 => (huges(), node_zone()).prop_map(|(huges, of)| Step::AddOffline(huges, of)),
        5 => huges().prop_map(Step::Offline),
        2 => huges().prop_map(Step::Online),
        4 => (huges(), zone()).prop_map(|(huges, zone)| Step::OnlineTo(huges, zone)),
        4 => huges().prop_map(Step::Remove),
        12 => (request(), any::<bool>()).prop_map(|(request, by)| Step::Allocate(request, by)),
        2 => (request(), 1..1600_u64).prop_map(|(request, n)| Step::AllocateFrames(request, n)),
        12 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(index, by)| Step::Free(index.index(1 << 16), by)),
        2 => Just(Step::Drain),
        4 => huges().prop_map(Step::Isolate),
        3 => (
            any::<prop::sample::Index>(),
            prop::sample::select(vec![End::Drop, End::Take, End::Offline]),
        )
            .prop_map(|(index, end)| Step::End(index.index(1 << 16), end)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 16 } else { 120 })
}

fn bytes(huges: &Range<u64>) -> PhysRange {
    let at = |huge: u64| FIRST + huge * 512;
    FrameRange::new(at(huges.start), at(huges.end))
        .unwrap()
        .addrs()
}

fn all_zones() -> impl Iterator<Item = NodeZone> {
    let nodes = [NodeId(0), NodeId(1)].into_iter();
    nodes.flat_map(|node| ZONES.map(|zone| NodeZone { node, zone }))
}

struct Model {
    huges: Vec<Is>,
    /// Those that are isolated.
    isolated: BTreeSet<u64>,
    /// First frame, and how many.
    held: BTreeMap<u64, u64>,
    /// Of the start: node 0, zone Normal.
    boot: FrameRange,
    boot_managed: u64,
}

impl Model {
    fn all(&self, huges: &Range<u64>, is: impl Fn(Is) -> bool) -> bool {
        huges.clone().all(|huge| {
            let index = usize::try_from(huge).unwrap();
            self.huges.get(index).is_some_and(|one| is(*one))
        })
    }

    fn set(&mut self, huges: &Range<u64>, to: impl Fn(Is) -> Is) {
        for huge in huges.clone() {
            let one = &mut self.huges[usize::try_from(huge).unwrap()];
            *one = to(*one);
        }
    }

    fn of(&self, frame: u64) -> Option<NodeZone> {
        if self.boot.contains(Frame::new(frame)) {
            return Some(NodeZone::default());
        }
        let huge = frame.checked_sub(FIRST)? / 512;
        match self.huges.get(usize::try_from(huge).unwrap())? {
            Is::Online(of) => Some(*of),
            _ => None,
        }
    }

    fn held_in(&self, frames: FrameRange) -> u64 {
        let (start, end) = (frames.start().get(), frames.end().get());
        let held = self.held.iter().map(|(&at, &count)| at..at + count);
        held.map(|held| held.end.min(end).saturating_sub(held.start.max(start)))
            .sum()
    }

    fn is_isolated(&self, frame: u64) -> bool {
        let huge = frame.checked_sub(FIRST).map(|at| at / 512);
        huge.is_some_and(|huge| self.isolated.contains(&huge))
    }

    /// What an isolation of `huges` comes to.
    fn isolate(&self, huges: &Range<u64>) -> Result<(), HotplugError> {
        let inside = huges.start..huges.end.min(HUGES);
        if inside.is_empty() {
            return Err(kit::refused(bytes(huges), Refusal::NotMemory));
        }
        let frame = |huge: u64| Frame::new(FIRST + huge * 512);
        let is_absent =
            |huge: &u64| !self.all(&(*huge..huge + 1), |is| matches!(is, Is::Online(_)));
        if let Some(frame) = inside.clone().find(is_absent).map(frame) {
            return Err(kit::refused_at(bytes(huges), frame, Refusal::NotMemory));
        }
        let isolated = inside.clone().find(|huge| self.isolated.contains(huge));
        let isolated = isolated.map(frame);
        isolated.map_or(Ok(()), |frame| {
            Err(kit::refused_at(bytes(huges), frame, Refusal::Isolated))
        })
    }

    /// What is free of the zone, and isolated.
    fn free_isolated(&self, of: NodeZone) -> u64 {
        let isolated = self.isolated.iter().map(|&huge| huge..huge + 1);
        let of_zone = isolated.filter(|huge| self.all(huge, |is| is == Is::Online(of)));
        let free = of_zone.map(|huge| 512 - self.held_in(bytes(&huge).inner_frames()));
        free.sum()
    }

    /// Frames in a row that were handed out for a request.
    fn hold(&mut self, request: &Request, start: Frame, count: u64) {
        let range = FrameRange::new(start.get(), start.get() + count).unwrap();
        assert_eq!(self.held_in(range), 0, "{range} is held");
        let of = self.of(start.get());
        for frame in range.start().get()..range.end().get() {
            assert!(!self.is_isolated(frame), "{range} is isolated");
            let here = self
                .of(frame)
                .unwrap_or_else(|| panic!("{frame:#x} is no memory"));
            assert_eq!(Some(here), of, "{range} of two zones");
            assert!(
                here.zone <= request.highest_zone(),
                "{request:?} got {here}"
            );
            let is_here = Some(here.node) == request.node();
            assert!(is_here || !request.is_only_node(), "{request:?}: {here}");
        }
        self.held.insert(start.get(), count);
    }

    fn span(&self, node: NodeId, zone: ZoneKind) -> ZoneSpan {
        let of = NodeZone { node, zone };
        let online =
            (0..HUGES).filter(|&huge| self.huges[usize::try_from(huge).unwrap()] == Is::Online(of));
        let mut spans: Vec<_> = online
            .map(|huge| bytes(&(huge..huge + 1)).inner_frames())
            .collect();
        let mut managed_frames = spans.len() as u64 * 512;
        if of == NodeZone::default() {
            spans.insert(0, self.boot);
            managed_frames += self.boot_managed;
        }
        let ends = spans.first().zip(spans.last());
        ZoneSpan {
            spanned: ends.map_or(FrameRange::EMPTY, |(first, last)| {
                FrameRange::new(first.start().get(), last.end().get()).unwrap()
            }),
            present_frames: spans.iter().map(|span| span.count()).sum(),
            managed_frames,
        }
    }
}

struct Machine {
    frames: &'static Frames<'static>,
    cpu: Cpu<'static, 'static>,
    marks: &'static [ZoneMarks],
    isolations: Vec<(Range<u64>, Isolation<'static, 'static>)>,
    model: Model,
}

impl Machine {
    fn new() -> Self {
        let boot = range(4 * GIB, 4 * GIB + 16 * MIB);
        let window = range(FIRST * 4096, (FIRST + HUGES * 512) * 4096);
        let layout = layout_with_windows(boot, &[], &[(1, window)], &LayoutPolicy::DEFAULT);
        let platform: &'static Uninitialised = Box::leak(Box::default());
        let marks = all_zones().map(|of| ZoneMarks::new(of.node, of.zone, WaterMarks::default()));
        let marks = marks.collect::<Vec<_>>().leak();
        let frames = kit::with_cpus(Frames::build(layout, platform).unwrap(), 1);
        let frames: &'static _ = Box::leak(Box::new(frames.with_water_marks(marks)));
        let normal = frames.zone(NodeId(0), ZoneKind::Normal).span();
        Self {
            frames,
            cpu: frames.cpu(0, NodeId(1)).unwrap(),
            marks,
            isolations: Vec::new(),
            model: Model {
                isolated: BTreeSet::new(),
                huges: vec![Is::Absent; usize::try_from(HUGES).unwrap()],
                held: BTreeMap::new(),
                boot: boot.inner_frames(),
                boot_managed: normal.managed_frames,
            },
        }
    }

    fn came(&mut self, huges: &Range<u64>, of: NodeZone, done: Result<(), HotplugError>, to: Is) {
        let is_free = self.model.all(huges, |is| is == Is::Absent);
        match done {
            Ok(()) => {
                assert!(is_free && of.node.0 < 2 && ZONES.contains(&of.zone));
                self.model.set(huges, |_| to);
            }
            Err(HotplugError {
                why: Refusal::NoSuchNode { node, nodes: 2 },
                ..
            }) => assert_eq!(node, NodeId(2)),
            Err(HotplugError {
                why: Refusal::NotHere { wanted, usual, .. },
                ..
            }) => {
                assert_eq!((wanted, of.zone), (of, ZoneKind::Dma));
                assert_eq!(usual.node, NodeId(1));
            }
            Err(HotplugError {
                frame,
                why: Refusal::Present,
                ..
            }) => {
                let huge = (frame.get() - FIRST) / 512;
                assert_ne!(self.model.huges[usize::try_from(huge).unwrap()], Is::Absent);
            }
            Err(HotplugError {
                why: Refusal::OutsideSpan,
                ..
            }) => assert!(huges.end > HUGES),
            Err(other) => panic!("{other}"),
        }
    }

    fn step(&mut self, step: &Step) {
        let offline = |is| matches!(is, Is::Offline(_));
        match step {
            Step::Add(huges, of) => {
                let done = self.frames.add(NewMemory::new(bytes(huges)).of(*of));
                self.came(huges, *of, done, Is::Online(*of));
            }
            Step::AddOffline(huges, of) => {
                let done = self.frames.add(
                    NewMemory::new(bytes(huges))
                        .of(*of)
                        .policy(OnlinePolicy::Offline),
                );
                self.came(huges, *of, done, Is::Offline(*of));
            }
            Step::Offline(huges) => {
                self.cpu.drain().unwrap();
                let done = self.frames.offline(bytes(huges));
                let online = self.model.all(huges, |is| matches!(is, Is::Online(_)));
                let held = self.model.held_in(bytes(huges).inner_frames());
                let mut isolated = huges
                    .clone()
                    .filter(|huge| self.model.isolated.contains(huge));
                let can = online && held == 0 && isolated.next().is_none();
                assert_eq!(done.is_ok(), can, "{huges:?}: {done:?}");
                if let Err(HotplugError {
                    why: Refusal::InUse { frames, .. },
                    ..
                }) = done
                {
                    assert_eq!(frames, held);
                }
                if done.is_ok() {
                    self.model.set(huges, |is| match is {
                        Is::Online(of) => Is::Offline(of),
                        other => other,
                    });
                }
            }
            Step::Online(huges) => {
                let done = self.frames.online(bytes(huges));
                assert_eq!(done.is_ok(), self.model.all(huges, offline), "{done:?}");
                if done.is_ok() {
                    self.model.set(huges, |is| match is {
                        Is::Offline(of) => Is::Online(of),
                        other => other,
                    });
                }
            }
            Step::OnlineTo(huges, zone) => {
                let done = self.frames.online_to(bytes(huges), *zone);
                let can = self.model.all(huges, offline) && ZONES.contains(zone);
                assert_eq!(done.is_ok(), can, "{done:?}");
                if can {
                    self.model.set(huges, |is| match is {
                        Is::Offline(of) => Is::Online(NodeZone { zone: *zone, ..of }),
                        other => other,
                    });
                }
            }
            Step::Remove(huges) => {
                let done = self.frames.remove(bytes(huges));
                assert_eq!(done.is_ok(), self.model.all(huges, offline), "{done:?}");
                if done.is_ok() {
                    self.model.set(huges, |_| Is::Absent);
                }
            }
            Step::Allocate(request, by_cpu) => {
                let found = if *by_cpu {
                    self.cpu.allocate(*request)
                } else {
                    self.frames.allocate(*request)
                };
                if let Ok(frame) = found {
                    self.model.hold(request, frame, request.order().frames());
                }
            }
            Step::AllocateFrames(request, count) => {
                if let Ok(found) = self.frames.allocate_frames(*count, 1, *request) {
                    self.model.hold(request, found.start(), found.count());
                }
            }
            Step::Free(index, by_cpu) => {
                let len = self.model.held.len();
                let Some(index) = index.checked_rem(len) else {
                    return;
                };
                let (&start, &count) = self.model.held.iter().nth(index).unwrap();
                self.model.held.remove(&start);
                let range = FrameRange::new(start, start + count).unwrap();
                let order = Order::new(u8::try_from(count.ilog2()).unwrap());
                match order {
                    Some(order) if order.frames() == count && range.start().is_aligned(order) => {
                        let freed = if *by_cpu {
                            self.cpu.free(range.start(), order)
                        } else {
                            self.frames.free(range.start(), order)
                        };
                        freed.unwrap();
                    }
                    _ if *by_cpu => self.cpu.free_frames(range).unwrap(),
                    _ => self.frames.free_frames(range).unwrap(),
                }
            }
            Step::Drain => {
                self.cpu.drain().unwrap();
                self.check_free();
            }
            Step::Isolate(huges) => {
                let done = self.frames.isolate(bytes(huges).inner_frames());
                let expected = self.model.isolate(huges);
                assert_eq!(done.as_ref().map(|_| ()), expected.as_ref().map(|_| ()));
                if let Ok(isolation) = done {
                    self.model
                        .isolated
                        .extend(huges.start..huges.end.min(HUGES));
                    self.isolations.push((huges.clone(), isolation));
                }
            }
            Step::End(index, end) => {
                if let Some(index) = index.checked_rem(self.isolations.len()) {
                    let (huges, isolation) = self.isolations.swap_remove(index);
                    self.end(&huges, isolation, *end);
                }
            }
        }
    }

    fn end(&mut self, huges: &Range<u64>, isolation: Isolation<'_, '_>, end: End) {
        self.cpu.drain().unwrap();
        let inside = huges.start..huges.end.min(HUGES);
        let held = self.model.held_in(bytes(&inside).inner_frames());
        assert_eq!(isolation.frames_in_use(), held);
        assert_eq!(isolation.first_in_use().is_some(), held > 0);
        match end {
            End::Drop => drop(isolation),
            End::Take => {
                let taken = isolation.take();
                assert_eq!(taken.is_ok(), held == 0, "{taken:?}");
                if taken.is_ok() {
                    let starts = inside.clone().map(|huge| FIRST + huge * 512);
                    self.model.held.extend(starts.map(|start| (start, 512)));
                }
            }
            End::Offline => {
                let done = isolation.offline();
                assert_eq!(done.is_ok(), held == 0 && inside == *huges, "{done:?}");
                if done.is_ok() {
                    self.model.set(&inside, |is| match is {
                        Is::Online(of) => Is::Offline(of),
                        other => other,
                    });
                }
            }
        }
        self.model.isolated.retain(|huge| !inside.contains(huge));
    }

    fn check_spans(&self) {
        for node in [NodeId(0), NodeId(1)] {
            for zone in ZoneKind::ALL {
                let seen = self.frames.zone(node, zone).span();
                let expected = self.model.span(node, zone);
                assert_eq!(seen, expected, "{node}");
            }
        }
        for (huge, is) in (0..).zip(&self.model.huges) {
            let frame = Frame::new(FIRST + huge * 512 + 7);
            let (of, offline) = match is {
                Is::Absent => (None, false),
                Is::Offline(of) => (Some(*of), true),
                Is::Online(of) => (Some(*of), false),
            };
            assert_eq!(
                (
                    self.frames.zone_of(frame),
                    kit::is_offline(self.frames, frame)
                ),
                (of, offline)
            );
        }
    }

    /// With nothing in the CPU's cache.
    fn check_free(&self) {
        for (of, marks) in all_zones().zip(self.marks) {
            let held = self.model.held.iter();
            let held = held.filter(|(at, _)| self.model.of(**at) == Some(of));
            let held: u64 = held.map(|(_, &count)| count).sum();
            let managed = self.model.span(of.node, of.zone).managed_frames;
            let seen = self.frames.zone(of.node, of.zone).statistics();
            let free = managed - held - self.model.free_isolated(of);
            let seen = (seen.managed_frames, seen.free_frames);
            assert_eq!(seen, (managed, free), "{of}");
            // They count what is isolated until it is taken.
            assert_eq!(marks.free_frames(), managed - held, "{of}");
        }
        self.frames.validate().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("FIRSTLIGHT_MODEL_CASES")
            .ok()
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(if cfg!(miri) { 2 } else { 1000 }),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn memory_is_of_the_zone_that_it_came_to(steps in steps()) {
        let mut machine = Machine::new();
        for step in &steps {
            machine.step(step);
            machine.check_spans();
        }
        for (huges, isolation) in std::mem::take(&mut machine.isolations) {
            machine.end(&huges, isolation, End::Drop);
        }
        machine.cpu.drain().unwrap();
        machine.check_free();
        for (start, count) in std::mem::take(&mut machine.model.held) {
            machine.frames.free_frames(FrameRange::new(start, start + count).unwrap()).unwrap();
        }
        machine.check_free();
    }
}
