//! Pages poisoned or unmapped when they are freed.

use super::shared::{Case, Cost, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "page-debugging",
    why: "every page is filled with a pattern or unmapped when it is freed, and at boot all of memory is freed",
    cure: "leave page_poison=1 and debug_pagealloc=on out of the command line",
    fixed_in: None,
    keys: &[],
    find,
};

/// By the published 3.6 s for 32 GiB.
const EACH_GIB_NS: u64 = 112_000_000;
const WORDS: [&str; 3] = ["page_poison=1", "page_poison=on", "debug_pagealloc=on"];

fn find(case: &Case<'_>) -> Vec<Hit> {
    let given = case.words().find(|word| WORDS.contains(word));
    let (Some(word), Some(entry)) = (given, case.command_line()) else {
        return Vec::new();
    };
    let cost = case.memory_bytes.map_or(Cost::Unknown, |bytes| {
        Cost::Estimated((bytes >> 20).saturating_mul(EACH_GIB_NS / 1024))
    });
    vec![Hit::at(entry, word).costs(cost)]
}
