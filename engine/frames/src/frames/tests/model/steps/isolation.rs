//! Isolations begin, and end: dropped, taken or taken offline.

use super::super::machine::{Comes, Machine};
use super::super::plain::{ABSENT, FREE, HUGE, OFFLINE, huge, numbers};
use super::hotplug::{is_whole, must_refuse};
use super::{Steps, step};
use crate::addr::{Frame, FrameRange};
use crate::frames::{HotplugError, Refusal};
use proptest::prelude::*;

/// A refusal of a range, for this frame of it.
fn refused(range: FrameRange, frame: Frame, why: Refusal) -> HotplugError {
    let range = range.addrs();
    HotplugError { range, frame, why }
}

/// A range is isolated.
pub(crate) fn isolate(ranges: BoxedStrategy<FrameRange>) -> Steps {
    step("isolate", ranges, begin)
}

fn begin(on: &mut Machine, range: FrameRange) {
    if on.comes == Comes::ToSpan {
        on.drain();
    }
    let model = &on.model;
    let huges = || model.huges(range);
    let is_absent = |frame| model.is_any(frame, &[ABSENT, OFFLINE]);
    let is_memory = |huge: &FrameRange| !numbers(*huge).all(is_absent);
    let absent = huges().find(|huge| !is_memory(huge));
    let isolated = huges().find(|huge| model.is_isolated(huge.start().get()));
    let expected = if huges().next().is_none() || absent.is_some() {
        let frame = absent.map_or(range.start(), |huge| huge.start().max(range.start()));
        Err(refused(range, frame, Refusal::NotMemory))
    } else if !huges().all(|huge| range.covers(huge)) {
        Err(refused(range, range.start(), Refusal::Misaligned))
    } else {
        isolated.map_or(Ok(()), |huge| {
            Err(refused(range, huge.start(), Refusal::Isolated))
        })
    };
    match on.frames.isolate(range) {
        Ok(isolation) => {
            assert_eq!(expected, Ok(()));
            on.model.set_isolated(range, true);
            on.isolations.push((range, isolation));
        }
        Err(error) => assert_eq!(expected, Err(error)),
    }
}

/// An isolation ends so.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    Taken,
    Offline,
}

/// Any isolation ends.
pub(crate) fn end() -> Steps {
    let ends = prop_oneof![Just(End::Dropped), Just(End::Taken), Just(End::Offline)];
    step("end", (any::<usize>(), ends), |on, (pick, end)| {
        finish(on, pick, end)
    })
}

fn finish(on: &mut Machine, pick: usize, end: End) {
    let Some(pick) = pick.checked_rem(on.isolations.len()) else {
        return;
    };
    on.drain();
    let (range, isolation) = on.isolations.swap_remove(pick);
    let (in_use, before) = (on.in_use(range), on.before());
    on.model.set_isolated(range, false);
    let refused = match end {
        End::Dropped => return drop(isolation),
        End::Taken => match isolation.take() {
            Ok(taken) => {
                assert_eq!((in_use, taken), ((None, 0), range));
                // Up to where memory begins or ends.
                return on.receive(range.intersect(on.model.span), None, &before);
            }
            Err(error) => error,
        },
        End::Offline => match isolation.offline() {
            Ok(()) => {
                assert!(is_whole(on.model.span, range));
                assert_eq!(in_use, (None, 0));
                assert!(on.model.turn(range, OFFLINE));
                return;
            }
            Err(error) => error,
        },
    };
    if let Refusal::InUse { frames, .. } = refused.why {
        assert_eq!((Some(refused.frame), frames), in_use);
        return;
    }
    must_refuse(on, range, FREE, refused);
}

/// The huge frame of a frame is isolated for a moment.
pub(crate) fn briefly(places: BoxedStrategy<u64>) -> Steps {
    let ends = prop_oneof![Just(End::Dropped), Just(End::Taken)];
    step("isolate briefly", (places, ends), |on, (frame, end)| {
        begin(on, huge(frame / HUGE));
        finish(on, 0, end);
    })
}
