//! The device with the root file system comes late.

use super::shared::{Case, Hit, Rule, wait};

pub(super) const RULE: Rule = Rule {
    id: "wait-root-device",
    why: "the kernel, or its initial file system, waits until the device with the root file system is there",
    cure: "root= of a device that exists, and its driver in the kernel or the initial file system; rootdelay= no longer than needed",
    fixed_in: None,
    keys: &[
        "Waiting for root device",
        "Waiting for root file system",
        "Gave up waiting for root",
        "dracut-initqueue",
    ],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 1_000_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    wait(case, RULE.keys, LEAST_NS)
}
