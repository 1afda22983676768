//! A large machine whose page descriptors are all written before other CPUs run.

use super::shared::{Case, Cost, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-absent",
    why: "no node reports deferred pages: one CPU writes the descriptors of all memory, about 20 ns a page, before the boot goes on",
    cure: "CONFIG_DEFERRED_STRUCT_PAGE_INIT=y",
    fixed_in: None,
    keys: &[
        "Brought up",
        "Booted up",
        "processors activated",
        "devtmpfs: initialized",
    ],
    find,
};

/// Machines from here on pay more than a second.
const LEAST_BYTES: u64 = 256 << 30;
const EACH_PAGE_NS: u64 = 20;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let memory = case.memory_bytes.filter(|bytes| *bytes >= LEAST_BYTES);
    let Some(memory) = memory.filter(|_| case.log.deferred.is_empty() && !case.has_holes()) else {
        return Vec::new();
    };
    let mut rest = case.marked().skip_while(|entry| {
        !(entry.has("Brought up") || entry.has("Booted up") || entry.has("processors activated"))
    });
    // Deferred pages are reported between these two.
    let Some(entry) = rest.find(|entry| entry.starts("devtmpfs: initialized")) else {
        return Vec::new();
    };
    let pages = memory / 4096;
    let detail = format!("{} GiB", memory >> 30);
    vec![Hit::at(entry, detail).costs(Cost::Estimated(pages.saturating_mul(EACH_PAGE_NS)))]
}
