//! Connections of clients: bounded in number, in what is kept for each, and in
//! how long a reply may stay unread or a connection idle.
//!
//! Some are reserved for root and the daemon's user. Where all others are taken,
//! a user that has fewer than another gets one of that user's: the one that has been
//! idle for longest. So no user, and no number of users, keeps another out.
//!
//! A connection with a reply that could not be sent yet, or with a request that
//! is being worked on, is not read from: at most one message is ever kept for it.
//!
//! What is sent and not read is the daemon's memory, also once the connection is closed. So the kernel takes
//! little more than one reply for each, and one that is closed keeps its place until all is read; one that gives way
//! to another user's, for its own user. All of them are twice as many as may be open.

use super::closer::Closer;
use super::events::{Events, Theirs};
use super::pool::Outgoing;
use super::unread::{Unread, is_unread};
use crate::config::Limits;
use crate::lease::quota::Standing;
use crate::lease::{Serial, Whose};
use crate::machine::ConnectionId;
use crate::os::passrights;
use crate::os::peer::Peer;
use crate::os::unread;
use crate::protocol::packet::{self, PacketError};
use crate::protocol::{MOST_REQUEST_BYTES, Refusal, RefusalCode, Reply};
use rustix::net::sockopt;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A reply that waits for space.
#[derive(Debug)]
struct Unsent {
    message: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    serial: Option<Serial>,
    since: Instant,
}

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    /// Whether the kernel lets no descriptor through to it.
    is_bare: bool,
    /// Its user's queue.
    queue: Rc<Events>,
    peer: Peer,
    whose: Whose,
    standing: Standing,
    /// When its last request came.
    heard: Instant,
    unsent: Option<Unsent>,
    /// Whether its answer is being worked on.
    working: bool,
    /// Whether it is waited for requests.
    reading: bool,
}

impl Connection {
    /// Whether a request of it is being worked on, or its reply not sent yet.
    fn is_served(&self) -> bool {
        self.working || self.unsent.is_some()
    }
}

/// What came of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way, or will be.
    Yes,
    /// The connection is no use any more; this lease did not get through.
    No(Option<Serial>),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    next: ConnectionId,
    open: BTreeMap<ConnectionId, Connection>,
    /// Of users other than the owner.
    by_user: BTreeMap<Whose, u32>,
    /// Closed, with a reply unread.
    unread: Unread,
    /// Turned away, and not read why.
    turned_away: Unread,
    closer: Rc<Closer>,
}

/// Bytes that the kernel takes over a connection beside one more reply: its own least.
const SEND_BUFFER: usize = 2304;

/// Longer replies need a larger buffer.
const SHORT_REPLY: usize = 4096;

/// Refusals of connections of one user that may be unread, or of strangers together; of all half as many as
/// connections may be open.
const MOST_UNREAD_REFUSALS: u32 = 64;

/// Sends a reply, if not much is unread.
fn send(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if message.len() <= SHORT_REPLY {
        return packet::send(socket, message, descriptors);
    }
    // As the kernel decides whether it can be written to.
    let buffer = sockopt::socket_send_buffer_size(socket)? as u64;
    if unread::bytes(socket)?.saturating_add(1).saturating_mul(4) > buffer {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // The kernel doubles it.
    sockopt::set_socket_send_buffer_size(socket, message.len() / 2 + SEND_BUFFER)?;
    let sent = packet::send(socket, message, descriptors);
    sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    sent
}

/// After how long one of too many connections is worth another try.
const BUSY_MS: u32 = 50;

/// Why a connection is [`RefusalCode::Busy`].
pub(super) const TOO_MANY: &str = "too many connections";

impl Connections {
    pub(super) fn new(limits: &Limits, closer: Rc<Closer>) -> Self {
        Self {
            limits: limits.clone(),
            next: 0,
            open: BTreeMap::new(),
            by_user: BTreeMap::new(),
            unread: Unread::default(),
            turned_away: Unread::default(),
            closer,
        }
    }

    /// Leaves all of them to the end of this process, which waits for none.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }

    /// Other limits from now on; connections that are open stay.
    pub(super) fn limit(&mut self, limits: &Limits) {
        self.limits = limits.clone();
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Connections that users other than the owner may have.
    fn for_others(&self) -> u32 {
        let all = self.limits.connections;
        let reserved = (all / 16).max(1);
        all.saturating_sub(reserved)
    }

    /// Those of a user, also while they wait to be closed, or for a reply to be read.
    fn of_user(&self, user: Whose) -> u32 {
        let open = self.by_user.get(&user).copied().unwrap_or(0);
        open + self.closer.unclosed(user) + self.unread.of_user(user)
    }

    /// Whether a user whose connections are counted has all that one may have: not the owner.
    pub(super) fn has_all(&self, user: Whose) -> bool {
        let is_counted = self.by_user.contains_key(&user) || self.unread.of_user(user) > 0;
        is_counted && self.of_user(user) >= self.limits.connections_per_user
    }

    /// Connections that users other than the owner have, closed ones with unread replies among them, are as many as may be.
    fn has_no_place(&self) -> bool {
        let open: u32 = self.by_user.values().sum();
        open + self.unread.len() >= self.for_others() * 2
    }

    /// Lets go of one of a user's that was closed, and that it has read meanwhile; whether there was one.
    pub(super) fn let_one_go(&mut self, user: Whose) -> bool {
        let read = self.unread.read_by(user);
        let Some(socket) = read.or_else(|| self.turned_away.read_by(user)) else {
            return false;
        };
        self.closer.close(user, socket);
        true
    }

    /// Users of which some that were closed were not read.
    pub(super) fn with_unread(&self) -> BTreeSet<Whose> {
        self.unread
            .users()
            .chain(self.turned_away.users())
            .collect()
    }

    /// Whether there is no connection left for a user.
    fn is_full(&self, user: Whose, standing: Standing) -> bool {
        let others: u32 = self.by_user.values().sum();
        if standing == Standing::Owner {
            // More of others may be open than now may be: they keep out no owner's.
            let all = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
            let reserved = self.limits.connections - self.for_others();
            return all >= self.limits.connections && all.saturating_sub(others) >= reserved;
        }
        others >= self.for_others()
            || self.has_no_place()
            || self.of_user(user) >= self.limits.connections_per_user
    }

    /// The connection to close so that a user gets one: of the user that has most, and has one that
    /// no request is being worked on.
    pub(super) fn one_to_give_up(&self, user: Whose, standing: Standing) -> Option<ConnectionId> {
        let mine = self.of_user(user);
        if standing == Standing::Owner
            || mine >= self.limits.connections_per_user
            || !self.is_full(user, standing)
        {
            return None;
        }
        let with_more = |open: &Connection| {
            let count = *self.by_user.get(&open.whose)?;
            (open.standing != Standing::Owner && !open.working && count > mine + 1).then_some(count)
        };
        // One that leaves a reply unread keeps its place once it is closed.
        let needs_place = self.has_no_place();
        let is_place = |open: &Connection| !needs_place || !is_unread(&open.socket);
        // Of the largest user the idlest, one that leaves its reply unread last.
        let open = self.open.iter();
        let closable = open.filter_map(|(id, open)| Some((with_more(open)?, *id, open)));
        let closable = closable.filter(|(_, _, open)| is_place(open));
        let idlest = closable
            .min_by_key(|(count, _, open)| (Reverse(*count), open.unsent.is_some(), open.heard));
        idlest.map(|(_, id, _)| id)
    }

    /// Takes a new connection in, or says that there are too many and closes it. Out of descriptors,
    /// it is closed without a word.
    pub(super) fn add(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        user: Whose,
        standing: Standing,
        queue: Rc<Events>,
    ) -> bool {
        if self.is_full(user, standing) {
            self.turn_away(user, user, socket, RefusalCode::Busy, TOO_MANY);
            return false;
        }
        let id = self.next;
        let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER);
        if queue.add(Theirs::Connection(id), &socket, true).is_err() {
            self.closer.close(user, socket);
            return false;
        }
        self.next += 1;
        if standing != Standing::Owner {
            *self.by_user.entry(user).or_default() += 1;
        }
        let connection = Connection {
            is_bare: passrights::are_refused(&socket),
            socket,
            queue,
            peer,
            whose: user,
            standing,
            heard: Instant::now(),
            unsent: None,
            working: false,
            reading: true,
        };
        self.open.insert(id, connection);
        true
    }

    /// Tells the other end why its connection is closed, unless too many such words are unread that count for `whose`:
    /// its user, or strangers together.
    pub(super) fn turn_away(
        &mut self,
        user: Whose,
        whose: Whose,
        socket: OwnedFd,
        code: RefusalCode,
        text: &str,
    ) {
        let has_too_many = |this: &Self| {
            this.turned_away.of_user(whose) >= MOST_UNREAD_REFUSALS
                || this.turned_away.len() >= this.limits.connections / 2
        };
        if has_too_many(self)
            && let Some(read) = self.turned_away.read_by(whose)
        {
            self.closer.close(whose, read);
        }
        if has_too_many(self) {
            return self.closer.close(user, socket);
        }
        let soon = (code == RefusalCode::Busy).then_some(BUSY_MS);
        let refusal = Refusal::new(code, text).retry_after(soon);
        if let Ok(message) = Reply::Refused(refusal).encode() {
            let _ = packet::send(&socket, &message, &[]);
        }
        if let Some(socket) = self.turned_away.hang_up(whose, socket) {
            self.closer.close(user, socket);
        }
    }

    /// The next message of a connection, if it may be read from now.
    pub(super) fn receive(&mut self, id: ConnectionId) -> Option<Result<Vec<u8>, PacketError>> {
        let connection = self.open.get_mut(&id)?;
        if connection.is_served() {
            return None;
        }
        let socket = &connection.socket;
        let received = if connection.is_bare {
            packet::receive_bare(socket, MOST_REQUEST_BYTES)
        } else {
            packet::receive_plain(socket, MOST_REQUEST_BYTES)
        };
        if received.is_ok() {
            connection.heard = Instant::now();
        }
        Some(received)
    }

    /// Its user's.
    pub(super) fn queue(&self, id: ConnectionId) -> Option<Rc<Events>> {
        self.open.get(&id).map(|open| Rc::clone(&open.queue))
    }

    pub(super) fn peer(&self, id: ConnectionId) -> Option<&Peer> {
        self.open.get(&id).map(|connection| &connection.peer)
    }

    /// For whom it counts.
    pub(super) fn whose(&self, id: ConnectionId) -> Option<Whose> {
        self.open.get(&id).map(|open| open.whose)
    }

    /// The reply to a request comes later: nothing is read meanwhile.
    pub(super) fn waits(&mut self, id: ConnectionId) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.working = true;
            connection.reading = false;
            let (source, socket) = (Theirs::Connection(id), &connection.socket);
            let _ = connection.queue.change(source, socket, false, false);
        }
    }

    /// Sends a reply, or keeps it until there is space.
    pub(super) fn answer(&mut self, outgoing: Outgoing) -> Sent {
        let Outgoing { to, reply, lease } = outgoing;
        let (serial, descriptors) = lease.map_or((None, Vec::new()), |(serial, descriptors)| {
            (Some(serial), descriptors)
        });
        let Some(connection) = self.open.get_mut(&to) else {
            return Sent::No(serial);
        };
        connection.working = false;
        let Ok(message) = reply.encode() else {
            return Sent::No(serial);
        };
        connection.unsent = Some(Unsent {
            message,
            descriptors,
            serial,
            since: Instant::now(),
        });
        self.flush(to)
    }

    /// Tries to send what is kept.
    pub(super) fn flush(&mut self, id: ConnectionId) -> Sent {
        let Some(connection) = self.open.get_mut(&id) else {
            return Sent::No(None);
        };
        let Some(mut unsent) = connection.unsent.take() else {
            return Sent::Yes;
        };
        let descriptors: Vec<BorrowedFd<'_>> = unsent.descriptors.iter().map(AsFd::as_fd).collect();
        let sent = send(&connection.socket, &unsent.message, &descriptors);
        let (source, socket) = (Theirs::Connection(id), &connection.socket);
        match sent {
            Ok(()) => {
                // The client has the same by now. It may have the pipe in an `epoll` that makes the last close wait for
                // as long as it likes, and a lock on the memory: then a close waits for each reader of `/proc/locks`.
                for descriptor in unsent.descriptors.drain(..) {
                    self.closer.close_sent(connection.whose, descriptor);
                }
                if !connection.reading {
                    connection.reading = true;
                    let _ = connection.queue.change(source, socket, true, false);
                }
                Sent::Yes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.reading = false;
                let _ = connection.queue.change(source, socket, false, true);
                connection.unsent = Some(unsent);
                Sent::Yes
            }
            Err(_) => Sent::No(unsent.serial),
        }
    }

    /// Hangs up; the lease whose reply was still kept, if there was one.
    pub(super) fn close(&mut self, id: ConnectionId) -> Option<Serial> {
        let connection = self.open.remove(&id)?;
        let is_counted = connection.standing != Standing::Owner;
        if is_counted && let Some(count) = self.by_user.get_mut(&connection.whose) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_user.remove(&connection.whose);
            }
        }
        // It keeps a copy of what it waits for until then: no event of it is for anyone any more.
        let _ = connection.queue.remove(&connection.socket);
        let (user, socket) = (connection.whose, connection.socket);
        let left = if is_counted {
            self.unread.hang_up(user, socket)
        } else {
            Some(socket)
        };
        if let Some(socket) = left {
            self.closer.close(user, socket);
        }
        connection.unsent.and_then(|unsent| unsent.serial)
    }

    /// Connections of users that may do nothing here any more.
    pub(super) fn of_strangers(&self, standing: impl Fn(&Peer) -> Standing) -> Vec<ConnectionId> {
        let open = self.open.iter();
        let strange = open.filter(|(_, open)| {
            open.whose.grant().is_none() && standing(&open.peer) == Standing::Stranger
        });
        strange.map(|(id, _)| *id).collect()
    }

    /// Connections that count for one of these.
    pub(super) fn of_any(&self, whose: &[Whose]) -> Vec<ConnectionId> {
        let own = self.open.iter();
        let own = own.filter(|(_, open)| whose.contains(&open.whose));
        own.map(|(id, _)| *id).collect()
    }

    /// Connections from which nothing was heard for too long.
    pub(super) fn idle(&self, now: Instant) -> Vec<ConnectionId> {
        let most = Duration::from_secs(self.limits.idle_s.into());
        let idle = |connection: &Connection| {
            !connection.is_served() && now.saturating_duration_since(connection.heard) > most
        };
        let open = self.open.iter();
        open.filter(|(_, connection)| idle(connection))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Connections that left a reply unread for too long.
    pub(super) fn stuck(&self, now: Instant) -> Vec<ConnectionId> {
        let most = Duration::from_secs(self.limits.unread_s.into());
        let stuck = |connection: &Connection| {
            let unsent = connection.unsent.as_ref();
            unsent.is_some_and(|unsent| now.saturating_duration_since(unsent.since) > most)
        };
        let open = self.open.iter();
        open.filter(|(_, connection)| stuck(connection))
            .map(|(id, _)| *id)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::threads::Threads;
    use crate::protocol::{GrantId, Lease, LeaseId, PageSize};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::Arc;

    /// None yet, with these limits.
    fn limited(limits: &Limits) -> Connections {
        let closer = Closer::new(Arc::new(Threads::new().unwrap())).unwrap();
        Connections::new(limits, Rc::new(closer))
    }

    /// The daemon's end of a connection, and the client's.
    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn peer(user: u32) -> Peer {
        Peer {
            pid: 1,
            uid: user,
            user,
            gid: user,
            groups: Vec::new(),
            cgroup: None,
        }
    }

    /// Whether the other end of a pipe is closed.
    fn is_over(pipe: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        let now = Timespec::default();
        poll(&mut polled, Some(&now)).unwrap() == 1 && polled[0].revents().contains(PollFlags::HUP)
    }

    /// The client may have a copy by then that makes the daemon's close, the last one, wait.
    #[test]
    fn what_was_sent_is_closed_by_a_thread_that_may_wait() {
        let closer = Rc::new(Closer::new(Arc::new(Threads::new().unwrap())).unwrap());
        let mut connections = Connections::new(&Limits::default(), Rc::clone(&closer));
        let client = connect(&mut connections, 1000).unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let reply = Lease {
            lease: LeaseId::new("1-1").unwrap(),
            bytes: 1,
            page: PageSize::Transparent,
            node: None,
            align_bytes: 1,
            topped_up_bytes: 0,
        };
        let sent = connections.answer(Outgoing {
            to: 0,
            reply: Reply::Take(reply),
            lease: Some((1, vec![memory, write])),
        });
        assert_eq!(sent, Sent::Yes);
        drop(packet::receive(&client, 1 << 16, 2).unwrap());
        assert_eq!(
            closer.given(),
            2,
            "the serving thread closed the pipe, or the memory"
        );
        while !is_over(&read) {
            std::thread::yield_now();
        }
    }

    /// A connection of a user to `connections`, if there is a place; the client's end.
    fn connect(connections: &mut Connections, user: u32) -> Option<OwnedFd> {
        let client = Standing::Client;
        assert_eq!(connections.one_to_give_up(Whose::User(user), client), None);
        connect_as(connections, user, client)
    }

    fn connect_as(connections: &mut Connections, user: u32, standing: Standing) -> Option<OwnedFd> {
        let (ours, theirs) = pair();
        let queue = Rc::new(Events::new().unwrap());
        let is_added = connections.add(ours, peer(user), Whose::User(user), standing, queue);
        is_added.then_some(theirs)
    }

    /// Turns a new connection of a user away, on the account of `whose`; the client's end.
    fn refuse(connections: &mut Connections, user: u32, whose: Whose) -> OwnedFd {
        let (ours, theirs) = pair();
        connections.turn_away(Whose::User(user), whose, ours, RefusalCode::Denied, "no");
        theirs
    }

    fn hears(end: &OwnedFd) -> bool {
        packet::receive(end, 1 << 10, 0).is_ok()
    }

    /// Sends the last connection a reply.
    fn reply(connections: &mut Connections) -> ConnectionId {
        let to = connections.next - 1;
        let reply = Reply::Give;
        let lease = None;
        let sent = connections.answer(Outgoing { to, reply, lease });
        assert_eq!(sent, Sent::Yes);
        to
    }

    fn reply_and_close(connections: &mut Connections) {
        let to = reply(connections);
        assert_eq!(connections.close(to), None);
    }

    #[test]
    fn a_place_is_free_again_when_its_reply_is_read() {
        let mut connections = limited(&Limits {
            connections: 3,
            connections_per_user: 2,
            ..Limits::default()
        });
        let mut unread = Vec::new();
        for user in [1, 1, 2, 2] {
            unread.push(connect(&mut connections, user).unwrap());
            reply_and_close(&mut connections);
        }
        assert!(connections.has_all(Whose::User(1)) && connections.has_all(Whose::User(2)));
        assert!(connect(&mut connections, 3).is_none(), "all have no more");
        let read = unread.swap_remove(0);
        packet::receive(&read, 1 << 10, 0).unwrap();
        assert!(matches!(
            packet::receive(&read, 1 << 10, 0),
            Err(PacketError::Closed)
        ));
        // Where descriptors pass a thread closes it.
        let until_free = |connections: &mut Connections, user| {
            let user = Whose::User(user);
            while connections.has_all(user) {
                connections.let_one_go(user);
                std::thread::yield_now();
            }
        };
        until_free(&mut connections, 1);
        assert!(connect(&mut connections, 3).is_some());
        // One that is gone has read all that it will.
        assert!(connections.has_all(Whose::User(2)));
        drop(unread);
        until_free(&mut connections, 2);
    }

    #[test]
    fn a_connection_that_would_leave_no_place_gives_way_to_none() {
        let mut connections = limited(&Limits {
            connections: 4,
            connections_per_user: 6,
            ..Limits::default()
        });
        let mut ends = Vec::new();
        for _ in 0..3 {
            ends.push(connect(&mut connections, 1).unwrap());
            reply_and_close(&mut connections);
        }
        for _ in 0..2 {
            ends.push(connect(&mut connections, 1).unwrap());
            reply(&mut connections);
        }
        ends.push(connect(&mut connections, 1).unwrap());
        let read = connections.next - 1;
        // Of three that are open, the one heard of last has nothing unread.
        let gives_way = |connections: &Connections, user| {
            connections.one_to_give_up(Whose::User(user), Standing::Client)
        };
        assert_eq!(gives_way(&connections, 2), Some(read));
        connections.close(read);
        assert!(connect(&mut connections, 2).is_some());
        assert!(connections.has_no_place());
        assert_eq!(gives_way(&connections, 3), None);
    }

    #[test]
    fn connections_by_a_grant_count_for_it_alone_whichever_users_they_are() {
        let mut connections = limited(&Limits {
            connections: 32,
            connections_per_user: 2,
            ..Limits::default()
        });
        let grant = |number| {
            let prefix = 0xabc;
            Whose::Grant(GrantId { prefix, number })
        };
        let mut ends = Vec::new();
        let mut by = |connections: &mut Connections, whose, user| {
            let (ours, theirs) = pair();
            ends.push(theirs);
            let queue = Rc::new(Events::new().unwrap());
            connections.add(ours, peer(user), whose, Standing::Client, queue)
        };
        // Root has no more by it than others.
        let added = [0, 1, 2].map(|user| by(&mut connections, grant(1), user));
        assert_eq!(added, [true, true, false]);
        assert!(connections.has_all(grant(1)) && !connections.has_all(grant(2)));
        assert!(by(&mut connections, grant(2), 1));
        assert!(by(&mut connections, Whose::User(1), 1));
        // None of these users may do anything elsewhere.
        let strange = connections.of_strangers(|_| Standing::Stranger);
        assert_eq!(strange, [3], "the one on the pool's own socket");
        assert_eq!(connections.of_any(&[grant(1)]), [0, 1]);
    }

    #[test]
    fn strangers_that_read_no_refusal_hear_none() {
        let mut connections = limited(&Limits::default());
        let mut turn_away = |user| refuse(&mut connections, user, Whose::Nobody);
        let mut ends: Vec<_> = (0..65).map(&mut turn_away).collect();
        assert!(!hears(&ends.pop().unwrap()));
        assert!(hears(&ends.pop().unwrap()));
        assert!(hears(&turn_away(7)));
    }

    /// Where a process may have few descriptors, these are none that root's connections need.
    #[test]
    fn unread_refusals_are_half_as_many_as_connections() {
        let mut connections = limited(&Limits {
            connections: 8,
            ..Limits::default()
        });
        let ends: Vec<_> = (1..=8)
            .map(|user| refuse(&mut connections, user, Whose::User(user)))
            .collect();
        let heard = ends.iter().filter(|end| hears(end));
        assert_eq!(heard.count(), 4);
    }

    #[test]
    fn connections_that_stay_above_a_new_limit_keep_out_no_owner() {
        let mut connections = limited(&Limits::default());
        let _of_others = [1, 2, 3].map(|user| connect(&mut connections, user).unwrap());
        connections.limit(&Limits {
            connections: 2,
            ..Limits::default()
        });
        assert!(connect(&mut connections, 4).is_none());
        let mut of_root = || connect_as(&mut connections, 0, Standing::Owner).is_some();
        // One is reserved.
        assert_eq!([of_root(), of_root()], [true, false]);
    }

    #[test]
    fn some_connections_are_reserved_for_root_whatever_the_limit() {
        let closer = Rc::new(Closer::new(Arc::new(Threads::new().unwrap())).unwrap());
        for (connections, for_others) in [(1, 0), (2, 1), (15, 14), (16, 15), (32, 30), (1024, 960)]
        {
            let limits = Limits {
                connections,
                ..Limits::default()
            };
            assert_eq!(
                Connections::new(&limits, Rc::clone(&closer)).for_others(),
                for_others
            );
        }
    }
}
