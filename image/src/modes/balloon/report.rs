//! What is done with memory once it is free: the zeroing worker keeps a stock of zeros
//! ([`zero`]), and the rest is reported ([`report`]), a step of the engine at a time. Both until
//! there is nothing to do.

use firstlight::addr::{FrameRange, PAGE_BYTES};
use firstlight::background::Next;
use firstlight::background::knobs::{Knob as _, Row};
use firstlight::reporting::{self, Host, HostError, Reporter};
use firstlight::zeroing::{self, Zeroing};
use firstlight_image::balloon::{Balloon, FreeRange, MOST_RANGES};
use firstlight_image::virtio::{Transport, VirtioError};
use firstlight_image::words::{self, Prefixed};
use firstlight_wire::Event;
use log::{error, info};
use spin::Mutex;

use crate::arch::{relax, ticks};
use crate::console::event;
use crate::hooks;
use crate::machine::Machine;
use crate::time;

/// Most passes: with the default budget, a sixteenth of what is free, they report all of it.
const MOST_PASSES: u64 = 16;

/// What came of reports.
#[derive(Default)]
pub(super) struct Reported {
    pub(super) bytes: u64,
    pub(super) reports: u64,
    /// That reported something.
    pub(super) passes: u64,
    pub(super) ticks: u64,
    /// Why they ended early.
    pub(super) failure: Option<HostError>,
    /// Frames that a device has not let go of.
    pub(super) unreleased_frames: u64,
}

/// The balloon, as the engine's reporter needs it.
pub(super) struct Device<'s, T>(Mutex<Balloon<'s, T>>);

impl<'s, T> Device<'s, T> {
    pub(super) fn new(balloon: Balloon<'s, T>) -> Self {
        Self(Mutex::new(balloon))
    }

    pub(super) fn into_inner(self) -> Balloon<'s, T> {
        self.0.into_inner()
    }
}

impl<T: Transport + Send> Host for Device<'_, T> {
    fn capacity(&self) -> usize {
        MOST_RANGES
    }

    unsafe fn report(&self, ranges: &[FrameRange]) -> Result<(), HostError> {
        let free = ranges.iter().map(|range| FreeRange {
            address: range.start().addr().get(),
            bytes: range.count() * PAGE_BYTES,
        });
        self.0.lock().report(free).map_err(host_error)
    }

    fn is_released(&self) -> bool {
        self.0.lock().is_released()
    }
}

/// A failure in the engine's words. The driver resets a device that fails.
fn host_error(error: VirtioError) -> HostError {
    error!("balloon: {error}");
    match error {
        VirtioError::NotOffered { .. } => HostError::NotOffered,
        VirtioError::NoAnswer { waited_ns, .. } => HostError::NoAnswer { waited_ns },
        VirtioError::WrongAnswer { seen, .. } => HostError::WrongAnswer { seen: seen.into() },
        VirtioError::Unreleased { waited_ns, .. } => HostError::Unreleased { waited_ns },
        _ => HostError::Reset,
    }
}

/// Reports what is free, until a pass finds nothing, in at most so many passes.
pub(super) fn report<H: Host>(machine: &Machine, host: &H) -> Reported {
    let mut reporter = Reporter::new(&machine.frames, host);
    for (knob, value) in settings(machine, reporting::Knob::Enabled) {
        // Checked when it was read.
        let _ = reporter.set(knob, value);
        show("reporting", knob.row(), value);
    }
    let mut reported = Reported::default();
    let mut before = 0;
    while reporter.failure().is_none() && reported.passes < MOST_PASSES {
        let begin = ticks();
        let next = reporter.step(time::now_ns());
        reported.ticks += ticks() - begin;
        let Next::At(at_ns) = next else { continue };
        let reports = reporter.statistics().reports;
        if reports == before {
            break;
        }
        before = reports;
        reported.passes += 1;
        while time::now_ns() < at_ns {
            relax();
        }
    }
    let statistics = reporter.statistics();
    reported.bytes = statistics.reported_bytes;
    reported.reports = statistics.reports;
    reported.unreleased_frames = statistics.unreleased_frames;
    reported.failure = reporter.failure();
    reported
}

/// Lets the zeroing worker keep its stock on every node; bytes that it zeroed.
pub(super) fn zero(machine: &Machine) -> u64 {
    let memory = hooks::memory();
    let zeroing = Zeroing::new(&machine.frames, &memory);
    for (knob, value) in settings(machine, zeroing::Knob::Enabled) {
        // Checked when it was read.
        let _ = zeroing.set(knob, value);
        show("zeroing", knob.row(), value);
    }
    for node in machine.frames.layout().nodes() {
        let mut worker = zeroing.worker(node.id);
        while worker.step(time::now_ns).next == Next::Now {}
    }
    let zeroed = zeroing.statistics().zeroed_bytes;
    info!("zeroing: {} MiB zeroed for the stock", zeroed >> 20);
    zeroed
}

/// What each knob is set to: as the command line has it, and switched on.
fn settings<K: Prefixed>(machine: &Machine, enabled: K) -> impl Iterator<Item = (K, u64)> {
    let line = machine.command_line;
    K::ALL.iter().map(move |&knob| {
        let set = words::setting(line, knob).unwrap_or(knob.row().default);
        (knob, if knob == enabled { 1 } else { set })
    })
}

/// Shows a knob to the host.
fn show(of: &'static str, row: Row, value: u64) {
    event(&Event::Knob {
        of,
        name: row.name,
        value,
    });
}
