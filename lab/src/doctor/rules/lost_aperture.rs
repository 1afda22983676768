//! Memory that an aperture of the memory controller covers.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-aperture",
    why: "firmware leaves no aperture for the I/O memory unit, and the kernel maps one over memory",
    cure: "the IOMMU setting of firmware; iommu=off or iommu=noaperture",
    fixed_in: None,
    keys: &["This costs you", "Mapping aperture over"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
