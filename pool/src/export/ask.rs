//! The daemon's status, one request at a time, by a thread of its own: a daemon that hangs
//! makes none wait that does not need it, and those that need it no longer than
//! [`PATIENCE`].

use crate::client::Client;
use crate::protocol::Status;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a daemon may take: less than a scraper waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// A status, or why there is none.
pub(super) type Answer = Result<Status, String>;

/// The thread that asks, and whether it does.
#[derive(Debug)]
pub(super) struct Asker {
    requests: Sender<()>,
    answers: Receiver<Answer>,
    wake: Arc<OwnedFd>,
    is_asking: bool,
}

impl Asker {
    pub(super) fn start(socket: PathBuf) -> io::Result<Self> {
        let (requests, wanted) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let waker = Arc::clone(&wake);
        thread::Builder::new()
            .name("status".into())
            .spawn(move || {
                while let Ok(()) = wanted.recv() {
                    let status = Client::connect_until(&socket, Instant::now() + PATIENCE)
                        .and_then(|mut client| client.status())
                        .map_err(|error| error.to_string());
                    if answer.send(status).is_err() {
                        return;
                    }
                    let _ = rustix::io::write(&waker, &1u64.to_ne_bytes());
                }
            })?;
        Ok(Self {
            requests,
            answers,
            wake,
            is_asking: false,
        })
    }

    /// Has the daemon asked, unless it is being asked: then that answer is awaited.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        if !self.is_asking {
            let gone = |_| io::Error::other("the thread that asks the daemon ended");
            self.requests.send(()).map_err(gone)?;
            self.is_asking = true;
        }
        Ok(())
    }

    /// Readable when there is an answer.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The answer, if it is there: for all that have waited.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        // Read before the queue is: an answer that comes in between wakes again.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let answer = self.answers.try_recv().ok()?;
        self.is_asking = false;
        Some(answer)
    }
}
