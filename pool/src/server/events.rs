//! What the server waits for, by what it is.
//!
//! Each user's connections and pipes wait in an `epoll` of the user's, and the sockets of grants in one for all of them;
//! the loop asks for these, and for what is the daemon's own, in one `ppoll`. No `epoll` is in another: a thread that adds one to another, or anything to one
//! that is in another, has to wait for a lock of which the machine has one (`epnested_mutex`), and any
//! process can hold that for as long as it likes. Before Linux 6.4 so does a thread that closes one, which is a
//! thread's work that may wait.

use crate::lease::{Serial, Whose};
use crate::machine::ConnectionId;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What the loop waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Workers that are done.
    Workers,
    /// Signals.
    Signals,
    /// A signal to read the configuration again.
    Reloads,
    /// The socket clients connect to.
    Listener,
    /// Sockets of grants.
    Doors,
    /// What a user has in [`Events`] of its own.
    Queue(Whose),
}

/// Those of these that have something to read, after at most `most`. To the nanosecond: in a whole millisecond
/// a user out of debt would have a burst saved up.
pub(super) fn wait_for(
    sources: &[(Source, BorrowedFd<'_>)],
    most: Duration,
) -> io::Result<Vec<Source>> {
    let files = sources.iter().map(|(_, file)| file);
    let wanted = files.map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN));
    let mut wanted: Vec<_> = wanted.collect();
    match rustix::event::poll(&mut wanted, Some(&timespec(most))) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let both = sources.iter().zip(&wanted);
    let ready = both.filter(|(_, wanted)| !wanted.revents().is_empty());
    Ok(ready.map(|((source, _), _)| *source).collect())
}

/// Of a user's, or of all grants', what something happened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theirs {
    /// A client.
    Connection(ConnectionId),
    /// The pipe of a lease.
    LeasePipe(Serial),
    /// The socket of the grant with this number.
    Door(u64),
}

/// A number in the lower bits, what it numbers in the upper ones.
const KIND_SHIFT: u32 = 56;

impl Theirs {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Connection(number) => (0, number),
            Self::LeasePipe(number) => (1, number),
            Self::Door(number) => (2, number),
        };
        (kind << KIND_SHIFT) | (number & ((1 << KIND_SHIFT) - 1))
    }

    fn from_token(token: u64) -> Option<Self> {
        let number = token & ((1 << KIND_SHIFT) - 1);
        Some(match token >> KIND_SHIFT {
            0 => Self::Connection(number),
            1 => Self::LeasePipe(number),
            2 => Self::Door(number),
            _ => return None,
        })
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) source: Theirs,
    pub(super) writable: bool,
    pub(super) hung_up: bool,
}

/// What is waited for of a user: an `epoll` that no other watches, and that watches none.
#[derive(Debug)]
pub(super) struct Events {
    epoll: OwnedFd,
}

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Waits for `source` from now on: for something to read, or only for the
    /// other end to hang up. It ends with the last copy of the descriptor.
    pub(super) fn add(&self, source: Theirs, file: impl AsFd, read: bool) -> io::Result<()> {
        let data = EventData::new_u64(source.token());
        Ok(epoll::add(&self.epoll, file, data, flags(read, false))?)
    }

    /// Waits for it no more, though copies of the descriptor stay.
    pub(super) fn remove(&self, file: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, file)?)
    }

    /// Waits for something else.
    pub(super) fn change(
        &self,
        source: Theirs,
        file: impl AsFd,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        let data = EventData::new_u64(source.token());
        Ok(epoll::modify(&self.epoll, file, data, flags(read, write))?)
    }

    /// The first thing that has happened, if anything has. What is ready comes in turn.
    pub(super) fn next(&self) -> io::Result<Option<Event>> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(1);
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut ready),
            Some(&Timespec::default()),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let event = |event: epoll::Event| {
            let flags = event.flags;
            Some(Event {
                source: Theirs::from_token(event.data.u64())?,
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            })
        };
        Ok(ready.pop().and_then(event))
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

impl From<Events> for OwnedFd {
    fn from(events: Events) -> Self {
        events.epoll
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn flags(read: bool, write: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, read);
    flags.set(EventFlags::OUT, write);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn each_in_turn_however_long_all_of_them_are_ready() {
        let events = Events::new().unwrap();
        let ends: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        for (number, (ours, theirs)) in (0..).zip(&ends) {
            events.add(Theirs::Connection(number), ours, true).unwrap();
            rustix::io::write(theirs, b"x").unwrap();
        }
        let next = || match events.next().unwrap().unwrap().source {
            Theirs::Connection(number) => number,
            other => panic!("{other:?}"),
        };
        let order: Vec<_> = (0..6).map(|_| next()).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for source in [
            Theirs::Connection(0),
            Theirs::Connection((1 << KIND_SHIFT) - 1),
            Theirs::LeasePipe(7),
            Theirs::Door(8),
        ] {
            assert_eq!(Theirs::from_token(source.token()), Some(source));
        }
        assert_eq!(Theirs::from_token(u64::MAX), None);
    }
}
