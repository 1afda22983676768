//! A watch on memory pressure, which all paces share: it looks back in time, so it has to
//! be read also while nothing is filled.

use crate::os::pressure::Gauge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old a reading may be.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// The watch.
#[derive(Debug)]
pub struct Watch {
    /// Percent of time tasks wait for memory, from which on work pauses.
    pause_at: Option<f64>,
    gauge: Mutex<(Gauge, Option<Instant>)>,
    paused: AtomicBool,
}

impl Watch {
    /// Work pauses while `gauge` is at `pause_at` percent or more; without one never.
    #[must_use]
    pub fn new(pause_at: Option<f64>, gauge: Gauge) -> Self {
        Self {
            pause_at,
            gauge: Mutex::new((gauge, None)),
            paused: AtomicBool::new(false),
        }
    }

    /// Whether work pauses, as last read.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Reads the gauge, unless that was done just now.
    pub fn under_pressure(&self) -> bool {
        let Some(pause_at) = self.pause_at else {
            return false;
        };
        let mut gauge = self.gauge.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if gauge
            .1
            .is_none_or(|at| now.saturating_duration_since(at) >= READ_AGAIN)
        {
            gauge.1 = Some(now);
            let percent = gauge.0.percent(now);
            let paused = percent.is_some_and(|percent| percent >= pause_at);
            self.paused.store(paused, Ordering::Relaxed);
        }
        self.is_paused()
    }
}
