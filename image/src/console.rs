//! The log and the events: kept in memory at first, then written to the serial
//! ports. Every line has the tick of the moment it speaks of.

use core::fmt;

use firstlight::clock::Frequency;
use firstlight_image::json::{self, EVENT_BYTES, Outgoing};
use firstlight_image::record::{Cut, LINE_BYTES, Lines};
use firstlight_wire::{Event, MARK};
use log::{Level, LevelFilter, Log, Metadata, Record};
use spin::{Mutex, MutexGuard};

use crate::arch::serial::Port;
use crate::arch::{relax, ticks};

/// Attempts to get the lock before a dying CPU takes it by force.
const PATIENCE: u32 = 1_000_000;

/// What is kept and where it goes.
pub(crate) struct Console {
    lines: Lines<{ 256 << 10 }>,
    corrections: Lines<{ 8 << 10 }>,
    notes: Lines<{ 8 << 10 }>,
    frequency: Option<Frequency>,
    /// None until the first event or line goes out.
    ports: Option<Ports>,
    /// Whether lines are shown at once.
    live: bool,
}

struct Ports {
    log: Option<Port>,
    events: Option<Port>,
}

static CONSOLE: Mutex<Console> = Mutex::new(Console {
    lines: Lines::new(),
    corrections: Lines::new(),
    notes: Lines::new(),
    frequency: None,
    ports: None,
    live: false,
});

/// What the macros of the crate `log` write to.
struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args();
        match record.level() {
            Level::Error => line_at(ticks(), format_args!("error: {text}")),
            Level::Warn => line_at(ticks(), format_args!("warning: {text}")),
            _ => line_at(ticks(), *text),
        }
    }

    fn flush(&self) {}
}

/// Lines are kept from now on; the first is stamped with the first instruction.
pub(crate) fn install(entry_ticks: u64) {
    // It fails only when it was done before.
    let _ = log::set_logger(&Logger);
    log::set_max_level(LevelFilter::Info);
    let version = env!("CARGO_PKG_VERSION");
    line_at(
        entry_ticks,
        format_args!("Firstlight {version}, a memory engine on bare metal; entered by PVH"),
    );
}

/// A line of the log that speaks of the moment `ticks`.
pub(crate) fn line_at(ticks: u64, text: fmt::Arguments<'_>) {
    CONSOLE.lock().line(ticks, text);
}

/// Something firmware said wrongly: a line, and an event later.
pub(crate) fn correction(text: impl fmt::Display) {
    let now = ticks();
    let mut console = CONSOLE.lock();
    console.corrections.push(now, format_args!("{text}"));
    console.line(now, format_args!("corrected: {text}"));
}

/// Something the reader should know: a line, and an event now or later.
pub(crate) fn note(text: impl fmt::Display) {
    let now = ticks();
    let mut console = CONSOLE.lock();
    console.line(now, format_args!("note: {text}"));
    if console.live {
        let mut bytes = [0; LINE_BYTES];
        let text = Cut::text(&mut bytes, format_args!("{text}"));
        console.event(&Event::Note { text });
    } else {
        console.notes.push(now, format_args!("{text}"));
    }
}

/// From now on ticks become seconds.
pub(crate) fn set_clock(frequency: Frequency) {
    CONSOLE.lock().frequency = Some(frequency);
}

/// Tells the host.
pub(crate) fn event(event: &Outgoing<'_>) {
    CONSOLE.lock().event(event);
}

/// Shows what was kept, by its time, and from now on every line at once.
pub(crate) fn show() {
    CONSOLE.lock().show();
}

/// The corrections and notes kept so far, as events.
pub(crate) fn remarks() {
    CONSOLE.lock().remarks();
}

/// The console for good, for the last words of a CPU: another may have died with
/// the lock in its hand, and nobody may come between the lines.
pub(crate) fn seize() -> &'static mut Console {
    loop {
        for _ in 0..PATIENCE {
            if let Some(console) = CONSOLE.try_lock() {
                return MutexGuard::leak(console);
            }
            relax();
        }
        // SAFETY: the machine is about to end; what another CPU was writing is no
        // longer of use, and a line torn in two harms nobody.
        unsafe { CONSOLE.force_unlock() }
    }
}

/// Writes nonsense, for tests.
pub(crate) fn rubbish() {
    let mut console = CONSOLE.lock();
    if let Some(ports) = &mut console.ports {
        let bytes = b"\x00\xff{\"event\":\x1b[2J}}} \xfe\xfd\n{\"event\":\"phase\",\"name\":7}\n";
        for port in [&mut ports.log, &mut ports.events].into_iter().flatten() {
            port.send(bytes);
        }
    }
}

impl Console {
    pub(crate) fn line(&mut self, ticks: u64, text: fmt::Arguments<'_>) {
        match &mut self.ports {
            Some(ports) if self.live => {
                let mut bytes = [0; LINE_BYTES];
                ports.line(self.frequency, ticks, Cut::text(&mut bytes, text));
            }
            _ => self.lines.push(ticks, text),
        }
    }

    pub(crate) fn event(&mut self, event: &Outgoing<'_>) {
        self.ports.get_or_insert_with(Ports::open).event(event);
    }

    pub(crate) fn remarks(&mut self) {
        let Self {
            corrections,
            notes,
            ports,
            ..
        } = self;
        let ports = ports.get_or_insert_with(Ports::open);
        corrections.take(|_, text| ports.event(&Event::Correction { text }));
        notes.take(|_, text| ports.event(&Event::Note { text }));
        for (what, lost) in [("corrections", corrections.lost()), ("notes", notes.lost())] {
            if lost > 0 {
                let mut bytes = [0; 64];
                let text = Cut::text(&mut bytes, format_args!("and {lost} more {what}"));
                ports.event(&Event::Note { text });
            }
        }
    }

    pub(crate) fn show(&mut self) {
        let ports = self.ports.get_or_insert_with(Ports::open);
        let frequency = self.frequency;
        self.lines
            .take(|ticks, text| ports.line(frequency, ticks, text));
        self.live = true;
        match self.lines.lost() {
            0 => {}
            lost => self.line(
                ticks(),
                format_args!("warning: {lost} lines did not fit the log"),
            ),
        }
    }
}

impl Ports {
    fn open() -> Self {
        Self {
            log: Port::log(),
            events: Port::events(),
        }
    }

    fn line(&mut self, clock: Option<Frequency>, ticks: u64, text: &str) {
        let Some(port) = &mut self.log else { return };
        let mut bytes = [0; 40];
        let stamp = match clock {
            Some(clock) => {
                let us = clock.ns(ticks) / 1000;
                Cut::text(
                    &mut bytes,
                    format_args!("[{:>5}.{:06}] ", us / 1_000_000, us % 1_000_000),
                )
            }
            None => Cut::text(&mut bytes, format_args!("[{ticks:>12} ticks] ")),
        };
        port.send(stamp.as_bytes());
        port.send(text.as_bytes());
        port.send(b"\r\n");
    }

    // Its buffer is there once, not in every caller: fault stacks are small.
    #[inline(never)]
    fn event(&mut self, event: &Outgoing<'_>) {
        let mut bytes = [0; EVENT_BYTES];
        let too_long = &b"{\"event\":\"note\",\"text\":\"an event did not fit its buffer\"}\n"[..];
        let line = json::line(event, &mut bytes).unwrap_or(too_long);
        match (&mut self.events, &mut self.log) {
            (Some(port), _) => port.send(line),
            (None, Some(port)) => {
                port.send(MARK.as_bytes());
                port.send(line);
            }
            (None, None) => {}
        }
    }
}
