//! A thread that talks to QEMU while the guest runs: [`Beside`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// What such a thread can see of the guest.
#[derive(Debug, Default)]
pub(super) struct Signals {
    begun: AtomicBool,
    stop: AtomicBool,
}

impl Signals {
    /// Whether the guest has shown the marker at which the work begins.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether QEMU has ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The thread, whose work makes a `T`.
#[derive(Debug)]
pub(super) struct Beside<T> {
    thread: JoinHandle<T>,
    /// The marker at which the work begins.
    begins_at: u8,
    signals: Arc<Signals>,
}

impl<T: Default + Send + 'static> Beside<T> {
    /// Starts `work`, which waits for the marker by itself.
    pub(super) fn start(
        begins_at: u8,
        work: impl FnOnce(Arc<Signals>) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let signals = Arc::<Signals>::default();
        let its = Arc::clone(&signals);
        Ok(Self {
            thread: thread::Builder::new().spawn(move || work(its))?,
            begins_at,
            signals,
        })
    }

    /// The guest has shown a marker.
    pub(super) fn marker(&self, code: u8) {
        if code == self.begins_at {
            self.signals.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the work is done.
    #[cfg(test)]
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it; QEMU has ended.
    pub(super) fn end(self) -> T {
        self.signals.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
