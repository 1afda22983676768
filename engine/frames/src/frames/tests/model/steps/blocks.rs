//! Blocks: one or many are allocated; what is held is freed, all of it or a part; anything is freed.

use super::super::machine::{Comes, Machine};
use super::super::plain::{ABSENT, OFFLINE, PINNED, numbers};
use super::{Place, Size, Steps, Via, step};
use crate::addr::{Frame, FrameRange, Order};
use crate::frames::tests::kit::frames;
use crate::frames::{BlockError, Content, RangeError, Request};
use proptest::prelude::*;

/// One block, or up to so many of them as long as there are some.
pub(crate) fn allocate(
    via: BoxedStrategy<Via>,
    requests: BoxedStrategy<Request>,
    most: usize,
) -> Steps {
    let how = (via, requests, 1..=most);
    step("allocate", how, |on, (via, request, times)| {
        for _ in 0..times {
            let (before, size) = (on.before(), request.order().frames());
            let found = match on.cpu(via) {
                Some(cpu) => cpu.allocate(request),
                None => on.frames.allocate(request),
            };
            match found {
                Ok(start) => {
                    assert!(start.is_aligned(request.order()));
                    on.receive(FrameRange::of(start, size), Some((via, request)), &before);
                }
                Err(error) => return on.refused(error, (via, request), (size, size), &before),
            }
        }
    })
}

/// A part of what is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// All of it, as a block if it is one.
    Whole,
    /// An aligned block of it, of this order or the largest that there is.
    Block(u8, u64),
    /// So many frames, from here on.
    Frames(u64, u64),
}

impl Part {
    fn of(self, whole: FrameRange) -> FrameRange {
        let (start, end) = (whole.start().get(), whole.end().get());
        match self {
            Self::Whole => whole,
            Self::Block(order, pick) => {
                let ends = |order: u8| (start.div_ceil(1 << order), end >> order);
                let is_there = |order: &u8| ends(*order).0 < ends(*order).1;
                let order = (0..=order).rev().find(is_there).expect("a page is a block");
                let (first, last) = ends(order);
                let at = first + pick % (last - first);
                frames(at << order, (at + 1) << order)
            }
            Self::Frames(from, count) => {
                let from = start + from % whole.count();
                frames(from, from.saturating_add(count).min(end))
            }
        }
    }
}

/// What the owner says of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// That it is zero, if it is.
    ZeroIfSo,
    /// That it is zero, after zeroing it.
    Zero,
}

/// Frees a part of what is held, of one call or of up to so many.
pub(crate) fn free(
    via: BoxedStrategy<Via>,
    parts: BoxedStrategy<Part>,
    said: BoxedStrategy<Said>,
    most: usize,
) -> Steps {
    let how = (via, any::<usize>(), parts, said, 1..=most);
    step("free", how, |on, (via, pick, part, said, times)| {
        for more in 0..times.min(on.held.len()) {
            let at = pick.wrapping_add(more * 7919) % on.held.len();
            let range = part.of(on.held[at].0);
            let is_free = |frame| on.frames.is_allocated(Frame::new(frame)) == Some(false);
            let is_wrong = !on.cpus.is_empty() && numbers(range).any(is_free);
            assert!(!is_wrong, "{range} is held, but free");
            on.give(at, range);
            let content = on.content.as_mut();
            if content.is_some_and(|content| content.is_said(range, said)) {
                on.frames.free_frames_with(range, Content::Zero).unwrap();
            } else {
                // A block is of one zone.
                let is_range = matches!(part, Part::Frames(..));
                let is_block = !is_range && on.model.zone_of(range).is_some();
                free_as(on, via, range, is_block).unwrap();
            }
            if on.comes == Comes::ToSpan && !on.isolations.is_empty() {
                on.drain();
            }
        }
    })
}

/// Frees `range`, as a block if it is one that has an order; an error says then no more.
fn free_as(
    on: &mut Machine,
    via: Via,
    range: FrameRange,
    is_block: bool,
) -> Result<(), Option<RangeError>> {
    let order = Order::of_block(range.count());
    let order = order.filter(|order| is_block && range.start().is_aligned(*order));
    let freed = match (order, on.cpu(via)) {
        (Some(order), _) => {
            return on.free(via, range.start(), order).map_err(|error| {
                use BlockError::{NotAllocated, OutsideMemory, Reserved};
                let is_right = matches!(
                    error,
                    NotAllocated { .. } | OutsideMemory { .. } | Reserved { .. }
                );
                assert!(is_right, "{range}: {error}");
                None
            });
        }
        (None, Some(cpu)) => cpu.free_frames(range),
        (None, None) => on.frames.free_frames(range),
    };
    freed.map_err(Some)
}

/// Frees anything at all.
pub(crate) fn wild(via: BoxedStrategy<Via>, places: BoxedStrategy<Place>) -> Steps {
    step("wild", (via, places), |on, (via, place)| {
        if on.comes != Comes::Nowhere {
            on.drain();
        }
        let (range, is_block) = (place.range(on), matches!(place.size, Size::Block(_)));
        let hole = on.model.first_hole(range);
        let is_one = !is_block || on.model.zone_of(range).is_some();
        let is_held = is_one && hole.is_none() && on.model.are_held(range);
        let free = on.model.first(range, |frame| on.is_seen_free(frame));
        let pinned = |on: &Machine| {
            let is_pinned = |at| on.model.is_any(at, &[ABSENT, OFFLINE, PINNED]);
            on.model.first(range, is_pinned)
        };
        if is_one && !is_held && (hole, free) == (None, None) && pinned(on).is_none() {
            // Cached: a double free is a step of its own.
            return;
        }
        let freed = free_as(on, via, range, is_block);
        if is_held {
            assert_eq!(freed, Ok(()), "{range}");
            return on.forget(range);
        }
        // Where nothing came to a zone yet there is a hole, too.
        let is_absent = |at: Frame| on.comes != Comes::Nowhere && on.model.is(at.get(), ABSENT);
        let is_right = match freed {
            Ok(()) => false,
            Err(None) => true,
            Err(Some(error)) => match (error, error.frame()) {
                (RangeError::OutsideMemory { .. }, at) => hole == at || at.is_some_and(is_absent),
                (RangeError::Reserved { .. }, at) => pinned(on) == at,
                (RangeError::NotAllocated { .. }, at) => (hole, free) == (None, at),
                _ => false,
            },
        };
        assert!(is_right, "{range}: {freed:?}, {hole:?}, {free:?}");
    })
}
