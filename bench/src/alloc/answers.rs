//! Single requests at their worst: [`answers`]. A request that cannot be met must be
//! refused, and soon.

use super::contestant::{Contestant, Need, Visitor};
use super::ground::Ground;
use super::record::{Answers, Refusal};
use super::workers::Limit;
use crate::machine::GIB;
use firstlight::addr::{Frame, Order};
use firstlight_host::clock::thread_cpu_ns;
use firstlight_workloads::work::empty;
use firstlight_workloads::{Allocator, Cpu};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Memory of which every other page is held.
const CHECKERBOARD_BYTES: u64 = 64 * GIB;
/// Memory all of which is held.
const FULL_BYTES: u64 = 1024 * GIB;
/// Requests after the first.
const REPEATED: u32 = 100;
/// Only lists use it, and none is measured here.
const NEED: Need = Need {
    order: Order::PAGE,
    threads: 1,
};

/// Measures firstlight; `None` if the time is up before memory is held.
///
/// # Errors
/// Errors of the host or the engine.
pub(super) fn answers(limit: Limit) -> Result<Option<Answers>, Box<dyn Error>> {
    answers_of(CHECKERBOARD_BYTES, FULL_BYTES, limit)
}

/// Of machines of these sizes.
fn answers_of(
    checkerboard_bytes: u64,
    full_bytes: u64,
    limit: Limit,
) -> Result<Option<Answers>, Box<dyn Error>> {
    let ground = Ground::new(checkerboard_bytes)?;
    let mut board = Checkerboard(checkerboard_bytes, limit, Vec::new());
    Contestant::Firstlight.show(&ground, NEED, &mut board)?;
    let checkerboard = board.2;
    if checkerboard.is_empty() || limit.is_over() {
        return Ok(None);
    }
    let ground = Ground::new(full_bytes)?;
    let mut full = Full(full_bytes, Vec::new());
    Contestant::Firstlight.show(&ground, NEED, &mut full)?;
    Ok(Some(Answers {
        checkerboard_bytes,
        checkerboard,
        full_bytes,
        full: full.1,
        fullness: None,
        under_churn: Vec::new(),
    }))
}

/// Requests a block of `order`, of which none is free, often.
fn refusals<C: Cpu>(cpu: &mut C, order: Order, memory_bytes: u64) -> Refusal {
    let mut refused = true;
    let mut once = |count: u32| {
        let (begin, cpu_begin) = (Instant::now(), thread_cpu_ns());
        for _ in 0..count {
            let block = black_box(cpu.allocate(order));
            refused &= block.is_none();
            if let Some(frame) = block {
                cpu.free(frame, order);
            }
        }
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_begin);
        // Both contain more than the requests: the wall clock other threads' time, the
        // thread's clock its system call.
        let ns = begin.elapsed().as_nanos().min(cpu_ns.into());
        #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
        let each = ns as f64 / f64::from(count);
        each
    };
    let (first, repeated) = (once(1), once(REPEATED));
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let tib = memory_bytes as f64 / (1024 * GIB) as f64;
    Refusal {
        order: order.get(),
        first_ns: first.round(),
        repeated_ns: (repeated * 10.0).round() / 10.0,
        first_ns_per_tib: (first / tib).round(),
        refused,
    }
}

/// Every other page of so many bytes is held; no request if the time is up before.
struct Checkerboard(u64, Limit, Vec<Refusal>);

impl Visitor for Checkerboard {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        _touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut cpu = allocator.cpu(0).ok_or("no handle for the first CPU")?;
        let pace = self.1.pace();
        let mut odd: Vec<Frame> = Vec::new();
        pace.run(usize::MAX, |some| {
            let pages = some.map_while(|_| cpu.allocate(Order::PAGE));
            let mut taken = 0;
            odd.extend(
                pages
                    .inspect(|_| taken += 1)
                    .filter(|page| page.get() % 2 == 1),
            );
            taken
        });
        let freed = pace.run(odd.len(), |some| empty(&mut cpu, Order::PAGE, &odd[some]));
        if self.1.is_over() || freed < odd.len() {
            return Ok(());
        }
        cpu.drain();
        let orders = (1..9).filter_map(Order::new);
        self.2 = orders
            .map(|order| refusals(&mut cpu, order, self.0))
            .collect();
        Ok(())
    }
}

/// All of so many bytes is held.
struct Full(u64, Vec<Refusal>);

impl Visitor for Full {
    fn visit<A: Allocator>(
        &mut self,
        allocator: &A,
        _touched: &dyn Fn() -> u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut cpu = allocator.cpu(0).ok_or("no handle for the first CPU")?;
        let orders = [Order::GIANT, Order::HUGE, Order::PAGE];
        for order in orders {
            while cpu.allocate(order).is_some() {}
        }
        let orders = orders.into_iter().rev();
        self.1 = orders
            .map(|order| refusals(&mut cpu, order, self.0))
            .collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_free_block_are_refused() -> Result<(), Box<dyn Error>> {
        let no_time = answers_of(64 << 20, 3 * GIB, Limit::new(0))?;
        assert_eq!(no_time, None);
        let limit = Limit::new(u64::MAX);
        let answers = answers_of(64 << 20, 3 * GIB, limit)?.ok_or("there is time enough")?;
        let orders = |refusals: &[Refusal]| -> Vec<u8> {
            assert!(
                refusals.iter().all(|refusal| refusal.refused),
                "{refusals:?}"
            );
            refusals.iter().map(|refusal| refusal.order).collect()
        };
        assert_eq!(orders(&answers.checkerboard), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(orders(&answers.full), [0, 9, 18]);
        Ok(())
    }
}
