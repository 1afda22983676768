//! Whose request is handled next: users in turn, and of each user its
//! connections in turn.
//!
//! A turn is what happens between two waits. Each user gets as many requests
//! handled in it as any other, however many connections they come over; what is
//! left is handled in the next turn, from the next connection on.

use super::connections::ConnectionId;
use std::collections::{BTreeMap, VecDeque};

/// Requests of one user in one turn: what another user waits for at most.
const REQUESTS_A_USER: u32 = 2;

/// A user with requests.
#[derive(Debug)]
struct User {
    uid: u32,
    ready: VecDeque<ConnectionId>,
    left: u32,
}

/// One turn.
#[derive(Debug)]
pub(super) struct Turn {
    users: VecDeque<User>,
}

/// The connection of each user that was served last.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<u32, ConnectionId>);

impl Turns {
    /// A turn for connections that have requests, with their users.
    pub(super) fn begin(&mut self, ready: impl Iterator<Item = (u32, ConnectionId)>) -> Turn {
        let mut by_user: BTreeMap<u32, Vec<ConnectionId>> = BTreeMap::new();
        for (uid, id) in ready {
            by_user.entry(uid).or_default().push(id);
        }
        // A user without requests has no last one to go on from.
        self.0.retain(|uid, _| by_user.contains_key(uid));
        let users = by_user.into_iter().map(|(uid, mut ready)| {
            ready.sort_unstable();
            let last = self.0.get(&uid).copied();
            let next = ready.partition_point(|id| last.is_some_and(|last| *id <= last));
            ready.rotate_left(next);
            User {
                uid,
                ready: ready.into(),
                left: REQUESTS_A_USER,
            }
        });
        Turn {
            users: users.collect(),
        }
    }

    /// The next connection to read one request from, if the turn is not over.
    /// [`Turn::done`] must follow.
    pub(super) fn next(&mut self, turn: &mut Turn) -> Option<ConnectionId> {
        let user = turn.users.front_mut()?;
        let id = user.ready.pop_front()?;
        user.left -= 1;
        self.0.insert(user.uid, id);
        Some(id)
    }
}

impl Turn {
    /// The request was handled; `more` where the connection may have another.
    pub(super) fn done(&mut self, id: ConnectionId, more: bool) {
        let Some(mut user) = self.users.pop_front() else {
            return;
        };
        if more {
            user.ready.push_back(id);
        }
        if user.left > 0 && !user.ready.is_empty() {
            self.users.push_back(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a turn in which connections always have more; users by the tens of the number.
    fn served(turns: &mut Turns, ready: &[ConnectionId]) -> Vec<ConnectionId> {
        let with_user = ready
            .iter()
            .map(|id| (u32::try_from(*id / 100).unwrap(), *id));
        let mut turn = turns.begin(with_user);
        let mut order = Vec::new();
        while let Some(id) = turns.next(&mut turn) {
            order.push(id);
            turn.done(id, true);
        }
        order
    }

    #[test]
    fn each_user_gets_the_same_number_of_requests() {
        let mut turns = Turns::default();
        let flood: Vec<_> = (100..150).chain([200]).collect();
        let order = served(&mut turns, &flood);
        assert_eq!(order[..4], [100, 200, 101, 200]);
        assert_eq!(order.iter().filter(|id| **id == 200).count(), 2);
        assert_eq!(order.len(), 4);
        // The next turn goes on behind the last connection that was served.
        assert_eq!(served(&mut turns, &flood)[0], 102);
        for _ in 0..23 {
            served(&mut turns, &flood);
        }
        // All of its connections have had their turn.
        assert_eq!(served(&mut turns, &flood)[..4], [100, 200, 101, 200]);
    }

    #[test]
    fn a_connection_without_more_is_left_out() {
        let mut turns = Turns::default();
        let mut turn = turns.begin([(1, 5), (1, 6)].into_iter());
        for expected in [5, 6] {
            let id = turns.next(&mut turn).unwrap();
            assert_eq!(id, expected);
            turn.done(id, false);
        }
        assert_eq!(turns.next(&mut turn), None);
    }
}
