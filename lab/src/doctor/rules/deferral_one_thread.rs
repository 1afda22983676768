//! Deferred initialisation by one thread a node, on a kernel that has no more.

use super::shared::{Case, Cost, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-one-thread",
    why: "this kernel has one thread a node for deferred pages; with all CPUs of a node the published machines need 55 to 92 % less",
    cure: "a kernel from 5.8 on (x86)",
    fixed_in: Some("5.8"),
    keys: &[],
    find,
};

/// From here on it is felt.
const LEAST_MS: u64 = 1000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let rows = case.log.deferred.iter();
    let rows = rows.filter(|row| row.milliseconds >= LEAST_MS);
    let Some(row) = rows.max_by_key(|row| row.milliseconds) else {
        return Vec::new();
    };
    // Counts of pages, and kswapd, are what kernels before 5.9 print.
    let entry = case.entry_at(row.line);
    let old = entry.filter(|entry| row.pages.is_some() || entry.starts("kswapd"));
    let new = case.version().is_some_and(|version| version >= (5, 8));
    // What each page takes too long for is that rule's time.
    let counted = super::deferral_slow::RULE.finds(case);
    let Some(entry) = old.filter(|_| !case.emulated && !new && !counted) else {
        return Vec::new();
    };
    let detail = format!("node {} takes {} ms", row.node, row.milliseconds);
    let saved = row.milliseconds.saturating_mul(1_000_000) / 100 * 55;
    vec![Hit::at(entry, detail).costs(Cost::Estimated(saved))]
}
