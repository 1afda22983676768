//! Hash tables out of proportion.

use super::shared::{Case, Cost, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "hash-tables-oversized",
    why: "tables are cleared before the boot goes on and hold memory that is never used; kernels before 4.13 let them grow with memory without a bend",
    cure: "dhash_entries= and ihash_entries=, or a kernel from 4.13 on",
    fixed_in: Some("4.13"),
    keys: &["hash table entries", "hash table entries: -"],
    find,
};

const LARGE_BYTES: u64 = 2 << 30;
/// A table of a size that a kernel chooses takes at most a 512th of memory.
const SHARE: u64 = 200;
const LEAST_BYTES: u64 = 64 << 20;
/// What clearing a GiB takes one CPU.
const EACH_GIB_NS: u64 = 400_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    if let Some(entry) = case.any_of(&["hash table entries: -"]) {
        return vec![Hit::at(entry, "a negative number of entries").instead(
            "the number of entries has grown beyond what is counted in 32 bits",
            "dhash_entries= and ihash_entries= set sizes by hand; a newer kernel",
        )];
    }
    let tables = case
        .marked()
        .filter(|entry| entry.has("hash table entries"));
    let large = tables.filter_map(|entry| {
        let (_, rest) = entry.text.split_once("(order: ")?;
        let bytes = number_after(rest, ", ")?;
        let share = case
            .memory_bytes
            .is_some_and(|memory| bytes > memory / SHARE);
        (bytes >= LARGE_BYTES || (share && bytes >= LEAST_BYTES)).then_some((entry, bytes))
    });
    let Some((entry, bytes)) = large.max_by_key(|(_, bytes)| *bytes) else {
        return Vec::new();
    };
    let cost = (bytes >> 20).saturating_mul(EACH_GIB_NS / 1024);
    let detail = format!("a table of {} MiB", bytes >> 20);
    vec![Hit::at(entry, detail).costs(Cost::Estimated(cost))]
}
