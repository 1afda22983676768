//! Much memory kept for a crash kernel.

use super::shared::{Case, Entry, Hit, Rule, number_after, number_before};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-crashkernel",
    why: "crashkernel= keeps a large part of memory away from the system, for a kernel that only runs after a crash",
    cure: "crashkernel= with less; 256 to 512 MiB are enough for most",
    fixed_in: None,
    keys: &[
        "for crashkernel",
        "crashkernel reserved",
        "crashkernel low memory reserved",
    ],
    find,
};

/// A larger share of memory is out of proportion.
const SHARE: u64 = 8;
/// And so is more than this on any machine.
const LARGE_MIB: u64 = 4096;
/// Less than this is needed on any machine.
const NEEDED_MIB: u64 = 512;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let kept = case
        .marked()
        .filter_map(|entry| Some((entry, kept_mib(&entry)?)));
    let kept: Vec<(Entry<'_>, u64)> = kept.collect();
    let sum = kept.iter().map(|row| row.1).fold(0, u64::saturating_add);
    let share = case
        .memory_bytes
        .is_some_and(|bytes| sum > (bytes >> 20) / SHARE);
    let large = (share && sum > NEEDED_MIB) || sum >= LARGE_MIB;
    let largest = kept.iter().max_by_key(|row| row.1).filter(|_| large);
    let hit = largest.map(|(entry, _)| Hit::at(*entry, format!("{sum} MiB")));
    hit.into_iter().collect()
}

fn kept_mib(entry: &Entry<'_>) -> Option<u64> {
    if entry.has("for crashkernel") {
        return number_after(entry.text, "Reserving");
    }
    let reserved = entry.has("crashkernel") && entry.has("reserved:");
    number_before(entry.text, "MB)").filter(|_| reserved)
}
