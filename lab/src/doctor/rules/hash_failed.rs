//! A large hash table that could not be allocated.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "hash-table-failed",
    why: "the system hash tables are sized by all of memory, while little of it can be allocated at that time",
    cure: "dhash_entries= and ihash_entries= set sizes by hand; newer kernels for crash dumps count reserved memory",
    fixed_in: None,
    keys: &["allocation failure", "vmalloc error", "Failed to allocate"],
    find,
};

/// Messages behind the failure that belong to it.
const TRACE: usize = 60;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let gives_up = |entry: &super::shared::Entry<'_>| {
        entry.has("Failed to allocate ") && entry.has("hash table")
    };
    let fails = |entry: &super::shared::Entry<'_>| {
        let mut trace = case.from(entry.at).take(TRACE);
        let failure = entry.has("allocation failure") || entry.has("vmalloc error");
        failure && trace.any(|entry| entry.has("alloc_large_system_hash"))
    };
    let entry = case
        .marked()
        .take(1000)
        .find(|entry| gives_up(entry) || fails(entry));
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
