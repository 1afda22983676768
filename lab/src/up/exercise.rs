//! Real threads put the memory to work, and everything is checked: no frame
//! twice, none outside memory, none lost.

use super::error::UpError;
use crate::record::Exercise;
use firstlight::addr::{Frame, FrameRange, Order};
use firstlight::frames::{AllocError, Frames, Request};
use firstlight::node::{NodeId, ZoneKind};
use firstlight_host::clock::Clock;
use firstlight_host::threads;

/// Blocks each thread takes on each node: order and how many.
const SHARES: [(u8, u32); 4] = [(0, 64), (3, 16), (9, 8), (18, 1)];

/// A block somebody holds.
type Held = (Frame, Order);

/// What one thread did.
#[derive(Default)]
struct Work {
    held: Vec<Held>,
    allocations: u64,
    frees: u64,
    refusals: u64,
}

impl Work {
    fn allocate(&mut self, frames: &Frames<'_>, request: Request) -> Result<bool, UpError> {
        match frames.allocate(request) {
            Ok(frame) => {
                self.held.push((frame, request.order()));
                self.allocations += 1;
                Ok(true)
            }
            Err(AllocError::OutOfMemory { .. }) => {
                self.refusals += 1;
                Ok(false)
            }
            Err(error) => Err(UpError::Check(format!("allocation: {error}"))),
        }
    }

    fn free(&mut self, frames: &Frames<'_>, block: Held) -> Result<(), UpError> {
        frames
            .free(block.0, block.1)
            .map_err(|error| UpError::Check(format!("free: {error}")))?;
        self.frees += 1;
        Ok(())
    }

    /// Takes blocks of every order on every node, gives half back, takes again.
    fn churn(&mut self, frames: &Frames<'_>) -> Result<(), UpError> {
        for round in 0..2 {
            for node in frames
                .layout()
                .nodes()
                .iter()
                .filter(|node| node.has_memory())
            {
                self.shares(frames, node.id)?;
            }
            if round == 0 {
                let keep = self.held.len() / 2;
                for block in self.held.split_off(keep) {
                    self.free(frames, block)?;
                }
            }
        }
        Ok(())
    }

    fn shares(&mut self, frames: &Frames<'_>, node: NodeId) -> Result<(), UpError> {
        for (order, blocks) in SHARES
            .into_iter()
            .filter_map(|(order, n)| Some((Order::new(order)?, n)))
        {
            for _ in 0..blocks {
                if !self.allocate(frames, from(node, order))? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes all that is left, the largest blocks first, node by node; then
    /// no node has anything for anybody.
    fn drain(&mut self, frames: &Frames<'_>) -> Result<(), UpError> {
        for node in frames
            .layout()
            .nodes()
            .iter()
            .filter(|node| node.has_memory())
        {
            for order in (0..=Order::GIANT.get()).rev().filter_map(Order::new) {
                while self.allocate(frames, from(node.id, order))? {}
            }
        }
        if self.allocate(frames, Request::new(Order::PAGE).zone(ZoneKind::Movable))? {
            return Err(UpError::Check(
                "a frame was left when every node had none".into(),
            ));
        }
        Ok(())
    }
}

/// A request that only `node` may fill, from any zone.
fn from(node: NodeId, order: Order) -> Request {
    Request::new(order).only_on(node).zone(ZoneKind::Movable)
}

/// Allocates and frees on threads pinned to `cpus`, then takes all memory at
/// once; every step is checked.
pub(super) fn exercise(
    frames: &Frames<'_>,
    cpus: &[u32],
    clock: Clock,
) -> Result<Exercise, UpError> {
    let start_ns = clock.now_ns();
    let free_frames = frames.statistics().free_frames;
    let mut result = Exercise::default();

    let outcomes = on_cpus(cpus, |_, _| {
        let mut work = Work::default();
        work.churn(frames).map(|()| work)
    })?;
    let mut works = Vec::new();
    for outcome in outcomes {
        result.threads += 1;
        result.unpinned_threads += u64::from(outcome.pinned.is_err());
        works.push(outcome.value?);
    }
    check(
        frames,
        works.iter().flat_map(|work| work.held.iter().copied()),
    )?;
    // Each thread gives back what its neighbour took.
    let freed = on_cpus(cpus, |index, _| {
        let mut work = Work::default();
        let blocks = works
            .get((index + 1) % works.len())
            .map_or(&[][..], |work| &work.held);
        blocks
            .iter()
            .try_for_each(|block| work.free(frames, *block))
            .map(|()| work)
    })?;
    for outcome in freed {
        works.push(outcome.value?);
    }
    for work in &works {
        result.allocations += work.allocations;
        result.frees += work.frees;
        result.refusals += work.refusals;
    }
    expect_free(frames, free_frames)?;
    result.duration_ns = clock.now_ns() - start_ns;

    let mut all = Work::default();
    all.drain(frames)?;
    result.drained_frames = check(frames, all.held.iter().copied())?;
    result.drained_blocks = all.allocations;
    if result.drained_frames != free_frames {
        let drained = result.drained_frames;
        return Err(UpError::Check(format!(
            "{drained} of {free_frames} free frames could be allocated"
        )));
    }
    for block in std::mem::take(&mut all.held) {
        all.free(frames, block)?;
    }
    expect_free(frames, free_frames)?;
    Ok(result)
}

fn on_cpus<T: Send>(
    cpus: &[u32],
    work: impl Fn(usize, u32) -> T + Sync,
) -> Result<Vec<threads::Outcome<T>>, UpError> {
    threads::on_cpus(cpus, work)
        .map_err(|error| UpError::Io(format!("cannot start a thread: {error}")))
}

/// All counters agree with each other and with what is expected to be free.
fn expect_free(frames: &Frames<'_>, free_frames: u64) -> Result<(), UpError> {
    frames
        .validate()
        .map_err(|violation| UpError::Check(format!("validation: {violation}")))?;
    let found = frames.statistics().free_frames;
    if found == free_frames {
        Ok(())
    } else {
        Err(UpError::Check(format!(
            "{found} frames are free, expected {free_frames}"
        )))
    }
}

/// No two blocks share a frame and all lie in memory; returns how many frames
/// they have.
fn check(frames: &Frames<'_>, blocks: impl Iterator<Item = Held>) -> Result<u64, UpError> {
    let mut ranges: Vec<FrameRange> = blocks
        .filter_map(|(frame, order)| FrameRange::block(frame, order))
        .collect();
    ranges.sort_unstable_by_key(|range| range.start());
    if let Some(pair) = ranges
        .windows(2)
        .find(|pair| pair[0].end() > pair[1].start())
    {
        return Err(UpError::Check(format!(
            "{} and {} were both handed out",
            pair[0], pair[1]
        )));
    }
    let mut extents = frames.layout().segments().peekable();
    for range in &ranges {
        while extents
            .next_if(|extent| extent.frames.end() <= range.start())
            .is_some()
        {}
        if !extents
            .peek()
            .is_some_and(|extent| extent.frames.covers(*range))
        {
            return Err(UpError::Check(format!(
                "{range} was handed out and is not memory"
            )));
        }
    }
    Ok(ranges.iter().map(|range| range.count()).sum())
}
