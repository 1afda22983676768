//! The use of the memory once it is up: none (`bring-up`), the self-test, a bench, a
//! sweep, the memory balloon, memory hotplug, a restart. A new mode is a file here and a word in
//! `words.rs`.

mod acceptance;
mod balloon;
mod bench_alloc;
mod hotplug;
mod restart;
mod self_test;
mod sweep;
mod zeroed;

use firstlight_image::words::Mode;
use firstlight_wire::{Outcome, marker};

use crate::arch::marker;
use crate::devices::{Found, NoDevice};
use crate::machine::Machine;
use crate::processors::Processors;

/// Runs the mode of the command line.
pub(crate) fn run(
    machine: &Machine,
    processors: &mut Processors,
    balloon: &Result<Found, NoDevice>,
) -> Outcome {
    processors.late();
    marker(marker::MODE);
    let accepted = acceptance::run(machine, processors);
    let zeroed = zeroed::run(machine);
    let outcome = match machine.words.mode {
        _ if zeroed != Outcome::Ok => zeroed,
        _ if accepted != Outcome::Ok => accepted,
        Mode::BringUp => Outcome::Ok,
        Mode::SelfTest => self_test::run(&machine.frames, processors),
        Mode::BenchAlloc => bench_alloc::run(&machine.frames, processors),
        Mode::Sweep => sweep::run(machine, processors),
        Mode::Balloon => balloon::run(machine, balloon),
        Mode::Restart => restart::run(machine, processors),
        Mode::Hotplug => hotplug::run(machine, processors),
    };
    marker(marker::MODE_END);
    // A sweep has checked its own descriptors.
    let fresh = machine.words.mode == Mode::Sweep || descriptors_are_fresh(machine);
    match outcome {
        Outcome::Ok if !fresh => Outcome::CheckFailed,
        other => other,
    }
}

/// Whether page descriptors that are ready have the right content; reports them.
fn descriptors_are_fresh(machine: &Machine) -> bool {
    machine.hooks.descriptors.iter().all(|(mode, descriptors)| {
        let descriptors = descriptors.read();
        descriptors.report(*mode, machine.frames.layout())
    })
}
