//! What the server waits for, by what it is: `epoll` behind names.

use super::connections::ConnectionId;
use crate::lease::Serial;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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
    /// A client.
    Connection(ConnectionId),
    /// The pipe of a lease.
    LeasePipe(Serial),
}

/// Events of one wait: as many as there are connections by default, so that no
/// user's request is behind another's in the kernel's list.
const EVENTS: usize = 1024;

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

    /// What happened, after at most `most`.
    pub(super) fn wait(&self, most: Duration) -> io::Result<Vec<Event>> {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        let timeout = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
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

fn flags(read: bool, write: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, read);
    flags.set(EventFlags::OUT, write);
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(Source::from_token(source.token()), Some(source));
        }
        assert_eq!(Source::from_token(u64::MAX), None);
    }
}
