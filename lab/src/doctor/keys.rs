//! What rules look for in messages: [`Keys`], all of it in one pass; and where a boot has each, [`Seen`].

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Every key of every rule.
pub(super) struct Keys {
    search: AhoCorasick,
    /// The number of each key.
    numbers: BTreeMap<&'static str, usize>,
}

impl Keys {
    pub(super) fn new(keys: impl Iterator<Item = &'static str>) -> Self {
        let mut numbers = BTreeMap::new();
        for key in keys {
            let next = numbers.len();
            numbers.entry(key).or_insert(next);
        }
        let mut ordered: Vec<&str> = numbers.keys().copied().collect();
        ordered.sort_by_key(|key| numbers.get(key));
        // A few hundred bytes of literals; each byte of a log is one step.
        let search = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::DFA))
            .build(ordered);
        Self {
            search: search.unwrap_or_else(|_| unreachable!("keys are short literals")),
            numbers,
        }
    }

    /// Whether `text` has one.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.search.is_match(text)
    }
}

/// The first message with each key.
pub(super) struct Seen {
    keys: &'static Keys,
    /// Where among the lines of the boot, by the key's number.
    first: Vec<Option<usize>>,
}

impl Seen {
    pub(super) fn new(keys: &'static Keys) -> Self {
        Self {
            keys,
            first: vec![None; keys.numbers.len()],
        }
    }

    /// Notes which keys message `at`, a later one than all before, has.
    pub(super) fn add(&mut self, at: usize, text: &str) {
        for found in self.keys.search.find_overlapping_iter(text) {
            if let Some(first) = self.first.get_mut(found.pattern().as_usize()) {
                first.get_or_insert(at);
            }
        }
    }

    /// The first message with one of `parts`, which are all keys.
    pub(super) fn first_of(&self, parts: &[&str]) -> Option<usize> {
        let first = |part: &&str| {
            let number = self.keys.numbers.get(part);
            debug_assert!(number.is_some(), "{part:?} is the key of no rule");
            *self.first.get(*number?)?
        };
        parts.iter().filter_map(first).min()
    }
}
