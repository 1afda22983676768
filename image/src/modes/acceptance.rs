//! `accept=TICKS`: memory above 4 GiB behaves as that of a confidential machine. It is
//! not mapped until it is accepted, so that an earlier touch is a fault, and accepting
//! a page takes so many ticks. Some of it comes online when an allocation finds nothing
//! else, the rest by all CPUs at once while they allocate. All of it must be zero, and
//! online in the end.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use firstlight::addr::{Frame, Order};
use firstlight::frames::Request;
use firstlight::node::{NodeId, ZoneKind};
use firstlight_wire::{Event, Outcome};
use log::{error, info};

use crate::arch::{DirectMap, ticks};
use crate::console::event;
use crate::machine::Machine;
use crate::processors::Processors;

/// Huge frames that each test allocates of memory that was accepted.
const LAZY_BLOCKS: u64 = 16;

/// Runs it, if the command line has `accept=`.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    if machine.words.accept_ticks.is_none() {
        return Outcome::Ok;
    }
    let acceptance = &machine.hooks.acceptance;
    let failures = AtomicU64::new(0);
    let begin = ticks();
    let lazy_frames = lazily(machine, &failures);
    let next_cpu = AtomicU64::new(0);
    processors.run_all(&|_| {
        let number = next_cpu.fetch_add(1, Relaxed);
        let node = nth_node(machine, number);
        if number % 2 == 1 {
            // Every second CPU allocates what comes online meanwhile.
            take_and_check(machine, &failures, node);
        }
        acceptance.accept_all(&machine.frames, node);
    });
    let ticks = ticks() - begin;
    let accepted = acceptance.accepted();
    if accepted.online_frames != accepted.total_frames {
        failures.fetch_add(1, Relaxed);
        error!("acceptance: {accepted:?}, expected all online");
    }
    let failures = failures.into_inner();
    info!(
        "acceptance: {} frames online, {lazy_frames} of them by an allocation, {ticks} ticks; {failures} failures",
        accepted.online_frames
    );
    event(&Event::Acceptance {
        total_frames: accepted.total_frames,
        online_frames: accepted.online_frames,
        refused_frames: accepted.refused_frames,
        lazy_frames,
        ticks,
        failures,
    });
    if failures == 0 {
        Outcome::Ok
    } else {
        Outcome::CheckFailed
    }
}

/// A node for the `number`th CPU; any will do.
fn nth_node(machine: &Machine, number: u64) -> NodeId {
    let nodes = machine.frames.layout().nodes();
    let at = usize::try_from(number).unwrap_or_default() % nodes.len().max(1);
    nodes.get(at).map_or_else(NodeId::default, |node| node.id)
}

/// Allocates memory until some was accepted, and then a little more; frames accepted for it.
fn lazily(machine: &Machine, failures: &AtomicU64) -> u64 {
    let (frames, acceptance) = (&machine.frames, &machine.hooks.acceptance);
    let request = Request::new(Order::HUGE).zone(ZoneKind::Movable);
    let before = acceptance.accepted().online_frames;
    // The allocated blocks are a list in themselves: the first word names the one before.
    let mut last = None::<Frame>;
    let hold = |frame: Frame, last: &mut Option<Frame>| {
        let before = last.map_or(u64::MAX, Frame::get);
        // SAFETY: mapped memory that this CPU just allocated.
        unsafe { (frame.addr().get() as *mut u64).write_volatile(before) }
        *last = Some(frame);
    };
    let mut accepted = 0;
    while accepted < LAZY_BLOCKS
        && let Ok(frame) = frames.allocate(request)
    {
        if frame.addr() >= DirectMap::TABLES_BELOW {
            check_zero(frame, Order::HUGE, failures);
            accepted += 1;
        }
        hold(frame, &mut last);
    }
    let lazy = acceptance.accepted().online_frames - before;
    while let Some(frame) = last {
        // SAFETY: as above, the same word.
        let before = unsafe { (frame.addr().get() as *const u64).read_volatile() };
        if frames.free(frame, Order::HUGE).is_err() {
            failures.fetch_add(1, Relaxed);
            error!("acceptance: {frame} could not be freed");
            break;
        }
        last = (before != u64::MAX).then(|| Frame::new(before));
    }
    lazy
}

/// Allocates pages while memory comes online.
fn take_and_check(machine: &Machine, failures: &AtomicU64, node: NodeId) {
    let request = Request::new(Order::HUGE).on(node).zone(ZoneKind::Movable);
    for _ in 0..LAZY_BLOCKS {
        let Ok(frame) = machine.frames.allocate(request) else {
            break;
        };
        let first = frame.addr().get() as *mut u64;
        // SAFETY: mapped memory that this CPU just allocated; if it were not accepted,
        // this would fault.
        unsafe { first.write_volatile(first.read_volatile() ^ 1) }
        if machine.frames.free(frame, Order::HUGE).is_err() {
            failures.fetch_add(1, Relaxed);
        }
    }
}

/// Whether a block that was just accepted is zero.
fn check_zero(frame: Frame, order: Order, failures: &AtomicU64) {
    let first = frame.addr().get() as *const u64;
    let words = usize::try_from(order.bytes() / 8).unwrap_or_default();
    // SAFETY: mapped memory that this CPU just allocated.
    let zero = (0..words).all(|at| unsafe { first.add(at).read_volatile() } == 0);
    if !zero {
        failures.fetch_add(1, Relaxed);
        error!("acceptance: {frame} is not zero");
    }
}
