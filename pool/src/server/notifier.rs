//! What the service manager is told, and by whom.
//!
//! Its socket is open to every process, and a full one is waited for behind all others that send to it. So what
//! does not go through at once is sent by a thread, in order, and so is all that follows until that is
//! done. What must not be answered before the manager has it waits for its [`Ticket`].

use crate::os::background;
use crate::os::service;
use crate::protocol::packet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Messages that wait for the thread, before no descriptor is given to it any more.
const MOST_WAITING: u64 = 4096;

/// That the daemon is alive.
pub(super) const WATCHDOG: &str = "WATCHDOG=1";

/// A message that the thread has; a later one has a larger number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The manager has it, or will be the first to read it.
    Now,
    /// The thread sends it.
    Later(Ticket),
    /// It did not go through.
    No,
}

#[derive(Debug)]
struct Message {
    text: String,
    file: Option<Arc<OwnedFd>>,
}

impl Message {
    /// Sends it; a socket of its own has room for it, whatever others wait for theirs.
    fn send(&self, to: &Path, waits: bool) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(to)?;
        socket.set_nonblocking(!waits)?;
        let file = self.file.as_ref().map(|file| file.as_fd());
        packet::send(&socket, self.text.as_bytes(), file.as_slice())
    }
}

/// The thread, and how far it is.
#[derive(Debug)]
struct Thread {
    messages: Sender<Message>,
    /// Messages that it has sent, or given up.
    done: Arc<AtomicU64>,
    ends: JoinHandle<()>,
}

impl Thread {
    fn start(to: PathBuf, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let (messages, received) = mpsc::channel();
        let done = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&done);
        let ends = thread::Builder::new()
            .name("notify".into())
            .spawn(move || {
                // As the serving thread: clients wait for some of it.
                let _ = background::run_before_others();
                send_all(&received, &to, &theirs, &wake);
            })?;
        Ok(Self {
            messages,
            done,
            ends,
        })
    }
}

fn send_all(messages: &Receiver<Message>, to: &Path, done: &AtomicU64, wake: &OwnedFd) {
    for message in messages {
        // A manager that does not listen any more changes nothing here.
        let _ = message.send(to, true);
        drop(message);
        done.fetch_add(1, Ordering::Release);
        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
    }
}

/// The serving thread's side.
#[derive(Debug)]
pub(super) struct Notifier {
    /// Without a manager nothing is sent.
    manager: Option<(PathBuf, Thread)>,
    /// Messages that the thread was given.
    given: u64,
    /// The last sign of life that it was given.
    alive: Option<Ticket>,
}

impl Notifier {
    /// Tells the manager that started this process, if one did. `wake` is made readable when what had to be waited
    /// for is done.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn new(wake: Arc<OwnedFd>) -> io::Result<Self> {
        Self::of(service::notified_at(), wake)
    }

    pub(super) fn of(manager: Option<PathBuf>, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let start = |to: PathBuf| Thread::start(to.clone(), wake).map(|thread| (to, thread));
        Ok(Self {
            manager: manager.map(start).transpose()?,
            given: 0,
            alive: None,
        })
    }

    /// Whether there is a manager.
    pub(super) fn is_on(&self) -> bool {
        self.manager.is_some()
    }

    /// Tells the manager something, without waiting.
    pub(super) fn tell(&mut self, text: impl Into<String>) -> Told {
        self.send(text.into(), None)
    }

    /// Says that the daemon is alive. While that waits to be said it need not be said again.
    pub(super) fn tell_alive(&mut self) {
        if self.alive.is_some_and(|alive| !self.is_done(alive)) {
            return;
        }
        self.alive = match self.tell(WATCHDOG) {
            Told::Later(ticket) => Some(ticket),
            Told::Now | Told::No => None,
        };
    }

    /// Gives the manager a descriptor; too many that wait are refused.
    pub(super) fn give(&mut self, text: String, file: Arc<OwnedFd>) -> Told {
        if self.given.saturating_sub(self.done()) >= MOST_WAITING {
            return Told::No;
        }
        self.send(text, Some(file))
    }

    fn send(&mut self, text: String, file: Option<Arc<OwnedFd>>) -> Told {
        let is_idle = self.done() == self.given;
        let Some((to, thread)) = &self.manager else {
            return Told::Now;
        };
        let message = Message { text, file };
        if is_idle {
            match message.send(to, false) {
                Ok(()) => return Told::Now,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Told::No,
            }
        }
        if thread.messages.send(message).is_err() {
            return Told::No;
        }
        self.given += 1;
        Told::Later(Ticket(self.given))
    }

    fn done(&self) -> u64 {
        let manager = self.manager.as_ref();
        manager.map_or(0, |(_, thread)| thread.done.load(Ordering::Acquire))
    }

    /// Whether the thread has sent a message, or given it up.
    pub(super) fn is_done(&self, ticket: Ticket) -> bool {
        Ticket(self.done()) >= ticket
    }

    /// Ends once all of it was sent, however long that takes.
    pub(super) fn finish(self) {
        if let Some((_, thread)) = self.manager {
            drop(thread.messages);
            let _ = thread.ends.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::ready;
    use rustix::event::EventfdFlags;
    use std::time::{Duration, Instant};

    fn until(mut come: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !come() {
            assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_a_full_socket_does_not_take_is_sent_in_order_and_waited_for_by_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let read = || {
            let mut bytes = [0; 64];
            let length = manager.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let wake = Arc::new(wake);
        let mut notifier = Notifier::of(Some(path.clone()), Arc::clone(&wake)).unwrap();
        assert_eq!(notifier.tell("a"), Told::Now);
        assert_eq!(read().as_deref(), Some("a"));
        // Others fill it.
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        let mut others = 0;
        while other.send_to(b"other", &path).is_ok() {
            others += 1;
        }
        let later = |told| match told {
            Told::Later(ticket) => ticket,
            told => panic!("{told:?}"),
        };
        let first = later(notifier.tell("b"));
        let file = Arc::new(rustix::event::eventfd(0, EventfdFlags::empty()).unwrap());
        let second = later(notifier.give("c".into(), file));
        for _ in 0..3 {
            notifier.tell_alive();
        }
        assert!(!notifier.is_done(first) && !ready::to_read(&wake).unwrap());
        for _ in 0..others {
            until(|| read().as_deref() == Some("other"));
        }
        until(|| notifier.is_done(second));
        assert!(notifier.is_done(first) && ready::to_read(&wake).unwrap());
        let mut said = Vec::new();
        until(|| {
            said.extend(read());
            said.len() == 3
        });
        assert_eq!(said, ["b", "c", WATCHDOG]);
        // Without a queue it goes the short way again.
        until(|| notifier.done() == notifier.given);
        assert_eq!(notifier.tell("d"), Told::Now);
        notifier.finish();
        assert_eq!(read().as_deref(), Some("d"));
        assert_eq!(read(), None);
    }

    #[test]
    fn descriptors_that_wait_are_bounded_and_a_manager_that_is_gone_is_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mut notifier = Notifier::of(Some(path), Arc::clone(&wake)).unwrap();
        while notifier.tell("full") == Told::Now {}
        let mut kept = 0;
        while notifier.give(kept.to_string(), Arc::clone(&wake)) != Told::No {
            kept += 1;
        }
        // The first that did not go through waits, too.
        assert_eq!(kept, MOST_WAITING - 1);
        assert!(matches!(notifier.tell("let go of it"), Told::Later(_)));
        drop(manager);
        notifier.finish();
        let none = Notifier::of(None, wake).unwrap().tell("nobody");
        assert_eq!(none, Told::Now);
    }
}
