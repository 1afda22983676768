//! What is charged for slabs that are back and not replaced by clean ones yet.
//!
//! Were a charge credited as soon as its slab is emptied, a user with a quota of one slab
//! could take and give until no clean slab is left: zeroing is slower than that. So a
//! slab stays charged until no process can reach it *and* a slab of its class was filled in its user's turn.
//! What a user has, and what it made the pool lose,
//! are together never more than its quota. A limit on bytes a second would do the
//! same only if it were right for every machine's speed of zeroing.
//!
//! What is filled in the turn of a user that can still reach all that it gave back was filled with pages that others
//! gave back, if they wait: it takes the place of the oldest of theirs.

use super::quota::{Account, Charge};
use super::{Serial, Whose};
use crate::store::Key;
use std::collections::BTreeMap;

/// A charge for a slab that no process can reach any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Owed {
    /// What is charged.
    pub charge: Charge,
    /// The lease it had, if a client has had it: the journal keeps that until the charge is credited.
    pub lease: Option<Serial>,
}

/// Slabs of a class that a user gave back.
#[derive(Debug, Default)]
struct Counts {
    /// Those that a process may still reach.
    reachable: u64,
    /// Of these, those that were replaced already.
    replaced: u64,
    /// Out of reach, and not replaced yet.
    waiting: u64,
}

impl Counts {
    fn owed(&self) -> u64 {
        self.reachable - self.replaced + self.waiting
    }
}

/// One that waits for a clean slab. What is charged to nobody waits in its user's turn as well.
#[derive(Debug)]
struct Waiting {
    key: Key,
    whose: Whose,
    owed: Option<Owed>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Replacements {
    /// Of users with any.
    counts: BTreeMap<(Key, Whose), Counts>,
    /// The oldest first.
    waiting: Vec<Waiting>,
}

impl Replacements {
    /// A user's slab of the class is back; [`Replacements::out_of_reach`] must follow.
    pub fn came_back(&mut self, key: Key, whose: Whose) {
        self.counts.entry((key, whose)).or_default().reachable += 1;
    }

    /// Users for whom slabs of the class are to be filled yet, and how many.
    pub fn owed(&self, key: Key) -> impl Iterator<Item = (Whose, u64)> {
        let owed = self
            .of_class(key)
            .map(|(whose, counts)| (whose, counts.owed()));
        owed.filter(|(_, slabs)| *slabs > 0)
    }

    /// Users of whose slabs of the class some are out of reach, and wait for clean ones.
    pub fn waiting(&self, key: Key) -> impl Iterator<Item = Whose> {
        let waiting = self.of_class(key).filter(|(_, counts)| counts.waiting > 0);
        waiting.map(|(whose, _)| whose)
    }

    fn of_class(&self, key: Key) -> impl Iterator<Item = (Whose, &Counts)> {
        let counts = self.counts.range((key, Whose::FIRST)..=(key, Whose::LAST));
        counts.map(|((_, whose), counts)| (*whose, counts))
    }

    /// No process can reach one of a user's slabs any more that came back; its charge, if it can be credited at
    /// once.
    #[must_use]
    pub fn out_of_reach(&mut self, key: Key, whose: Whose, owed: Owed) -> Option<Owed> {
        let counts = self.counts.entry((key, whose)).or_default();
        counts.reachable = counts.reachable.saturating_sub(1);
        if counts.replaced > 0 {
            counts.replaced -= 1;
            self.forget_if_empty(key, whose);
            return Some(owed);
        }
        counts.waiting += 1;
        let (waits, credited) = if owed.charge.is_free() {
            (None, Some(owed))
        } else {
            (Some(owed), None)
        };
        self.waiting.push(Waiting {
            key,
            whose,
            owed: waits,
        });
        credited
    }

    /// One more slab of the class is clean, in this user's turn; the charge to credit.
    #[must_use]
    pub fn became_clean(&mut self, key: Key, whose: Whose) -> Option<Owed> {
        let oldest = |of: Option<Whose>| {
            let is_it = |one: &Waiting| one.key == key && of.is_none_or(|of| of == one.whose);
            self.waiting.iter().position(is_it)
        };
        let Some(oldest) = oldest(Some(whose)).or_else(|| oldest(None)) else {
            if let Some(counts) = self.counts.get_mut(&(key, whose)) {
                counts.replaced = counts.reachable.min(counts.replaced + 1);
            }
            return None;
        };
        let replaced = self.waiting.remove(oldest);
        if let Some(counts) = self.counts.get_mut(&(key, replaced.whose)) {
            counts.waiting -= 1;
        }
        self.forget_if_empty(key, replaced.whose);
        replaced.owed
    }

    /// The class has all the slabs it is to have; the charges to credit.
    #[must_use]
    pub fn is_full(&mut self, key: Key) -> Vec<Owed> {
        let of_class = (key, Whose::FIRST)..=(key, Whose::LAST);
        for (_, counts) in self.counts.range_mut(of_class) {
            counts.replaced = counts.reachable;
        }
        self.none_waits(|class| class == key)
    }

    /// Filling is turned off, so nothing is replaced: the charges to credit.
    #[must_use]
    pub fn none_is_replaced(&mut self) -> Vec<Owed> {
        self.none_waits(|_| true)
    }

    /// Of what waits, the bytes that are charged to an account, and the class of the first.
    #[must_use]
    pub fn waiting_bytes(&self, account: &Account) -> Option<(Key, u64)> {
        let of_account = self.waiting.iter().filter_map(|waiting| {
            let charge = &waiting.owed.as_ref()?.charge;
            charge.is_on(account).then(|| (waiting.key, charge.bytes()))
        });
        of_account.reduce(|(key, sum), (_, bytes)| (key, sum + bytes))
    }

    fn none_waits(&mut self, is_class: impl Fn(Key) -> bool) -> Vec<Owed> {
        self.counts.retain(|(key, _), counts| {
            if is_class(*key) {
                counts.waiting = 0;
            }
            counts.waiting + counts.reachable > 0
        });
        let credited = self.waiting.extract_if(.., |waiting| is_class(waiting.key));
        credited.filter_map(|waiting| waiting.owed).collect()
    }

    fn forget_if_empty(&mut self, key: Key, whose: Whose) {
        let is_empty = |counts: &Counts| counts.waiting + counts.reachable == 0;
        if self.counts.get(&(key, whose)).is_some_and(is_empty) {
            self.counts.remove(&(key, whose));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::lease::quota::{Ledger, Rules};
    use crate::os::peer::Peer;
    use crate::protocol::PageSize;
    use std::path::Path;

    const KEY: Key = Key {
        page: PageSize::Huge,
        node: None,
        bytes: 1,
    };

    /// A byte, charged to this user.
    fn owed(uid: u32) -> Owed {
        let text = format!("[[quota]]\nuid = {uid}\nbytes = \"1M\"\n");
        let config = Config::parse(Path::new("test"), &text).unwrap();
        let rules = Rules::new(&config, 0).unwrap();
        let peer = Peer {
            pid: 1,
            uid,
            user: uid,
            gid: uid,
            groups: Vec::new(),
            cgroup: None,
        };
        Owed {
            charge: Ledger::default().charge(&rules, &peer, 1).unwrap(),
            lease: None,
        }
    }

    const USER: Whose = Whose::User(7);
    const OTHER: Whose = Whose::User(8);
    const THIRD: Whose = Whose::User(9);

    #[test]
    fn as_many_are_credited_as_were_filled_in_a_users_turn() {
        let mut all = Replacements::default();
        all.came_back(KEY, OTHER);
        for _ in 0..2 {
            all.came_back(KEY, USER);
        }
        // Both are replaced while its client can still reach them: each is credited once it cannot.
        assert!(all.owed(KEY).eq([(USER, 2), (OTHER, 1)]));
        assert_eq!(all.became_clean(KEY, USER), None);
        assert_eq!(all.became_clean(KEY, USER), None);
        // Slabs beyond what came back are no credit for later, nor for another.
        assert_eq!(all.became_clean(KEY, USER), None);
        assert!(all.owed(KEY).eq([(OTHER, 1)]));
        assert_eq!(all.out_of_reach(KEY, OTHER, owed(8)), None);
        assert!(all.waiting(KEY).eq([OTHER]));
        for _ in 0..2 {
            assert!(all.out_of_reach(KEY, USER, owed(7)).is_some());
        }
        all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, USER, owed(7)), None);
        assert_eq!(all.became_clean(KEY, USER), Some(owed(7)));
        assert_eq!(all.is_full(KEY), [owed(8)]);
        // Nothing is left of them.
        assert!(all.counts.is_empty() && all.waiting.is_empty());
    }

    #[test]
    fn what_is_filled_for_one_that_reaches_its_own_takes_the_place_of_the_oldest_that_waits() {
        let mut all = Replacements::default();
        all.came_back(KEY, USER);
        for whose in [OTHER, THIRD] {
            all.came_back(KEY, whose);
            let Whose::User(uid) = whose else { panic!() };
            assert_eq!(all.out_of_reach(KEY, whose, owed(uid)), None);
        }
        assert_eq!(all.became_clean(KEY, USER), Some(owed(8)));
        assert!(all.owed(KEY).eq([(USER, 1), (THIRD, 1)]));
        // What waits of its own comes first.
        assert_eq!(all.out_of_reach(KEY, USER, owed(7)), None);
        assert_eq!(all.became_clean(KEY, USER), Some(owed(7)));
        assert_eq!(all.became_clean(KEY, THIRD), Some(owed(9)));
        assert!(all.counts.is_empty() && all.waiting.is_empty());
    }

    #[test]
    fn the_owner_and_other_classes_wait_for_nothing() {
        let mut all = Replacements::default();
        let other = Key { bytes: 2, ..KEY };
        let free = Owed {
            charge: Charge::default(),
            lease: None,
        };
        for _ in 0..2 {
            all.came_back(KEY, USER);
        }
        assert!(all.out_of_reach(KEY, USER, free).is_some());
        assert_eq!(all.out_of_reach(KEY, USER, owed(7)), None);
        assert_eq!(all.became_clean(other, USER), None);
        assert_eq!(all.is_full(other), []);
        // Both are filled in its turn, of which one was charged.
        assert!(all.owed(KEY).eq([(USER, 2)]));
        assert_eq!(all.became_clean(KEY, USER), None);
        assert_eq!(all.became_clean(KEY, USER), Some(owed(7)));
        assert_eq!(all.owed(KEY).count(), 0);
    }

    #[test]
    fn nothing_waits_while_nothing_is_filled() {
        let mut all = Replacements::default();
        for _ in 0..2 {
            all.came_back(KEY, USER);
        }
        assert_eq!(all.out_of_reach(KEY, USER, owed(7)), None);
        let account = owed(7).charge.accounts().first().cloned().unwrap();
        assert_eq!(all.waiting_bytes(&account), Some((KEY, 1)));
        assert_eq!(all.none_is_replaced(), [owed(7)]);
        assert_eq!(all.waiting_bytes(&account), None);
        // The other is to be filled, once that goes on.
        assert!(all.owed(KEY).eq([(USER, 1)]));
    }
}
