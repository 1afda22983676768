//! What the daemon does for clients: their connections are accepted, their requests handled
//! in turn, and what each costs is counted against its user's budget.

use super::Server;
use super::budget::processor_time;
use super::closer;
use super::connections::{Sent, TOO_MANY};
use super::events::Theirs;
use super::peers::Unknown;
use super::pool::Outgoing;
use crate::lease::quota::Standing;
use crate::lease::{Serial, Whose};
use crate::machine::{ConnectionId, Event, denied};
use crate::os::peer::{Credentials, Peer};
use crate::protocol::packet::PacketError;
use crate::protocol::{GrantId, Refusal, RefusalCode, Reply, Request};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections that are accepted in one turn, until one took long.
const ACCEPTS_A_TURN: usize = 4;

/// So long takes what wakes very many that wait for the other end.
const LONG: Duration = Duration::from_millis(1);

/// A connection that waited. Out of descriptors, most likely, clients that wait go on waiting.
fn or_rest(accepted: io::Result<Option<OwnedFd>>) -> Option<OwnedFd> {
    accepted.unwrap_or_else(|_| {
        std::thread::sleep(Duration::from_millis(1));
        None
    })
}

impl Server {
    /// Accepts what waits. Users that may do nothing here have a budget together; in debt, the
    /// next connection waits: at most so many do that each is looked at soon.
    pub(super) fn accept(&mut self) {
        let now = Instant::now();
        let behind = self.closer.is_behind().then(|| now + closer::PATIENCE);
        if let Some(due) = self.strangers.due(now).max(behind) {
            self.listens_at = Some(due);
            return;
        }
        let begin = processor_time();
        let mut is_theirs = false;
        for _ in 0..ACCEPTS_A_TURN {
            let Some(socket) = or_rest(self.listener.accept()) else {
                break;
            };
            is_theirs |= self.welcome(socket) == Standing::Stranger;
            if processor_time().saturating_sub(begin) > LONG {
                break;
            }
        }
        if is_theirs {
            // Waking up for them costs as much again.
            let spent = processor_time().saturating_sub(begin) * 2;
            self.strangers.spend(spent, now);
        }
    }

    /// Accepts again once the budget of strangers allows it; how long that is to be waited for.
    pub(super) fn listen_again(&mut self, now: Instant) -> Option<Duration> {
        let due = self.listens_at?;
        if due > now {
            return Some(due - now);
        }
        self.listens_at = None;
        None
    }

    /// A new connection: none is kept for a user that may do nothing here. Whose it is may have to be looked up
    /// first.
    fn welcome(&mut self, socket: OwnedFd) -> Standing {
        let mut begin = processor_time();
        // A peer that cannot be named may do nothing.
        let Ok(credentials) = Credentials::of(&socket) else {
            self.closer.close(Whose::Nobody, socket);
            return Standing::Stranger;
        };
        let number = self.pool.user_of(credentials.uid);
        let user = Whose::User(number);
        // Before its groups and its cgroup are read: one that does nothing but connect has all that
        // it may have most of the time.
        if self.has_all(user) || self.peers.has_all(user) {
            self.is_one_too_many(user, socket);
            return self.charge_before_it_is_known(credentials.uid, user, begin);
        }
        let with_cgroup = self.pool.machine.rules().has_cgroups();
        if with_cgroup || !self.pool.ids.is_current() {
            let unknown = Unknown {
                socket,
                credentials,
                is_owner: self.pool.machine.rules().is_owner(credentials.uid),
                with_cgroup,
            };
            if let Some((of, socket)) = self.peers.look_up(user, unknown) {
                // Another one's place may have been taken: what that one's end costs is on its account.
                let before = processor_time();
                self.is_one_too_many(of, socket);
                if of != user {
                    begin += self.charge_user_or_strangers(of, before);
                }
            }
            return self.charge_before_it_is_known(credentials.uid, user, begin);
        }
        let peer = credentials.peer(&socket, number, false);
        self.welcome_peer(socket, user, peer, begin)
    }

    /// Whether a user has all connections that it may have, and has read what those that are closed were sent.
    fn has_all(&mut self, user: Whose) -> bool {
        if !self.connections.has_all(user) {
            return false;
        }
        // It has an account, also where all of its connections are closed and unread.
        let _ = self.turns.queue(user, true);
        // In debt it waits until the next tick lets one go.
        let has_place = !self.must_wait(user) && self.connections.let_one_go(user);
        !has_place || self.connections.has_all(user)
    }

    /// A user without connections has no account, and may turn out to have none: it pays as strangers do, together with
    /// them. Root, and the daemon's user, do not.
    fn charge_before_it_is_known(&mut self, uid: u32, user: Whose, begin: Duration) -> Standing {
        let has_account = self.charge(user, begin);
        if has_account || self.pool.machine.rules().is_owner(uid) {
            Standing::Client
        } else {
            Standing::Stranger
        }
    }

    fn is_one_too_many(&mut self, user: Whose, socket: OwnedFd) {
        // Who has no account is a stranger, as far as is known.
        let whose = if self.turns.knows(user) {
            user
        } else {
            Whose::Nobody
        };
        self.connections
            .turn_away(user, whose, socket, RefusalCode::Busy, TOO_MANY);
        self.pool.machine.counters().turned_away += 1;
    }

    /// Those that were looked up.
    pub(super) fn welcome_known(&mut self) {
        for known in self.peers.known() {
            if let Some(ids) = known.ids {
                self.pool.ids = ids;
            }
            let begin = processor_time();
            let before = begin.saturating_sub(known.spent);
            let standing = self.welcome_peer(known.socket, known.user, known.peer, before);
            if standing == Standing::Stranger {
                // Waking up for it costs as much again.
                let spent = processor_time().saturating_sub(before) * 2;
                self.strangers.spend(spent, Instant::now());
            }
        }
    }

    /// A new connection, and whose it is; the processor's time since `begin` was spent on it.
    fn welcome_peer(
        &mut self,
        socket: OwnedFd,
        user: Whose,
        peer: io::Result<Peer>,
        begin: Duration,
    ) -> Standing {
        let Ok(peer) = peer else {
            self.closer.close(user, socket);
            return Standing::Stranger;
        };
        let standing = self.pool.machine.standing(&peer);
        if standing == Standing::Stranger {
            self.pool.machine.counters().denied += 1;
            let text = denied(&peer);
            self.connections
                .turn_away(user, Whose::Nobody, socket, RefusalCode::Denied, &text);
            return standing;
        }
        self.take_in(socket, user, peer, standing, begin);
        standing
    }

    /// Takes a connection of one that may have some; another one's may have to give way.
    fn take_in(
        &mut self,
        socket: OwnedFd,
        user: Whose,
        peer: Peer,
        standing: Standing,
        mut begin: Duration,
    ) {
        if let Some(id) = self.connections.one_to_give_up(user, standing) {
            let before = processor_time();
            self.close_on_its_account(id);
            begin += processor_time().saturating_sub(before);
        }
        let is_bounded = standing != Standing::Owner;
        // Out of descriptors, it is closed.
        let Ok(queue) = self.turns.queue(user, is_bounded) else {
            return self.closer.close(user, socket);
        };
        let is_added = self.connections.add(socket, peer, user, standing, queue);
        self.pool.machine.counters().turned_away += u64::from(!is_added);
        self.charge(user, begin);
    }

    /// Accepts what waits at the socket of a grant, which counts for the grant alone: whichever user it is, nothing of
    /// it is looked up. A grant in debt has no turn here either.
    pub(super) fn accept_at_doors(&mut self) {
        let Some(id) = self.pool.doors.next() else {
            return;
        };
        let whose = Whose::Grant(id);
        if !self.turns.is_aside(whose) {
            self.accept_at(id, whose);
        }
        if self.turns.is_aside(whose) {
            self.pool.doors.set_aside(id);
        }
    }

    fn accept_at(&mut self, id: GrantId, whose: Whose) {
        let turn = processor_time();
        for _ in 0..ACCEPTS_A_TURN {
            let begin = processor_time();
            let Some(socket) = or_rest(self.pool.doors.accept(id)) else {
                break;
            };
            self.welcome_holder(whose, socket, begin);
            let is_long = processor_time().saturating_sub(begin) > LONG;
            if is_long || self.turns.is_aside(whose) {
                break;
            }
        }
        // Waking up for them, and for their ends, costs as much again each.
        let spent = processor_time().saturating_sub(turn) * 2;
        self.turns.spend(whose, spent);
    }

    fn welcome_holder(&mut self, whose: Whose, socket: OwnedFd, begin: Duration) {
        let Ok(credentials) = Credentials::of(&socket) else {
            return self.closer.close(whose, socket);
        };
        if self.has_all(whose) {
            self.is_one_too_many(whose, socket);
            self.charge(whose, begin);
            return;
        }
        let peer = credentials.alone();
        self.take_in(socket, whose, peer, Standing::Client, begin);
    }

    /// Closes connections that came by grants that have ended, and says so: a folder that was removed tells no client.
    pub(super) fn hang_up_on_ended_grants(&mut self, say: &mut dyn FnMut(&str)) {
        let ended = self.pool.doors.ended();
        if ended.is_empty() {
            return;
        }
        for id in &ended {
            say(&format!("{id} has ended"));
        }
        let ended: Vec<_> = ended.into_iter().map(Whose::Grant).collect();
        for id in self.connections.of_any(&ended) {
            self.close_on_its_account(id);
        }
    }

    /// Handles one request of a user, or the end of one of its leases. Connections that have hung up before are closed
    /// with it, until that has taken long: a process that connects and hangs up delays no other of its user.
    pub(super) fn turn(&mut self, whose: Whose) {
        let begin = processor_time();
        while let Some(event) = self.turns.next(whose) {
            let is_all = match event.source {
                Theirs::Connection(id) => {
                    if event.writable {
                        self.flush(id);
                    }
                    self.request(id, event.hung_up)
                }
                Theirs::LeasePipe(serial) => {
                    self.lease_pipe(serial);
                    true
                }
                Theirs::Door(_) => true,
            };
            if is_all || processor_time().saturating_sub(begin) > LONG {
                break;
            }
        }
        self.charge(whose, begin);
    }

    /// Handles one request of a connection, if it may have one; whether there was one.
    fn request(&mut self, id: ConnectionId, hung_up: bool) -> bool {
        match self.connections.receive(id) {
            // A reply comes first, and an end that hung up before gets none.
            None if hung_up => self.close(id),
            None => return true,
            Some(Err(PacketError::Io(error))) if error.kind() == io::ErrorKind::WouldBlock => {
                return true;
            }
            Some(Ok(message)) => {
                self.handle(id, &message);
                return true;
            }
            Some(Err(error @ (PacketError::TooLong { .. } | PacketError::Descriptors { .. }))) => {
                self.refuse_and_close(id, error.to_string());
                return true;
            }
            Some(Err(_)) => self.close(id),
        }
        false
    }

    fn handle(&mut self, id: ConnectionId, message: &[u8]) {
        let Some(peer) = self.connections.peer(id).cloned() else {
            return;
        };
        let request = match Request::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(id, error.to_string()),
        };
        let outgoing = self.pool.step(Event::Request {
            from: id,
            peer,
            grant: self.connections.whose(id).and_then(Whose::grant),
            request,
        });
        if !outgoing.iter().any(|outgoing| outgoing.to == id) {
            self.connections.waits(id);
        }
        self.send_all(outgoing);
    }

    fn refuse(&mut self, id: ConnectionId, text: String) {
        let reply = Reply::Refused(Refusal::new(RefusalCode::BadRequest, text));
        self.send(Outgoing {
            to: id,
            reply,
            lease: None,
        });
    }

    fn refuse_and_close(&mut self, id: ConnectionId, text: String) {
        self.refuse(id, text);
        self.close(id);
    }

    /// The machine is told what happened, and replies are sent.
    pub(super) fn step(&mut self, event: Event) {
        let outgoing = self.pool.step(event);
        self.send_all(outgoing);
    }

    pub(super) fn send_all(&mut self, outgoing: Vec<Outgoing>) {
        for one in outgoing {
            self.send(one);
        }
    }

    /// Sends replies when no user has its turn: each wakes what waits for it, which is its user's.
    pub(super) fn send_on_their_accounts(&mut self, outgoing: Vec<Outgoing>) {
        for one in outgoing {
            let begin = processor_time();
            let user = self.connections.whose(one.to);
            self.send(one);
            if let Some(user) = user {
                self.charge(user, begin);
            }
        }
    }

    /// Sends a reply; a lease whose reply gets through has begun.
    fn send(&mut self, outgoing: Outgoing) {
        let to = outgoing.to;
        let serial = outgoing.lease.as_ref().map(|(serial, _)| *serial);
        // Before the other end leaves, so that its end is never missed.
        if let Some(serial) = serial
            && let Some(queue) = self.connections.queue(to)
            && self.pool.ends.wait(serial, &queue).is_err()
        {
            let error = "out of descriptors".into();
            return self.step(Event::NotAllocated { serial, error });
        }
        let sent = self.connections.answer(outgoing);
        if let Some(serial) = serial.filter(|_| sent == Sent::Yes) {
            self.step(Event::Allocated(serial));
        }
        self.settle(to, sent);
    }

    /// Has the pipes of leases from before wait in their users' queues; out of descriptors, some
    /// do at a later tick.
    pub(super) fn wait_for_pipes(&mut self) {
        for serial in self.pool.ends.unwaited() {
            let leases = self.pool.machine.leases();
            let Some((uid, whose)) = leases.get(serial).map(|lease| (lease.uid, lease.whose))
            else {
                continue;
            };
            let (whose, is_bounded) = match whose {
                Whose::Grant(_) => (whose, true),
                // It may count as another since.
                _ => (
                    Whose::User(self.pool.user_of(uid)),
                    !self.pool.machine.rules().is_owner(uid),
                ),
            };
            let queue = self.turns.queue(whose, is_bounded);
            let waits = queue.and_then(|queue| self.pool.ends.wait(serial, &queue));
            if waits.is_err() {
                self.pool.ends.does_not_wait(serial);
            }
        }
    }

    /// Something happened to the pipe of a lease.
    pub(super) fn lease_pipe(&mut self, serial: Serial) {
        if self.pool.ends.is_over(serial) {
            self.step(Event::PipeClosed(serial));
        }
    }

    fn flush(&mut self, id: ConnectionId) {
        let sent = self.connections.flush(id);
        self.settle(id, sent);
    }

    fn settle(&mut self, id: ConnectionId, sent: Sent) {
        if let Sent::No(serial) = sent {
            if let Some(serial) = serial {
                self.step(Event::PipeClosed(serial));
            }
            self.close(id);
        }
    }

    /// Closes a connection when no user has its turn: that wakes whatever waits for it, which is its
    /// user's.
    pub(super) fn close_on_its_account(&mut self, id: ConnectionId) {
        let begin = processor_time();
        let user = self.connections.whose(id);
        self.close(id);
        if let Some(user) = user {
            self.charge(user, begin);
        }
    }

    /// Whether a user, or strangers if it is none, are in debt.
    fn must_wait(&self, user: Whose) -> bool {
        let now = Instant::now();
        if self.turns.knows(user) {
            self.turns.is_in_debt(user, now)
        } else {
            self.strangers.due(now).is_some()
        }
    }

    /// Ends connections that are due: of each user one, if it has not `had_one`, and more while it is not in debt.
    pub(super) fn close_due(&mut self, due: Vec<ConnectionId>, had_one: &mut BTreeSet<Whose>) {
        for id in due {
            let user = self.connections.whose(id);
            if user.is_some_and(|user| had_one.insert(user) || !self.must_wait(user)) {
                self.close_on_its_account(id);
            }
        }
    }

    /// Lets go of connections that were closed, and read meanwhile: of each user one, and more while it is not in debt.
    pub(super) fn let_go_of_read(&mut self, had_one: &mut BTreeSet<Whose>) {
        for user in self.connections.with_unread() {
            loop {
                let begin = processor_time();
                let was_one = self.connections.let_one_go(user);
                self.charge_user_or_strangers(user, begin);
                if was_one {
                    had_one.insert(user);
                }
                if !was_one || self.must_wait(user) {
                    break;
                }
            }
        }
    }

    /// What this thread has done since `begin` is on the account of a user, or of strangers if it has none.
    fn charge_user_or_strangers(&mut self, user: Whose, begin: Duration) -> Duration {
        let spent = processor_time().saturating_sub(begin);
        if !self.turns.spend(user, spent) {
            self.strangers.spend(spent, Instant::now());
        }
        spent
    }

    /// What this thread has done since `begin` is on the account of `user`, if it has one.
    pub(super) fn charge(&mut self, user: Whose, begin: Duration) -> bool {
        let spent = processor_time().saturating_sub(begin);
        self.turns.spend(user, spent)
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        self.step(Event::HungUp(id));
        if let Some(serial) = self.connections.close(id) {
            self.step(Event::PipeClosed(serial));
        }
    }
}
