//! The thread that closes clients' sockets, so that the serving thread never does.
//!
//! What a client sent and nobody read is closed with its socket, descriptors among it, and the last
//! copy of a descriptor can take as long as the client likes: a TCP socket with `SO_LINGER` waits
//! for its other end, a large file is emptied. A wait is ended after [`PATIENCE`] by a signal, and
//! a socket counts for its user until it is closed.

use crate::os::background;
use crate::os::interrupt::interrupt;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long one socket's close may wait.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// Sockets that may wait to be closed before no connection is accepted.
const MOST: u64 = 64;

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    /// Sockets that are not closed yet, by their user.
    unclosed: Mutex<BTreeMap<u32, u32>>,
    /// Sockets closed so far.
    closed: AtomicU64,
}

impl Shared {
    /// Counts one more, or one less, of a user.
    fn count(&self, user: u32, more: bool) {
        let mut unclosed = self.unclosed.lock().unwrap_or_else(PoisonError::into_inner);
        let count = unclosed.entry(user).or_default();
        *count = if more {
            count.saturating_add(1)
        } else {
            count.saturating_sub(1)
        };
        if *count == 0 {
            unclosed.remove(&user);
        }
    }
}

/// The thread's other side.
#[derive(Debug)]
pub(super) struct Closer {
    thread: JoinHandle<()>,
    sockets: Sender<(u32, OwnedFd)>,
    shared: Arc<Shared>,
    /// Sockets given to the thread so far.
    given: u64,
    /// How many were closed when that changed last, and when it was seen.
    seen: (u64, Instant),
}

impl Closer {
    pub(super) fn new() -> io::Result<Self> {
        let (sockets, wanted) = mpsc::channel::<(u32, OwnedFd)>();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let close_all = move || {
            // As the serving thread: users wait for their connections.
            let _ = background::run_before_others();
            for (user, socket) in wanted {
                drop(socket);
                theirs.count(user, false);
                theirs.closed.fetch_add(1, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("close".into());
        Ok(Self {
            thread: thread.spawn(close_all)?,
            sockets,
            shared,
            given: 0,
            seen: (0, Instant::now()),
        })
    }

    /// Closes a socket soon.
    pub(super) fn close(&mut self, user: u32, socket: OwnedFd) {
        self.shared.count(user, true);
        if self.given == self.seen.0 {
            // The thread had nothing to do until now.
            self.seen.1 = Instant::now();
        }
        self.given += 1;
        if let Err(unsent) = self.sockets.send((user, socket)) {
            // Without the thread they stay open: this one never waits.
            std::mem::forget(unsent);
        }
    }

    /// A user's sockets that are not closed yet.
    pub(super) fn unclosed(&self, user: u32) -> u32 {
        let unclosed = &self.shared.unclosed;
        let unclosed = unclosed.lock().unwrap_or_else(PoisonError::into_inner);
        unclosed.get(&user).copied().unwrap_or(0)
    }

    /// Whether so many wait that others should wait outside.
    pub(super) fn is_behind(&self) -> bool {
        self.left() >= MOST
    }

    fn left(&self) -> u64 {
        let closed = self.shared.closed.load(Ordering::Relaxed);
        self.given.saturating_sub(closed)
    }

    /// Ends a close that waits for too long; when to look again, if anything is left.
    pub(super) fn look_after(&mut self, now: Instant) -> Option<Duration> {
        let closed = self.shared.closed.load(Ordering::Relaxed);
        if closed != self.seen.0 {
            self.seen = (closed, now);
        }
        if closed >= self.given {
            return None;
        }
        let since = now.saturating_duration_since(self.seen.1);
        if since < PATIENCE {
            return Some(PATIENCE - since);
        }
        interrupt(&self.thread);
        self.seen.1 = now;
        Some(PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::packet;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// A socket whose last copy takes an hour to close: what was sent on it is not read.
    fn lingering(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&ours, Some(Duration::from_secs(3600))).unwrap();
        ours.set_nonblocking(true).unwrap();
        let noise = [7; 1 << 16];
        while ours.write(&noise).is_ok() {}
        (ours, theirs)
    }

    #[test]
    fn what_a_client_left_unread_keeps_nobody_waiting() {
        signal_hook::flag::register(signal_hook::consts::SIGIO, Arc::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut closer = Closer::new().unwrap();
        let mut far_ends = Vec::new();
        for user in 1..=3 {
            let kind = SocketType::SEQPACKET;
            let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            let (daemons, clients) = pair.unwrap();
            for _ in 0..2 {
                let (near, far) = lingering(&listener);
                packet::send(&clients, b"take this", &[near.as_fd()]).unwrap();
                far_ends.push(far);
            }
            closer.close(user, daemons);
        }
        assert_eq!(closer.unclosed(3), 1);
        let mut looks = 0;
        while let Some(soon) = closer.look_after(Instant::now()) {
            thread::sleep(soon);
            looks += 1;
            assert!(looks < 60_000, "it waits for the other end");
        }
        assert_eq!([1, 2, 3].map(|user| closer.unclosed(user)), [0; 3]);
        assert!(looks > 0 && !closer.is_behind());
    }

    #[test]
    fn it_is_behind_where_many_wait() {
        let mut closer = Closer::new().unwrap();
        // It waits for this before it closes the first one.
        let held = Arc::clone(&closer.shared);
        let held = held.unclosed.lock().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        for _ in 0..MOST {
            let copy = ours.try_clone().unwrap().into();
            closer.given += 1;
            closer.sockets.send((1, copy)).unwrap();
        }
        assert!(closer.is_behind());
        drop(held);
        while closer.left() > 0 {
            thread::yield_now();
        }
        assert!(!closer.is_behind());
    }
}
