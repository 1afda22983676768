//! The service manager: what it hands over at start, what it wants to hear.
//!
//! Sockets and files come by `LISTEN_FDS` (socket activation, the file
//! descriptor store), word goes back by `NOTIFY_SOCKET`. Without a manager
//! nothing comes and nothing is said.

pub use sd_notify::NotifyState;

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
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

/// Whether there is a manager that listens.
#[must_use]
pub fn is_there() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// How many descriptors the manager keeps, if it says so (systemd 254).
#[must_use]
pub fn most_kept() -> Option<usize> {
    std::env::var("FDSTORE").ok()?.parse().ok()
}

/// Tells the manager.
///
/// # Errors
/// It is there and does not take it.
pub fn tell(states: &[NotifyState<'_>]) -> io::Result<()> {
    sd_notify::notify(states)
}

/// Gives the manager a descriptor to keep over a restart, under a name.
///
/// # Errors
/// It is there and does not take it.
pub fn keep(name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
    let states = [NotifyState::FdStore, NotifyState::FdName(name)];
    sd_notify::notify_with_fds(&states, &[file])
}

/// The manager need not keep what has this name any more.
///
/// # Errors
/// It is there and does not take it.
pub fn keep_no_more(name: &str) -> io::Result<()> {
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
}

/// How often the manager wants a sign of life, if it does.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}
