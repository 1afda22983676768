//! Descriptors written before the boot goes on, although they could be deferred.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memmap-eager",
    why: "page descriptors of whole zones are written by one CPU before the others run. Linux 5.8 to 5.10 does so for every range but the last of a node; without deferral every kernel does",
    cure: "a kernel from 5.11 on with CONFIG_DEFERRED_STRUCT_PAGE_INIT=y",
    fixed_in: Some("5.11"),
    keys: &[],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 500_000_000;

/// What a kernel prints while it lays out zones and writes first descriptors.
fn is_memmap(text: &str) -> bool {
    const STARTS: [&str; 4] = [
        "On node ",
        "Initmem setup node",
        "Initializing node ",
        "Early memory node ranges",
    ];
    let zone = text.contains(" zone: ") && text.contains(" pages");
    let range = text.starts_with("node ") && text.contains(": [mem");
    zone || range
        || text.contains("pages in unavailable ranges")
        || STARTS.iter().any(|start| text.starts_with(start))
}

fn find(case: &Case<'_>) -> Vec<Hit> {
    let mut slow = case.slow(LEAST_NS);
    let slow = slow.find(|(from, _, _)| is_memmap(from.text));
    let hit = slow.map(|(from, entry, ns)| {
        let hit = Hit::span(from, entry, ns);
        if case.is_before("5.11") {
            return hit;
        }
        hit.instead(
            "page descriptors of whole zones are written by one CPU before the others run, as every kernel does without deferral",
            "CONFIG_DEFERRED_STRUCT_PAGE_INIT=y",
        )
    });
    hit.into_iter().collect()
}
