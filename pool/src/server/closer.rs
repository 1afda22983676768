//! The thread that closes what clients can hold open, so that the serving thread never does: their
//! sockets and lease pipes.
//!
//! What a client sent and nobody read is closed with its socket, descriptors among it, and the last
//! copy of a descriptor can take as long as the client likes: a TCP socket with `SO_LINGER` waits
//! for its other end, a file system in user space for its server. So can a pipe, while a process
//! that writes to it waits for memory. A wait that a signal ends is ended after [`PATIENCE`]; a
//! thread that goes on waiting is left to itself, and another one goes on. A socket counts for its
//! user until it is closed. One that no descriptor can be sent to is closed at once.

use crate::os::background;
use crate::os::interrupt::interrupt;
use crate::os::passrights;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a close may wait.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// Signals before a thread is left to itself.
const SIGNALS: u32 = 20;

/// Descriptors that may wait to be closed before no connection is accepted.
const MOST: u64 = 64;

/// The user of what is no user's.
pub(super) const NOBODY: u32 = u32::MAX;

/// What all threads know.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Receiver<(u32, OwnedFd)>>,
    /// What is not closed yet, by its user.
    unclosed: Mutex<BTreeMap<u32, u32>>,
    progress: Mutex<Progress>,
}

/// What threads have done, and which of them no signal helps.
#[derive(Debug, Default)]
struct Progress {
    /// What was closed so far.
    closed: u64,
    /// Threads that are left to themselves, by number, each with something to close.
    lost: BTreeSet<u64>,
}

impl Progress {
    /// What waits of all that was given away, but for what lost threads have.
    fn left_of(&self, given: u64) -> u64 {
        given.saturating_sub(self.closed + self.lost.len() as u64)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Counts one more, or one less, of a user.
    fn count(&self, user: u32, more: bool) {
        let mut unclosed = lock(&self.unclosed);
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

    /// Closes what comes, as thread `number`, until that is left to itself.
    fn close_all(&self, number: u64) {
        loop {
            let next = lock(&self.queue).recv();
            let Ok((user, descriptor)) = next else {
                return;
            };
            drop(descriptor);
            self.count(user, false);
            let mut progress = lock(&self.progress);
            progress.closed += 1;
            if progress.lost.remove(&number) {
                return;
            }
        }
    }
}

/// Starts thread `number`.
fn start(shared: &Arc<Shared>, number: u64) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let close_all = move || {
        // As the serving thread: users wait for their connections.
        let _ = background::run_before_others();
        shared.close_all(number);
    };
    thread::Builder::new().name("close".into()).spawn(close_all)
}

/// What the serving thread knows.
#[derive(Debug)]
struct State {
    /// The last thread that was started, and its number.
    thread: JoinHandle<()>,
    number: u64,
    /// What was given away so far.
    given: u64,
    /// How much was closed when that changed last, and when it was seen.
    seen: (u64, Instant),
    /// Signals sent since.
    signals: u32,
}

/// The serving thread's side.
#[derive(Debug)]
pub(super) struct Closer {
    queue: Sender<(u32, OwnedFd)>,
    shared: Arc<Shared>,
    state: RefCell<State>,
}

impl Closer {
    pub(super) fn new() -> io::Result<Self> {
        let (queue, theirs) = mpsc::channel();
        let shared = Arc::new(Shared {
            queue: Mutex::new(theirs),
            unclosed: Mutex::default(),
            progress: Mutex::default(),
        });
        let state = State {
            thread: start(&shared, 0)?,
            number: 0,
            given: 0,
            seen: (0, Instant::now()),
            signals: 0,
        };
        Ok(Self {
            queue,
            shared,
            state: RefCell::new(state),
        })
    }

    /// Closes a descriptor soon; at once where nobody can make that take long.
    pub(super) fn close(&self, user: u32, descriptor: OwnedFd) {
        if passrights::are_refused(&descriptor) {
            return;
        }
        let mut state = self.state.borrow_mut();
        if lock(&self.shared.progress).left_of(state.given) == 0 {
            // The thread had nothing to do until now.
            state.seen.1 = Instant::now();
            state.signals = 0;
        }
        state.given += 1;
        self.shared.count(user, true);
        // The other end is in `shared`.
        let _ = self.queue.send((user, descriptor));
    }

    /// How many descriptors were left to threads so far, for a check from outside.
    #[cfg(test)]
    pub(super) fn given(&self) -> u64 {
        self.state.borrow().given
    }

    /// What a user's is not closed yet.
    pub(super) fn unclosed(&self, user: u32) -> u32 {
        lock(&self.shared.unclosed).get(&user).copied().unwrap_or(0)
    }

    /// Whether so much waits that others should wait outside.
    pub(super) fn is_behind(&self) -> bool {
        let given = self.state.borrow().given;
        lock(&self.shared.progress).left_of(given) >= MOST
    }

    /// Ends a close that waits for too long, or goes on without it; when to look again, if anything
    /// is left.
    pub(super) fn look_after(&self, now: Instant) -> Option<Duration> {
        let mut state = self.state.borrow_mut();
        // A thread that ends a close now does not know yet that it was lost.
        let mut progress = lock(&self.shared.progress);
        if progress.closed != state.seen.0 {
            state.seen = (progress.closed, now);
            state.signals = 0;
        }
        if progress.left_of(state.given) == 0 {
            return None;
        }
        let since = now.saturating_duration_since(state.seen.1);
        if since < PATIENCE {
            return Some(PATIENCE - since);
        }
        state.seen.1 = now;
        state.signals += 1;
        if state.signals <= SIGNALS {
            interrupt(&state.thread);
        } else if let Ok(next) = start(&self.shared, state.number + 1) {
            progress.lost.insert(state.number);
            state.thread = next;
            state.number += 1;
            state.signals = 0;
        }
        Some(PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::packet::{self, PacketError};
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
        let closer = Closer::new().unwrap();
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
    fn a_socket_that_refuses_descriptors_waits_for_no_thread() {
        let closer = Closer::new().unwrap();
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (daemons, clients) = pair.unwrap();
        let refuses = passrights::refuse(&daemons).is_ok();
        closer.close(1, daemons);
        assert_eq!(closer.given(), u64::from(!refuses));
        if refuses {
            let end = packet::receive(&clients, 1, 0);
            assert!(matches!(end, Err(PacketError::Closed)), "{end:?}");
        }
    }

    /// A pipe whose lock is held for as long as the writer waits for `memory` cannot be had in a
    /// test, so the queue stands for it: the first thread waits for what nothing ends.
    #[test]
    fn a_thread_that_no_signal_helps_is_left_to_itself() {
        signal_hook::flag::register(signal_hook::consts::SIGIO, Arc::default()).unwrap();
        let closer = Closer::new().unwrap();
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let held = lock(&closer.shared.unclosed);
        closer.state.borrow_mut().given += MOST + 1;
        for _ in 0..=MOST {
            let copy = ours.try_clone().unwrap().into();
            closer.queue.send((1, copy)).unwrap();
        }
        assert!(closer.is_behind());
        // The first waits for the count, and so does each that has its place.
        let mut looks = 0;
        while closer.is_behind() {
            thread::sleep(closer.look_after(Instant::now()).unwrap());
            looks += 1;
            assert!(looks < 60_000, "the others wait for the first");
        }
        let lost = || lock(&closer.shared.progress).lost.len();
        assert!(lost() > 0);
        drop(held);
        while closer.look_after(Instant::now()).is_some() || lost() > 0 {
            thread::yield_now();
        }
        assert_eq!(
            closer.state.borrow().given,
            lock(&closer.shared.progress).closed
        );
    }
}
