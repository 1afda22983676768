//! The thread that looks up who connected, where that has to be read from files, so that the serving thread
//! never does.
//!
//! The cgroup of a process is in files of its own user's, who may have a lock or a lease on them, and reading them can
//! wait for locks of the kernel's that others hold; the owners of ranges of user numbers are in a file that
//! anybody may lock, and their names may have to be asked for. So a connection waits for this, and nothing else
//! does: one of each user in turn, and few of each. Where all places are taken, a user that has fewer, by two or
//! more, gets one of the user's that has most; root and the daemon's user have places of their own.

use super::budget::processor_time;
use crate::lease::Whose;
use crate::os::background;
use crate::os::peer::{Credentials, Peer};
use crate::os::subids::SubordinateIds;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Connections that may wait, but for the owner's, and no more than half of those that may be open.
const MOST: usize = 256;

/// Of these, of one user.
const MOST_OF_A_USER: usize = 64;

/// How often another thread looks whether `/etc/subuid` is another one.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A connection whose peer is to be looked up.
#[derive(Debug)]
pub(super) struct Unknown {
    pub(super) socket: OwnedFd,
    pub(super) credentials: Credentials,
    /// Whether it is root's, or the daemon's user's.
    pub(super) is_owner: bool,
    /// Whether its cgroup counts.
    pub(super) with_cgroup: bool,
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) socket: OwnedFd,
    /// The user that it counts as.
    pub(super) user: Whose,
    pub(super) peer: io::Result<Peer>,
    /// Whether it is root's, or the daemon's user's.
    is_owner: bool,
    /// Processor time that this took.
    pub(super) spent: Duration,
    /// Who owns which range, where that has changed.
    pub(super) ids: Option<SubordinateIds>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many may wait, but for the owner's.
    most: usize,
    /// By user, as far as that is known, the first first.
    unknown: BTreeMap<Whose, VecDeque<Unknown>>,
    /// The users of these, in turn.
    turns: VecDeque<Whose>,
    /// Those of others than the owner that wait, are being looked up, or known.
    of_others: usize,
    /// Of these users one is being looked up.
    under_way: Option<Whose>,
    known: Vec<Known>,
    is_over: bool,
}

impl Queue {
    fn next(&mut self) -> Option<Unknown> {
        let user = self.turns.pop_front()?;
        let of_user = self.unknown.get_mut(&user)?;
        let next = of_user.pop_front();
        if of_user.is_empty() {
            self.unknown.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        self.under_way = Some(user);
        next
    }

    fn of_user(&self, user: Whose) -> usize {
        let waiting = self.unknown.get(&user).map_or(0, VecDeque::len);
        waiting + usize::from(self.under_way == Some(user))
    }

    /// Takes the last one of the user that has most, where that has more than this user will have.
    fn give_up(&mut self, user: Whose) -> Option<(Whose, OwnedFd)> {
        let mine = self.of_user(user);
        let others = self.unknown.iter_mut();
        let others = others.filter(|(_, theirs)| theirs.iter().all(|one| !one.is_owner));
        let (most, theirs) = others.max_by_key(|(_, theirs)| theirs.len())?;
        let most = *most;
        if theirs.len() <= mine + 1 {
            return None;
        }
        let last = theirs.pop_back()?;
        self.of_others -= 1;
        Some((most, last.socket))
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something was added to the queue.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up_all(&self, look_up: impl Fn(Unknown) -> Known, wake: &OwnedFd) {
        let mut queue = self.lock();
        loop {
            if let Some(unknown) = queue.next() {
                drop(queue);
                let known = look_up(unknown);
                queue = self.lock();
                queue.under_way = None;
                queue.known.push(known);
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
            } else if queue.is_over {
                return;
            } else {
                let changed = self.changed.wait(queue);
                queue = changed.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// The serving thread's side.
#[derive(Debug)]
pub(super) struct Peers {
    shared: Arc<Shared>,
}

impl Peers {
    /// `wake` is made readable when something is known.
    pub(super) fn new(ids: SubordinateIds, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let file = ids.clone();
        let ids = Mutex::new(ids);
        let look_up = move |unknown| {
            let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
            look_up(unknown, &mut ids)
        };
        let peers = Self::with(look_up, wake)?;
        let shared = Arc::downgrade(&peers.shared);
        thread::Builder::new()
            .name("subuid".into())
            .spawn(move || {
                while shared.strong_count() > 0 {
                    thread::sleep(BETWEEN_LOOKS);
                    file.look();
                }
            })?;
        Ok(peers)
    }

    /// With another way to look up.
    fn with(
        look_up: impl Fn(Unknown) -> Known + Send + 'static,
        wake: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().most = MOST;
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("peers".into()).spawn(move || {
            // As the serving thread: clients wait for it, and the lock is one that both need.
            let _ = background::run_before_others();
            theirs.look_up_all(look_up, &wake);
        })?;
        Ok(Self { shared })
    }

    /// So many connections may be open from now on: half as many may wait.
    pub(super) fn limit(&self, connections: u32) {
        self.shared.lock().most = MOST.min(connections as usize / 2);
    }

    /// Whether so many of a user's wait that no other of that user's is to.
    pub(super) fn has_all(&self, user: Whose) -> bool {
        self.shared.lock().of_user(user) >= MOST_OF_A_USER
    }

    /// Has a peer looked up that counts as this user, as far as that is known; the owner's before others. Where too
    /// many wait, a connection and its user come back, to be turned away: this one, or one of a user that has more.
    pub(super) fn look_up(&self, user: Whose, unknown: Unknown) -> Option<(Whose, OwnedFd)> {
        let is_owner = unknown.is_owner;
        let mut queue = self.shared.lock();
        let is_full = !is_owner && queue.of_others >= queue.most;
        let given_up = is_full.then(|| queue.give_up(user)).flatten();
        if is_full && given_up.is_none() {
            return Some((user, unknown.socket));
        }
        queue.of_others += usize::from(!is_owner);
        let of_user = queue.unknown.entry(user).or_default();
        of_user.push_back(unknown);
        match of_user.len() {
            1 if is_owner => queue.turns.push_front(user),
            1 => queue.turns.push_back(user),
            _ => {}
        }
        self.shared.changed.notify_one();
        given_up
    }

    /// Leaves connections that wait to the end of this process.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }

    /// What is known since this was last asked, the first first.
    pub(super) fn known(&self) -> Vec<Known> {
        let mut queue = self.shared.lock();
        let known = std::mem::take(&mut queue.known);
        queue.of_others -= known.iter().filter(|one| !one.is_owner).count();
        known
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

fn look_up(unknown: Unknown, ids: &mut SubordinateIds) -> Known {
    let begin = processor_time();
    let Unknown {
        socket,
        credentials,
        is_owner,
        with_cgroup,
    } = unknown;
    let has_changed = ids.read();
    let user = ids.user_of(credentials.uid);
    Known {
        user: Whose::User(user),
        peer: credentials.peer(&socket, user, with_cgroup),
        is_owner,
        socket,
        spent: processor_time().saturating_sub(begin),
        ids: has_changed.then(|| ids.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::Whose::User;
    use super::*;
    use crate::os::ready;
    use rustix::event::EventfdFlags;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Instant;

    fn until(mut come: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !come() {
            assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn wake() -> Arc<OwnedFd> {
        Arc::new(rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap())
    }

    /// Some connection, of ours.
    fn unknown() -> Unknown {
        let socket: OwnedFd = UnixStream::pair().unwrap().0.into();
        Unknown {
            credentials: Credentials::of(&socket).unwrap(),
            is_owner: false,
            socket,
            with_cgroup: true,
        }
    }

    fn of_root() -> Unknown {
        Unknown {
            is_owner: true,
            ..unknown()
        }
    }

    #[test]
    fn one_of_each_user_in_turn_and_no_more_than_are_to_wait() {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let look_up = move |unknown: Unknown| {
            let _ = may_go_on.recv();
            look_up(unknown, &mut SubordinateIds::of_file("/nonexistent", &[]))
        };
        let wake = wake();
        let peers = Peers::with(look_up, Arc::clone(&wake)).unwrap();
        for _ in 0..MOST_OF_A_USER {
            assert!(!peers.has_all(User(1)));
            assert!(peers.look_up(User(1), unknown()).is_none());
        }
        until(|| peers.shared.lock().under_way == Some(User(1)));
        assert!(peers.has_all(User(1)) && !peers.has_all(User(2)));
        peers.look_up(User(3), unknown());
        peers.look_up(User(2), of_root());
        assert!(!ready::to_read(&wake).unwrap() && peers.known().is_empty());
        go_on.send(()).unwrap();
        // The owner's is behind no other.
        until(|| peers.shared.lock().under_way == Some(User(2)));
        let known = peers.known();
        assert_eq!(known.len(), 1);
        assert!(ready::to_read(&wake).unwrap() && !peers.has_all(User(1)));
        assert_eq!(known[0].peer.as_ref().unwrap().pid, std::process::id());
        go_on.send(()).unwrap();
        // The other user's is not behind all of the first's.
        go_on.send(()).unwrap();
        until(|| peers.shared.lock().under_way == Some(User(3)));
        drop(go_on);
    }

    #[test]
    fn users_with_all_places_keep_out_neither_root_nor_another_user() {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let look_up = move |unknown: Unknown| {
            let _ = may_go_on.recv();
            look_up(unknown, &mut SubordinateIds::of_file("/nonexistent", &[]))
        };
        let peers = Peers::with(look_up, wake()).unwrap();
        let of_user = |user| peers.shared.lock().of_user(user);
        for user in (1..=4).map(User) {
            for _ in 0..MOST_OF_A_USER {
                assert!(peers.look_up(user, unknown()).is_none());
            }
        }
        let of_others = || peers.shared.lock().of_others;
        assert_eq!(of_others(), MOST);
        until(|| peers.shared.lock().under_way == Some(User(1)));
        // Fewer may wait where fewer may be open.
        peers.limit(10);
        assert_eq!(peers.shared.lock().most, 5);
        peers.limit(1024);
        // Root's waits beside them, and is the next.
        assert!(peers.look_up(User(0), of_root()).is_none());
        go_on.send(()).unwrap();
        until(|| peers.shared.lock().under_way == Some(User(0)));
        // What is known already waits for the serving thread; root's is beside all of it.
        assert_eq!(of_others(), MOST);
        let before = [1, 2, 3, 4].map(|user| of_user(User(user)));
        for place in 1..=3 {
            let (of, _) = peers.look_up(User(5), unknown()).unwrap();
            assert!((User(1)..=User(4)).contains(&of), "{of:?}");
            assert_eq!(of_user(User(5)), place);
        }
        let after: usize = [1, 2, 3, 4].map(|user| of_user(User(user))).iter().sum();
        assert_eq!(before.iter().sum::<usize>() - after, 3);
        // One that has as many as any gets no other's.
        let (of, _) = peers.look_up(User(2), unknown()).unwrap();
        assert_eq!(of, User(2));
        assert_eq!(of_others(), MOST);
        // However many of root's wait, they take no other's place, and those of others that are known leave theirs.
        for _ in 0..MOST_OF_A_USER {
            assert!(peers.look_up(User(0), of_root()).is_none());
        }
        assert_eq!(of_others(), MOST);
        assert!(peers.has_all(User(0)), "64 of root's wait, too");
        let known = peers.known();
        assert!(!known.is_empty());
        assert_eq!(
            of_others(),
            MOST - known.iter().filter(|one| !one.is_owner).count()
        );
        drop(go_on);
    }

    #[test]
    fn ranges_that_have_changed_are_told_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut ids = SubordinateIds::of_file(file.path(), &[]);
        ids.read();
        let peers = Peers::new(ids.clone(), wake()).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        std::fs::write(&file, format!("1234:{uid}:1\n")).unwrap();
        until(|| !ids.is_current());
        let known = || {
            peers.look_up(User(uid), unknown());
            let mut known = Vec::new();
            until(|| {
                known.extend(peers.known());
                !known.is_empty()
            });
            known.remove(0)
        };
        let first = known();
        assert_eq!(first.user, User(1234));
        assert_eq!(first.peer.unwrap().user, 1234);
        ids = first.ids.unwrap();
        assert!(ids.is_current());
        assert_eq!(ids.user_of(uid), 1234);
        assert!(known().ids.is_none());
    }
}
