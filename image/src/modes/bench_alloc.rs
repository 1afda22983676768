//! `bench=alloc`: what allocating and freeing costs, on one CPU and on more at
//! once, in ticks of the slowest of them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Request};
use firstlight_image::outcome::Outcome;
use firstlight_image::wire::Event;
use log::info;

use crate::arch::ticks;
use crate::console::event;
use crate::processors::Processors;

/// Pairs of an allocation and a free that one CPU does for one figure.
const PAIRS: u64 = 20_000;
/// Blocks held at once in bulk.
const BULK: usize = 256;
/// Of the orders that kernels ask for most.
const ORDERS: [Order; 2] = [Order::PAGE, Order::HUGE];

/// One CPU's part: pairs that could be done.
type Workload = fn(&Frames<'static>, Order) -> u64;

/// Allocate one, free it.
fn pair(frames: &Frames<'static>, order: Order) -> u64 {
    let done = (0..PAIRS).map_while(|_| {
        let frame = frames.allocate(Request::new(order)).ok()?;
        frames.free(frame, order).ok()
    });
    done.count() as u64
}

/// Allocate many, then free them.
fn bulk(frames: &Frames<'static>, order: Order) -> u64 {
    let mut held = [Frame::new(0); BULK];
    let mut done = 0;
    while done < PAIRS {
        let mut len = 0;
        for slot in &mut held {
            let Ok(frame) = frames.allocate(Request::new(order)) else {
                break;
            };
            *slot = frame;
            len += 1;
        }
        let freed = held
            .iter()
            .take(len)
            .filter(|frame| frames.free(**frame, order).is_ok())
            .count();
        if freed == 0 {
            break;
        }
        done += freed as u64;
    }
    done
}

/// Runs every workload with 1, 2, 4, ... CPUs, and with all.
pub(super) fn run(frames: &Frames<'static>, processors: &mut Processors) -> Outcome {
    let workloads: [(&str, Workload); 2] = [("pair", pair), ("bulk", bulk)];
    let all = processors.started();
    for (workload, work) in workloads {
        for order in ORDERS {
            let mut cpus = 1;
            loop {
                let (slowest, operations) = (AtomicU64::new(0), AtomicU64::new(0));
                let threads = processors.run(&|cpu| cpu < cpus, &|_| {
                    let begin = ticks();
                    let done = work(frames, order);
                    slowest.fetch_max(ticks() - begin, Relaxed);
                    operations.fetch_add(done, Relaxed);
                });
                let (ticks, operations) = (slowest.into_inner(), operations.into_inner());
                let order = order.get();
                let each = ticks * threads as u64 / operations.max(1);
                info!(
                    "bench: {workload} of order {order} on {threads} CPUs: {each} ticks of a CPU a pair"
                );
                event(&Event::Bench {
                    workload,
                    order,
                    threads: threads as u64,
                    operations,
                    ticks,
                });
                if cpus >= all {
                    break;
                }
                cpus = (cpus * 2).min(all);
            }
        }
    }
    Outcome::Ok
}
