//! The pace all background workers share: a rate, pauses under pressure, and a moment's
//! pause after memory was allocated (`aside.rs`).

use super::aside::Aside;
use crate::os::pacing::Pacer;
use crate::os::pressure;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a pause lasts before the figures are read again.
const PAUSE: Duration = Duration::from_millis(500);
/// How old a reading may be.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// A pace.
#[derive(Debug)]
pub struct Pace {
    begin: Instant,
    pacer: Mutex<Pacer>,
    /// Percent of time somebody waits for memory, from which on work pauses.
    pause_at: Option<f64>,
    pressure: PathBuf,
    paused: AtomicBool,
    read_at: Mutex<Option<Instant>>,
    aside: Mutex<Aside>,
}

impl Pace {
    /// At most `bytes_per_second`, `burst_bytes` at once; paused while the
    /// kernel's figure in the file `pressure` is at `pause_at` percent or more.
    #[must_use]
    pub fn new(
        bytes_per_second: Option<u64>,
        burst_bytes: u64,
        pause_at: Option<f64>,
        pressure: impl Into<PathBuf>,
    ) -> Self {
        Self {
            begin: Instant::now(),
            pacer: Mutex::new(Pacer::new(bytes_per_second, burst_bytes)),
            pause_at,
            pressure: pressure.into(),
            paused: AtomicBool::new(false),
            read_at: Mutex::new(None),
            aside: Mutex::default(),
        }
    }

    /// Another rate from now on; `None` is as fast as it goes.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        pacer.set_rate(bytes_per_second);
    }

    /// Memory was allocated: work pauses for a moment.
    pub fn allocated(&self) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.allocated(self.begin.elapsed());
    }

    /// Whether work is paused because somebody waits for memory.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Sleeps until a batch of `bytes` may be done; `false` when `stop` says
    /// that it is not wanted any more.
    pub(super) fn wait(&self, bytes: u64, stop: impl Fn() -> bool) -> bool {
        while self.under_pressure() {
            if stop() {
                return false;
            }
            thread::sleep(PAUSE);
        }
        loop {
            if stop() {
                return false;
            }
            let now = self.begin.elapsed();
            let mut wait = {
                let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
                aside.left(now)
            };
            if wait.is_zero() {
                let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
                let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
                wait = pacer.wait(bytes, now_ns);
            }
            if wait.is_zero() {
                return true;
            }
            thread::sleep(wait);
        }
    }

    fn under_pressure(&self) -> bool {
        let Some(pause_at) = self.pause_at else {
            return false;
        };
        let mut read_at = self.read_at.lock().unwrap_or_else(PoisonError::into_inner);
        if read_at.is_none_or(|at| at.elapsed() >= READ_AGAIN) {
            *read_at = Some(Instant::now());
            // Figures that cannot be read say nothing of pressure.
            let percent = pressure::some_percent_10s(&self.pressure).ok().flatten();
            let paused = percent.is_some_and(|percent| percent >= pause_at);
            self.paused.store(paused, Ordering::Relaxed);
        }
        self.is_paused()
    }
}
