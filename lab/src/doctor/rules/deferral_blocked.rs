//! Something on the command line or in the kernel that makes deferral impossible.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-defeated",
    why: "what needs the descriptors of all memory early makes the kernel write them before other CPUs run",
    cure: "leave early_page_ext out; kmemleak=off; SPARSEMEM instead of FLATMEM",
    fixed_in: None,
    keys: &[
        "kmemleak: Kernel memory leak detector initialized",
        "of page_ext",
    ],
    find,
};

/// Less memory is described quickly either way.
const LEAST_BYTES: u64 = 32 << 30;
/// A table of page_ext that takes longer to allocate is felt.
const LEAST_NS: u64 = 500_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let mut hits = Vec::new();
    let early = case.words().any(|word| word == "early_page_ext");
    if let (true, Some(line)) = (early, case.command_line()) {
        hits.push(Hit::at(line, "early_page_ext on the command line"));
    }
    let large = case.memory_bytes.is_some_and(|bytes| bytes >= LEAST_BYTES);
    let kmemleak = case.any_of(&["kmemleak: Kernel memory leak detector initialized"]);
    let kmemleak = kmemleak.filter(|_| large && case.log.deferred.is_empty());
    if let Some(entry) = kmemleak {
        hits.push(Hit::at(
            entry,
            "kmemleak is on and no node reports deferred pages",
        ));
    }
    let mut slow = case.slow(LEAST_NS);
    let page_ext = slow.find(|(_, entry, _)| entry.has("of page_ext"));
    hits.extend(page_ext.map(|(from, entry, ns)| Hit::span(from, entry, ns)));
    hits
}
