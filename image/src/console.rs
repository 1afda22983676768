//! The log and the events: kept in memory at first, then written to the serial ports.
//! Every line has the tick of the moment that it describes.

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use firstlight::clock::Frequency;
use firstlight_image::json::{self, EVENT_BYTES, Outgoing};
use firstlight_image::kept::Kept;
use firstlight_image::record::{Cut, LINE_BYTES, Lines};
use firstlight_image::screen::Screen;
#[cfg(uefi)]
use firstlight_image::screen::{CODE_BYTES, CodeBuffers};
use firstlight_wire::{Event, MARK};
use log::{Level, LevelFilter, Log, Metadata, Record};
use spin::{Mutex, MutexGuard};

use crate::arch::frame_buffer::FrameBuffer;
use crate::arch::serial::Port;
use crate::arch::{boot_protocol, relax, ticks};
use crate::end::own;

/// Attempts to lock the console before a dying CPU breaks the lock.
const PATIENCE: u32 = 1_000_000;

/// Lines and notes until they are shown, and the ports that show them.
pub(crate) struct Console {
    lines: Lines<{ 256 << 10 }>,
    corrections: Lines<{ 8 << 10 }>,
    notes: Lines<{ 8 << 10 }>,
    clock: Option<(Frequency, &'static str)>,
    /// None until the first event or line is sent.
    ports: Option<Ports>,
    /// Whether lines are sent at once.
    live: bool,
    /// Where firmware is UEFI: its screen, and events for its variables.
    screen: Option<Screen<FrameBuffer>>,
    kept: Kept,
    keeps: bool,
}

struct Ports {
    log: Option<Port>,
    events: Option<Port>,
}

#[unsafe(link_section = ".stale")]
static CONSOLE: Mutex<Console> = Mutex::new(Console {
    lines: Lines::new(),
    corrections: Lines::new(),
    notes: Lines::new(),
    clock: None,
    ports: None,
    live: false,
    screen: None,
    kept: Kept::new(),
    keeps: false,
});

/// Whether a port may be a fault: its registers are in memory.
const MAY_FAULT: bool = cfg!(not(target_arch = "x86_64"));

/// What [`own`] is on the CPU that sends to such a port now; 0 while none does.
static SENDING: AtomicU64 = AtomicU64::new(0);

/// The target of the macros of the crate `log`.
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

/// Keeps lines from now on; the first has the time of the first instruction.
pub(crate) fn install(entry_ticks: u64) {
    CONSOLE.lock().renew();
    // It fails only in a second call.
    let _ = log::set_logger(&Logger);
    log::set_max_level(LevelFilter::Info);
    let version = env!("CARGO_PKG_VERSION");
    line_at(
        entry_ticks,
        format_args!(
            "Firstlight {version}, a memory engine on bare metal; entered by {}",
            boot_protocol()
        ),
    );
}

/// A line of the log about the moment `ticks`.
pub(crate) fn line_at(ticks: u64, text: fmt::Arguments<'_>) {
    CONSOLE.lock().line(ticks, text);
}

/// A mistake of the firmware: a line, and an event later.
pub(crate) fn correction(text: impl fmt::Display) {
    let now = ticks();
    let mut console = CONSOLE.lock();
    console.corrections.push(now, format_args!("{text}"));
    console.line(now, format_args!("corrected: {text}"));
}

/// A note to the reader: a line, and an event now or later.
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

/// Shows seconds instead of ticks from now on. With the frequency comes its source.
pub(crate) fn set_clock(clock: (Frequency, &'static str)) {
    CONSOLE.lock().clock = Some(clock);
}

/// Events are kept from now on.
#[cfg(uefi)]
pub(crate) fn keep_events() {
    CONSOLE.lock().keeps = true;
}

/// Sends an event to the host.
pub(crate) fn event(event: &Outgoing<'_>) {
    CONSOLE.lock().event(event);
}

/// Sends the kept lines in order of time, and from now on every line at once; also to `screen`, if
/// there is one.
pub(crate) fn show(screen: Option<FrameBuffer>) {
    CONSOLE.lock().show(screen);
}

/// Sends the corrections and notes kept so far, as events.
pub(crate) fn remarks() {
    CONSOLE.lock().remarks();
}

/// The console, never unlocked again, for the last lines of a CPU: another CPU may have
/// died while it held the lock, and no other line may come between.
pub(crate) fn seize() -> &'static mut Console {
    loop {
        for _ in 0..PATIENCE {
            if let Some(console) = CONSOLE.try_lock() {
                let console = MutexGuard::leak(console);
                // The port is what failed: the rest of the way out is without it.
                if MAY_FAULT && SENDING.load(Relaxed) == own() {
                    console.ports.as_mut().map(|ports| ports.log.take());
                }
                return console;
            }
            relax();
        }
        // SAFETY: the machine is about to end; a line that another CPU was writing may be
        // torn, which harms nothing.
        unsafe { CONSOLE.force_unlock() }
    }
}

/// Writes nonsense, for tests.
pub(crate) fn rubbish() {
    let mut console = CONSOLE.lock();
    if let Some(ports) = &mut console.ports {
        let bytes = b"\x00\xff{\"event\":\x1b[2J}}} \xfe\xfd\n{\"event\":\"phase\",\"name\":7}\n";
        for port in [&mut ports.log, &mut ports.events].into_iter().flatten() {
            send(port, &[bytes]);
        }
    }
}

impl Console {
    /// As at the start of a machine: after a restart it is what the previous kernel left.
    fn renew(&mut self) {
        let Self {
            lines,
            corrections,
            notes,
            clock,
            ports,
            live,
            screen,
            kept,
            keeps,
        } = self;
        lines.clear();
        corrections.clear();
        notes.clear();
        (*clock, *ports, *live) = (None, None, false);
        kept.clear();
        (*screen, *keeps) = (None, false);
    }

    pub(crate) fn line(&mut self, ticks: u64, text: fmt::Arguments<'_>) {
        match &mut self.ports {
            Some(ports) if self.live => {
                let mut bytes = [0; LINE_BYTES];
                let text = Cut::text(&mut bytes, text);
                ports.line(self.clock, ticks, text, self.screen.as_mut());
            }
            _ => self.lines.push(ticks, text),
        }
    }

    pub(crate) fn event(&mut self, event: &Outgoing<'_>) {
        let ports = self.ports.get_or_insert_with(Ports::open);
        ports.event(event, self.keeps.then_some(&mut self.kept));
    }

    /// The frequency of ticks and its source, if they are known.
    #[cfg(uefi)]
    pub(crate) fn clock(&self) -> Option<(Frequency, &'static str)> {
        self.clock
    }

    /// The events that were kept.
    #[cfg(uefi)]
    pub(crate) fn kept(&self) -> &[u8] {
        self.kept.text()
    }

    /// Shows the summary of the kept events as a QR code; whether there is space for one.
    #[cfg(uefi)]
    pub(crate) fn code(&mut self, buffers: &mut CodeBuffers) -> bool {
        let mut text = [0; CODE_BYTES];
        match &mut self.screen {
            Some(screen) => screen.code(self.kept.summary(&mut text), buffers),
            None => false,
        }
    }

    pub(crate) fn remarks(&mut self) {
        let Self {
            corrections,
            notes,
            ports,
            kept,
            keeps,
            ..
        } = self;
        let ports = ports.get_or_insert_with(Ports::open);
        let mut send = |event: &Outgoing<'_>| ports.event(event, keeps.then_some(&mut *kept));
        corrections.take(|_, text| send(&Event::Correction { text }));
        notes.take(|_, text| send(&Event::Note { text }));
        for (what, lost) in [("corrections", corrections.lost()), ("notes", notes.lost())] {
            if lost > 0 {
                let mut bytes = [0; 64];
                let text = Cut::text(&mut bytes, format_args!("and {lost} more {what}"));
                send(&Event::Note { text });
            }
        }
    }

    pub(crate) fn show(&mut self, screen: Option<FrameBuffer>) {
        if self.screen.is_none() {
            self.screen = screen.map(Screen::new);
        }
        let ports = self.ports.get_or_insert_with(Ports::open);
        let (clock, screen) = (self.clock, &mut self.screen);
        self.lines
            .take(|ticks, text| ports.line(clock, ticks, text, screen.as_mut()));
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

/// Sends to one of the ports.
fn send(port: &mut Port, parts: &[&[u8]]) {
    if MAY_FAULT {
        SENDING.store(own(), Relaxed);
    }
    for part in parts {
        port.send(part);
    }
    SENDING.store(0, Relaxed);
}

impl Ports {
    fn open() -> Self {
        Self {
            log: Port::log(),
            events: Port::events(),
        }
    }

    fn line(
        &mut self,
        clock: Option<(Frequency, &str)>,
        ticks: u64,
        text: &str,
        screen: Option<&mut Screen<FrameBuffer>>,
    ) {
        let mut bytes = [0; 40];
        let stamp = match clock {
            Some((clock, _)) => {
                let us = clock.ns(ticks) / 1000;
                Cut::text(
                    &mut bytes,
                    format_args!("[{:>5}.{:06}] ", us / 1_000_000, us % 1_000_000),
                )
            }
            None => Cut::text(&mut bytes, format_args!("[{ticks:>12} ticks] ")),
        };
        if let Some(screen) = screen {
            screen.begin(stamp);
            screen.line(text);
        }
        let Some(port) = &mut self.log else { return };
        send(port, &[stamp.as_bytes(), text.as_bytes(), b"\r\n"]);
    }

    // Not inlined: fault stacks are too small for its buffer in every caller.
    #[inline(never)]
    fn event(&mut self, event: &Outgoing<'_>, kept: Option<&mut Kept>) {
        let mut bytes = [0; EVENT_BYTES];
        let too_long = &b"{\"event\":\"note\",\"text\":\"an event did not fit its buffer\"}\n"[..];
        let line = json::line(event, &mut bytes).unwrap_or(too_long);
        if let Some(kept) = kept {
            kept.push(event, line);
        }
        match (&mut self.events, &mut self.log) {
            (Some(port), _) => send(port, &[line]),
            (None, Some(port)) => send(port, &[MARK.as_bytes(), line]),
            (None, None) => {}
        }
    }
}
