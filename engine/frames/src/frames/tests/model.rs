//! The allocator against a map from frames to owners: [`super::owners`].
//!
//! After every step all counts are recounted, and every refusal is checked: "out of memory" only
//! if the model has no such block, an error on free only if the model has a part of it free.

extern crate std;

use super::frame_set::{BOOT, GIANT, Model, machine, sliver};
use super::kit::{
    MANY_STEPS, RECOUNT_EVERY, RECOUNT_SOON, cases, first, frames, free, long_cases, recount,
    segments, take_at, want,
};
use crate::addr::{Frame, FrameRange};
use crate::frames::request::ZoneChoice;
use crate::frames::word::Bitmap;
use crate::frames::word::geometry::{Block, GIANT_ORDER, HUGE_FRAMES, HUGE_ORDER, HUGES};
use crate::frames::zone::Segments;
use crate::frames::zone::segment::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
use core::iter::once;
use proptest::prelude::*;
use std::vec::Vec;

const HUGE: u64 = HUGE_FRAMES as u64;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        node: u16,
        zone: usize,
        order: u8,
    },
    At {
        frame: u64,
        order: u8,
    },
    /// Free what was allocated, entirely or an aligned part of it.
    Free {
        pick: usize,
        order: u8,
        part: u64,
    },
    /// Free anything at all.
    Wild {
        frame: u64,
        order: u8,
    },
}

fn orders() -> impl Strategy<Value = u8> {
    prop_oneof![
        4 => Just(0u8), 2 => Just(HUGE_ORDER), 1 => Just(GIANT_ORDER),
        3 => 1..HUGE_ORDER, 2 => HUGE_ORDER + 1..GIANT_ORDER,
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let starts = || {
        let bases = [
            0,
            600,
            4096,
            GIANT - 1000,
            GIANT,
            2 * GIANT,
            3 * GIANT,
            3 * GIANT + 700,
            4 * GIANT,
        ];
        (proptest::sample::select(bases.to_vec()), 0u64..2048).prop_map(|(base, more)| base + more)
    };
    prop_oneof![
        6 => (0u16..2, 0usize..4, orders())
            .prop_map(|(node, zone, order)| Step::Allocate { node, zone, order }),
        2 => (starts(), orders()).prop_map(|(frame, order)| Step::At { frame, order }),
        5 => (any::<usize>(), orders(), any::<u64>())
            .prop_map(|(pick, order, part)| Step::Free { pick, order, part }),
        1 => (starts(), orders()).prop_map(|(frame, order)| Step::Wild { frame, order }),
    ]
}

struct State {
    segments: Segments<'static>,
    model: Model,
    /// What was allocated and not given back yet, and by which call.
    held: Vec<(Block, u32)>,
    calls: u32,
}

impl State {
    fn block(frame: u64, order: u8) -> Block {
        Block {
            start: Frame::new((frame >> order) << order),
            order,
        }
    }

    fn step(&mut self, step: &Step) {
        self.calls += 1;
        let owner = self.calls;
        match *step {
            Step::Allocate { node, zone, order } => {
                let highest = ZoneKind::ALL[zone];
                match self.segments.allocate(
                    once(NodeId(node)),
                    ZoneChoice::up_to(highest),
                    want(order),
                    None,
                ) {
                    Some(start) => {
                        let block = Block { start, order };
                        assert_eq!(start.get() % block.frames(), 0);
                        let (_, on, zone) = self.model.extent_of(block).expect("inside memory");
                        assert!(on == node && zone <= highest, "{block:?} on {on} in {zone}");
                        assert!(self.model.allocate(block, owner), "{block:?} was not free");
                        self.held.push((block, owner));
                    }
                    None => assert!(!self.model.has_free(node, highest, order)),
                }
            }
            Step::At { frame, order } => {
                let block = Self::block(frame, order);
                let taken = take_at(&self.segments, block);
                assert_eq!(taken, self.model.allocate(block, owner), "at {block:?}");
                if taken {
                    self.held.push((block, owner));
                }
            }
            Step::Free { pick, order, part } => {
                if self.held.is_empty() {
                    return;
                }
                let (whole, owner) = self.held.swap_remove(pick % self.held.len());
                assert!(self.model.is(whole, owner), "{whole:?} has another owner");
                let order = order.min(whole.order);
                let parts = whole.frames() >> order;
                let block = Self::block(whole.start.get() + ((part % parts) << order), order);
                self.free(block);
                // What is left of the block is held by its parts.
                let mut rest = whole;
                while rest.order > order {
                    let half = rest.order - 1;
                    for start in [rest.start.get(), rest.start.get() + (1 << half)] {
                        let half = Block {
                            start: Frame::new(start),
                            order: half,
                        };
                        if half.range().contains(block.start) {
                            rest = half;
                        } else {
                            self.held.push((half, owner));
                        }
                    }
                }
            }
            Step::Wild { frame, order } => {
                let block = Self::block(frame, order);
                if self.free(block) {
                    // Reserved and held frames can be freed too; forget them.
                    let freed = block.range();
                    self.held
                        .retain(|(held, _)| held.range().intersect(freed).is_empty());
                }
            }
        }
    }

    fn free(&mut self, block: Block) -> bool {
        let freed = free(&self.segments, block);
        assert_eq!(freed, self.model.free(block), "free {block:?}");
        freed
    }

    fn check(&self) {
        assert_eq!(recount(&self.segments), self.model.free);
    }
}

/// Runs the steps, and recounts everything after every so many.
fn run(steps: &[Step], recount_every: usize) {
    let (extents, reserved) = if cfg!(miri) { sliver() } else { machine() };
    let segments = segments(&extents, &reserved);
    let model = Model::new(&extents, &reserved);
    let managed: u64 = segments
        .iter()
        .map(|segment| segment.statistics().free_frames)
        .sum();
    assert_eq!(managed, model.free);
    let mut state = State {
        segments,
        model,
        held: Vec::new(),
        calls: BOOT,
    };
    state.check();
    for steps in steps.chunks(recount_every) {
        steps.iter().for_each(|step| state.step(step));
        state.check();
    }
    let whole = |state: &State| -> u64 {
        state
            .segments
            .iter()
            .filter_map(ZoneSegment::online)
            .map(|online| online.statistics().free_giants)
            .sum()
    };
    for (block, owner) in core::mem::take(&mut state.held) {
        assert!(state.model.is(block, owner) && state.free(block));
    }
    state.check();
    assert!(whole(&state) <= 2, "");
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn agrees_with_a_set_of_frames(
        steps in proptest::collection::vec(steps(), 1..if cfg!(miri) { 8 } else { 120 })
    ) {
        run(&steps, RECOUNT_SOON);
    }
}

proptest! {
    #![proptest_config(long_cases(2))]

    #[test]
    #[cfg_attr(miri, ignore = "takes hours there")]
    fn agrees_with_a_set_of_frames_over_many_steps(
        steps in proptest::collection::vec(steps(), MANY_STEPS)
    ) {
        run(&steps, RECOUNT_EVERY);
    }
}

#[test]
fn a_giant_frame_split_to_pages_merges_again() {
    let segments = segments(&[(frames(0, GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    let whole = segment.statistics();
    assert_eq!((whole.free_giants, whole.free_huges), (1, u64::from(HUGES)));
    let pages: Vec<_> = (0..if cfg!(miri) { 3 } else { 1200 })
        .map(|_| segment.take_any(0).unwrap())
        .collect();
    assert_eq!(segment.statistics().free_giants, 0);
    for start in pages {
        segment.give(Block { start, order: 0 }).unwrap();
        segment.validate().unwrap();
    }
    assert_eq!(segment.statistics(), whole);
}

#[test]
fn parts_of_a_large_block_free_one_by_one() {
    let segments = segments(&[(frames(0, GIANT), 0, ZoneKind::Normal)], &[]);
    let segment = first(&segments);
    assert_eq!(segment.take_any(GIANT_ORDER), Ok(Frame::new(0)));
    let free = |frame, order| {
        segment.give(Block {
            start: Frame::new(frame),
            order,
        })
    };
    free(HUGE + 1, 0).unwrap();
    free(2 * HUGE, HUGE_ORDER).unwrap();
    free(GIANT / 2, GIANT_ORDER - 1).unwrap();
    assert!(free(GIANT / 2, GIANT_ORDER - 1).is_err(), "freed twice");
    assert!(free(HUGE, HUGE_ORDER).is_err(), "one page of it is free");
    assert!(free(0, GIANT_ORDER).is_err(), "half of it is free");
    segment.validate().unwrap();
    assert_eq!(segment.statistics().free_frames, 1 + HUGE + GIANT / 2);
    assert!(segment.is_allocated(Frame::new(HUGE)) && !segment.is_allocated(Frame::new(HUGE + 1)));
}

#[test]
fn pages_allocated_one_by_one_free_as_a_block() {
    let segments = segments(&[(frames(0, 2 * HUGE), 0, ZoneKind::Dma)], &[]);
    let segment = first(&segments);
    for _ in 0..2 * HUGE {
        assert!(segment.take_any(0).is_ok());
    }
    assert!(segment.take_any(0).is_err());
    segment
        .give(Block {
            start: Frame::new(HUGE),
            order: HUGE_ORDER,
        })
        .unwrap();
    segment.validate().unwrap();
    assert_eq!(segment.take_any(HUGE_ORDER), Ok(Frame::new(HUGE)));
    assert!(segment.take_any(HUGE_ORDER).is_err());
}

#[test]
fn start_writes_only_where_something_begins_or_ends() {
    let written = |reserved: &[FrameRange]| {
        let segments = segments(&[(frames(0, 64 * GIANT), 0, ZoneKind::Normal)], reserved);
        let segment = segments.iter().next().unwrap();
        assert_eq!(segment.written_bytes(), 0, "no call yet");
        let reserved: u64 = reserved.iter().map(|range| range.count()).sum();
        assert_eq!(segment.statistics().free_frames, 64 * GIANT - reserved);
        assert_eq!(
            segment.online().unwrap().statistics().free_frames,
            64 * GIANT - reserved
        );
        segment.written_bytes()
    };
    assert_eq!(written(&[]), 64 * 8);
    // A reserved range that begins and ends inside one huge frame: one table, one bitmap.
    assert_eq!(
        written(&[frames(5 * GIANT + 7, 5 * GIANT + 9)]),
        64 * 8 + u64::from(HUGES) * 4 + size_of::<Bitmap>() as u64
    );
    // Whole giant frames reserved cost nothing more.
    assert_eq!(written(&[frames(GIANT, 3 * GIANT)]), 64 * 8);
}

#[test]
fn threads_never_hold_the_same_frame() {
    let end = if cfg!(miri) { 2600 } else { 2 * GIANT + 77 };
    let segments = segments(
        &[(frames(3, end), 0, ZoneKind::Normal)],
        &[frames(700, 900), frames(end - 9, end - 8)],
    );
    let end = usize::try_from(end).unwrap();
    let owners: Vec<_> = (0..end)
        .map(|_| core::sync::atomic::AtomicU32::new(0))
        .collect();
    let rounds = if cfg!(miri) { 30 } else { 3000 };
    std::thread::scope(|scope| {
        for thread in 1..=4u32 {
            let (segments, owners) = (&segments, &owners);
            scope.spawn(move || churn(segments, owners, thread, rounds));
        }
    });
    let managed = segments
        .iter()
        .map(|segment| segment.statistics().free_frames)
        .sum::<u64>();
    assert_eq!(recount(&segments), managed);
}

/// Allocates and frees at random; every frame held is marked with the thread.
fn churn(
    segments: &Segments<'_>,
    owners: &[core::sync::atomic::AtomicU32],
    thread: u32,
    rounds: u32,
) {
    use core::sync::atomic::Ordering::Relaxed;
    let mark = |block: Block, from, to| {
        let range = block.range();
        // Every page of blocks up to two huge frames, every 64th of larger ones.
        let step = if block.order <= HUGE_ORDER + 1 { 1 } else { 64 };
        for frame in (range.start().get()..range.end().get()).step_by(step) {
            let old = owners[usize::try_from(frame).unwrap()].swap(to, Relaxed);
            assert_eq!(old, from, "{block:?} has two owners");
        }
    };
    let mut seed = u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut held = Vec::new();
    for _ in 0..rounds {
        const HUGES: [u8; 5] = [
            HUGE_ORDER - 1,
            HUGE_ORDER,
            HUGE_ORDER,
            HUGE_ORDER + 1,
            HUGE_ORDER + 3,
        ];
        let order = [
            &[0, 0, 0, 1, 3, 6, 7],
            &HUGES[..],
            &[GIANT_ORDER - 1, GIANT_ORDER],
        ]
        .concat();
        let order = order[usize::try_from(random(order.len() as u64)).unwrap()];
        if random(2) == 0 {
            if let Some(start) = segments.allocate(
                once(NodeId(0)),
                ZoneChoice::up_to(ZoneKind::Normal),
                want(order),
                None,
            ) {
                let block = Block { start, order };
                mark(block, 0, thread);
                held.push(block);
            }
        } else if !held.is_empty() {
            let at = usize::try_from(random(held.len() as u64)).unwrap();
            let block: Block = held.swap_remove(at);
            mark(block, thread, 0);
            assert!(free(segments, block));
        }
    }
    for block in held {
        mark(block, thread, 0);
        assert!(free(segments, block));
    }
}
