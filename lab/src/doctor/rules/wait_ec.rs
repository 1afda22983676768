//! The embedded controller lets the boot wait.

use super::shared::{Case, Hit, Rule, wait};

pub(super) const RULE: Rule = Rule {
    id: "wait-embedded-controller",
    why: "ACPI waits for the embedded controller, which answers late or not at all",
    cure: "a firmware update",
    fixed_in: None,
    keys: &["ACPI: EC:", "ACPI : EC:"],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 1_000_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    wait(case, RULE.keys, LEAST_NS)
}
