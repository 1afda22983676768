//! `balloon`: memory is allocated, written and freed, free memory is reported to the host
//! (with `reporting=on`), and then the host may take memory into the balloon and give it
//! back (`balloon=watched`: the machine goes on until it has).
//!
//! | file | contents |
//! |---|---|
//! | `written` | memory that is written |
//! | `report` | a stock of zeros, and reports, once it is free |
//! | `held` | the memory in the balloon |

mod held;
mod report;
mod written;

use firstlight::addr::{Order, PAGE_BYTES};
use firstlight_image::balloon::{Balloon, Statistics};
use firstlight_image::virtio::{Transport, VirtioError};
use firstlight_wire::{Event, Outcome, marker};
use log::{error, info};

use crate::arch::{marker, relax};
use crate::console::{event, note};
use crate::devices::{self, Found, NoDevice, WithBalloon};
use crate::machine::Machine;
use crate::time;
use held::Held;
use report::{Device, Reported};

/// Longest time without a change that the host is waited for.
const HOST_NS: u64 = 20_000_000_000;

/// Runs it on the balloon that was found.
pub(super) fn run(machine: &Machine, found: &Result<Found, NoDevice>) -> Outcome {
    let exercise = |found: &Found| {
        let transport = match found {
            Found::Pci(_) => "pci",
            Found::Mmio(_) => "mmio",
        };
        let exercise = Exercise { machine, transport };
        devices::drive(machine, *found, exercise)
    };
    let done = found.as_ref().map(exercise);
    let why = match &done {
        Ok(Ok(outcome)) => return *outcome,
        Ok(Err(why)) => why,
        Err(why) => why,
    };
    error!("balloon: {why}");
    Outcome::Machine
}

/// All of it, with a device.
struct Exercise<'m> {
    machine: &'m Machine,
    transport: &'static str,
}

impl WithBalloon for Exercise<'_> {
    type Answer = Outcome;

    fn with<T: Transport + Send>(self, balloon: Balloon<'static, T>) -> Outcome {
        let Self { machine, transport } = self;
        let frames = &machine.frames;
        let before = frames.statistics();
        let bytes = machine
            .words
            .balloon_bytes
            .unwrap_or(before.managed_frames / 2 * PAGE_BYTES);
        info!(
            "balloon: on {transport}, free page reporting: {}",
            if balloon.reports() {
                "offered"
            } else {
                "not offered"
            }
        );
        let device = Device::new(balloon);
        let (mut failures, mut broken) = (0, false);
        let freed_bytes = written::write_and_free(frames, bytes, &mut failures);
        let worker_zeroed_bytes = match machine.words.zeroing {
            true => report::zero(machine),
            false => 0,
        };
        let reported = match machine.words.reporting {
            true => report::report(machine, &device),
            false => Reported::default(),
        };
        let stock_bytes = frames.statistics().zero.frames * PAGE_BYTES;
        marker(marker::BALLOON_REPORTED);
        if let Some(failure) = reported.failure {
            error!("balloon: {failure}");
            broken = true;
        }
        let mut balloon = device.into_inner();
        let mut held = Held::new(frames);
        let served = match held.as_mut() {
            Some(held) => serve(machine, &mut balloon, held),
            None => {
                note("no memory for the list of the balloon's pages");
                Ok(())
            }
        };
        if let Err(failure) = served {
            error!("balloon: {failure}");
            broken = true;
        }
        failures += written::check(frames);
        let (inflated, left) = held.as_ref().map_or((0, 0), |held| (held.most, held.pages));
        // What is in the balloon, and the lists of it, are all that is missing.
        let lists = held.as_ref().map_or(0, |held| held.list_frames);
        let after = frames.statistics();
        let expected = before.free_frames.saturating_sub(left + lists);
        if after.free_frames + after.cached_frames + reported.unreleased_frames
            != expected + before.cached_frames
        {
            failures += 1;
            error!("balloon: {after:?}, expected {expected} free frames");
        }
        info!(
            "balloon: {} MiB freed, {} MiB reported in {} reports and {} passes, {} ticks; {} MiB inflated; {failures} failures",
            freed_bytes >> 20,
            reported.bytes >> 20,
            reported.reports,
            reported.passes,
            reported.ticks,
            (inflated * PAGE_BYTES) >> 20,
        );
        event(&Event::Balloon(firstlight_wire::Balloon {
            transport,
            reporting: machine.words.reporting,
            freed_bytes,
            reported_bytes: reported.bytes,
            reports: reported.reports,
            stock_bytes,
            worker_zeroed_bytes,
            passes: reported.passes,
            reporting_ticks: reported.ticks,
            inflated_bytes: inflated * PAGE_BYTES,
            left_bytes: left * PAGE_BYTES,
            failures,
        }));
        match failures {
            0 if broken => Outcome::Machine,
            0 => Outcome::Ok,
            _ => Outcome::CheckFailed,
        }
    }
}

/// Does what the host wants, until it has taken memory and given it back; without a host that
/// looks on, what it wants now.
fn serve<T: Transport>(
    machine: &Machine,
    balloon: &mut Balloon<'_, T>,
    held: &mut Held<'_>,
) -> Result<(), VirtioError> {
    let mut since = time::now_ns();
    let mut last = (u32::MAX, 0);
    loop {
        let target = balloon.target()?;
        held.follow(balloon, target.into())?;
        balloon.show(statistics(machine))?;
        let now = time::now_ns();
        if last != (target, held.pages) {
            last = (target, held.pages);
            since = now;
        }
        let was_used = held.most > 0 && held.pages == 0 && target == 0;
        if was_used || !machine.words.watched {
            return Ok(());
        }
        if now.saturating_sub(since) > HOST_NS {
            note(format_args!(
                "balloon: the host has not changed its target, {target} pages, for {} s",
                HOST_NS / 1_000_000_000
            ));
            return Ok(());
        }
        relax();
    }
}

/// What the host is shown.
fn statistics(machine: &Machine) -> Statistics {
    let statistics = machine.frames.statistics();
    let free_bytes = statistics.free_frames * PAGE_BYTES;
    Statistics {
        free_bytes,
        total_bytes: machine.frames.layout().present_frames() * PAGE_BYTES,
        available_bytes: free_bytes + statistics.cached_frames * PAGE_BYTES,
    }
}

/// The blocks that are written and reported.
const BLOCK: Order = Order::HUGE;
