//! `bench=alloc`: the loops of `firstlight-workloads` on one CPU and on more at
//! once, by the engine, by one list behind a spin lock and by a list for each CPU.
//! [`contestants`] has these, [`rounds`] the workloads.
//!
//! The lists of the loops are in memory that is allocated once and never freed.

mod contestants;
mod rounds;

use core::sync::atomic::AtomicU64;

use contestants::{Floor, Yardstick};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{CpuCache, Frames};
use firstlight_wire::Outcome;
use firstlight_workloads::lists::own;
use firstlight_workloads::ours::Ours;
use firstlight_workloads::ring::Ring;
use log::error;
use rounds::{Held, LIVE, RING, Rounds};

use crate::lists::{list, list_of, zeroed_list};
use crate::processors::Processors;

/// Blocks that all CPUs together hold at most; an eighth of memory if that is less.
const MOST_BLOCKS: u64 = 1 << 16;
/// Beyond the giant frames of the machine: smaller blocks in ranges that are no whole
/// giant or huge frames.
const MORE_BLOCKS: u64 = 1 << 13;

/// Runs every workload with 1, 2, 4, ... CPUs, and with all.
pub(super) fn run(frames: &Frames<'static>, processors: &mut Processors) -> Outcome {
    let Some(memory) = Memory::new(frames, processors.started()) else {
        error!("bench: no memory for its lists");
        return Outcome::CheckFailed;
    };
    if let Err(error) = frames.provide_cpus(memory.caches) {
        error!("bench: {error}");
        return Outcome::CheckFailed;
    }
    let ours = (0..)
        .zip(processors.nodes())
        .map_while(|(index, (_, node))| Some(own(frames.cpu(index, node).ok()?)));
    let Some(ours) = list_of(frames, processors.started(), ours) else {
        error!("bench: no memory for the CPUs' handles");
        return Outcome::CheckFailed;
    };
    let mut ours = Ours::new(ours);
    let mut rounds = Rounds::new(processors, memory.held, &ours);
    let floor = |numbers| Floor { numbers, frames };
    let enough = rounds.all(&mut ours)
        && rounds.all(&mut Yardstick(&mut *memory.numbers))
        && rounds.all(&mut floor(memory.numbers));
    if enough {
        Outcome::Ok
    } else {
        Outcome::CheckFailed
    }
}

/// The memory of the bench, never freed.
struct Memory {
    held: Held,
    numbers: &'static mut [Frame],
    /// The per-CPU caches, in the order of the CPUs.
    caches: &'static [CpuCache],
}

impl Memory {
    fn new(frames: &Frames<'_>, cpus: usize) -> Option<Self> {
        let managed = frames.statistics().managed_frames;
        let blocks = usize::try_from(MOST_BLOCKS.min(managed / 8)).ok()?;
        let most = managed / Order::GIANT.frames() + MORE_BLOCKS;
        let most = usize::try_from(most).ok()?;
        let slots = list(frames, RING * cpus.div_ceil(2), |_| AtomicU64::new(0))?;
        let rings = slots.chunks_exact(RING).map(Ring::new);
        let rings = list_of(frames, cpus.div_ceil(2), rings)?;
        Some(Self {
            held: Held {
                blocks: list(frames, blocks, |_| rounds::NONE)?,
                rest: list(frames, most, |_| (rounds::NONE, Order::PAGE))?,
                live: list(frames, LIVE * cpus, |_| None)?,
                rings,
            },
            numbers: list(frames, blocks, |number| Frame::new(number as u64))?,
            // SAFETY: zeroed memory is a CPU's cache that none has used.
            caches: unsafe { zeroed_list(frames, cpus) }?,
        })
    }
}
