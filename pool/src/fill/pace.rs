//! The pace all background workers share: a rate, pauses under pressure, and a moment's
//! pause after memory was allocated (`aside.rs`).

use super::aside::Aside;
use super::watch::Watch;
use crate::os::pacing::Pacer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a pause lasts before a worker looks again.
const PAUSE: Duration = Duration::from_millis(500);

/// A pace.
#[derive(Debug)]
pub struct Pace {
    begin: Instant,
    pacer: Mutex<Pacer>,
    watch: Arc<Watch>,
    on: AtomicBool,
    aside: Aside,
}

impl Pace {
    /// At most `bytes_per_second`, `burst_bytes` at once; paused while `watch`
    /// says so.
    #[must_use]
    pub fn new(bytes_per_second: Option<u64>, burst_bytes: u64, watch: Arc<Watch>) -> Self {
        Self {
            begin: Instant::now(),
            pacer: Mutex::new(Pacer::new(bytes_per_second, burst_bytes)),
            watch,
            on: AtomicBool::new(true),
            aside: Aside::default(),
        }
    }

    /// Another rate from now on; `None` is as fast as it goes.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        pacer.set_rate(bytes_per_second);
    }

    /// Whether there is to be any work from now on.
    pub fn turn(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Memory was allocated: work pauses for a moment.
    pub fn allocated(&self) {
        self.aside.allocated(self.begin.elapsed());
    }

    /// Whether a batch of `bytes` may be done at this moment.
    pub(super) fn may(&self, bytes: u64) -> bool {
        !self.is_paused() && self.left(bytes).is_zero()
    }

    /// Sleeps until a batch of `bytes` may be done; `false` when `stop` says
    /// that it is not wanted any more.
    pub(super) fn wait(&self, bytes: u64, stop: impl Fn() -> bool) -> bool {
        while self.is_paused() {
            if stop() {
                return false;
            }
            thread::sleep(PAUSE);
        }
        loop {
            if stop() {
                return false;
            }
            let left = self.left(bytes);
            if left.is_zero() {
                return true;
            }
            thread::sleep(left);
        }
    }

    fn is_paused(&self) -> bool {
        self.watch.is_paused() || !self.on.load(Ordering::Relaxed)
    }

    /// Zero, and the batch is paid for; or how long to sleep.
    fn left(&self, bytes: u64) -> Duration {
        let now = self.begin.elapsed();
        let aside = self.aside.left(now);
        if !aside.is_zero() {
            return aside;
        }
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut pacer = self.pacer.lock().unwrap_or_else(PoisonError::into_inner);
        pacer.wait(bytes, now_ns)
    }
}
