//! All memory cleared when it is first freed, which is at boot.

use super::shared::{Case, Cost, Hit, Rule, memory_line};

pub(super) const RULE: Rule = Rule {
    id: "init-on-free",
    why: "init_on_free=1 clears every page that is freed, and at boot all of memory is freed to the allocator: about 0.75 s a GB by one CPU",
    cure: "init_on_free=0; init_on_alloc=1 clears when memory is handed out instead",
    fixed_in: None,
    keys: &["mem auto-init:"],
    find,
};

const EACH_GIB_NS: u64 = 750_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    // The second line of the two is the more telling one.
    let says = |what: &str| case.first(|entry| entry.starts("mem auto-init:") && entry.has(what));
    let Some(entry) = says("free:on").or_else(|| says("clearing system memory")) else {
        return Vec::new();
    };
    // The next message about memory is the end of it.
    let after = case.first(|other| other.line > entry.line && memory_line(other.text).is_some());
    let measured = after.and_then(|after| after.stamp_ns?.checked_sub(entry.stamp_ns?));
    let estimate = case.memory_bytes;
    let estimate = estimate.map(|bytes| (bytes >> 20).saturating_mul(EACH_GIB_NS / 1024));
    // Nothing clears so fast; a journal may have stamped lines when it read them.
    let least = estimate.map_or(0, |ns| ns / 16);
    let measured = measured.filter(|ns| *ns > least && !case.has_holes());
    let cost = match (measured, estimate) {
        (Some(ns), _) => Cost::Measured(ns),
        (None, Some(ns)) => Cost::Estimated(ns),
        (None, None) => Cost::Unknown,
    };
    let mut hit = Hit::at(entry, "").costs(cost);
    hit.span_end = after.map(|after| after.line);
    vec![hit]
}
