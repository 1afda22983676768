//! The threads that close what clients can hold open, so that the serving thread never does: their
//! sockets, and what they were sent, lease pipes and memory.
//!
//! What a client sent and was not read is closed with its socket, descriptors among it, and the last
//! copy of a descriptor can take as long as the client likes: a TCP socket with `SO_LINGER` waits
//! for its other end, a file system in user space for its server. So can a pipe, while a process
//! that writes to it waits for memory; and of a file that a client has locked each copy, while another
//! process reads `/proc/locks`. A wait that a signal ends is ended after [`PATIENCE`]; a
//! thread that goes on waiting is left to itself, and another one takes its place. There are two such
//! places, and a user's descriptors are closed one after the other: no user is in both, so what one
//! makes wait is nothing that another waits for, also where no thread can be had any more. A socket counts for its
//! user until it is closed. One that no descriptor can be sent to is closed at once.

use crate::lease::Whose;
use crate::os::background;
use crate::os::interrupt::interrupt;
use crate::os::passrights;
use crate::os::threads::Threads;
use rustix::process::Pid;
use rustix::thread::gettid;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a close may wait.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);

/// Signals before a thread is left to itself.
const SIGNALS: u32 = 20;

/// Descriptors that may wait to be closed before no connection is accepted.
const MOST: usize = 64;

/// Threads that close at a time, but for those that are left to themselves.
const PLACES: u64 = 2;

/// Something to close.
#[derive(Debug)]
struct Open {
    number: u64,
    user: Whose,
    /// Whether its user's connections are counted with it.
    counts: bool,
}

/// What is to be closed, and by whom.
#[derive(Debug, Default)]
struct Queue {
    /// By user, the first first.
    waiting: BTreeMap<Whose, VecDeque<(Open, OwnedFd)>>,
    /// The users of these, in turn.
    turns: VecDeque<Whose>,
    /// What threads close now, by their numbers.
    closing: BTreeMap<u64, Open>,
    /// The kernel's numbers of these threads, also of those that have nothing to close.
    threads: BTreeMap<u64, Pid>,
    /// What threads close that are left to themselves.
    lost: BTreeMap<u64, Open>,
    /// Sockets that are not closed yet, by user.
    unclosed: BTreeMap<Whose, u32>,
    /// What was given away so far.
    given: u64,
    is_over: bool,
}

impl Queue {
    fn add(&mut self, user: Whose, counts: bool, descriptor: OwnedFd) {
        let open = Open {
            number: self.given,
            user,
            counts,
        };
        self.given += 1;
        if counts {
            let count = self.unclosed.entry(user).or_default();
            *count = count.saturating_add(1);
        }
        let of_user = self.waiting.entry(user).or_default();
        if of_user.is_empty() {
            self.turns.push_back(user);
        }
        of_user.push_back((open, descriptor));
    }

    /// The next one for a thread: of a user of which no other closes one.
    fn next(&mut self, thread: u64) -> Option<OwnedFd> {
        let is_free = |user: &Whose| self.closing.values().all(|open| open.user != *user);
        let at = self.turns.iter().position(is_free)?;
        let user = self.turns.remove(at)?;
        let of_user = self.waiting.get_mut(&user)?;
        let (open, descriptor) = of_user.pop_front()?;
        if of_user.is_empty() {
            self.waiting.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        self.closing.insert(thread, open);
        Some(descriptor)
    }

    /// A thread has closed what it had: whether it goes on.
    fn closed(&mut self, thread: u64) -> bool {
        let open = self.closing.remove(&thread);
        let goes_on = open.is_some();
        if let Some(open) = open.or_else(|| self.lost.remove(&thread))
            && open.counts
            && let Some(count) = self.unclosed.get_mut(&open.user)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.unclosed.remove(&open.user);
            }
        }
        goes_on
    }

    /// What is not closed yet, but for what lost threads have.
    fn left(&self) -> usize {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        waiting + self.closing.len()
    }
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something was added to the queue, or may be taken from it.
    changed: Condvar,
    close: fn(OwnedFd),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what comes, as thread `number`, until that is left to itself.
    fn close_all(&self, number: u64) {
        let mut queue = self.lock();
        queue.threads.insert(number, gettid());
        loop {
            if let Some(descriptor) = queue.next(number) {
                drop(queue);
                (self.close)(descriptor);
                queue = self.lock();
                let goes_on = queue.closed(number);
                self.changed.notify_all();
                if !goes_on {
                    break;
                }
            } else if queue.is_over {
                break;
            } else {
                let changed = self.changed.wait(queue);
                queue = changed.unwrap_or_else(PoisonError::into_inner);
            }
        }
        queue.threads.remove(&number);
    }
}

/// Starts thread `number`, if one is ready.
fn start(threads: &Threads, shared: &Arc<Shared>, number: u64) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let close_all = move || {
        // As the serving thread: users wait for their connections.
        let _ = background::run_before_others();
        shared.close_all(number);
    };
    threads.start("close", close_all)
}

/// What the serving thread knows of one that closes.
#[derive(Debug)]
struct Place {
    /// The last thread that was started.
    number: u64,
    /// What it was seen to close, and since when.
    seen: Option<(u64, Instant)>,
    /// Signals sent since.
    signals: u32,
}

impl Place {
    fn new(threads: &Threads, shared: &Arc<Shared>, number: u64) -> io::Result<Self> {
        start(threads, shared, number)?;
        Ok(Self {
            number,
            seen: None,
            signals: 0,
        })
    }

    /// Ends a close that waits for too long, or goes on without it.
    fn look_after(&mut self, now: Instant, closer: &Closer, queue: &mut Queue) {
        let Some(open) = queue.closing.get(&self.number) else {
            self.seen = None;
            return;
        };
        let since = match self.seen {
            Some((number, since)) if number == open.number => since,
            _ => {
                self.signals = 0;
                now
            }
        };
        self.seen = Some((open.number, since));
        if now.saturating_duration_since(since) < PATIENCE {
            return;
        }
        self.seen = Some((open.number, now));
        self.signals += 1;
        if self.signals <= SIGNALS {
            // It has not ended: it closes something.
            if let Some(thread) = queue.threads.get(&self.number) {
                interrupt(*thread);
            }
        } else if let Ok(next) = Self::new(&closer.threads, &closer.shared, self.number + PLACES) {
            let lost = queue.closing.remove(&self.number);
            queue.lost.extend(lost.map(|open| (self.number, open)));
            *self = next;
            // The other place may take what waited for this one.
            closer.shared.changed.notify_all();
        }
    }
}

/// The serving thread's side.
#[derive(Debug)]
pub(super) struct Closer {
    shared: Arc<Shared>,
    places: RefCell<Vec<Place>>,
    threads: Arc<Threads>,
}

impl Closer {
    pub(super) fn new(threads: Arc<Threads>) -> io::Result<Self> {
        Self::with(threads, drop)
    }

    /// With another way to close.
    fn with(threads: Arc<Threads>, close: fn(OwnedFd)) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            close,
        });
        let places = (0..PLACES).map(|number| Place::new(&threads, &shared, number));
        let places = places.collect::<io::Result<_>>()?;
        Ok(Self {
            shared,
            places: RefCell::new(places),
            threads,
        })
    }

    /// Closes a user's socket soon; at once where no process can make that take long.
    pub(super) fn close(&self, user: Whose, socket: OwnedFd) {
        if !passrights::are_refused(&socket) {
            self.add(user, true, socket);
        }
    }

    /// Closes soon what a user was sent, its memory or an end of its lease pipe, or the other end.
    pub(super) fn close_sent(&self, user: Whose, descriptor: OwnedFd) {
        self.add(user, false, descriptor);
    }

    fn add(&self, user: Whose, counts: bool, descriptor: OwnedFd) {
        self.shared.lock().add(user, counts, descriptor);
        self.shared.changed.notify_all();
    }

    /// How many descriptors were left to threads so far, for a check from outside.
    #[cfg(test)]
    pub(super) fn given(&self) -> u64 {
        self.shared.lock().given
    }

    /// What a user's is not closed yet.
    pub(super) fn unclosed(&self, user: Whose) -> u32 {
        self.shared.lock().unclosed.get(&user).copied().unwrap_or(0)
    }

    /// Whether so much waits that others should wait outside.
    pub(super) fn is_behind(&self) -> bool {
        self.shared.lock().left() >= MOST
    }

    /// Ends closes that wait for too long, or goes on without them; when to look again, if anything
    /// is left.
    pub(super) fn look_after(&self, now: Instant) -> Option<Duration> {
        // A thread that ends a close now does not know yet that it was lost.
        let mut queue = self.shared.lock();
        for place in self.places.borrow_mut().iter_mut() {
            place.look_after(now, self, &mut queue);
        }
        (queue.left() > 0).then_some(PATIENCE)
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
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
    use std::thread;

    fn threads() -> Arc<Threads> {
        Arc::new(Threads::new().unwrap())
    }

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
        let closer = Closer::new(threads()).unwrap();
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
            closer.close(Whose::User(user), daemons);
        }
        assert_eq!(closer.unclosed(Whose::User(3)), 1);
        let mut looks = 0;
        while let Some(soon) = closer.look_after(Instant::now()) {
            thread::sleep(soon);
            looks += 1;
            assert!(looks < 60_000, "it waits for the other end");
        }
        assert_eq!(
            [1, 2, 3].map(|user| closer.unclosed(Whose::User(user))),
            [0; 3]
        );
        assert!(looks > 0 && !closer.is_behind());
    }

    #[test]
    fn a_socket_that_refuses_descriptors_waits_for_no_thread() {
        let closer = Closer::new(threads()).unwrap();
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (daemons, clients) = pair.unwrap();
        let refuses = passrights::refuse(&daemons).is_ok();
        closer.close(Whose::User(1), daemons);
        assert_eq!(closer.given(), u64::from(!refuses));
        if refuses {
            let end = packet::receive(&clients, 1, 0);
            assert!(matches!(end, Err(PacketError::Closed)), "{end:?}");
        }
    }

    /// Has what is closed wait where it is a pipe, as one waits whose lock is held by a writer that waits for
    /// memory: no signal helps.
    fn waits(descriptor: OwnedFd) {
        let stat = rustix::fs::fstat(&descriptor).unwrap();
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo {
            drop(HELD.lock());
        }
    }

    static HELD: Mutex<()> = Mutex::new(());

    #[test]
    fn a_thread_that_no_signal_helps_is_left_to_itself_and_keeps_no_other_user_waiting() {
        signal_hook::flag::register(signal_hook::consts::SIGIO, Arc::default()).unwrap();
        let closer = Closer::with(threads(), waits).unwrap();
        let held = HELD.lock().unwrap();
        let (pipe, _writes) = rustix::pipe::pipe().unwrap();
        for _ in 0..=MOST {
            closer.close_sent(Whose::User(1), pipe.try_clone().unwrap());
        }
        assert!(closer.is_behind());
        assert_eq!(
            closer.unclosed(Whose::User(1)),
            0,
            "a pipe is no connection"
        );
        // Without a look, as where no other thread can be had.
        for user in [2, 3, 2]
            .map(Whose::User)
            .into_iter()
            .chain([Whose::Nobody])
        {
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            closer.close_sent(user, ours.into());
            assert_eq!(std::io::Read::read(&mut theirs, &mut [0]).unwrap(), 0);
        }
        let mut looks = 0;
        while closer.is_behind() {
            thread::sleep(closer.look_after(Instant::now()).unwrap());
            looks += 1;
            assert!(looks < 60_000, "the others wait for the first");
        }
        let lost = || closer.shared.lock().lost.len();
        assert!(lost() > 0);
        drop(held);
        while closer.look_after(Instant::now()).is_some() || lost() > 0 {
            thread::yield_now();
        }
    }
}
