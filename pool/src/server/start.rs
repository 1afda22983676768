//! What the daemon finds and sets up before it serves.

use super::ServeError;
use super::pool::now;
use crate::config::Limits;
use crate::lease::Pipes;
use crate::lease::journal::Journal;
use crate::protocol::MOST_GRANTS;
use crate::store::directory::JOURNAL;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The journal of leases, and their pipes, in the daemon's folder; `directory` is its name.
pub(super) fn known_leases(
    folder: BorrowedFd<'_>,
    directory: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(Journal, Pipes), ServeError> {
    let failed = |error| ServeError::system("read which leases there are", error);
    // Names of leases differ from those of a daemon whose journal is gone.
    let prefix = std::process::id() ^ u32::try_from(now().wall_ms & 0xffff_ffff).unwrap_or(0);
    let copy = || folder.try_clone_to_owned().map_err(failed);
    let (journal, unread) = Journal::open(copy()?, prefix).map_err(failed)?;
    let file = directory.join(JOURNAL);
    if unread.lines > 0 {
        say(&format!(
            "{} lines of {} make no sense: as many leases may be unknown and not counted",
            unread.lines,
            file.display()
        ));
    }
    if let Some(error) = unread.unwritable {
        say(&format!(
            "cannot write {}: {error}; nothing is allocated until it can be written",
            file.display()
        ));
    }
    Ok((journal, Pipes::new(copy()?)))
}

/// A socket that is readable after a signal to end. SIGIO, which a revoked
/// client could provoke, is taken and means nothing.
pub(super) fn signals() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
    }
    let nothing = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGIO, nothing)?;
    Ok(ours)
}

/// A socket that is readable after a signal to read the configuration again.
pub(super) fn reloads() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGHUP, theirs)?;
    Ok(ours)
}

/// Descriptors that the daemon has for itself.
const OWN: u64 = 64;

/// Descriptors that slabs and leases may have where a process may have so many: nearly half of them. A user that has
/// leases alone has a queue, another one for two.
pub(super) fn descriptors_of_leases(most: u64) -> u64 {
    most.saturating_sub(OWN) / 20 * 9
}

/// Connections where a process may have so many descriptors: they and what comes with them have what leases leave. For
/// each there is one more that was closed with a reply unread, a queue for each user of these, half a refusal that
/// is unread, and half a connection that is looked up. One is root's, and one another's.
fn most_connections(most: u64) -> u64 {
    (most.saturating_sub(OWN) / 16).max(2)
}

/// Grants where a process may have so many descriptors: each has a socket and a folder, of what leases and connections
/// leave. Its queue is one of theirs.
fn most_grants_within(most: u64) -> usize {
    let grants = most.saturating_sub(OWN) / 160;
    usize::try_from(grants).map_or(MOST_GRANTS, |grants| grants.clamp(1, MOST_GRANTS))
}

/// Grants that there may be at once.
pub(super) fn most_grants() -> usize {
    most_grants_within(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// As many descriptors as may be had, and no more connections than these are for.
pub(super) fn within_descriptors(limits: &Limits, say: &mut dyn FnMut(&str)) -> Limits {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Refused, there are as many as before.
    let _ = setrlimit(Resource::Nofile, raised);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = u32::try_from(most_connections(most))
        .map_or(limits.connections, |most| limits.connections.min(most));
    if connections < limits.connections {
        say(&format!(
            "at most {connections} connections: this process may have {most} descriptors (LimitNOFILE=)"
        ));
    }
    Limits {
        connections,
        ..limits.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Root's connections are among those counted.
    #[test]
    fn all_that_clients_can_have_is_less_than_the_limit() {
        for most in [128, 256, 1024, 65_536] {
            let (leases, connections) = (descriptors_of_leases(most), most_connections(most));
            let of_leases = leases + leases / 2;
            let of_connections = connections * 4 + connections / 2 * 2;
            let of_grants = 2 * most_grants_within(most) as u64;
            assert!(
                OWN + of_leases + of_connections + of_grants <= most,
                "{most}"
            );
        }
        assert!(most_connections(65_536) >= Limits::default().connections.into());
        assert_eq!(most_connections(0), 2);
    }

    /// In a container each daemon has the number 1.
    #[test]
    fn names_of_leases_differ_from_those_of_a_daemon_with_this_process_number() {
        let prefix = || {
            let folder = tempfile::tempdir().unwrap();
            let own = std::fs::File::open(folder.path()).unwrap();
            let known = known_leases(own.as_fd(), folder.path(), &mut |_| {});
            let (journal, _) = known.unwrap();
            journal.prefix()
        };
        let first = prefix();
        let begin = now().wall_ms;
        while now().wall_ms == begin {
            std::thread::yield_now();
        }
        assert_ne!(prefix(), first);
    }
}
