//! The ways a run ends. Each is a line of the log, an event, and an exit code of its
//! own; faults and panics also show on the marker port.

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use firstlight_image::record::{Cut, LINE_BYTES};
use firstlight_wire::{Event, Outcome, marker};

use crate::arch::{self, marker, ticks};
use crate::bring_up::Stop;
use crate::console::{self, Console};

/// The ordinary end.
pub(crate) fn end(outcome: Outcome) -> ! {
    console::line_at(ticks(), format_args!("end: {}", outcome.name()));
    console::event(&Event::End { outcome });
    arch::exit(outcome)
}

/// The machine cannot be brought up.
pub(crate) fn machine(stop: &Stop) -> ! {
    let console = only_reporter(Outcome::Machine);
    last_words(
        console,
        Outcome::Machine,
        format_args!("this machine cannot be brought up: {stop}"),
        &[],
    )
}

/// The processor reported a fault, with `details` a line each. `console` is that of
/// [`only_reporter`].
pub(crate) fn fault(
    console: &mut Console,
    text: fmt::Arguments<'_>,
    details: &[fmt::Arguments<'_>],
) -> ! {
    last_words(
        console,
        Outcome::Fault,
        format_args!("fault: {text}"),
        details,
    )
}

/// One more than the APIC id of the CPU that reports why the machine ends; 0 while none
/// does.
static REPORTER: AtomicU64 = AtomicU64::new(0);

/// Of the CPUs that die, the first one reports; the others stop. A second fault of the
/// reporting CPU ends the machine at once.
pub(crate) fn only_reporter(outcome: Outcome) -> &'static mut Console {
    // From the processor: a dying CPU's own memory may be damaged.
    let own = u64::from(arch::cpus::own_id()) + 1;
    match REPORTER.compare_exchange(0, own, AcqRel, Acquire) {
        Ok(_) => console::seize(),
        Err(reporter) if reporter == own => arch::exit(outcome),
        Err(_) => arch::halt(),
    }
}

fn last_words(
    console: &mut Console,
    outcome: Outcome,
    text: fmt::Arguments<'_>,
    details: &[fmt::Arguments<'_>],
) -> ! {
    console.show();
    console.remarks();
    console.line(ticks(), text);
    for detail in details {
        console.line(ticks(), *detail);
    }
    let mut bytes = [0; LINE_BYTES];
    console.event(&Event::Note {
        text: Cut::text(&mut bytes, text),
    });
    console.line(ticks(), format_args!("end: {}", outcome.name()));
    console.event(&Event::End { outcome });
    arch::exit(outcome)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    marker(marker::PANIC);
    let outcome = Outcome::Panic;
    let console = only_reporter(outcome);
    let message = info.message();
    match info.location() {
        Some(place) => last_words(
            console,
            outcome,
            format_args!("panic at {place}: {message}"),
            &[],
        ),
        None => last_words(console, outcome, format_args!("panic: {message}"), &[]),
    }
}
