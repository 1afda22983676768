//! Memory blocks too small for the machine.

use super::shared::{Case, Cost, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "memory-blocks-small",
    why: "each block is a directory in sysfs that is registered while the boot waits; 16,288 of them took 14 of 21 s on 2 TiB before blocks were looked up in a tree, and half a second after",
    cure: "a kernel that chooses 2 GiB blocks on machines this large, or an end of memory that is a multiple of a larger block (hypervisors: whole GiB)",
    fixed_in: None,
    keys: &["Memory block size"],
    find,
};

/// Blocks beyond which their number is felt.
const MOST_BLOCKS: u64 = 4096;
/// What registering one takes, by the published half second for 16,288.
const EACH_NS: u64 = 30_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let Some(entry) = case.any_of(RULE.keys) else {
        return Vec::new();
    };
    let mib = number_after(entry.text, "Memory block size:");
    let (Some(mib @ 1..), Some(memory)) = (mib, case.memory_bytes) else {
        return Vec::new();
    };
    let blocks = (memory >> 20) / mib;
    if blocks <= MOST_BLOCKS {
        return Vec::new();
    }
    let detail = format!("{blocks} memory blocks of {mib} MiB");
    vec![Hit::at(entry, detail).costs(Cost::Estimated(blocks.saturating_mul(EACH_NS)))]
}
