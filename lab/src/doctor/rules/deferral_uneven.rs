//! Nodes whose pages take several times longer than those of others.

use super::shared::{Case, Cost, DeferredRow, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-uneven",
    why: "some nodes are several times slower a page than others: they have no CPU of their own, or too few, and their memory is written from afar or by one thread",
    cure: "spread CPUs and memory alike; a kernel from 5.8 on uses all CPUs of a node",
    fixed_in: None,
    keys: &[],
    find,
};

const TIMES: u64 = 3;
/// From here on it is felt.
const LEAST_MS: u64 = 200;
/// Lines of nodes that end at the same time may swap.
const SWAPPED_NS: u64 = 10_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let each: Vec<(u64, u64, &DeferredRow)> = case
        .log
        .deferred
        .iter()
        .filter_map(|row| {
            let pages = row.pages.or_else(|| case.pages_of(row.node));
            let pages = pages.filter(|pages| *pages > 0)?;
            let ns = row.milliseconds.saturating_mul(1_000_000) / pages;
            Some((ns, pages, row))
        })
        .collect();
    // Nodes are compared within one boot: stamps that go back are several logs.
    let stamps: Vec<u64> = each.iter().filter_map(|each| each.2.stamp_ns).collect();
    let in_order =
        |pair: &[u64]| matches!(pair, [one, next] if *one <= next.saturating_add(SWAPPED_NS));
    let one_boot = stamps.len() == each.len() && stamps.windows(2).all(in_order);
    // A millisecond more or less says nothing of a small node.
    let long = each.iter().filter(|each| each.2.milliseconds >= LEAST_MS);
    let fastest = long.clone().map(|each| each.0).min().unwrap_or(0);
    let slow = long.filter(|each| each.0 >= fastest.saturating_mul(TIMES).max(1));
    let slowest = slow.max_by_key(|each| each.2.milliseconds);
    let Some((ns, pages, row)) = slowest.filter(|_| !case.emulated && one_boot) else {
        return Vec::new();
    };
    let detail = format!(
        "node {} takes {ns} ns a page, the fastest node {fastest}",
        row.node
    );
    let took = row.milliseconds.saturating_mul(1_000_000);
    let lost = took.saturating_sub(fastest.saturating_mul(*pages));
    let entry = case.entry_at(row.line);
    let hit = entry.map(|entry| Hit::at(entry, detail).costs(Cost::Measured(lost)));
    hit.into_iter().collect()
}
