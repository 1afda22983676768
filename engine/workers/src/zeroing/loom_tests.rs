//! All interleavings of a worker that charges a batch and a change of the rate.

extern crate std;

use super::pace::Pace;
use crate::sync::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// What is charged at the old rate is forgiven, whichever comes first.
#[test]
fn loom_no_charge_outlives_its_rate() {
    loom::model(|| {
        let shared = Arc::new((Pace::new(), AtomicU64::new(1)));
        let other = Arc::clone(&shared);
        let worker = thread::spawn(move || {
            let (pace, rate) = &*other;
            pace.charge(0, 1 << 21, || rate.load(Ordering::Relaxed));
        });
        let (pace, rate) = &*shared;
        rate.store(1 << 30, Ordering::Relaxed);
        pace.forgive();
        worker.join().unwrap();
        // 2 MiB at 1 GiB a second, or nothing: a byte a second would be 24 days.
        assert!(matches!(pace.may_begin(0), Ok(()) | Err(1_953_125)));
    });
}
