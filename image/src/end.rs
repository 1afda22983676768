//! The ways a run ends. Each is a line of the log, an event, and an exit code of its
//! own; faults and panics also show on the marker port.

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64};

use firstlight_image::record::Cut;
use firstlight_wire::{Event, Outcome, marker};

use crate::arch::{self, marker, ticks};
use crate::console::{self, Console};
use crate::firmware::uefi;
use crate::report;

/// Most of the reason for an end that the result on a stick keeps.
const REASON_BYTES: usize = 448;

/// The ordinary end.
pub(crate) fn end(outcome: Outcome) -> ! {
    leave(only_reporter(outcome), outcome)
}

/// The last line and the last event, then the way out.
fn leave(console: &'static mut Console, outcome: Outcome) -> ! {
    console.line(ticks(), format_args!("end: {}", outcome.name()));
    console.event(&Event::End { outcome });
    FINAL.store(true, Relaxed);
    if uefi::is_firmware() {
        uefi::leave(console, outcome)
    }
    arch::exit(outcome)
}

/// The machine cannot be brought up.
pub(crate) fn machine(stop: impl fmt::Display) -> ! {
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
    console: &'static mut Console,
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

/// One more than the id of the CPU that reports why the machine ends; 0 while none does.
static REPORTER: AtomicU64 = AtomicU64::new(0);
/// Whether the next failure of that CPU is final: it failed twice, or its report is complete. It
/// alone uses this.
static FINAL: AtomicBool = AtomicBool::new(false);

/// Whether some CPU reports the end of the run already.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_reported() -> bool {
    REPORTER.load(Acquire) != 0
}

/// Whether another CPU than this one does.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_reported_elsewhere() -> bool {
    is_reported() && REPORTER.load(Acquire) != own()
}

/// What is stored for this CPU, from the processor: a dying CPU's own memory may be damaged.
pub(crate) fn own() -> u64 {
    arch::cpus::own_id().wrapping_add(1).max(1)
}

/// Of the CPUs that die, the first one reports; the others stop. A second failure of the
/// reporting CPU is reported in the place of the first, a third ends the machine at once; while
/// firmware is asked, it ends the asking.
pub(crate) fn only_reporter(outcome: Outcome) -> &'static mut Console {
    let own = own();
    match REPORTER.compare_exchange(0, own, AcqRel, Acquire) {
        Ok(_) => console::seize(),
        Err(reporter) if reporter == own => {
            uefi::firmware_failed();
            if FINAL.swap(true, Relaxed) {
                arch::exit(outcome)
            }
            console::seize()
        }
        Err(_) => arch::halt(),
    }
}

fn last_words(
    console: &'static mut Console,
    outcome: Outcome,
    text: fmt::Arguments<'_>,
    details: &[fmt::Arguments<'_>],
) -> ! {
    console.show(uefi::frame_buffer());
    // Once: a failure in it leads here again.
    if report::begin() {
        uefi::report_early(console);
    }
    console.remarks();
    console.line(ticks(), text);
    for detail in details {
        console.line(ticks(), *detail);
    }
    let mut bytes = [0; REASON_BYTES];
    console.event(&Event::Failure {
        text: Cut::text(&mut bytes, text),
    });
    leave(console, outcome)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    marker(marker::PANIC);
    let outcome = Outcome::Panic;
    let console = only_reporter(outcome);
    let message = info.message();
    match info.location() {
        // The message may be what failed.
        Some(place) if FINAL.load(Relaxed) => last_words(
            console,
            outcome,
            format_args!("panic at {place}, while another failure was reported"),
            &[],
        ),
        Some(place) => last_words(
            console,
            outcome,
            format_args!("panic at {place}: {message}"),
            &[],
        ),
        None => last_words(console, outcome, format_args!("panic: {message}"), &[]),
    }
}
