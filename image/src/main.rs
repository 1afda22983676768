//! The engine on a machine without an operating system: an image that brings up all
//! memory, reports how long that took, uses the memory, and exits.
//!
//! | file | contents |
//! |---|---|
//! | `main` | the way up, in order |
//! | `arch/` | everything that depends on the processor |
//! | `bring_up` | firmware's tables to [`firstlight::frames::Frames`], a time stamp after each step |
//! | `firmware/` | the loader's and firmware's tables: read, checked, reserved |
//! | `machine` | a machine whose memory is up |
//! | `storage` | the storage of the engine's tables before there is an allocator |
//! | `failures` | failures on purpose |
//! | `devices` | virtio devices: the memory balloon, where the command line has `balloon`, and memory devices |
//! | `preserve` | what the previous kernel handed over |
//! | `lists` | lists in memory of the allocator |
//! | `time` | nanoseconds since the machine began |
//! | `console` | the log, kept in memory until there is time for a serial port |
//! | `report` | the results, as lines and as events |
//! | `hooks` | what it adds to allocation: descriptors, acceptance |
//! | `descriptors`, `deferred` | a descriptor for each page frame, where the command line has `descriptors=` |
//! | `regress` | regressions that Linux had, where the command line has `regress=` |
//! | `processors` | the other CPUs, each with memory of its own node |
//! | `modes/` | the use of the memory |
//! | `end` | the ways a run ends |
//!
//! Code that needs no machine is in the library beside it (`lib.rs`).
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod arch;
#[cfg(target_os = "none")]
mod bring_up;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod deferred;
#[cfg(target_os = "none")]
mod descriptors;
#[cfg(target_os = "none")]
mod devices;
#[cfg(target_os = "none")]
mod end;
#[cfg(target_os = "none")]
mod failures;
#[cfg(target_os = "none")]
mod firmware;
#[cfg(target_os = "none")]
mod hooks;
#[cfg(target_os = "none")]
mod lists;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod modes;
#[cfg(target_os = "none")]
mod preserve;
#[cfg(target_os = "none")]
mod processors;
#[cfg(target_os = "none")]
mod regress;
#[cfg(target_os = "none")]
mod report;
#[cfg(target_os = "none")]
mod storage;
#[cfg(target_os = "none")]
mod time;

#[cfg(target_os = "none")]
use {
    arch::{DirectMap, Handover, marker, ticks},
    firmware::Loader,
    firstlight::events::Events,
    firstlight_image::words::Mode,
    firstlight_wire::{marker, milestone, phase},
    processors::Processors,
};

/// The machine, once its memory is up.
#[cfg(target_os = "none")]
static MACHINE: spin::Once<machine::Machine> = spin::Once::new();

/// The way up. Called once, on the first CPU.
#[cfg(target_os = "none")]
fn main(handover: Handover) -> ! {
    // SAFETY: nothing is allocated before everything in use is reserved, and no frame is freed through it.
    let loader = Loader::read(unsafe { DirectMap::new() }, handover.tables);
    // What a kernel before kept is still there.
    if arch::restart::count() == 0 && loader.as_ref().is_ok_and(Loader::may_restart) {
        // SAFETY: this is the first CPU, once, and no static has been written.
        unsafe { arch::restart::keep() }
    }
    let mut events = Events::new(storage::event_slots(), 0);
    events.end(phase::FIRMWARE, handover.entry_ticks);
    events.milestone(milestone::ENTRY, handover.entry_ticks);
    console::install(handover.entry_ticks);
    if let Some(found) = loader.as_ref().ok().and_then(Loader::uefi) {
        firmware::uefi::install(found, &mut events);
    }
    // SAFETY: this is the first CPU, and this is done once.
    unsafe { arch::install_traps() }
    events.end(phase::PROCESSOR, ticks());

    // Until all memory can be allocated, nothing else happens.
    let machine = match bring_up::bring_up(loader, &mut events) {
        Ok(machine) => machine,
        Err(stop) => end::machine(stop),
    };

    // Not before: it would be a tenth of the way up. SAFETY: this is the first CPU, the others have not started, and this
    // is done once.
    unsafe { arch::protect() }
    // From now on it lives as long as the machine.
    let machine = MACHINE.call_once(|| machine);
    if machine.words.regresses() {
        regress::after_memory(machine.words, machine, &mut events);
    }
    let clock = firmware::frequency(machine.words.frequency, &machine.tables);
    if let Some(clock) = clock {
        console::set_clock(clock);
        time::set(clock.0);
    }
    let frequency = clock.map(|(frequency, _)| frequency);
    firmware::uefi::report(*machine.direct, frequency, &mut events);
    marker(marker::CLOCK);
    events.end(phase::CLOCK, ticks());
    let test = machine.words.test;
    failures::before_others(test);
    // Its registers are mapped before other CPUs use the page tables.
    let balloon = match machine.words.mode {
        Mode::Balloon => devices::find(machine),
        _ => Err(devices::NoDevice::None),
    };
    if let Some(hz) = machine.words.turns_hz {
        arch::clock::take_turns(hz);
    }
    let mut processors = Processors::start(machine, clock.map(|clock| clock.0));
    if let Some(ticks) = processors.all_started_ticks() {
        events.milestone(milestone::CPUS_STARTED, ticks);
    }
    marker(marker::OTHER_CPUS);
    events.end(phase::OTHER_CPUS, ticks());
    if deferred::write_deferred(machine, &mut processors) {
        let now = ticks();
        events.end(phase::DEFERRED_DESCRIPTORS, now);
        events.milestone(milestone::ALL_DESCRIBED, now);
    }

    failures::before_report(test, &mut processors);
    #[cfg(target_arch = "x86_64")]
    firmware::port::choose(machine);
    report::report(machine, clock, &processors, &events);
    console::show(firmware::uefi::frame_buffer());
    failures::after_report(test, &mut processors);
    let outcome = modes::run(machine, &mut processors, &balloon);
    end::end(outcome)
}

/// For tests of the library on a host; there is no program to run there.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "this is the bare-metal image: build it with --target x86_64-unknown-none, aarch64-unknown-none or \
         riscv64gc-unknown-none-elf, boot it with `firstlight boot`"
    );
    std::process::exit(2);
}
