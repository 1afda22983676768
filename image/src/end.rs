//! The ways a run ends. Each says so in the log, as an event, on the marker
//! port where it is a mistake, and with an exit code of its own.

use core::fmt;
use core::panic::PanicInfo;

use firstlight_image::outcome::Outcome;
use firstlight_image::record::{Cut, LINE_BYTES};
use firstlight_image::wire::Event;

use crate::arch::{self, marker, ticks};
use crate::bring_up::Stop;
use crate::console;

const PANIC_MARKER: u8 = 0xf1;

/// The ordinary end.
pub(crate) fn end(outcome: Outcome) -> ! {
    console::line_at(ticks(), format_args!("end: {}", outcome.name()));
    console::event(&Event::End {
        outcome: outcome.name(),
    });
    arch::exit(outcome)
}

/// The machine cannot be brought up.
pub(crate) fn machine(stop: &Stop) -> ! {
    let outcome = Outcome::Machine;
    last_words(
        format_args!("this machine cannot be brought up: {stop}"),
        &[],
    );
    end(outcome)
}

/// The processor reported a fault, with `details` a line each.
pub(crate) fn fault(text: fmt::Arguments<'_>, details: &[fmt::Arguments<'_>]) -> ! {
    console::seize();
    last_words(format_args!("fault: {text}"), details);
    end(Outcome::Fault)
}

fn last_words(text: fmt::Arguments<'_>, details: &[fmt::Arguments<'_>]) {
    console::show();
    console::remarks();
    console::line_at(ticks(), text);
    for detail in details {
        console::line_at(ticks(), *detail);
    }
    let mut bytes = [0; LINE_BYTES];
    console::event(&Event::Note {
        text: Cut::text(&mut bytes, text),
    });
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    marker(PANIC_MARKER);
    console::seize();
    let (message, place) = (info.message(), info.location());
    match place {
        Some(place) => last_words(format_args!("panic at {place}: {message}"), &[]),
        None => last_words(format_args!("panic: {message}"), &[]),
    }
    end(Outcome::Panic)
}
