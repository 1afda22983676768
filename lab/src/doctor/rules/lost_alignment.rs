//! Memory left out because a range does not end where a section or block does.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-alignment",
    why: "memory is added in whole sections or memory blocks; what does not begin and end at a multiple is left out",
    cure: "ranges that are multiples of the memory block size (/sys/devices/system/memory/block_size_bytes); smaller blocks",
    fixed_in: None,
    keys: &[
        "unaligned hotplug range",
        "not aligned to memory block",
        "Section-unaligned",
    ],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
