//! Descriptors of reserved memory written one by one before the boot goes on.

use super::shared::{Case, Hit, Rule, memory_line, number_before};

pub(super) const RULE: Rule = Rule {
    id: "reserved-pages-serial",
    why: "much memory is reserved, and the descriptors of reserved pages are written by one CPU when memory is freed to the allocator, deferred or not",
    cure: "reserve less (huge pages at boot, crashkernel=); pages of 1 GiB with vmemmap optimisation have few descriptors",
    fixed_in: None,
    keys: &["heap free:on"],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 500_000_000;
const LEAST_RESERVED_BYTES: u64 = 16 << 30;

fn find(case: &Case<'_>) -> Vec<Hit> {
    if case.any_of(&["heap free:on"]).is_some() {
        return Vec::new();
    }
    let hit = case.slow(LEAST_NS).find_map(|(from, entry, ns)| {
        memory_line(entry.text)?;
        let kib = number_before(entry.text, "K reserved")?;
        let reserved = kib.checked_mul(1024)?;
        (reserved >= LEAST_RESERVED_BYTES).then(|| Hit::span(from, entry, ns))
    });
    hit.into_iter().collect()
}
