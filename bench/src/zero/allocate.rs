//! How long a request for zeroed memory takes, with a stock and without: [`allocate`].

use super::ground::{eager, forget};
use super::record::Row;
use crate::alloc::Spread;
use firstlight::addr::{Frame, Order};
use firstlight::background::Next;
use firstlight::frames::{Frames, Request};
use firstlight::node::NodeId;
use firstlight::zeroing::MappedMemory;
use firstlight_host::clock::Clock;
use std::error::Error;
use std::time::Instant;

/// Rounds, with stock and without in turns.
const ROUNDS: usize = 15;

/// What is requested, and how many of them a round.
const REQUESTS: [(Order, usize); 3] = [(Order::PAGE, 4096), (Order::HUGE, 64), (Order::GIANT, 1)];

/// The rows of every order that there is memory for.
pub(super) fn allocate(
    frames: &Frames<'_>,
    memory: &MappedMemory,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for (order, count) in REQUESTS {
        progress(&format!("zeroed blocks of {order}"));
        let mut ns: [Vec<f64>; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (stock, ns) in [false, true].into_iter().zip(&mut ns) {
                forget(frames)?;
                if stock {
                    fill(frames, memory)?;
                }
                ns.extend(round(frames, order, count)?);
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

/// `count` blocks are allocated, then freed; nanoseconds a block, `None` if there are not so many.
fn round(frames: &Frames<'_>, order: Order, count: usize) -> Result<Option<f64>, Box<dyn Error>> {
    let request = Request::new(order).zeroed();
    let mut blocks: Vec<Frame> = Vec::with_capacity(count);
    let begin = Instant::now();
    for _ in 0..count {
        match frames.allocate(request) {
            Ok(frame) => blocks.push(frame),
            Err(_) => break,
        }
    }
    let ns = begin.elapsed().as_secs_f64() * 1e9;
    let is_all = blocks.len() == count;
    for frame in blocks {
        frames.free(frame, order)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let count = count as f64;
    Ok(is_all.then_some(ns / count))
}
