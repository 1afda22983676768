//! Whose request is handled next: one of each user in turn, and of each user its
//! connections in turn.
//!
//! The connections of a user are [`Events`] of their own, and that is one source
//! of the daemon's. So a turn costs as many requests as there are users with any, however
//! many connections they come over, and a user over its [`Budget`] is set aside by asking for one
//! source less. Of a user the kernel goes through what is ready in turn.

use super::budget::{Budget, MOST_DEBT};
use super::events::{Event, Events, Source};
use crate::lease::Whose;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A user with connections, or with less than its whole budget.
#[derive(Debug)]
struct User {
    queue: Rc<Events>,
    /// None for users that are not held back.
    budget: Option<Budget>,
    /// Since when it has no turn, while it has none.
    aside_since: Option<Instant>,
}

impl User {
    fn is_gone(&self, now: Instant) -> bool {
        let is_whole = self.budget.is_none_or(|budget| budget.is_full(now));
        Rc::strong_count(&self.queue) == 1 && is_whole
    }
}

/// All users.
#[derive(Debug, Default)]
pub(super) struct Turns {
    users: BTreeMap<Whose, User>,
    /// Users that are set aside, and until when.
    aside: BTreeSet<(Instant, Whose)>,
}

impl Turns {
    /// The queue of a user, for a new connection. One that is not `bounded` is not held back.
    pub(super) fn queue(&mut self, whose: Whose, bounded: bool) -> io::Result<Rc<Events>> {
        if let Some(user) = self.users.get(&whose) {
            return Ok(Rc::clone(&user.queue));
        }
        let queue = Rc::new(Events::new()?);
        let user = User {
            queue: Rc::clone(&queue),
            budget: bounded.then(|| Budget::full(Instant::now())),
            aside_since: None,
        };
        self.users.insert(whose, user);
        Ok(queue)
    }

    /// Those that may have a turn, to be waited for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>)> {
        let users = self
            .users
            .iter()
            .filter(|(_, user)| user.aside_since.is_none());
        users.map(|(whose, user)| (Source::Queue(*whose), user.queue.as_fd()))
    }

    /// Whether a user has no turn for now, until [`Turns::wait`] is over.
    pub(super) fn is_aside(&self, whose: Whose) -> bool {
        let user = self.users.get(&whose);
        user.is_some_and(|user| user.aside_since.is_some())
    }

    /// Whether something is on the account of this user.
    pub(super) fn knows(&self, whose: Whose) -> bool {
        self.users.contains_key(&whose)
    }

    /// Whether a user has to wait for its next turn.
    pub(super) fn is_in_debt(&self, whose: Whose, now: Instant) -> bool {
        let budget = self.users.get(&whose).and_then(|user| user.budget);
        budget.is_some_and(|budget| budget.due(now).is_some())
    }

    /// What is next of a user; [`Turns::spend`] must follow.
    pub(super) fn next(&self, whose: Whose) -> Option<Event> {
        self.users.get(&whose)?.queue.next().ok()?
    }

    /// Subtracts what was done for a user from its budget, and sets a user in debt aside; whether there is such a user.
    pub(super) fn spend(&mut self, whose: Whose, spent: Duration) -> bool {
        let Some(user) = self.users.get_mut(&whose) else {
            return false;
        };
        let Some(budget) = &mut user.budget else {
            return true;
        };
        let now = Instant::now();
        budget.spend(spent, now);
        if let Some(due) = budget.due(now).filter(|_| user.aside_since.is_none()) {
            user.aside_since = Some(now);
            self.aside.insert((due, whose));
        }
        true
    }

    /// Users out of debt have their turn again; and one after [`MOST_DEBT`], whatever came on top: a process that
    /// connects without pause, say, holds up no other of its user for longer.
    pub(super) fn go_on(&mut self, now: Instant) {
        while let Some((due, whose)) = self.aside.first().copied()
            && due <= now
        {
            self.aside.pop_first();
            let Some(user) = self.users.get_mut(&whose) else {
                continue;
            };
            // It may have cost more meanwhile: a connection, or an answer that took long.
            let later = user.budget.and_then(|budget| budget.due(now));
            let last = user.aside_since.map(|since| since + MOST_DEBT);
            let later = later.zip(last).map(|(later, last)| later.min(last));
            if let Some(later) = later.filter(|later| *later > now) {
                self.aside.insert((later, whose));
            } else {
                user.aside_since = None;
            }
        }
    }

    /// Until the next user is out of debt.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let (due, _) = self.aside.first()?;
        Some(due.saturating_duration_since(now))
    }

    /// Forgets users without connections, once nothing is to be remembered of them. What they had is the caller's
    /// to close.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<(Whose, Events)> {
        let gone = self.users.iter().filter(|(_, user)| user.is_gone(now));
        let gone: Vec<_> = gone.map(|(whose, _)| *whose).collect();
        let queue = |whose| Some((whose, Rc::into_inner(self.users.remove(&whose)?.queue)?));
        gone.into_iter().filter_map(queue).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::BURST;
    use super::super::events::{Theirs, wait_for};
    use super::*;
    use std::os::unix::net::UnixStream;

    const FLOOD: Whose = Whose::User(1000);
    const OTHER: Whose = Whose::User(1001);

    /// Users with connections that always have a request.
    struct Flood {
        turns: Turns,
        _queues: Vec<Rc<Events>>,
        _ends: Vec<(UnixStream, UnixStream)>,
    }

    impl Flood {
        fn new(users: &[(Whose, u64)], bounded: bool) -> Self {
            let mut turns = Turns::default();
            let (mut queues, mut ends) = (Vec::new(), Vec::new());
            for (first, (whose, connections)) in (1000..).zip(users) {
                let queue = turns.queue(*whose, bounded).unwrap();
                for number in 0..*connections {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    rustix::io::write(&theirs, b"x").unwrap();
                    let source = Theirs::Connection(first * 1000 + number);
                    queue.add(source, &ours, true).unwrap();
                    ends.push((ours, theirs));
                }
                queues.push(queue);
            }
            Self {
                turns,
                _queues: queues,
                _ends: ends,
            }
        }

        /// The connections served in a turn.
        fn turn(&mut self, spent: Duration) -> Vec<u64> {
            let mut order = Vec::new();
            let sources: Vec<_> = self.turns.sources().collect();
            for source in wait_for(&sources, Duration::ZERO).unwrap() {
                let Source::Queue(whose) = source else {
                    panic!("{source:?}");
                };
                if let Theirs::Connection(number) = self.turns.next(whose).unwrap().source {
                    order.push(number);
                }
                self.turns.spend(whose, spent);
            }
            order
        }
    }

    #[test]
    fn one_request_of_each_user_in_a_turn_and_its_connections_in_turn() {
        let mut flood = Flood::new(&[(FLOOD, 5), (OTHER, 1)], false);
        for round in 0..10 {
            let mut order = flood.turn(Duration::from_secs(1));
            order.sort_unstable();
            assert_eq!(order, [1_000_000 + round % 5, 1_001_000]);
        }
    }

    #[test]
    fn a_user_in_debt_is_set_aside_until_it_is_repaid() {
        let mut flood = Flood::new(&[(FLOOD, 2)], true);
        let begin = Instant::now();
        assert!(flood.turns.knows(FLOOD) && !flood.turns.knows(OTHER));
        assert!(!flood.turns.is_in_debt(FLOOD, begin));
        assert_eq!(flood.turn(BURST + Duration::from_millis(50)).len(), 1);
        assert!(flood.turn(Duration::ZERO).is_empty());
        assert!(flood.turns.is_in_debt(FLOOD, begin) && flood.turns.is_aside(FLOOD));
        let wait = flood.turns.wait(begin).unwrap();
        assert!(wait >= Duration::from_millis(400), "{wait:?}");
        // What is spent meanwhile comes on top.
        flood.turns.spend(FLOOD, Duration::from_millis(10));
        flood.turns.go_on(begin + wait);
        let longer = flood.turns.wait(begin).unwrap();
        assert!(longer >= Duration::from_millis(480), "{longer:?}");
        // No sooner, and not for a new connection either.
        flood._ends.clear();
        flood._queues.clear();
        let almost = begin + longer - Duration::from_millis(1);
        flood.turns.go_on(almost);
        assert!(flood.turns.sweep(almost).is_empty());
        let queue = flood.turns.queue(FLOOD, true).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        queue.add(Theirs::Connection(7), &ours, true).unwrap();
        rustix::io::write(&theirs, b"x").unwrap();
        assert!(flood.turn(Duration::ZERO).is_empty());
        let due = begin + Duration::from_secs(3600);
        flood.turns.go_on(due);
        assert_eq!(flood.turn(Duration::ZERO), [7]);
    }

    #[test]
    fn a_user_has_a_turn_a_second_whatever_is_spent_meanwhile() {
        let mut flood = Flood::new(&[(FLOOD, 1)], true);
        let begin = Instant::now();
        assert_eq!(flood.turn(BURST + MOST_DEBT).len(), 1);
        let mut now = begin;
        while flood.turns.is_aside(FLOOD) {
            now += Duration::from_millis(10);
            // As a process does that connects without pause.
            let user = flood.turns.users.get_mut(&FLOOD).unwrap();
            user.budget.as_mut().unwrap().spend(MOST_DEBT, now);
            flood.turns.go_on(now);
        }
        let waited = now - begin;
        let second = MOST_DEBT..MOST_DEBT + Duration::from_millis(500);
        assert!(second.contains(&waited), "{waited:?}");
        assert_eq!(flood.turn(Duration::from_millis(1)).len(), 1);
        assert!(flood.turns.is_aside(FLOOD));
    }

    #[test]
    fn a_user_without_connections_is_forgotten_when_its_budget_is_whole() {
        let mut flood = Flood::new(&[(FLOOD, 1), (OTHER, 1)], true);
        flood.turn(Duration::from_millis(1));
        flood._queues.pop();
        let now = Instant::now();
        let gone = flood.turns.sweep(now + Duration::from_secs(1));
        assert!(gone.iter().map(|(whose, _)| *whose).eq([OTHER]));
        assert!(flood.turns.users.keys().eq([&FLOOD]));
    }
}
