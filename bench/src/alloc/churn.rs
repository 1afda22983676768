//! Requests that must fail while other threads allocate and free: [`under_churn`].
//!
//! Memory is used up except for blocks of one order that cannot merge. Threads
//! allocate and free such blocks through [`Frames`], past every per-CPU cache, and
//! one thread requests a huge frame again and again: how long does the longest of its
//! requests take?

use super::record::UnderChurn;
use super::workers::{Limit, Workers};
use crate::machine::{GIB, Machine};
use firstlight::addr::{Frame, Order};
use firstlight::frames::{Frames, Request};
use firstlight_host::clock::thread_cpu_ns;
use firstlight_host::metadata::MetadataSpace;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of threads that allocate and free.
pub(super) const THREADS: [usize; 3] = [1, 8, 32];
/// Size of the machine.
const MEMORY_BYTES: u64 = 4 * GIB;
/// Order of the blocks that they allocate.
const CHURN_ORDER: u8 = 3;
/// Blocks that a thread allocates, then frees, between two readings of the clock.
const BATCH: usize = 16;

/// Measures beside so many `threads` for `cell_ns`; the churn ends after twice that
/// at the latest, so that a request that only then returns ends, too.
///
/// # Errors
/// Errors of the host or the engine.
pub(super) fn under_churn(
    cpus: &[u32],
    threads: usize,
    cell_ns: u64,
) -> Result<UnderChurn, Box<dyn Error>> {
    of_machine(MEMORY_BYTES, cpus, threads, cell_ns)
}

fn of_machine(
    memory_bytes: u64,
    cpus: &[u32],
    threads: usize,
    cell_ns: u64,
) -> Result<UnderChurn, Box<dyn Error>> {
    let order = Order::new(CHURN_ORDER).ok_or("no such order")?;
    let machine = Machine::pc(memory_bytes, 1);
    let mut storage = machine.storage();
    let space = MetadataSpace::new(machine.metadata_bytes())?;
    let frames = Frames::build(machine.layout(&mut storage)?, &space)?;
    use_up(&frames, order)?;
    let request = || {
        let block = frames.allocate(Request::new(Order::HUGE));
        let refused = block.is_err();
        let _ = block.map(|frame| frames.free(frame, Order::HUGE));
        refused
    };
    let churn = |_| {
        let mut held: Vec<Frame> = Vec::with_capacity(BATCH);
        let frames = &frames;
        move || {
            held.extend((0..BATCH).map_while(|_| frames.allocate(Request::new(order)).ok()));
            for block in held.drain(..) {
                // It was allocated just now; a refusal would leave memory fuller.
                let _ = frames.free(block, order);
            }
        }
    };
    let workers = Workers {
        cpus,
        threads: threads + 1,
    };
    let longest = longest(workers, cell_ns, request, churn)?;
    Ok(UnderChurn {
        order: Order::HUGE.get(),
        churn_threads: threads,
        churn_order: CHURN_ORDER,
        max_ns: longest.cpu_ns,
        max_wall_ns: longest.wall_ns,
        requests: longest.requests,
        refused: longest.refused,
        cut_short: longest.cut_short,
    })
}

/// Allocates all memory, then frees every second block of `order`: none of them has
/// a free buddy.
fn use_up(frames: &Frames<'_>, order: Order) -> Result<(), Box<dyn Error>> {
    let all = |order| std::iter::from_fn(move || frames.allocate(Request::new(order)).ok());
    let blocks: Vec<Frame> = all(order).collect();
    all(Order::PAGE).for_each(drop);
    for block in blocks {
        if (block.get() >> order.get()) % 2 == 1 {
            frames.free(block, order)?;
        }
    }
    Ok(())
}

/// The longest of the requests.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    /// CPU time of the thread that requests.
    cpu_ns: u64,
    wall_ns: u64,
    requests: u64,
    refused: bool,
    cut_short: bool,
}

/// The first worker calls `request`, at least once and until `cell_ns` are over. Each
/// other calls the function that `churn` makes for it until then, or for twice as long.
fn longest<C: FnMut()>(
    workers: Workers<'_>,
    cell_ns: u64,
    request: impl Fn() -> bool + Sync,
    churn: impl Fn(usize) -> C + Sync,
) -> io::Result<Longest> {
    let done = AtomicBool::new(false);
    let parts = workers.run(|index, gate| {
        if index == 0 {
            gate.pass();
            let longest = requests(cell_ns, &request);
            done.store(true, Ordering::Release);
            return longest;
        }
        let mut churn = churn(index);
        gate.pass();
        let limit = Limit::new(cell_ns.saturating_mul(2));
        while !done.load(Ordering::Acquire) && !limit.is_over() {
            churn();
        }
        Longest {
            cut_short: !done.load(Ordering::Acquire),
            ..Longest::default()
        }
    })?;
    let first = parts.first().copied().unwrap_or_default();
    Ok(Longest {
        cut_short: parts.iter().any(|part| part.cut_short),
        ..first
    })
}

fn requests(cell_ns: u64, request: impl Fn() -> bool) -> Longest {
    let limit = Limit::new(cell_ns);
    let mut longest = Longest {
        refused: true,
        ..Longest::default()
    };
    while longest.requests == 0 || !limit.is_over() {
        let (wall, cpu) = (Limit::new(u64::MAX), thread_cpu_ns());
        longest.refused &= request();
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu);
        longest.cpu_ns = longest.cpu_ns.max(cpu_ns);
        longest.wall_ns = longest.wall_ns.max(wall.elapsed_ns());
        longest.requests += 1;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn no_huge_frame_is_found_where_only_small_blocks_come_and_go() -> Result<(), Box<dyn Error>> {
        for threads in [0, 1, 3] {
            let row = of_machine(128 << 20, &[0], threads, 2_000_000)?;
            assert!(row.refused && row.requests > 0, "{row:?}");
            assert_eq!((row.order, row.churn_order), (9, 3));
            assert_eq!(row.churn_threads, threads);
            assert!(row.max_ns > 0 && row.max_wall_ns > 0, "{row:?}");
        }
        Ok(())
    }

    #[test]
    fn every_second_block_is_free_and_no_larger_one() -> Result<(), Box<dyn Error>> {
        let machine = Machine::pc(128 << 20, 1);
        let mut storage = machine.storage();
        let space = MetadataSpace::new(machine.metadata_bytes())?;
        let frames = Frames::build(machine.layout(&mut storage)?, &space)?;
        let order = Order::new(CHURN_ORDER).ok_or("no such order")?;
        let before = frames.statistics().free_frames;
        use_up(&frames, order)?;
        let free = frames.statistics().free_frames;
        assert!(
            (before / 3..=before / 2).contains(&free),
            "{free} of {before}"
        );
        let larger = Order::new(CHURN_ORDER + 1).ok_or("no such order")?;
        assert!(frames.allocate(Request::new(larger)).is_err());
        assert!(frames.allocate(Request::new(order)).is_ok());
        Ok(())
    }

    /// Counts when its thread has stopped.
    struct Running<'r>(&'r AtomicUsize);

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }

    #[test]
    fn a_request_that_waits_for_the_churn_to_end_ends_and_is_marked() -> io::Result<()> {
        const CHURNING: usize = 3;
        const CELL_NS: u64 = 2_000_000;
        let stopped = AtomicUsize::new(0);
        let workers = Workers {
            cpus: &[0],
            threads: CHURNING + 1,
        };
        let request = || {
            // Its thread may begin after the others ended: no other request follows then, either.
            std::thread::sleep(std::time::Duration::from_nanos(CELL_NS));
            while stopped.load(Ordering::Acquire) < CHURNING {
                std::thread::yield_now();
            }
            true
        };
        let churn = |_| {
            let running = Running(&stopped);
            move || {
                let _ = &running;
                std::thread::yield_now();
            }
        };
        let longest = longest(workers, CELL_NS, request, churn)?;
        assert!(longest.cut_short && longest.requests == 1, "{longest:?}");
        Ok(())
    }
}
