//! CPUs that firmware left with other cacheable ranges than the first.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "mtrr-inconsistent",
    why: "firmware set the MTRRs of some CPUs only; the kernel corrects them once these run, and until then they may work on uncached memory",
    cure: "a firmware update",
    fixed_in: None,
    keys: &["mtrr: probably your BIOS does not setup all CPUs"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    // An emulator has no firmware to blame.
    let entry = case.any_of(RULE.keys).filter(|_| !case.emulated);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
