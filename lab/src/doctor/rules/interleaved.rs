//! Nodes whose memory lies between that of others.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "nodes-interleaved",
    why: "a node has memory on both sides of another: zones of both span each other, so that early initialisation and the search for a page walk memory of the wrong node, and blocks belong to two nodes",
    cure: "firmware settings that give each node one range above 4 GiB",
    fixed_in: None,
    keys: &[],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let mut last = None;
    let mut left = std::collections::BTreeSet::new();
    for (span, node) in case.ranges() {
        let Some(node) = node else { continue };
        if last == Some(node) {
            continue;
        }
        left.extend(last);
        last = Some(node);
        if left.contains(&node) {
            let entry = case.row_at(span.start).and_then(|line| case.entry_at(line));
            let detail = format!("node {node} goes on at {:#x}", span.start);
            return entry
                .map(|entry| Hit::at(entry, detail))
                .into_iter()
                .collect();
        }
    }
    Vec::new()
}
