//! `selftest`: every CPU allocates, writes, checks and frees blocks of every
//! order on every node; then all CPUs stress the allocator at once; then all memory is
//! allocated, counted and freed.
//!
//! The tag of a block is written into it and must be there when the block is freed: if
//! a frame were allocated twice, one of its two holders would find the other's tag, or
//! none.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, Order};
use firstlight::frames::{AllocError, Frames, Request};
use firstlight::node::{NodeId, ZoneKind};
use firstlight_figures::random::Random;
use firstlight_wire::{Event, Outcome, Selftest};
use log::{error, info};

use crate::arch::cpus::FIRST_PAGE_END;
use crate::console::event;
use crate::processors::Processors;

/// Blocks a CPU holds at once under stress.
const HELD: usize = 64;
/// Blocks that all CPUs together allocate or free under stress, at least.
const STEPS: usize = 80_000;
/// Failures reported one by one.
const REPORTED: u64 = 10;
/// Largest order whose pages are all tagged; of larger blocks one page in each 2 MiB is.
const WHOLE: Order = Order::HUGE;

/// Counts of all CPUs together.
#[derive(Default)]
struct Counts {
    allocated: AtomicU64,
    freed: AtomicU64,
    failures: AtomicU64,
}

impl Counts {
    fn fail(&self, what: core::fmt::Arguments<'_>) {
        if self.failures.fetch_add(1, Relaxed) < REPORTED {
            error!("self-test: {what}");
        }
    }
}

/// An allocated block.
#[derive(Clone, Copy)]
struct Held {
    frame: Frame,
    order: Order,
    tag: u64,
}

impl Held {
    /// Every word that is tagged: the first of each page, or of each 2 MiB.
    fn words(self) -> impl Iterator<Item = *mut u64> {
        let pages = if self.order > WHOLE {
            1 << WHOLE.get()
        } else {
            1
        };
        let (start, end) = (self.frame.get(), self.frame.get() + self.order.frames());
        (start..end)
            .step_by(pages)
            .map(|frame| Frame::new(frame).addr().get() as *mut u64)
    }

    fn write(self) {
        for (at, word) in (0..).zip(self.words()) {
            // SAFETY: mapped memory that only this CPU has allocated; volatile, because a
            // faulty allocator may have allocated it twice.
            unsafe { word.write_volatile(self.tag.wrapping_add(at)) }
        }
    }

    /// Whether all tags are still there; they are gone afterwards.
    fn check(self) -> bool {
        let mut good = true;
        for (at, word) in (0..).zip(self.words()) {
            // SAFETY: as in `write`.
            unsafe {
                good &= word.read_volatile() == self.tag.wrapping_add(at);
                word.write_volatile(0);
            }
        }
        good
    }
}

/// The work of one CPU.
struct Worker<'a> {
    frames: &'a Frames<'static>,
    counts: &'a Counts,
    cpu: usize,
    serial: u64,
}

impl Worker<'_> {
    fn allocate(&mut self, request: Request) -> Option<Held> {
        match self.frames.allocate(request) {
            Ok(frame) => {
                self.serial += 1;
                let tag = (self.cpu as u64 + 1) << 48 | self.serial << 20;
                let held = Held {
                    frame,
                    order: request.order(),
                    tag,
                };
                held.write();
                self.counts.allocated.fetch_add(1, Relaxed);
                Some(held)
            }
            Err(AllocError::OutOfMemory { .. }) => None,
            Err(other) => {
                self.counts.fail(format_args!("CPU {}: {other}", self.cpu));
                None
            }
        }
    }

    fn free(&self, held: Held) {
        let Held { frame, order, .. } = held;
        if !held.check() {
            self.counts.fail(format_args!(
                "CPU {}: another holder wrote to {frame:?}, {order}",
                self.cpu
            ));
        }
        match self.frames.free(frame, order) {
            Ok(()) => drop(self.counts.freed.fetch_add(1, Relaxed)),
            Err(refused) => self
                .counts
                .fail(format_args!("CPU {}: {refused}", self.cpu)),
        }
    }

    /// A block of every order on every node.
    fn every_order(&mut self) {
        let nodes = self
            .frames
            .layout()
            .nodes()
            .iter()
            .filter(|node| node.has_memory());
        for node in nodes {
            for order in (0..=Order::GIANT.get()).filter_map(Order::new) {
                let request = Request::new(order).only_on(node.id).zone(ZoneKind::Movable);
                let Some(held) = self.allocate(request) else {
                    continue;
                };
                let on = self
                    .frames
                    .layout()
                    .ranges()
                    .iter()
                    .find(|range| range.frames.contains(held.frame));
                if on.is_none_or(|range| range.node != node.id) {
                    self.counts
                        .fail(format_args!("{:?} allocated for {}", held.frame, node.id));
                }
                self.free(held);
            }
        }
    }

    /// Blocks of small orders, allocated and freed at random.
    fn stress(&mut self, steps: usize) {
        let mut random = Random::new(self.cpu as u64);
        let mut held = [None; HELD];
        let nodes = self.frames.layout().nodes();
        for _ in 0..steps {
            let slot = &mut held[random.below(HELD)];
            match slot.take() {
                Some(block) => self.free(block),
                None => {
                    // One in two is a single page, the others have up to 8 MiB.
                    let largest = if random.below(2) == 0 { 1 } else { 12 };
                    let order = u8::try_from(random.below(largest))
                        .ok()
                        .and_then(Order::new);
                    let order = order.unwrap_or(Order::PAGE);
                    let node = nodes
                        .get(random.below(nodes.len()))
                        .map_or(NodeId(0), |node| node.id);
                    *slot = self.allocate(Request::new(order).on(node).zone(ZoneKind::Movable));
                }
            }
        }
        held.into_iter()
            .flatten()
            .for_each(|block| self.free(block));
    }
}

/// Allocates all memory, largest blocks first, then frees it; how many frames.
fn allocate_all(frames: &Frames<'static>, counts: &Counts) -> u64 {
    let (mut all, mut last) = (0, None::<(Frame, Order)>);
    for order in (0..=Order::GIANT.get()).rev().filter_map(Order::new) {
        while let Ok(frame) = frames.allocate(Request::new(order).zone(ZoneKind::Movable)) {
            // A list in the memory itself: the block before and its order.
            let (before, size) =
                last.map_or((u64::MAX, 0), |(frame, order)| (frame.get(), order.get()));
            let words = frame.addr().get() as *mut u64;
            // SAFETY: mapped memory that this CPU just allocated.
            unsafe {
                words.write_volatile(before);
                words.add(1).write_volatile(size.into());
            }
            if FIRST_PAGE_END.is_some_and(|end| frame.addr() < end) {
                counts.fail(format_args!("{frame:?} is left to firmware"));
            }
            last = Some((frame, order));
            all += order.frames();
        }
    }
    while let Some((frame, order)) = last {
        let words = frame.addr().get() as *const u64;
        // SAFETY: as above, the same words.
        let (before, size) = unsafe { (words.read_volatile(), words.add(1).read_volatile()) };
        if let Err(refused) = frames.free(frame, order) {
            counts.fail(format_args!("freeing all: {refused}"));
            break;
        }
        last = u8::try_from(size)
            .ok()
            .and_then(Order::new)
            .filter(|_| before != u64::MAX)
            .map(|order| (Frame::new(before), order));
    }
    all
}

/// Runs all parts.
pub(super) fn run(frames: &Frames<'static>, processors: &mut Processors) -> Outcome {
    let counts = Counts::default();
    let free_before = frames.statistics().free_frames;
    let worker = |cpu| Worker {
        frames,
        counts: &counts,
        cpu,
        serial: 0,
    };
    let cpus = processors.run_all(&|cpu| worker(cpu).every_order());
    info!("self-test: {cpus} CPUs allocated blocks of every order on every node");
    let steps = STEPS.div_ceil(cpus);
    processors.run_all(&|cpu| worker(cpu).stress(steps));
    info!("self-test: {cpus} CPUs did {steps} steps each under stress");

    let free = frames.statistics().free_frames;
    if free != free_before {
        counts.fail(format_args!("{free_before} frames were free, {free} are"));
    }
    let all_frames = allocate_all(frames, &counts);
    if all_frames != free {
        counts.fail(format_args!(
            "{free} frames were free, {all_frames} could be allocated"
        ));
    }
    if let Err(violation) = frames.validate() {
        counts.fail(format_args!("{violation}"));
    }
    let get = |count: &AtomicU64| count.load(Relaxed);
    let (allocated, freed, failures) = (
        get(&counts.allocated),
        get(&counts.freed),
        get(&counts.failures),
    );
    if allocated != freed {
        counts.fail(format_args!("{allocated} blocks allocated, {freed} freed"));
    }
    info!(
        "self-test: {allocated} blocks allocated and freed, then all {all_frames} frames at once; {failures} failures"
    );
    event(&Event::Selftest(Selftest {
        cpus: cpus as u64,
        allocated_blocks: allocated,
        freed_blocks: freed,
        all_frames,
        failures: get(&counts.failures),
    }));
    match get(&counts.failures) {
        0 => Outcome::Ok,
        _ => Outcome::CheckFailed,
    }
}
