//! What loads the daemon, or the machine, beside a member.

use crate::failure::Failure;
use firstlight_pool::protocol::{MOST_REPLY_BYTES, Reply, Request, StatusQuery, packet};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::Serialize;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The member beside the one whose takes are timed.
pub(super) const OTHER_MEMBER: u32 = 65_002;

/// A user that no rule names.
const STRANGER: u32 = 65_011;
/// Connections of the member that sends requests.
const CONNECTIONS: usize = 200;
/// After how long a connection that is refused is tried again.
const AGAIN: Duration = Duration::from_millis(5);

/// What runs beside the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flood {
    /// Nothing.
    Nothing,
    /// A loop that uses a CPU and not the daemon: what any flood costs at least.
    Loop,
    /// A user that may do nothing connects as fast as it can.
    Strangers,
    /// Another member sends requests on 200 connections as fast as they are answered.
    Requests,
    /// Another member connects as fast as it can.
    Connections,
}

impl Flood {
    pub(super) const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Loop,
        Self::Strangers,
        Self::Requests,
        Self::Connections,
    ];

    /// For people.
    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Nothing => "alone",
            Self::Loop => "a loop",
            Self::Strangers => "strangers",
            Self::Requests => "requests",
            Self::Connections => "connections",
        }
    }

    /// Does something while this runs.
    pub(super) fn beside<T>(self, socket: &Path, act: impl FnOnce() -> T) -> Result<T, Failure> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let flood = scope.spawn(|| self.run(socket, &stop));
            let done = act();
            stop.store(true, Ordering::Relaxed);
            let ran = flood.join().map_err(|_| io::Error::other("it panicked"));
            ran.and_then(|ran| ran)
                .map_err(Failure::pool_at("a flood"))?;
            Ok(done)
        })
    }

    fn run(self, socket: &Path, stop: &AtomicBool) -> io::Result<()> {
        let goes_on = || !stop.load(Ordering::Relaxed);
        match self {
            Self::Nothing => {}
            Self::Loop => {
                while goes_on() {
                    std::hint::spin_loop();
                }
            }
            Self::Strangers => return as_user(STRANGER, || connections(socket, &goes_on)),
            Self::Connections => return as_user(OTHER_MEMBER, || connections(socket, &goes_on)),
            Self::Requests => return as_user(OTHER_MEMBER, || requests(socket, &goes_on))?,
        }
        Ok(())
    }
}

/// Whether each is refused is no matter.
fn connections(socket: &Path, goes_on: &(dyn Fn() -> bool + Sync)) {
    while goes_on() {
        drop(connect(socket));
    }
}

fn requests(socket: &Path, goes_on: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
    let request = Request::Status(StatusQuery::default()).encode();
    let request = request.map_err(io::Error::other)?;
    let mut ends = Vec::with_capacity(CONNECTIONS);
    while ends.len() < CONNECTIONS && goes_on() {
        let end = connect(socket)?;
        // Those of the round before count until the daemon has closed them.
        if answer(&end, &request).is_ok_and(|reply| !matches!(reply, Reply::Refused(_))) {
            ends.push(end);
        } else {
            thread::sleep(AGAIN);
        }
    }
    while goes_on() {
        for end in &ends {
            packet::send(end, &request, &[])?;
        }
        for end in &ends {
            receive(end)?;
        }
    }
    Ok(())
}

fn answer(end: &OwnedFd, request: &[u8]) -> io::Result<Reply> {
    packet::send(end, request, &[])?;
    Reply::decode(&receive(end)?).map_err(io::Error::other)
}

fn receive(end: &OwnedFd) -> io::Result<Vec<u8>> {
    let received = packet::receive(end, MOST_REPLY_BYTES, 0).map_err(io::Error::other)?;
    Ok(received.message)
}

fn connect(socket: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::SEQPACKET;
    let end = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&end, &SocketAddrUnix::new(socket)?)?;
    Ok(end)
}

/// Does something on a thread that is another user, with a group of the same number alone.
pub(super) fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    let run = || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        Ok(act())
    };
    let done = thread::scope(|scope| scope.spawn(run).join());
    done.unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}
