//! `zeroed=SIZE`: so much memory is allocated as zeros, in blocks of 2 MiB, checked, and freed.
//! What of it had to be zeroed is counted; of the untouched memory of a virtual machine
//! (`fresh`) nothing is.

use firstlight::addr::{Frame, Order};
use firstlight::frames::Request;
use firstlight::node::ZoneKind;
use firstlight_wire::{Event, Outcome, Zeroed};
use log::{error, info};

use crate::arch::ticks;
use crate::console::event;
use crate::machine::Machine;

const BLOCK: Order = Order::HUGE;
/// One word of each cache line is read.
const STRIDE: usize = 64;

/// Runs it, if the command line has `zeroed=`.
pub(super) fn run(machine: &Machine) -> Outcome {
    let Some(wanted) = machine.words.zeroed_bytes else {
        return Outcome::Ok;
    };
    let frames = &machine.frames;
    let hooks = machine.hooks;
    hooks.check.set_one_in(machine.words.check_one_in.into());
    let mut zeroed = Zeroed {
        known_zero_bytes: frames.statistics().zero.frames * firstlight::addr::PAGE_BYTES,
        ..Zeroed::default()
    };
    let before_bytes = hooks.zeroed_bytes();
    let request = Request::new(BLOCK).zone(ZoneKind::Movable).zeroed();
    let mut last = None;
    while zeroed.allocated_bytes < wanted {
        let begin = ticks();
        let block = frames.allocate(request);
        zeroed.ticks += ticks() - begin;
        let block = match block {
            Ok(block) => block,
            Err(why) => {
                error!("zeroed: {why}");
                break;
            }
        };
        zeroed.allocated_bytes += BLOCK.bytes();
        if !is_zero(block) {
            error!("zeroed: {block} is not zero");
            zeroed.failures += 1;
        }
        // The blocks are a list in themselves.
        // SAFETY: mapped memory that this CPU just allocated.
        unsafe { first(block).write_volatile(last.map_or(u64::MAX, Frame::get)) }
        last = Some(block);
    }
    zeroed.wrong_blocks = hooks.check.wrong();
    zeroed.zeroed_bytes = hooks.zeroed_bytes() - before_bytes;
    while let Some(block) = last {
        // SAFETY: as above, the same word.
        let before = unsafe { first(block).read_volatile() };
        if let Err(why) = frames.free(block, BLOCK) {
            error!("zeroed: {why}");
            zeroed.failures += 1;
        }
        last = (before != u64::MAX).then(|| Frame::new(before));
    }
    info!(
        "zeroed: {} MiB allocated as zeros, {} MiB of it zeroed for that, {} MiB were known to be zero, {} blocks were not; {} ticks, {} failures",
        zeroed.allocated_bytes >> 20,
        zeroed.zeroed_bytes >> 20,
        zeroed.known_zero_bytes >> 20,
        zeroed.wrong_blocks,
        zeroed.ticks,
        zeroed.failures
    );
    event(&Event::Zeroed(zeroed));
    match zeroed.failures {
        0 => Outcome::Ok,
        _ => Outcome::CheckFailed,
    }
}

/// The first word of a block.
fn first(block: Frame) -> *mut u64 {
    block.addr().get() as *mut u64
}

/// Whether a block that was just allocated is zero.
fn is_zero(block: Frame) -> bool {
    (0..BLOCK.bytes()).step_by(STRIDE).all(|at| {
        let word = (block.addr().get() + at) as *const u64;
        // SAFETY: mapped memory that this CPU just allocated.
        unsafe { word.read_volatile() == 0 }
    })
}
