//! Memory that no cacheable range of the CPU covers.

use super::shared::{Case, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-mtrr",
    why: "firmware's MTRRs leave memory uncached, and the kernel drops it",
    cure: "a firmware update; enable_mtrr_cleanup, with mtrr_gran_size= and mtrr_chunk_size=",
    fixed_in: None,
    keys: &["MTRRs don't cover"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    let hit = entry.map(|entry| {
        let lost = number_after(entry.text, "losing");
        Hit::at(
            entry,
            lost.map_or(String::new(), |mib| format!("{mib} MiB are lost")),
        )
    });
    hit.into_iter().collect()
}
