//! Hash tables that take long to come up.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "hash-tables-slow",
    why: "large hash tables are allocated and cleared by one CPU; kernels before 4.13 write them bucket by bucket",
    cure: "dhash_entries= and ihash_entries= set sizes by hand; a kernel from 4.13 on clears them at once",
    fixed_in: Some("4.13"),
    keys: &["heap free:on"],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 500_000_000;
const TABLES: [&str; 6] = [
    "Dentry cache",
    "Inode-cache",
    "Mount-cache",
    "Mountpoint-cache",
    "PID hash table",
    "TCP established",
];

fn find(case: &Case<'_>) -> Vec<Hit> {
    if case.any_of(&["heap free:on"]).is_some() {
        return Vec::new();
    }
    let mut slow = case.slow(LEAST_NS);
    let slow = slow.find(|(_, entry, _)| TABLES.iter().any(|table| entry.starts(table)));
    let hit = slow.map(|(from, entry, ns)| {
        let hit = Hit::span(from, entry, ns);
        if case.is_before("4.13") {
            return hit;
        }
        hit.instead(
            "large hash tables are allocated and cleared by one CPU",
            "dhash_entries= and ihash_entries= set sizes by hand",
        )
    });
    hit.into_iter().collect()
}
