//! A driver waits for a file of firmware.

use super::shared::{Case, Hit, Rule, wait};

pub(super) const RULE: Rule = Rule {
    id: "wait-firmware-file",
    why: "a driver asks for a file of firmware that is not there yet, or nowhere, and the boot waits for the answer",
    cure: "the file in the initial file system, or the driver as a module; CONFIG_FW_LOADER_USER_HELPER_FALLBACK=n",
    fixed_in: None,
    keys: &[
        "Direct firmware load for",
        "Falling back to sysfs fallback for",
        "Falling back to user helper",
        "firmware: failed to load",
    ],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 1_000_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    wait(case, RULE.keys, LEAST_NS)
}
