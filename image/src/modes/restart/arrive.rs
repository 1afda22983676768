//! The kernel after a restart.

use firstlight::addr::{Frame, Order, PhysRange};
use firstlight::frames::{Frames, Request};
use firstlight::node::ZoneKind;
use firstlight_image::damage::Damage;
use firstlight_image::record::{Cut, LINE_BYTES};
use firstlight_wire::{Event, Outcome, Restart};
use log::{error, info};

use super::pattern;
use crate::arch::restart;
use crate::console::event;
use crate::machine::Machine;
use crate::preserve::TakenOver;
use crate::processors::Processors;

/// Uses the rest of memory, then checks what was taken over and frees it.
pub(super) fn run(machine: &Machine, processors: &mut Processors) -> Outcome {
    let frames = &machine.frames;
    let mut taken = core::mem::take(&mut *machine.taken.lock());
    // Sparing the host's memory where guests do.
    let every = machine.words.preserve_every;
    let order = match every {
        Some(bytes) if bytes >= Order::GIANT.bytes() => Order::GIANT,
        _ => Order::HUGE,
    };
    let mut seen = Restart {
        left_ticks: restart::left(),
        usable_ticks: taken.usable_ticks,
        other_bytes: write_rest(frames, order),
        ..Restart::default()
    };
    let guests = taken.guests.iter().map(|guest| guest.range);
    seen.guest_bytes = guests.clone().map(|guest| guest.bytes()).sum();
    // SAFETY: the guests' memory, which is mapped; guests do not run.
    let checked = unsafe { pattern::check(guests, every, processors) };
    (seen.checked_bytes, seen.wrong_pages) = checked;
    seen.failures = seen.wrong_pages + free(&mut taken, frames, &mut seen.released_bytes);
    if let Err(why) = frames.validate() {
        error!("restart: {why}");
        seen.failures += 1;
    }
    seen.free_frames = frames.statistics().free_frames;
    report(&taken, seen);
    let as_wanted = match (taken.refused, machine.words.damage) {
        (Some(_), Some(Damage::Guest)) => machine.words.preserve_verified,
        (None, Some(Damage::Guest)) => !machine.words.preserve_verified,
        (refused, damage) => refused.is_some() == damage.is_some(),
    };
    if seen.failures == 0 && as_wanted {
        Outcome::Ok
    } else {
        Outcome::CheckFailed
    }
}

fn report(taken: &TakenOver, seen: Restart<&str>) {
    let mut bytes = [0; LINE_BYTES];
    match &taken.refused {
        Some(why) => {
            error!("restart: refused: {why}");
            let why = Cut::text(&mut bytes, format_args!("{why}"));
            event(&Event::Restart(Restart {
                refused: Some(why),
                ..seen
            }));
        }
        None => {
            info!(
                "restart: {} MiB taken over, {} MiB checked, {} pages wrong; {} MiB of other memory used before",
                seen.guest_bytes >> 20,
                seen.checked_bytes >> 20,
                seen.wrong_pages,
                seen.other_bytes >> 20
            );
            event(&Event::Restart(seen));
        }
    }
}

/// Allocates all memory that can be, in blocks of `order`, writes to each and frees it; in bytes.
fn write_rest(frames: &Frames<'_>, order: Order) -> u64 {
    let request = Request::new(order).zone(ZoneKind::Movable);
    let (mut last, mut bytes) = (None::<Frame>, 0);
    // The blocks are a list in themselves.
    let first = |block: Frame| block.addr().get() as *mut u64;
    while let Ok(block) = frames.allocate(request) {
        // SAFETY: mapped memory that this CPU just allocated.
        unsafe { first(block).write_volatile(last.map_or(u64::MAX, Frame::get)) }
        last = Some(block);
        bytes += order.bytes();
    }
    while let Some(block) = last {
        // SAFETY: as above, the same word.
        let before = unsafe { first(block).read_volatile() };
        if let Err(why) = frames.free(block, order) {
            error!("restart: {why}");
            break;
        }
        last = (before != u64::MAX).then(|| Frame::new(before));
    }
    bytes
}

/// Owners free what they took, then the rest is freed; failures.
fn free(taken: &mut TakenOver, frames: &Frames<'_>, released_bytes: &mut u64) -> u64 {
    let mut failures = 0;
    let mut give = |range: PhysRange| {
        if let Err(why) = frames.free_frames(range.inner_frames()) {
            error!("restart: {why}");
            failures += 1;
        }
    };
    taken.guests.iter().for_each(|guest| give(guest.range));
    if let Some(rest) = &mut taken.rest {
        rest.release(|range| {
            *released_bytes += range.range.bytes();
            give(range.range);
        });
    }
    taken.guests = &[];
    if let Some((list, order)) = taken.list.take()
        && let Err(why) = frames.free(list, order)
    {
        error!("restart: {why}");
        failures += 1;
    }
    failures
}
