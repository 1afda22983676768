//! A machine for tests: segments over memory that nobody initialised, so that
//! Miri sees every read of something that was not written first.

extern crate std;

use super::allocate::{Search, Seen, Want};
use super::directory::Directory;
use super::place::{NONE, Place};
use super::request::Mobility;
use super::segment::Segment;
#[cfg(loom)]
use super::start::{Ahead, start};
use crate::addr::FrameRange;
use crate::node::{NodeId, ZoneKind};
#[cfg(not(loom))]
use proptest::prelude::ProptestConfig;
use std::boxed::Box;
use std::vec::Vec;

pub(crate) fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).expect("a range that does not end before it starts")
}

/// A segment with its tables not yet written.
#[cfg(not(loom))]
pub(crate) fn blank_segment(frames: FrameRange) -> Segment<'static> {
    use super::table::Carver;
    use core::ptr::NonNull;

    let giants = usize::try_from(Segment::giants_for(frames)).unwrap();
    let huges = usize::try_from(Segment::huges_for(frames)).unwrap();
    let bytes = giants * 8 + huges * 68 + 256;
    let memory: &'static mut [_] = Box::leak(Box::<[u8]>::new_uninit_slice(bytes));
    // SAFETY: leaked, so ours for ever; nobody else knows it.
    let mut carver = unsafe { Carver::new(NonNull::from(memory).cast(), bytes) };
    let (giants, words) = (carver.table(giants).unwrap(), carver.table(huges).unwrap());
    Segment::new(frames, giants, words, carver.table(huges).unwrap())
}

/// A segment whose atomics the model checker knows.
#[cfg(loom)]
pub(crate) fn blank_segment(frames: FrameRange) -> Segment<'static> {
    use super::row::Row;
    use super::table::Table;
    use crate::sync::{AtomicU32, AtomicU64};

    fn table<T: super::table::Word>(len: u64, make: impl Fn() -> T) -> Table<'static, T> {
        Table::from_slice(Box::leak(
            (0..len)
                .map(|_| make())
                .collect::<Vec<_>>()
                .into_boxed_slice(),
        ))
    }
    let huges = Segment::huges_for(frames);
    Segment::new(
        frames,
        table(Segment::giants_for(frames), || AtomicU64::new(0xdead_0000)),
        table(huges, || AtomicU32::new(0xdead_0000)),
        table(huges, || Row::new(0x5555_5555_5555_5555)),
    )
}

/// A started segment.
#[cfg(loom)]
pub(crate) fn segment(frames: FrameRange, reserved: &[FrameRange]) -> Segment<'static> {
    let segment = blank_segment(frames);
    start(&segment, &mut Ahead::new(reserved.iter().copied()));
    segment
}

/// An unmovable block.
pub(crate) fn want(order: u8) -> Want {
    Want {
        order,
        mobility: Mobility::Unmovable,
    }
}

impl Segment<'_> {
    /// Any unmovable block.
    pub(crate) fn take(&self, order: u8) -> Search {
        self.allocate(want(order), &mut Seen::default())
    }
}

/// A directory over `extents` (ascending), nothing of it started.
pub(crate) fn directory(
    extents: &[(FrameRange, u16, ZoneKind)],
    reserved: &[FrameRange],
) -> Directory<'static> {
    let reserved: &'static [FrameRange] = Box::leak(reserved.to_vec().into_boxed_slice());
    let places: Vec<_> = extents
        .iter()
        .map(|&(frames, node, zone)| {
            Place::new(blank_segment(frames), NodeId(node), zone, reserved)
        })
        .collect();
    let nodes = extents
        .iter()
        .map(|extent| usize::from(extent.1) + 1)
        .max()
        .unwrap_or(0);
    let heads = Box::leak(std::vec![[NONE; 4]; nodes].into_boxed_slice());
    Directory::new(Box::leak(places.into_boxed_slice()), heads)
}

/// How much a property test does: `FIRSTLIGHT_MODEL_CASES` for a longer run; little under Miri.
#[cfg(not(loom))]
pub(crate) fn cases() -> ProptestConfig {
    let asked = std::env::var("FIRSTLIGHT_MODEL_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let cases = if cfg!(miri) { 2 } else { asked.unwrap_or(200) };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Steps of a case where everything is recounted after every [`RECOUNT_EVERY`] only: in many steps
/// counts come near their ends.
#[cfg(not(loom))]
pub(crate) const MANY_STEPS: core::ops::Range<usize> = 1..20_000;
#[cfg(not(loom))]
pub(crate) const RECOUNT_EVERY: usize = 100;

/// One in so many of the [`cases`], each of [`MANY_STEPS`].
#[cfg(not(loom))]
pub(crate) fn long_cases(one_in: u32) -> ProptestConfig {
    let all = cases();
    ProptestConfig {
        cases: all.cases.div_ceil(one_in),
        ..all
    }
}
