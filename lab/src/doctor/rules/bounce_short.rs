//! A bounce buffer that could not be allocated, or is full.

use super::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "bounce-buffer-short",
    why: "devices that cannot reach all of memory, or none of a confidential guest's, need the bounce buffer; it is taken from low memory at boot, and there was not enough of that",
    cure: "swiotlb=N,any places it above 4 GiB; swiotlb= with more where it is full",
    fixed_in: None,
    keys: &[
        "software IO TLB: Cannot allocate",
        "software IO TLB: No low mem",
        "Can not allocate SWIOTLB buffer",
        "Cannot allocate SWIOTLB buffer",
        "swiotlb buffer is full",
        "swiotlb_init_remap: unable to map",
    ],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
