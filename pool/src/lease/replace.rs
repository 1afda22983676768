//! What is charged for slabs that are back and not replaced by clean ones yet.
//!
//! Were a charge credited as soon as its slab is emptied, a user with a quota of one slab
//! could take and give until no clean slab is left: zeroing is slower than that. So a
//! slab stays charged until no process can reach it *and* as many slabs have become clean in
//! its class as came back up to it. What a user has, and what it made the pool lose,
//! are together never more than its quota. A limit on bytes a second would do the
//! same only if it were right for every machine's speed of zeroing.

use super::quota::{Account, Charge};
use crate::store::Key;
use std::collections::BTreeMap;

/// The number of a return in its class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Return(u64);

/// Returns of a class, and slabs that became clean since.
#[derive(Debug, Default)]
struct Counts {
    returned: u64,
    replaced: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Replacements {
    classes: BTreeMap<Key, Counts>,
    waiting: Vec<(Key, Return, Charge)>,
}

impl Replacements {
    /// A slab of the class is back.
    pub fn came_back(&mut self, key: Key) -> Return {
        let counts = self.classes.entry(key).or_default();
        counts.returned += 1;
        Return(counts.returned)
    }

    /// No process can reach the slab of this return any more; its charge, if it can be
    /// credited at once.
    #[must_use]
    pub fn out_of_reach(&mut self, key: Key, returned: Return, charge: Charge) -> Option<Charge> {
        let counts = self.classes.get(&key);
        if charge.is_free() || counts.is_none_or(|counts| returned.0 <= counts.replaced) {
            return Some(charge);
        }
        self.waiting.push((key, returned, charge));
        None
    }

    /// One more slab of the class is clean; the charges to credit.
    #[must_use]
    pub fn became_clean(&mut self, key: Key) -> Vec<Charge> {
        self.replace(key, 1)
    }

    /// The class has all the slabs it is to have; the charges to credit.
    #[must_use]
    pub fn is_full(&mut self, key: Key) -> Vec<Charge> {
        self.replace(key, u64::MAX)
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

    fn replace(&mut self, key: Key, slabs: u64) -> Vec<Charge> {
        let Some(counts) = self.classes.get_mut(&key) else {
            return Vec::new();
        };
        let missing = counts.returned - counts.replaced;
        counts.replaced += missing.min(slabs);
        let replaced = counts.replaced;
        let is_replaced = |(class, returned, _): &mut (Key, Return, Charge)| {
            *class == key && returned.0 <= replaced
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

    #[test]
    fn as_many_are_credited_as_became_clean_the_first_first() {
        let mut all = Replacements::default();
        let (first, second) = (all.came_back(KEY), all.came_back(KEY));
        assert_eq!(all.out_of_reach(KEY, second, charge()), None);
        // The first is replaced, and still held by its client.
        assert_eq!(all.became_clean(KEY), []);
        assert!(all.out_of_reach(KEY, first, charge()).is_some());
        assert_eq!(all.became_clean(KEY).len(), 1);
        // Slabs beyond what came back are no credit for later.
        assert_eq!(all.became_clean(KEY), []);
        let third = all.came_back(KEY);
        assert_eq!(all.out_of_reach(KEY, third, charge()), None);
        assert_eq!(all.is_full(KEY).len(), 1);
    }

    #[test]
    fn the_owner_and_other_classes_wait_for_nothing() {
        let mut all = Replacements::default();
        let other = Key { bytes: 2, ..KEY };
        let first = all.came_back(KEY);
        assert!(all.out_of_reach(KEY, first, Charge::default()).is_some());
        assert_eq!(all.out_of_reach(KEY, first, charge()), None);
        assert_eq!(all.became_clean(other), []);
        assert_eq!(all.is_full(other), []);
        assert_eq!(all.became_clean(KEY).len(), 1);
    }
}
