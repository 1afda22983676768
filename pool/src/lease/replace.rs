//! What is charged for slabs that are back and not replaced by clean ones yet.
//!
//! Were a charge credited as soon as its slab is emptied, a user with a quota of one slab
//! could take and give until no clean slab is left: zeroing is slower than that. So a
//! slab stays charged until no process can reach it *and* as many slabs have been filled for its user in
//! its class as that user's came back up to it. What a user has, and what it made the pool lose,
//! are together never more than its quota. A limit on bytes a second would do the
//! same only if it were right for every machine's speed of zeroing.

use super::quota::{Account, Charge};
use crate::store::Key;
use std::collections::BTreeMap;

/// A return: whose, and its number among that user's of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Return {
    user: u32,
    number: u64,
}

impl Return {
    /// Whose.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.user
    }
}

/// A user's returns of a class, and slabs that were filled for it since.
#[derive(Debug, Default)]
struct Counts {
    returned: u64,
    replaced: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Replacements {
    counts: BTreeMap<(Key, u32), Counts>,
    waiting: Vec<(Key, Return, Charge)>,
}

impl Replacements {
    /// A user's slab of the class is back.
    pub fn came_back(&mut self, key: Key, user: u32) -> Return {
        let counts = self.counts.entry((key, user)).or_default();
        counts.returned += 1;
        let number = counts.returned;
        Return { user, number }
    }

    /// Users for whom slabs of the class are to be filled yet, and how many.
    pub fn owed(&self, key: Key) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.counts.range((key, 0)..=(key, u32::MAX));
        let owed = counts.map(|((_, user), counts)| (*user, counts.returned - counts.replaced));
        owed.filter(|(_, slabs)| *slabs > 0)
    }

    /// No process can reach the slab of this return any more; its charge, if it can be
    /// credited at once.
    #[must_use]
    pub fn out_of_reach(&mut self, key: Key, returned: Return, charge: Charge) -> Option<Charge> {
        let counts = self.counts.get(&(key, returned.user));
        if charge.is_free() || counts.is_none_or(|counts| returned.number <= counts.replaced) {
            return Some(charge);
        }
        self.waiting.push((key, returned, charge));
        None
    }

    /// One more slab of the class is clean, in this user's turn; the charges to credit.
    #[must_use]
    pub fn became_clean(&mut self, key: Key, user: u32) -> Vec<Charge> {
        if let Some(counts) = self.counts.get_mut(&(key, user)) {
            counts.replaced = counts.returned.min(counts.replaced + 1);
        }
        self.replaced(key)
    }

    /// The class has all the slabs it is to have; the charges to credit.
    #[must_use]
    pub fn is_full(&mut self, key: Key) -> Vec<Charge> {
        for (_, counts) in self.counts.range_mut((key, 0)..=(key, u32::MAX)) {
            counts.replaced = counts.returned;
        }
        self.replaced(key)
    }

    /// Filling is turned off, so nothing is replaced: the charges to credit.
    #[must_use]
    pub fn none_is_replaced(&mut self) -> Vec<Charge> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(_, _, charge)| charge).collect()
    }

    /// Of what waits, the bytes that are charged to an account, and the class of the first.
    #[must_use]
    pub fn waiting(&self, account: &Account) -> Option<(Key, u64)> {
        let own = || {
            self.waiting
                .iter()
                .filter(|(_, _, charge)| charge.is_on(account))
        };
        let (key, _, _) = own().next()?;
        Some((*key, own().map(|(_, _, charge)| charge.bytes()).sum()))
    }

    fn replaced(&mut self, key: Key) -> Vec<Charge> {
        let counts = &self.counts;
        let is_replaced = |(class, returned, _): &mut (Key, Return, Charge)| {
            let counts = counts.get(&(key, returned.user));
            *class == key && counts.is_some_and(|counts| returned.number <= counts.replaced)
        };
        let credited = self.waiting.extract_if(.., is_replaced);
        credited.map(|(_, _, charge)| charge).collect()
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

    fn charge() -> Charge {
        let text = "[[quota]]\nuid = 7\nbytes = \"1M\"\n";
        let config = Config::parse(Path::new("test"), text).unwrap();
        let rules = Rules::new(&config, 0).unwrap();
        let peer = Peer {
            pid: 1,
            uid: 7,
            user: 7,
            gid: 7,
            groups: Vec::new(),
            cgroup: None,
        };
        Ledger::default().charge(&rules, &peer, 1).unwrap()
    }

    const USER: u32 = 7;
    const OTHER: u32 = 8;

    #[test]
    fn as_many_are_credited_as_were_filled_for_a_user_the_first_first() {
        let mut all = Replacements::default();
        let other = all.came_back(KEY, OTHER);
        assert_eq!(all.out_of_reach(KEY, other, charge()), None);
        let [first, second] = [(); 2].map(|()| all.came_back(KEY, USER));
        assert_eq!(all.out_of_reach(KEY, second, charge()), None);
        assert!(all.owed(KEY).eq([(USER, 2), (OTHER, 1)]));
        // The first is replaced, and still held by its client.
        assert_eq!(all.became_clean(KEY, USER), []);
        assert!(all.out_of_reach(KEY, first, charge()).is_some());
        assert_eq!(all.became_clean(KEY, USER).len(), 1);
        // Slabs beyond what came back are no credit for later, nor for another.
        assert_eq!(all.became_clean(KEY, USER), []);
        assert!(all.owed(KEY).eq([(OTHER, 1)]));
        let third = all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, third, charge()), None);
        assert_eq!(all.is_full(KEY).len(), 2);
        assert_eq!(all.owed(KEY).count(), 0);
    }

    #[test]
    fn the_owner_and_other_classes_wait_for_nothing() {
        let mut all = Replacements::default();
        let other = Key { bytes: 2, ..KEY };
        let first = all.came_back(KEY, USER);
        assert!(all.out_of_reach(KEY, first, Charge::default()).is_some());
        assert_eq!(all.out_of_reach(KEY, first, charge()), None);
        assert_eq!(all.became_clean(other, USER), []);
        assert_eq!(all.is_full(other), []);
        assert_eq!(all.became_clean(KEY, USER).len(), 1);
    }
}
