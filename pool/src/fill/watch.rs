//! A watch on memory pressure, which all paces share: it looks back in time, so it has to
//! be read also while nothing is filled.
//!
//! The daemon's tick alone reads the figures; everybody else reads a flag. A worker runs only
//! where a CPU is idle, and a lock that it held meanwhile would stop the daemon.

use crate::os::pressure::Gauge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The watch.
#[derive(Debug)]
pub struct Watch {
    /// Percent of time tasks wait for memory, from which on work pauses.
    pause_at: Option<f64>,
    /// Locked by [`Watch::read`] alone.
    gauge: Mutex<Gauge>,
    paused: AtomicBool,
}

impl Watch {
    /// Work pauses while `gauge` is at `pause_at` percent or more; without one never.
    #[must_use]
    pub fn new(pause_at: Option<f64>, gauge: Gauge) -> Self {
        Self {
            pause_at,
            gauge: Mutex::new(gauge),
            paused: AtomicBool::new(false),
        }
    }

    /// Whether work pauses, as last read.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Reads the gauge: for one thread, never a worker's.
    pub fn read(&self) {
        let Some(pause_at) = self.pause_at else {
            return;
        };
        let mut gauge = self.gauge.lock().unwrap_or_else(PoisonError::into_inner);
        let percent = gauge.percent(Instant::now());
        let paused = percent.is_some_and(|percent| percent >= pause_at);
        self.paused.store(paused, Ordering::Relaxed);
    }
}
