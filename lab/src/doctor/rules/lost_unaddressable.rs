//! Memory that this kernel cannot address.

use super::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-unaddressable",
    why: "the kernel was built without what it needs to address all of the machine's memory, or its linear map is too short, and leaves the rest out",
    cure: "a 64-bit kernel, HIGHMEM or PAE on 32 bits, more virtual address bits",
    fixed_in: None,
    keys: &[
        "Use a HIGHMEM",
        "Use a PAE enabled kernel",
        "MB will be used",
        "GB will be used",
        "Truncating memory",
        "Truncating RAM",
        "Ignoring RAM",
        "Ignoring memory",
        "ignoring memory",
        "gnoring memory range",
        "gnoring memory block",
    ],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
