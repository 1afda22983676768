//! Nodes whose deferred pages are initialised one after the other.

use super::shared::{Case, Cost, DeferredRow, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-serial",
    why: "the nodes take turns instead of working at the same time, so that their times add up",
    cure: "deferred pages are to be initialised when the secondary CPUs run; look for what needs all of memory before that",
    fixed_in: None,
    keys: &[],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 500_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let rows = &case.log.deferred;
    let mut nodes: Vec<u32> = rows.iter().map(|row| row.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let stamps: Option<Vec<u64>> = rows.iter().map(|row| row.stamp_ns).collect();
    let (Some(stamps), Some(first), Some(last)) = (stamps, rows.first(), rows.last()) else {
        return Vec::new();
    };
    let (Some(start), Some(end)) = (stamps.first(), stamps.last()) else {
        return Vec::new();
    };
    if case.emulated || nodes.len() < rows.len() || rows.len() < 2 || !stamps.is_sorted() {
        return Vec::new();
    }
    let ns = |row: &DeferredRow| row.milliseconds.saturating_mul(1_000_000);
    let sum = rows.iter().map(ns).fold(0, u64::saturating_add);
    let longest = rows.iter().map(ns).max().unwrap_or(0);
    let took = (end - start).saturating_add(ns(first));
    // At the same time they would take as long as the longest.
    let lost = took.saturating_sub(longest);
    if took < sum - sum / 10 || lost < LEAST_NS {
        return Vec::new();
    }
    let detail = format!(
        "{} nodes take {} ms, the longest {} ms",
        rows.len(),
        took / 1_000_000,
        longest / 1_000_000
    );
    let entry = case.entry_at(last.line);
    let hit = entry.map(|entry| Hit::at(entry, detail).costs(Cost::Measured(lost)));
    hit.into_iter().collect()
}
