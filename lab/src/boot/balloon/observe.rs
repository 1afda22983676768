//! The thread that watches QEMU's memory: [`observe`].
//!
//! It reads `/proc` every few milliseconds. When the guest has reported its free memory
//! (marker 0x52), it asks QEMU for the guest's statistics, takes memory by inflating the
//! balloon and gives it back; the guest waits for that before it ends.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use firstlight_wire::marker;

use super::resident::Memory;
use crate::boot::beside::{Beside, Signals};
use crate::boot::qmp::Qmp;
use crate::record::GuestStatistics;

/// Between two samples.
const PERIOD: Duration = Duration::from_millis(5);
/// A sample that differs by less from the last one is left out.
const STEP_BYTES: u64 = 1 << 20;
/// Most samples kept.
const MOST_SAMPLES: usize = 2000;
/// Longest wait for the guest to follow a target, or to show its statistics.
const PATIENCE: Duration = Duration::from_secs(30);
/// The part of the guest's memory that is taken in the end.
const TAKEN_PART: u64 = 8;

/// What was seen.
#[derive(Debug, Default)]
pub(in crate::boot) struct Observed {
    /// QEMU's resident memory over time.
    pub(super) resident: Vec<(Duration, u64)>,
    /// The most it was.
    pub(super) peak_bytes: Option<u64>,
    /// What was left when the guest had reported its free memory.
    pub(super) after_bytes: Option<u64>,
    /// The guest's memory as the balloon says, over time.
    pub(super) balloon: Vec<(Duration, u64)>,
    /// The guest's own figures.
    pub(super) statistics: Option<GuestStatistics>,
    /// What went wrong.
    pub(super) notes: Vec<String>,
}

/// Watches the QEMU with process number `id`, started at `start`, whose protocol is at the other
/// end of `stream`.
pub(in crate::boot) fn observe(
    id: u32,
    start: Instant,
    stream: UnixStream,
) -> io::Result<Beside<Observed>> {
    Beside::start(marker::BALLOON_REPORTED, move |signals| {
        let mut watch = Watch {
            id,
            start,
            signals,
            seen: Observed::default(),
        };
        if let Err(error) = watch.run(stream) {
            // A guest that has ended closes the protocol: that is not worth a note.
            if !watch.is_over() {
                watch.seen.notes.push(format!("balloon: {error}"));
            }
        }
        watch.seen
    })
}

struct Watch {
    id: u32,
    start: Instant,
    signals: Arc<Signals>,
    seen: Observed,
}

impl Watch {
    fn run(&mut self, stream: UnixStream) -> io::Result<()> {
        // Samples come first: they need no protocol.
        while !self.signals.has_begun() {
            if !self.pause() {
                return Ok(());
            }
        }
        let after = self.sample();
        self.seen.after_bytes = after.map(|memory| memory.now);
        let mut qmp = Qmp::new(stream)?;
        let whole = qmp.guest_bytes()?;
        self.balloon(whole);
        self.statistics(&mut qmp)?;
        let target = whole - (whole / TAKEN_PART).next_multiple_of(4096);
        for bytes in [target, whole] {
            qmp.set_guest_bytes(bytes)?;
            if !self.until(&mut qmp, bytes)? {
                return Ok(());
            }
        }
        while self.pause() {}
        Ok(())
    }

    /// Waits until the guest has `bytes`; false if it ended before.
    fn until(&mut self, qmp: &mut Qmp, bytes: u64) -> io::Result<bool> {
        let begin = Instant::now();
        loop {
            // The guest ends as soon as it has given all back: the protocol may close first.
            let actual = match qmp.guest_bytes() {
                Ok(actual) => actual,
                Err(_) if !self.pause() => return Ok(false),
                Err(error) => return Err(error),
            };
            self.balloon(actual);
            if actual == bytes {
                self.sample();
                return Ok(true);
            }
            if begin.elapsed() > PATIENCE {
                let text = format!("the guest has {actual} bytes, expected {bytes}");
                return Err(io::Error::other(text));
            }
            if !self.pause() {
                return Ok(false);
            }
        }
    }

    /// Waits for the guest's statistics, which it shows by itself.
    fn statistics(&mut self, qmp: &mut Qmp) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(stats) = qmp.statistics()? {
                let bytes = |name: &str| stats.get(name).and_then(serde_json::Value::as_u64);
                self.seen.statistics = Some(GuestStatistics {
                    free_bytes: bytes("stat-free-memory"),
                    total_bytes: bytes("stat-total-memory"),
                    available_bytes: bytes("stat-available-memory"),
                });
                return Ok(());
            }
            if !self.pause() {
                return Ok(());
            }
        }
        Err(io::Error::other("the guest shows no statistics"))
    }

    fn balloon(&mut self, bytes: u64) {
        keep(&mut self.seen.balloon, self.start.elapsed(), bytes);
    }

    /// Whether QEMU has ended, or is to end.
    fn is_over(&self) -> bool {
        self.signals.is_stopped() || Memory::of(self.id).is_none()
    }

    /// Takes a sample, and waits a little; false once QEMU has ended.
    fn pause(&mut self) -> bool {
        let running = self.sample().is_some() && !self.signals.is_stopped();
        if running {
            thread::sleep(PERIOD);
        }
        running
    }

    fn sample(&mut self) -> Option<Memory> {
        let memory = Memory::of(self.id)?;
        keep(&mut self.seen.resident, self.start.elapsed(), memory.now);
        self.seen.peak_bytes = Some(memory.peak);
        Some(memory)
    }
}

/// Keeps a sample if it tells something new; of too many, every second one.
fn keep(samples: &mut Vec<(Duration, u64)>, at: Duration, bytes: u64) {
    let same = |(_, last): &(Duration, u64)| last.abs_diff(bytes) < STEP_BYTES;
    if samples.last().is_some_and(same) {
        return;
    }
    if samples.len() >= MOST_SAMPLES {
        let mut odd = false;
        samples.retain(|_| {
            odd = !odd;
            odd
        });
    }
    samples.push((at, bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_tell_nothing_new_are_left_out() {
        let mut samples = Vec::new();
        for (at, mib) in [(0, 5), (1, 5), (2, 6), (3, 6), (4, 5)] {
            keep(&mut samples, Duration::from_secs(at), mib << 20);
        }
        let times: Vec<u64> = samples.iter().map(|(at, _)| at.as_secs()).collect();
        assert_eq!(times, [0, 2, 4]);
        for at in 0..10_000 {
            keep(&mut samples, Duration::from_secs(at), at << 20);
        }
        assert!(samples.len() <= MOST_SAMPLES);
        assert_eq!(
            samples.last(),
            Some(&(Duration::from_secs(9999), 9999 << 20))
        );
    }
}
