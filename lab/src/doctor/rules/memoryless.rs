//! A node without memory.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memoryless-node",
    why: "a node has CPUs or a place in firmware's tables but no memory: what runs there takes memory from afar, and code that expects a node to have pages goes astray",
    cure: "fill its slots; or see whether mem=, memmap= or special purpose memory has taken what it had",
    fixed_in: None,
    keys: &["Could not find start_pfn for node"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let empty = || case.log.node_spans.iter().filter(|row| row.span.is_none());
    let Some(first) = empty().next() else {
        // The words of kernels before 3.10.
        let entry = case.any_of(RULE.keys);
        return entry.map(|entry| Hit::at(entry, "")).into_iter().collect();
    };
    let mut nodes: Vec<u32> = empty().map(|row| row.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let shown: Vec<String> = nodes.iter().take(16).map(u32::to_string).collect();
    let detail = format!("node {}", shown.join(", "));
    let entry = case.entry_at(first.line);
    entry
        .map(|entry| Hit::at(entry, detail))
        .into_iter()
        .collect()
}
