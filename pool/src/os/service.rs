//! The service manager: what it hands over at start, what it wants to hear.
//!
//! Sockets and files come by `LISTEN_FDS` (socket activation, the file
//! descriptor store), word goes back by `NOTIFY_SOCKET`. Without a manager
//! nothing comes and nothing is said.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the descriptors were handed out already: each has one owner.
static HANDED_OUT: AtomicBool = AtomicBool::new(false);

/// Descriptors the manager opened for this process, with their names; nothing
/// from the second call on.
///
/// # Errors
/// Variables that make no sense.
pub fn received() -> io::Result<Vec<(String, OwnedFd)>> {
    if HANDED_OUT.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let received = sd_notify::listen_fds_with_names()?;
    Ok(received
        .map(|(descriptor, name)| {
            // SAFETY: the manager opened it for this process, whose number it
            // named; nothing else here owns it, as this is done once.
            (name, unsafe { OwnedFd::from_raw_fd(descriptor) })
        })
        .collect())
}

/// The socket at which the manager wants to hear; `None` without a manager.
#[must_use]
pub fn notified_at() -> Option<PathBuf> {
    std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from)
}

/// How many descriptors the manager keeps, if it says so (systemd 254).
#[must_use]
pub fn most_kept() -> Option<usize> {
    std::env::var("FDSTORE").ok()?.parse().ok()
}

/// How often the manager wants a sign of life, if it does.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}
