//! What is charged for slabs that are back and not replaced by clean ones yet.
//!
//! Were a charge credited as soon as its slab is emptied, a user with a quota of one slab
//! could take and give until no clean slab is left: zeroing is slower than that. So a
//! slab stays charged until no process can reach it *and* a slab of its class was filled in its user's turn.
//! What a user has, and what it made the pool lose,
//! are together never more than its quota. A limit on bytes a second would do the
//! same only if it were right for every machine's speed of zeroing.
//!
//! Pages that a user gave back are promised to what takes that slab's place: nothing else is filled with them. A slab
//! whose memory was not found after a restart may still be somewhere: what takes its place has no such pages.

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
    /// Those whose pages are not back: a process has them pinned, or draws them again.
    held: u64,
    /// Those that a process may still reach, and that have no pages.
    reachable: u64,
    /// Of both, those that were replaced already.
    replaced: u64,
    /// Out of reach, and not replaced yet.
    waiting: u64,
    /// Of these, those whose pages were not seen to come back.
    unseen: u64,
}

impl Counts {
    fn owed(&self) -> u64 {
        self.held + self.reachable + self.waiting - self.replaced
    }

    /// Those that can be replaced with the pages that came back.
    fn promised(&self) -> u64 {
        self.waiting - self.unseen + self.reachable.saturating_sub(self.replaced)
    }

    fn is_empty(&self) -> bool {
        self.held + self.reachable + self.waiting == 0
    }
}

/// For whom slabs of a class are to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwedTo {
    /// A user.
    pub whose: Whose,
    /// How many.
    pub slabs: u64,
    /// Whether the pages of one are back.
    pub has_pages: bool,
}

/// One that waits for a clean slab. What is charged to nobody waits in its user's turn as well.
#[derive(Debug)]
struct Waiting {
    key: Key,
    whose: Whose,
    owed: Option<Owed>,
    has_pages: bool,
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
    fn of(&mut self, key: Key, whose: Whose) -> &mut Counts {
        self.counts.entry((key, whose)).or_default()
    }

    /// A user's slab of the class is on its way back; [`Replacements::out_of_reach`] must follow.
    pub fn came_back(&mut self, key: Key, whose: Whose) {
        self.of(key, whose).held += 1;
    }

    /// The pages of one of a user's slabs are back, or are not any more.
    pub fn has_pages(&mut self, key: Key, whose: Whose, are_back: bool) {
        let counts = self.of(key, whose);
        let (from, to) = if are_back {
            (&mut counts.held, &mut counts.reachable)
        } else {
            (&mut counts.reachable, &mut counts.held)
        };
        *from = from.saturating_sub(1);
        *to += 1;
    }

    /// For whom slabs of the class are to be filled yet.
    pub fn owed(&self, key: Key) -> impl Iterator<Item = OwedTo> {
        let counts = self.counts.range((key, Whose::FIRST)..=(key, Whose::LAST));
        let owed = counts.map(|((_, whose), counts)| OwedTo {
            whose: *whose,
            slabs: counts.owed(),
            has_pages: counts.promised() > 0,
        });
        owed.filter(|owed| owed.slabs > 0)
    }

    /// Bytes of each class that are promised to what takes the places of slabs whose pages are back.
    pub fn promised(&self) -> impl Iterator<Item = (Key, u64)> {
        let promised = self.counts.iter();
        let promised = promised.map(|((key, _), counts)| (*key, counts.promised()));
        let promised = promised.filter(|(_, slabs)| *slabs > 0);
        promised.map(|(key, slabs)| (key, key.bytes.saturating_mul(slabs)))
    }

    /// Slabs of a user's whose pages are not all back, and that were replaced already.
    pub fn replaced_without_pages(&self, key: Key, whose: Whose) -> u64 {
        let counts = self.counts.get(&(key, whose));
        counts.map_or(0, |counts| counts.replaced.saturating_sub(counts.reachable))
    }

    /// No process can reach one of a user's slabs any more, whose pages are back or were not seen; its charge, if it can
    /// be credited at once.
    #[must_use]
    pub fn out_of_reach(
        &mut self,
        key: Key,
        whose: Whose,
        owed: Owed,
        has_pages: bool,
    ) -> Option<Owed> {
        let counts = self.of(key, whose);
        let from = if has_pages {
            &mut counts.reachable
        } else {
            &mut counts.held
        };
        *from = from.saturating_sub(1);
        // What took the place of one with its pages, which a process may still reach, is not for one that was not seen.
        let others = if has_pages { 0 } else { counts.reachable };
        if counts.replaced > others {
            counts.replaced -= 1;
            self.forget_if_empty(key, whose);
            return Some(owed);
        }
        counts.waiting += 1;
        counts.unseen += u64::from(!has_pages);
        let (waits, credited) = if owed.charge.is_free() {
            (None, Some(owed))
        } else {
            (Some(owed), None)
        };
        self.waiting.push(Waiting {
            key,
            whose,
            owed: waits,
            has_pages,
        });
        credited
    }

    /// One more slab of the class is clean, in this user's turn, which began it with pages that were back or with others;
    /// the charge to credit.
    #[must_use]
    pub fn became_clean(&mut self, key: Key, whose: Whose, had_pages: bool) -> Option<Owed> {
        let is_its = |one: &Waiting| (one.key, one.whose) == (key, whose);
        // Those whose pages were promised come first, also where a process may still reach them.
        let counts = self.of(key, whose);
        let had_pages = counts.promised() > 0 && (had_pages || counts.unseen == 0);
        let of_its = |one: &Waiting| is_its(one) && one.has_pages == had_pages;
        let oldest = self.waiting.iter().position(of_its);
        let counts = self.of(key, whose);
        let Some(oldest) = oldest else {
            counts.replaced = (counts.held + counts.reachable).min(counts.replaced + 1);
            self.forget_if_empty(key, whose);
            return None;
        };
        counts.waiting -= 1;
        counts.unseen -= u64::from(!had_pages);
        self.forget_if_empty(key, whose);
        self.waiting.remove(oldest).owed
    }

    /// The class has all the slabs it is to have; the charges to credit.
    #[must_use]
    pub fn is_full(&mut self, key: Key) -> Vec<Owed> {
        let of_class = (key, Whose::FIRST)..=(key, Whose::LAST);
        for (_, counts) in self.counts.range_mut(of_class) {
            counts.replaced = counts.held + counts.reachable;
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

    /// Whether pages are promised to what takes the place of a user's slab, whether one that was not seen waits, and how
    /// many whose pages are back can be reached.
    #[cfg(test)]
    pub(crate) fn back(&self, key: Key, whose: Whose) -> (bool, bool, usize) {
        let counts = self.counts.get(&(key, whose));
        counts.map_or((false, false, 0), |counts| {
            let reachable = usize::try_from(counts.reachable).unwrap();
            (counts.promised() > 0, counts.unseen > 0, reachable)
        })
    }

    fn none_waits(&mut self, is_class: impl Fn(Key) -> bool) -> Vec<Owed> {
        self.counts.retain(|(key, _), counts| {
            if is_class(*key) {
                (counts.waiting, counts.unseen) = (0, 0);
            }
            !counts.is_empty()
        });
        let credited = self.waiting.extract_if(.., |waiting| is_class(waiting.key));
        credited.filter_map(|waiting| waiting.owed).collect()
    }

    fn forget_if_empty(&mut self, key: Key, whose: Whose) {
        if self.of(key, whose).is_empty() {
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

    /// Whose slabs are to be filled, how many, and whether with pages that came back.
    fn owed_to(all: &Replacements) -> Vec<(Whose, u64, bool)> {
        let owed = all.owed(KEY);
        owed.map(|owed| (owed.whose, owed.slabs, owed.has_pages))
            .collect()
    }

    fn ends(all: &mut Replacements, whose: Whose, uid: u32) -> Option<Owed> {
        all.came_back(KEY, whose);
        all.has_pages(KEY, whose, true);
        all.out_of_reach(KEY, whose, owed(uid), true)
    }

    #[test]
    fn as_many_are_credited_as_were_filled_in_a_users_turn() {
        let mut all = Replacements::default();
        for _ in 0..2 {
            all.came_back(KEY, USER);
        }
        assert_eq!(ends(&mut all, OTHER, 8), None);
        assert_eq!(owed_to(&all), [(USER, 2, false), (OTHER, 1, true)]);
        // Both are replaced while its client can still reach them: each is credited once it cannot.
        for _ in 0..3 {
            assert_eq!(all.became_clean(KEY, USER, true), None);
        }
        // Slabs beyond what came back are no credit for later, nor for another.
        assert_eq!(owed_to(&all), [(OTHER, 1, true)]);
        for _ in 0..2 {
            all.has_pages(KEY, USER, true);
            assert!(all.out_of_reach(KEY, USER, owed(7), true).is_some());
        }
        assert_eq!(ends(&mut all, USER, 7), None);
        assert_eq!(all.became_clean(KEY, USER, true), Some(owed(7)));
        assert_eq!(all.is_full(KEY), [owed(8)]);
        // Nothing is left of them.
        assert_eq!(all.became_clean(KEY, USER, true), None);
        assert!(all.counts.is_empty() && all.waiting.is_empty());
    }

    #[test]
    fn pages_that_are_back_are_promised_until_a_slab_was_filled_with_them() {
        let mut all = Replacements::default();
        let promised = |all: &Replacements| all.promised().map(|(_, bytes)| bytes).sum::<u64>();
        for _ in 0..2 {
            all.came_back(KEY, USER);
        }
        assert_eq!((promised(&all), owed_to(&all)), (0, vec![(USER, 2, false)]));
        all.has_pages(KEY, USER, true);
        assert_eq!((promised(&all), owed_to(&all)), (1, vec![(USER, 2, true)]));
        // Drawn again, and taken away again.
        all.has_pages(KEY, USER, false);
        assert_eq!(promised(&all), 0);
        all.has_pages(KEY, USER, true);
        assert_eq!(ends(&mut all, OTHER, 8), None);
        assert_eq!(promised(&all), 2);
        assert_eq!(all.became_clean(KEY, USER, true), None);
        assert_eq!(
            (promised(&all), owed_to(&all)),
            (1, vec![(USER, 1, false), (OTHER, 1, true)])
        );
        assert_eq!(all.became_clean(KEY, OTHER, true), Some(owed(8)));
        assert_eq!(promised(&all), 0);
    }

    #[test]
    fn what_takes_the_place_of_a_slab_whose_pages_were_not_seen_has_none() {
        let mut all = Replacements::default();
        let promised = |all: &Replacements| all.promised().map(|(_, bytes)| bytes).sum::<u64>();
        all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, USER, owed(7), false), None);
        assert_eq!((promised(&all), owed_to(&all)), (0, vec![(USER, 1, false)]));
        // One whose pages are back is replaced first, though it came later.
        assert_eq!(ends(&mut all, USER, 7), None);
        assert_eq!((promised(&all), owed_to(&all)), (1, vec![(USER, 2, true)]));
        for left in [vec![(USER, 1, false)], Vec::new()] {
            assert_eq!(all.became_clean(KEY, USER, true), Some(owed(7)));
            assert_eq!((promised(&all), owed_to(&all)), (0, left));
        }
        assert!(all.counts.is_empty());
        // Where it was replaced before, it is credited at once.
        all.came_back(KEY, USER);
        assert_eq!(all.became_clean(KEY, USER, true), None);
        assert!(all.out_of_reach(KEY, USER, owed(7), false).is_some());
        all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, USER, owed(7), false), None);
        assert_eq!(all.is_full(KEY), [owed(7)]);
        assert!(all.counts.is_empty());
    }

    #[test]
    fn what_a_fill_began_with_says_whose_place_it_takes() {
        for (had_pages, left) in [(true, (0, false)), (false, (1, true))] {
            let mut all = Replacements::default();
            all.came_back(KEY, USER);
            assert_eq!(all.out_of_reach(KEY, USER, owed(7), false), None);
            // It begins; meanwhile the pages of another of this user's slabs come back.
            assert_eq!(ends(&mut all, USER, 7), None);
            assert!(all.became_clean(KEY, USER, had_pages).is_some());
            let promised = all.promised().map(|(_, bytes)| bytes).sum::<u64>();
            assert_eq!((promised, owed_to(&all)), (left.0, vec![(USER, 1, left.1)]));
        }
    }

    /// A process may still reach the one whose pages are back.
    #[test]
    fn a_slab_that_was_not_seen_has_no_part_in_what_is_promised_to_another() {
        let promised = |all: &Replacements| all.promised().map(|(_, bytes)| bytes).sum::<u64>();
        let with_one_of_each = || {
            let mut all = Replacements::default();
            all.came_back(KEY, USER);
            all.has_pages(KEY, USER, true);
            all
        };
        let mut all = with_one_of_each();
        all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, USER, owed(7), false), None);
        assert_eq!((promised(&all), owed_to(&all)), (1, vec![(USER, 2, true)]));
        // With the pages that are back: the other waits on.
        assert_eq!(all.became_clean(KEY, USER, true), None);
        assert_eq!((promised(&all), owed_to(&all)), (0, vec![(USER, 1, false)]));
        assert_eq!(all.became_clean(KEY, USER, true), Some(owed(7)));
        assert!(all.out_of_reach(KEY, USER, owed(7), true).is_some());
        // The other way round.
        let mut all = with_one_of_each();
        assert_eq!(all.became_clean(KEY, USER, true), None);
        all.came_back(KEY, USER);
        assert_eq!(all.out_of_reach(KEY, USER, owed(7), false), None);
        assert_eq!((promised(&all), owed_to(&all)), (0, vec![(USER, 1, false)]));
        assert!(all.out_of_reach(KEY, USER, owed(7), true).is_some());
        assert_eq!(all.became_clean(KEY, USER, true), Some(owed(7)));
        assert!(all.counts.is_empty());
    }

    #[test]
    fn the_owner_and_other_classes_wait_for_nothing() {
        let mut all = Replacements::default();
        let other = Key { bytes: 2, ..KEY };
        let free = Owed {
            charge: Charge::default(),
            lease: None,
        };
        all.came_back(KEY, USER);
        all.has_pages(KEY, USER, true);
        assert!(all.out_of_reach(KEY, USER, free, true).is_some());
        assert_eq!(ends(&mut all, USER, 7), None);
        assert_eq!(all.became_clean(other, USER, true), None);
        assert_eq!(all.is_full(other), []);
        // Both are filled in its turn, of which one was charged.
        assert_eq!(owed_to(&all), [(USER, 2, true)]);
        assert_eq!(all.became_clean(KEY, USER, true), None);
        assert_eq!(all.became_clean(KEY, USER, true), Some(owed(7)));
        assert_eq!(all.owed(KEY).count(), 0);
    }

    #[test]
    fn nothing_waits_while_nothing_is_filled() {
        let mut all = Replacements::default();
        all.came_back(KEY, USER);
        assert_eq!(ends(&mut all, USER, 7), None);
        let account = owed(7).charge.accounts().first().cloned().unwrap();
        assert_eq!(all.waiting_bytes(&account), Some((KEY, 1)));
        assert_eq!(all.none_is_replaced(), [owed(7)]);
        assert_eq!(all.waiting_bytes(&account), None);
        // The other is to be filled, once that goes on.
        assert_eq!(owed_to(&all), [(USER, 1, false)]);
    }
}
