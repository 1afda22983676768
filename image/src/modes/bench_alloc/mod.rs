//! `bench=alloc`: the loops of `firstlight-workloads` on one CPU and on more at
//! once, by the engine, by one list behind a spin lock and by a list for each CPU.
//! [`rounds`] has the workloads.
//!
//! What the loops hold lies in memory that is taken once and for good; the lists
//! hold numbers that stand for blocks and belong to nobody.

mod rounds;

use core::sync::atomic::AtomicU64;

use firstlight::addr::{Frame, Order};
use firstlight::frames::Frames;
use firstlight::node::NodeId;
use firstlight_image::outcome::Outcome;
use firstlight_workloads::lists::{Lifo, SpinLifo, Stack, own};
use firstlight_workloads::ours::Ours;
use firstlight_workloads::ring::Ring;
use log::error;
use rounds::{Held, LIVE, ROOM, Rounds};

use crate::descriptors::list;
use crate::processors::Processors;

/// Blocks that all CPUs together hold at most; an eighth of memory if that is less.
const MOST_BLOCKS: u64 = 1 << 16;
/// Beyond the giant frames of the machine: what ranges that are no whole giant or
/// huge frames leave.
const MORE_BLOCKS: u64 = 1 << 13;

/// Runs every workload with 1, 2, 4, ... CPUs, and with all.
pub(super) fn run(frames: &Frames<'static>, processors: &mut Processors) -> Outcome {
    let Some(memory) = Memory::new(frames, processors.started()) else {
        error!("bench: no memory for its lists");
        return Outcome::CheckFailed;
    };
    let numbers = memory.numbers.len();
    let nodes = memory.nodes;
    for (node, (_, at)) in nodes.iter_mut().zip(processors.nodes()) {
        *node = at;
    }
    let mut rounds = Rounds::new(processors, memory.lent);
    let node_of = |index: usize| nodes.get(index).copied().unwrap_or_default();
    rounds.all("firstlight", &Ours::new(frames, node_of));
    {
        let stack = Stack::new(&mut *memory.numbers, numbers);
        rounds.all("spin-lifo", &SpinLifo::new(stack));
    }
    let cpus = rounds.cpus();
    let share = (numbers / cpus).max(1);
    let stacks = memory.numbers.chunks_exact_mut(share).take(cpus);
    let mut stacks = stacks.map(|part| own(Stack::new(part, share)));
    // Each CPU's list, in memory that the engine gave.
    let lists = list(frames, cpus, |_| {
        stacks.next().unwrap_or_else(|| own(Stack::new(&mut [], 0)))
    });
    let Some(lists) = lists else {
        error!("bench: no memory for a list for each CPU");
        return Outcome::CheckFailed;
    };
    rounds.all("lifo", &Lifo::new(lists));
    Outcome::Ok
}

/// What the bench takes from the engine, for good.
struct Memory {
    lent: Held,
    numbers: &'static mut [Frame],
    /// Of the CPUs, in the order of their numbers.
    nodes: &'static mut [NodeId],
}

impl Memory {
    fn new(frames: &Frames<'_>, cpus: usize) -> Option<Self> {
        let managed = frames.metadata().managed_frames;
        let blocks = usize::try_from(MOST_BLOCKS.min(managed / 8)).ok()?;
        let most = managed / Order::GIANT.frames() + MORE_BLOCKS;
        let most = usize::try_from(most).ok()?;
        let slots = list(frames, ROOM * cpus.div_ceil(2), |_| AtomicU64::new(0))?;
        let rings = slots.chunks_exact(ROOM).map(Ring::new);
        let mut rings = rings.fuse();
        let rings = list(frames, cpus.div_ceil(2), |_| {
            rings.next().unwrap_or_else(|| Ring::new(&[]))
        })?;
        Some(Self {
            lent: Held {
                blocks: list(frames, blocks, |_| rounds::NONE)?,
                rest: list(frames, most, |_| (rounds::NONE, Order::PAGE))?,
                live: list(frames, LIVE * cpus, |_| None)?,
                rings,
            },
            numbers: list(frames, blocks, |number| Frame::new(number as u64))?,
            nodes: list(frames, cpus, |_| NodeId::default())?,
        })
    }
}
