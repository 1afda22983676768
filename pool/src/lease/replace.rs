//! What is charged for slabs that are back and not replaced by clean ones yet.
//!
//! Were a charge credited as soon as its slab is emptied, a user with a quota of one slab
//! could take and give until no clean slab is left: zeroing is slower than that. So a
//! slab stays charged until no process can reach it *and* as many slabs have been filled for its user in
//! its class as that user's came back up to it. What a user has, and what it made the pool lose,
//! are together never more than its quota. A limit on bytes a second would do the
//! same only if it were right for every machine's speed of zeroing.

use super::quota::{Account, Charge};
use super::{Serial, Whose};
use crate::store::Key;
use std::collections::BTreeMap;

/// A return: whose, and its number among those of its class that count for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Return {
    whose: Whose,
    number: u64,
}

/// A charge for a slab that no process can reach any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Owed {
    /// What is charged.
    pub charge: Charge,
    /// The lease it had, if a client has had it: the journal keeps that until the charge is credited.
    pub lease: Option<Serial>,
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
    counts: BTreeMap<(Key, Whose), Counts>,
    waiting: Vec<(Key, Return, Owed)>,
}

impl Replacements {
    /// A user's slab of the class is back.
    pub fn came_back(&mut self, key: Key, whose: Whose) -> Return {
        let counts = self.counts.entry((key, whose)).or_default();
        counts.returned += 1;
        let number = counts.returned;
        Return { whose, number }
    }

    /// Users for whom slabs of the class are to be filled yet, and how many.
    pub fn owed(&self, key: Key) -> impl Iterator<Item = (Whose, u64)> {
        let counts = self.counts.range((key, Whose::FIRST)..=(key, Whose::LAST));
        let owed = counts.map(|((_, whose), counts)| (*whose, counts.returned - counts.replaced));
        owed.filter(|(_, slabs)| *slabs > 0)
    }

    /// No process can reach the slab of this return any more; its charge, if it can be
    /// credited at once.
    #[must_use]
    pub fn out_of_reach(&mut self, key: Key, returned: Return, owed: Owed) -> Option<Owed> {
        let counts = self.counts.get(&(key, returned.whose));
        if owed.charge.is_free() || counts.is_none_or(|counts| returned.number <= counts.replaced) {
            return Some(owed);
        }
        self.waiting.push((key, returned, owed));
        None
    }

    /// One more slab of the class is clean, in this user's turn; the charges to credit.
    #[must_use]
    pub fn became_clean(&mut self, key: Key, whose: Whose) -> Vec<Owed> {
        if let Some(counts) = self.counts.get_mut(&(key, whose)) {
            counts.replaced = counts.returned.min(counts.replaced + 1);
        }
        self.replaced(key)
    }

    /// The class has all the slabs it is to have; the charges to credit.
    #[must_use]
    pub fn is_full(&mut self, key: Key) -> Vec<Owed> {
        for (_, counts) in self
            .counts
            .range_mut((key, Whose::FIRST)..=(key, Whose::LAST))
        {
            counts.replaced = counts.returned;
        }
        self.replaced(key)
    }

    /// Filling is turned off, so nothing is replaced: the charges to credit.
    #[must_use]
    pub fn none_is_replaced(&mut self) -> Vec<Owed> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(_, _, owed)| owed).collect()
    }

    /// Of what waits, the bytes that are charged to an account, and the class of the first.
    #[must_use]
    pub fn waiting(&self, account: &Account) -> Option<(Key, u64)> {
        let own = || {
            self.waiting
                .iter()
                .filter(|(_, _, owed)| owed.charge.is_on(account))
        };
        let (key, _, _) = own().next()?;
        Some((*key, own().map(|(_, _, owed)| owed.charge.bytes()).sum()))
    }

    fn replaced(&mut self, key: Key) -> Vec<Owed> {
        let counts = &self.counts;
        let is_replaced = |(class, returned, _): &mut (Key, Return, Owed)| {
            let counts = counts.get(&(key, returned.whose));
            *class == key && counts.is_some_and(|counts| returned.number <= counts.replaced)
        };
        let credited = self.waiting.extract_if(.., is_replaced);
        credited.map(|(_, _, owed)| owed).collect()
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

    fn owed() -> Owed {
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
        Owed {
            charge: Ledger::default().charge(&rules, &peer, 1).unwrap(),
            lease: None,
        }
    }

    const USER: Whose = Whose::User(7);
    const OTHER: Whose = Whose::User(8);

    #[test]
    fn as_many_are_credited_as_were_filled_for_a_user_the_first_first() {
        let mut all = Replacements::default();
        let other = all.came_back(KEY, OTHER);
        assert_eq!(all.out_of_reach(KEY, other, owed()), None);
        let [first, second] = [(); 2].map(|()| all.came_back(KEY, USER));
        assert_eq!(all.out_of_reach(KEY, second, owed()), None);
        assert!(all.owed(KEY).eq([(USER, 2), (OTHER, 1)]));
        // The first is replaced, and still held by its client.
        assert_eq!(all.became_clean(KEY, USER), []);
        assert!(all.out_of_reach(KEY, first, owed()).is_some());
        assert_eq!(all.became_clean(KEY, USER).len(), 1);
        // Slabs beyond what came back are no credit for later, nor for another.
        assert_eq!(all.became_clean(KEY, USER), []);
        assert!(all.owed(KEY).eq([(OTHER, 1)]));
        let third = all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, third, owed()), None);
        assert_eq!(all.is_full(KEY).len(), 2);
        assert_eq!(all.owed(KEY).count(), 0);
    }

    #[test]
    fn the_owner_and_other_classes_wait_for_nothing() {
        let mut all = Replacements::default();
        let other = Key { bytes: 2, ..KEY };
        let first = all.came_back(KEY, USER);
        let free = Owed {
            charge: Charge::default(),
            lease: None,
        };
        assert!(all.out_of_reach(KEY, first, free).is_some());
        assert_eq!(all.out_of_reach(KEY, first, owed()), None);
        assert_eq!(all.became_clean(other, USER), []);
        assert_eq!(all.is_full(other), []);
        assert_eq!(all.became_clean(KEY, USER).len(), 1);
    }
}
