//! How long a request for zeroed memory takes, with a stock and without: [`allocate`].
//!
//! A CPU requests them, through its cache. Requests are timed a few at a time, and a figure is the median of such groups: each is short beside
//! what another process gets of the CPU.

use super::ground::{eager, forget};
use super::record::Row;
use crate::alloc::Spread;
use firstlight::addr::{Frame, Order};
use firstlight::background::Next;
use firstlight::frames::{Cpu, Frames, Request};
use firstlight::node::NodeId;
use firstlight::zeroing::MappedMemory;
use firstlight_host::clock::Clock;
use std::error::Error;
use std::time::Instant;

/// Rounds, with stock and without in turns.
const ROUNDS: usize = 15;

/// What is requested, how many of them a round, and how many at a time.
const REQUESTS: [(Order, usize, usize); 3] = [
    (Order::PAGE, 4096, 64),
    (Order::HUGE, 64, 4),
    (Order::GIANT, 1, 1),
];

/// The rows of every order that there is memory for.
pub(super) fn allocate(
    frames: &Frames<'_>,
    memory: &MappedMemory,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut cpu = frames.cpu(0, NodeId(0))?;
    for (order, count, group) in REQUESTS {
        progress(&format!("zeroed blocks of {order}"));
        let mut ns: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (stock, ns) in [false, true].into_iter().zip(&mut ns) {
                forget(frames)?;
                if stock {
                    fill(frames, memory)?;
                }
                ns.extend(round(&mut cpu, order, count, group)?);
                cpu.drain()?;
            }
        }
        for (stock, ns) in [false, true].into_iter().zip(ns) {
            let row = |ns| Row::Allocate {
                order: order.get(),
                stock,
                ns,
            };
            rows.extend(Spread::of(ns.into_iter()).map(row));
        }
    }
    Ok(rows)
}

/// Zeroes all that is free.
pub(super) fn fill(frames: &Frames<'_>, memory: &MappedMemory) -> Result<(), Box<dyn Error>> {
    let zeroing = eager(frames, memory)?;
    let (clock, mut worker) = (Clock::start(), zeroing.worker(NodeId(0)));
    while worker.step(|| clock.now_ns()).next == Next::Now {}
    Ok(())
}

/// `count` blocks are allocated, then freed; nanoseconds a block of each group, none if there are not
/// so many blocks.
fn round(
    cpu: &mut Cpu<'_, '_>,
    order: Order,
    count: usize,
    group: usize,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let request = Request::new(order).zeroed();
    let mut blocks: Vec<Frame> = Vec::with_capacity(count);
    let mut figures = Vec::with_capacity(count / group);
    while blocks.len() < count {
        let begin = Instant::now();
        let found = (0..group).map_while(|_| cpu.allocate(request).ok());
        let before = blocks.len();
        blocks.extend(found);
        let ns = begin.elapsed().as_secs_f64() * 1e9;
        if blocks.len() < before + group {
            figures.clear();
            break;
        }
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let blocks = group as f64;
        figures.push(ns / blocks);
    }
    for frame in blocks {
        cpu.free(frame, order)?;
    }
    Ok(figures)
}
