//! Memory that comes range by range, is isolated, and goes, against the plainest model: what each frame is,
//! and which huge frames are isolated.
//!
//! `FIRSTLIGHT_MODEL_CASES` sets the number of cases.

use crate::kit;
use std::collections::BTreeSet;
use std::ops::Range;

use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{Frames, HotplugError, Isolation, RangeError, Refusal, Request};
use firstlight::node::NodeId;
use proptest::prelude::*;

/// Across the end of a zone, and of a giant frame.
const FIRST: u64 = (1 << 20) - 3 * 512 - 7;
const FRAMES: u64 = if cfg!(miri) { 700 } else { 6 * 512 + 19 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Absent,
    Allocated,
    Free,
    Offline,
}

#[derive(Clone, Debug)]
enum Step {
    Add(Range<u64>),
    Adopt(Range<u64>),
    Free(Range<u64>, bool),
    Allocate(u64, u32, bool),
    Drain,
    Offline(Range<u64>),
    Online(Range<u64>),
    Remove(Range<u64>),
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

fn part() -> impl Strategy<Value = Range<u64>> {
    let lens = prop_oneof![1..40_u64, 1..FRAMES];
    (0..FRAMES, lens).prop_map(|(start, len)| {
        let (start, len) = (start / 3 * 3, len.div_ceil(3) * 3);
        FIRST + start..FIRST + (start + len).min(FRAMES + 1)
    })
}

/// Whole huge frames, from before the span to behind it.
fn huges() -> impl Strategy<Value = Range<u64>> {
    let first = FIRST / 512 - 1;
    let count = FRAMES / 512 + 3;
    (0..count, 1..count).prop_map(move |(start, len)| {
        let start = first + start;
        start * 512..(start + len).min(first + count + 1) * 512
    })
}

/// Whether it is made of whole huge frames.
fn is_whole(range: &Range<u64>) -> bool {
    range.start.is_multiple_of(512) && range.end.is_multiple_of(512)
}

/// The huge frames that lie in the span.
fn inner(range: &Range<u64>) -> Range<u64> {
    let end = (FIRST + FRAMES) / 512 * 512;
    range.start.max(FIRST.next_multiple_of(512))..range.end.min(end)
}

fn gone() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        6 => huges().prop_map(|range| {
            let inner = inner(&range);
            if inner.is_empty() { range } else { inner }
        }),
        1 => huges(),
        1 => part(),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => part().prop_map(Step::Add),
        2 => part().prop_map(Step::Adopt),
        4 => (part(), any::<bool>()).prop_map(|(part, by_cpu)| Step::Free(part, by_cpu)),
        6 => (1..600_u64, 0..8_u32, any::<bool>())
            .prop_map(|(count, align, by_cpu)| Step::Allocate(count, align, by_cpu)),
        1 => Just(Step::Drain),
        4 => gone().prop_map(Step::Offline),
        2 => gone().prop_map(Step::Online),
        3 => gone().prop_map(Step::Remove),
        3 => prop_oneof![gone(), huges()].prop_map(Step::Isolate),
        3 => (any::<usize>(), prop_oneof![Just(End::Drop), Just(End::Take), Just(End::Offline)])
            .prop_map(|(which, end)| Step::End(which, end)),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 12 } else { 60 })
}

fn frame_range(frames: &Range<u64>) -> FrameRange {
    FrameRange::new(frames.start, frames.end).unwrap()
}

struct Model {
    frames: Vec<Is>,
    /// First frames of the huge frames that are isolated.
    isolated: BTreeSet<u64>,
}

impl Model {
    fn is(&self, frame: u64) -> Option<Is> {
        let index = usize::try_from(frame.checked_sub(FIRST)?).unwrap();
        self.frames.get(index).copied()
    }

    /// The first frame of `range` that is not as it should be.
    fn first_not(&self, mut range: Range<u64>, is: Is) -> Option<u64> {
        range.find(|&frame| self.is(frame) != Some(is))
    }

    fn first(&self, mut range: Range<u64>, is: Is) -> Option<u64> {
        range.find(|&frame| self.is(frame) == Some(is))
    }

    fn set(&mut self, range: Range<u64>, is: Is) {
        for frame in range {
            self.frames[usize::try_from(frame - FIRST).unwrap()] = is;
        }
    }

    fn count(&self, is: Is) -> u64 {
        self.frames.iter().filter(|&&one| one == is).count() as u64
    }

    fn is_isolated(&self, frame: u64) -> bool {
        self.isolated.contains(&(frame / 512 * 512))
    }

    /// Those that can be allocated.
    fn count_available(&self) -> u64 {
        let is_available =
            |&frame: &u64| self.is(frame) == Some(Is::Free) && !self.is_isolated(frame);
        (FIRST..FIRST + FRAMES).filter(is_available).count() as u64
    }

    /// The parts in the span of the huge frames that `range` touches.
    fn huges(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let range = range.start.max(FIRST)..range.end.min(FIRST + FRAMES);
        let huges = (range.start / 512..range.end.div_ceil(512)).filter(move |_| !range.is_empty());
        huges.map(|huge| (huge * 512).max(FIRST)..(huge * 512 + 512).min(FIRST + FRAMES))
    }

    /// Whether none of a huge frame is memory.
    fn is_absent(&self, huge: &Range<u64>) -> bool {
        huge.clone()
            .all(|frame| matches!(self.is(frame), Some(Is::Absent | Is::Offline)))
    }

    /// What an isolation of `range` comes to; it marks the huge frames.
    fn isolate(&mut self, range: &Range<u64>) -> Result<(), HotplugError> {
        let whole = frame_range(range).addrs();
        if Self::huges(range).next().is_none() {
            return Err(kit::refused(whole, Refusal::NotMemory));
        }
        if let Some(huge) = Self::huges(range).find(|huge| self.is_absent(huge)) {
            let frame = Frame::new(huge.start.max(range.start));
            return Err(kit::refused_at(whole, frame, Refusal::NotMemory));
        }
        let covers = |huge: &Range<u64>| range.start <= huge.start && huge.end <= range.end;
        if !Self::huges(range).all(|huge| covers(&huge)) {
            return Err(kit::refused(whole, Refusal::Misaligned));
        }
        let isolated = Self::huges(range).find(|huge| self.is_isolated(huge.start));
        if let Some(huge) = isolated {
            let frame = Frame::new(huge.start);
            return Err(kit::refused_at(whole, frame, Refusal::Isolated));
        }
        let huges = Self::huges(range).map(|huge| huge.start / 512 * 512);
        self.isolated.extend(huges);
        Ok(())
    }

    /// The first frame that keeps an isolation from taking all of `range`.
    fn first_in_use(&self, range: &Range<u64>) -> Option<u64> {
        Self::huges(range).find_map(|huge| self.first_not(huge, Is::Free))
    }

    /// How many frames are in use of what is isolated in `range`.
    fn frames_in_use(&self, range: &Range<u64>) -> u64 {
        let in_use = |&frame: &u64| self.is(frame) != Some(Is::Free);
        Self::huges(range).flatten().filter(in_use).count() as u64
    }

    /// Ends an isolation; what was isolated becomes `is`, if that is given.
    fn end(&mut self, range: &Range<u64>, is: Option<Is>) {
        for huge in Self::huges(range) {
            self.isolated.remove(&(huge.start / 512 * 512));
            if let Some(is) = is {
                self.set(huge, is);
            }
        }
    }

    /// Ends an isolation as `end` says, and checks what comes of it.
    fn end_by(&mut self, isolation: Isolation<'_, '_>, range: &Range<u64>, end: End) {
        let first = self.first_in_use(range).map(Frame::new);
        match end {
            End::Drop => {
                drop(isolation);
                self.end(range, None);
            }
            End::Take => {
                let taken = isolation.take();
                match first {
                    None => assert_eq!(taken, Ok(frame_range(range))),
                    Some(first) => match taken.unwrap_err() {
                        HotplugError {
                            frame,
                            why: Refusal::InUse { frames, .. },
                            ..
                        } => {
                            let in_use = self.frames_in_use(range);
                            assert_eq!((frame, frames), (first, in_use));
                        }
                        other => panic!("{other}"),
                    },
                }
                self.end(range, first.is_none().then_some(Is::Allocated));
            }
            End::Offline => match isolation.offline() {
                Ok(()) => {
                    assert!(is_whole(range) && inner(range) == *range);
                    assert_eq!(first, None);
                    self.end(range, Some(Is::Offline));
                }
                Err(error) => {
                    if let HotplugError {
                        frame,
                        why: Refusal::InUse { frames, .. },
                        ..
                    } = error
                    {
                        let in_use = self.frames_in_use(range).max(1);
                        assert_eq!((Some(frame), frames), (first, in_use));
                    } else {
                        self.must_refuse(range, Is::Free, error);
                    }
                    self.end(range, None);
                }
            },
        }
    }
}

impl Model {
    /// Whether `range`, all of which should be `from`, was refused for a good reason.
    fn must_refuse(&self, range: &Range<u64>, from: Is, error: HotplugError) {
        let is = |frame: Frame| self.is(frame.get());
        let is_whole = is_whole(range);
        let is_right = match error {
            HotplugError {
                why: Refusal::Misaligned,
                ..
            } => !is_whole || inner(range) != *range,
            HotplugError {
                frame,
                why: Refusal::NotMemory,
                ..
            } => {
                matches!(is(frame), None | Some(Is::Absent))
            }
            HotplugError {
                frame,
                why: Refusal::InUse { frames, .. },
                ..
            } => {
                let in_use = |&frame: &u64| self.is(frame) == Some(Is::Allocated);
                from == Is::Free
                    && !range.clone().any(|at| self.is_isolated(at))
                    && Some(frame.get()) == self.first(range.clone(), Is::Allocated)
                    && frames == range.clone().filter(in_use).count() as u64
            }
            HotplugError {
                frame,
                why: Refusal::Isolated,
                ..
            } => {
                let mut isolated = range.clone().filter(|&at| self.is_isolated(at));
                from == Is::Free && isolated.next() == Some(frame.get())
            }
            HotplugError {
                frame,
                why: Refusal::Offline,
                ..
            } => from == Is::Free && is(frame) == Some(Is::Offline),
            HotplugError {
                frame,
                why: Refusal::NotOffline,
                ..
            } => {
                from == Is::Offline
                    && (frame.get()..frame.get() + 512).any(|at| self.is(at) != Some(Is::Offline))
            }
            _ => false,
        };
        assert!(is_right, "{range:x?}: {error}");
    }
}

fn run(steps: &[Step]) {
    let span = FrameRange::new(FIRST, FIRST + FRAMES).unwrap();
    let bytes = usize::try_from(Frames::bytes_for(span, 1000).unwrap()).unwrap();
    let mut memory = Box::new_uninit_slice(bytes);
    let frames = kit::with_cpus(Frames::over(span, &mut memory).unwrap(), 1);
    let mut cpu = None;
    let mut model = Model {
        frames: vec![Is::Absent; usize::try_from(FRAMES).unwrap()],
        isolated: BTreeSet::new(),
    };
    let mut isolations: Vec<(Range<u64>, Isolation<'_, '_>)> = Vec::new();
    for step in steps {
        if cpu.is_none() && model.count(Is::Absent) < FRAMES {
            cpu = Some(frames.cpu(0, NodeId(0)).unwrap());
        }
        match step {
            Step::Add(range) | Step::Adopt(range) => {
                let (adds, bytes) = (matches!(step, Step::Add(_)), frame_range(range).addrs());
                let added = if adds {
                    frames.add(bytes)
                } else {
                    frames.adopt(bytes)
                };
                let inside = range.start..range.end.min(FIRST + FRAMES);
                if inside != *range {
                    assert!(
                        matches!(
                            added,
                            Err(HotplugError {
                                why: Refusal::OutsideSpan,
                                ..
                            })
                        ),
                        "{added:?}"
                    );
                } else if let Some(frame) = model.first_not(range.clone(), Is::Absent) {
                    let offline = model.first(range.clone(), Is::Offline);
                    let (range, frame) = (bytes, Frame::new(offline.unwrap_or(frame)));
                    assert_eq!(
                        added,
                        Err(HotplugError {
                            range,
                            frame,
                            why: Refusal::Present
                        })
                    );
                } else {
                    assert_eq!(added, Ok(()));
                    model.set(range.clone(), if adds { Is::Free } else { Is::Allocated });
                }
            }
            Step::Free(range, by_cpu) => {
                // Frames that are cached count as allocated in the shared levels.
                if let Some(cpu) = &mut cpu {
                    cpu.drain().unwrap();
                }
                let freed = match &mut cpu {
                    Some(cpu) if *by_cpu => cpu.free_frames(frame_range(range)),
                    _ => frames.free_frames(frame_range(range)),
                };
                // Frames of an isolation that are cached are in use.
                if let Some(cpu) = &mut cpu
                    && !isolations.is_empty()
                {
                    cpu.drain().unwrap();
                }
                match model.first_not(range.clone(), Is::Allocated) {
                    None => {
                        assert_eq!(freed, Ok(()));
                        model.set(range.clone(), Is::Free);
                    }
                    Some(frame) => {
                        let error = freed.unwrap_err();
                        let is_right = match error {
                            RangeError::OutsideMemory { frame, .. } => {
                                matches!(model.is(frame.get()), None | Some(Is::Absent))
                            }
                            RangeError::Reserved { frame, .. } => {
                                matches!(model.is(frame.get()), Some(Is::Absent | Is::Offline))
                            }
                            RangeError::NotAllocated { frame, .. } => {
                                model.is(frame.get()) == Some(Is::Free)
                            }
                            RangeError::InUse { .. }
                            | RangeError::FreedTwice { .. }
                            | RangeError::Cpu(_) => false,
                        };
                        let is = model.is(frame);
                        assert!(is_right, "{error}, {frame:#x} is {is:?}");
                    }
                }
            }
            Step::Allocate(count, align, by_cpu) => {
                let align = 1 << align;
                let request = Request::new(Order::PAGE);
                let found = match &mut cpu {
                    Some(cpu) if *by_cpu => cpu.allocate_frames(*count, align, request),
                    _ => frames.allocate_frames(*count, align, request),
                };
                if let Ok(found) = found {
                    let range = found.start().get()..found.end().get();
                    assert_eq!((found.count(), range.start % align), (*count, 0));
                    assert_eq!(model.first_not(range.clone(), Is::Free), None);
                    assert!(
                        !range.clone().any(|frame| model.is_isolated(frame)),
                        "{range:x?} is isolated"
                    );
                    model.set(range, Is::Allocated);
                } else if *count == 1 && align == 1 {
                    let cached = frames.statistics().cached_frames;
                    assert_eq!(model.count_available(), cached);
                }
            }
            Step::Offline(range) | Step::Online(range) | Step::Remove(range) => {
                if let Some(cpu) = &mut cpu {
                    cpu.drain().unwrap();
                }
                let bytes = frame_range(range).addrs();
                let (changed, from, to) = match step {
                    Step::Offline(_) => (frames.offline(bytes), Is::Free, Is::Offline),
                    Step::Online(_) => (frames.online(bytes), Is::Offline, Is::Free),
                    _ => (frames.remove(bytes), Is::Offline, Is::Absent),
                };
                let is_whole = is_whole(range);
                let is_inside = inner(range) == *range;
                match changed {
                    Ok(()) => {
                        assert!(is_whole && is_inside);
                        assert_eq!(model.first_not(range.clone(), from), None);
                        assert!(from != Is::Free || !range.clone().any(|at| model.is_isolated(at)));
                        model.set(range.clone(), to);
                    }
                    Err(error) => model.must_refuse(range, from, error),
                }
            }
            Step::Isolate(range) => {
                if let Some(cpu) = &mut cpu {
                    cpu.drain().unwrap();
                }
                let expected = model.isolate(range);
                let isolation = frames.isolate(frame_range(range));
                assert_eq!(
                    isolation.as_ref().map(|_| ()),
                    expected.as_ref().map(|_| ())
                );
                isolations.extend(isolation.ok().map(|isolation| (range.clone(), isolation)));
            }
            Step::End(which, end) => {
                if let Some(last) = isolations.len().checked_sub(1) {
                    let (range, isolation) = isolations.swap_remove(which % (last + 1));
                    model.end_by(isolation, &range, *end);
                }
            }
            Step::Drain => {
                if let Some(cpu) = &mut cpu {
                    cpu.drain().unwrap();
                }
            }
        }
        let seen = frames.statistics();
        assert_eq!(
            seen.free_frames + seen.cached_frames,
            model.count_available()
        );
        let gone = model.count(Is::Absent) + model.count(Is::Offline);
        assert_eq!(seen.managed_frames, FRAMES - gone);
        for (range, isolation) in &isolations {
            let first = isolation.first_in_use().map(Frame::get);
            let seen = (first, isolation.frames_in_use());
            assert_eq!(
                seen,
                (model.first_in_use(range), model.frames_in_use(range))
            );
        }
        frames.validate().unwrap();
    }
    for (range, isolation) in isolations {
        model.end_by(isolation, &range, End::Drop);
    }
    frames.validate().unwrap();
    if let Some(cpu) = cpu {
        cpu.close().unwrap();
    }
    for frame in FIRST..FIRST + FRAMES {
        let is_offline = kit::is_offline(&frames, Frame::new(frame));
        assert_eq!(
            is_offline,
            model.is(frame) == Some(Is::Offline),
            "{frame:#x}"
        );
        let is_free = frames.is_allocated(Frame::new(frame)) == Some(false);
        assert_eq!(is_free, model.is(frame) == Some(Is::Free), "{frame:#x}");
    }
}

fn cases() -> u32 {
    let set = std::env::var("FIRSTLIGHT_MODEL_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    set.unwrap_or(if cfg!(miri) { 1 } else { 2000 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn frames_are_what_the_model_says(steps in steps()) {
        run(&steps);
    }
}
