//! What the server waits for, by what it is: `epoll` behind names.

use crate::lease::Serial;
use crate::machine::ConnectionId;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What something happened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The socket clients connect to.
    Listener,
    /// Workers that are done.
    Workers,
    /// Signals.
    Signals,
    /// A signal to read the configuration again.
    Reloads,
    /// The connections of a user.
    User(u32),
    /// A client.
    Connection(ConnectionId),
    /// The pipe of a lease.
    LeasePipe(Serial),
}

/// Events of one wait. The kernel goes on behind the last one at the next.
const EVENTS: usize = 256;

/// What waits that long may wait in whole milliseconds, by one system call.
const COARSE: Duration = Duration::from_millis(10);

/// Numbers in the lower bits, what they number in the upper ones.
const KIND_SHIFT: u32 = 56;

impl Source {
    fn token(self) -> u64 {
        let (kind, number) = match self {
            Self::Listener => (0, 0),
            Self::Workers => (1, 0),
            Self::Signals => (2, 0),
            Self::Reloads => (3, 0),
            Self::Connection(number) => (4, number),
            Self::LeasePipe(number) => (5, number),
            Self::User(uid) => (6, uid.into()),
        };
        (kind << KIND_SHIFT) | (number & ((1 << KIND_SHIFT) - 1))
    }

    fn from_token(token: u64) -> Option<Self> {
        let number = token & ((1 << KIND_SHIFT) - 1);
        Some(match token >> KIND_SHIFT {
            0 => Self::Listener,
            1 => Self::Workers,
            2 => Self::Signals,
            3 => Self::Reloads,
            4 => Self::Connection(number),
            5 => Self::LeasePipe(number),
            6 => Self::User(u32::try_from(number).ok()?),
            _ => return None,
        })
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) source: Source,
    pub(super) writable: bool,
    pub(super) hung_up: bool,
}

/// What is waited for.
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
    pub(super) fn add(&self, source: Source, file: impl AsFd, read: bool) -> io::Result<()> {
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
        source: Source,
        file: impl AsFd,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        let data = EventData::new_u64(source.token());
        Ok(epoll::modify(&self.epoll, file, data, flags(read, write))?)
    }

    /// The first thing that has happened, if anything has. What is ready comes in turn.
    pub(super) fn next(&self) -> io::Result<Option<Event>> {
        Ok(self.ready(1, Duration::ZERO)?.pop())
    }

    /// What happened, after at most `most`.
    pub(super) fn wait(&self, most: Duration) -> io::Result<Vec<Event>> {
        if most >= COARSE {
            let whole = Duration::from_millis(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
            return self.ready(EVENTS, whole);
        }
        let timeout = timespec(most);
        // To the nanosecond: `epoll_wait` counts milliseconds, in which a user out of debt
        // would have a burst saved up.
        let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
        match rustix::event::poll(&mut epoll, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => self.ready(EVENTS, Duration::ZERO),
            Err(error) => Err(error.into()),
        }
    }

    /// What happened, after at most so many whole milliseconds.
    fn ready(&self, events: usize, most: Duration) -> io::Result<Vec<Event>> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(events);
        let most = timespec(most);
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let event = |event: epoll::Event| {
            let flags = event.flags;
            Some(Event {
                source: Source::from_token(event.data.u64())?,
                writable: flags.contains(EventFlags::OUT),
                hung_up: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            })
        };
        Ok(ready.into_iter().filter_map(event).collect())
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
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
            events.add(Source::Connection(number), ours, true).unwrap();
            rustix::io::write(theirs, b"x").unwrap();
        }
        let next = || match events.next().unwrap().unwrap().source {
            Source::Connection(number) => number,
            other => panic!("{other:?}"),
        };
        let order: Vec<_> = (0..6).map(|_| next()).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        for source in [
            Source::Listener,
            Source::Workers,
            Source::Signals,
            Source::Reloads,
            Source::Connection(0),
            Source::Connection((1 << KIND_SHIFT) - 1),
            Source::LeasePipe(7),
            Source::User(u32::MAX),
        ] {
            assert_eq!(Source::from_token(source.token()), Some(source));
        }
        assert_eq!(Source::from_token(u64::MAX), None);
    }
}
