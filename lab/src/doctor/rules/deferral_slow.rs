//! Deferred initialisation that takes far longer than memory does.

use super::shared::{Case, Cost, DeferredRow, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-slow",
    why: "a page takes more than 100 ns, five times what a thread needs that writes descriptors and frees pages, or a node of unknown size more than 3 s. Poisoning or checking of freed pages, a debug kernel, or slow memory is the usual reason",
    cure: "leave page_poison=1, debug_pagealloc=on and slub_debug= with P out of the command line; a kernel from 5.8 on uses all CPUs of a node",
    fixed_in: None,
    keys: &[],
    find,
};

const EACH_PAGE_NS: u64 = 100;
/// No published machine needs so long, whatever its memory.
const LONG_MS: u64 = 3000;
/// From here on it is felt.
const LEAST_MS: u64 = 500;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let rows = case.log.deferred.iter();
    let rows = rows.filter(|row| row.milliseconds >= LEAST_MS && !case.emulated);
    let each = |row: &DeferredRow| {
        let pages = row.pages.or_else(|| case.pages_of(row.node));
        let pages = pages.filter(|pages| *pages > 0)?;
        Some(row.milliseconds.saturating_mul(1_000_000) / pages)
    };
    // Where only some nodes are slow, the reason is another.
    let fastest = rows.clone().filter_map(each).min();
    let Some(row) = rows.max_by_key(|row| row.milliseconds) else {
        return Vec::new();
    };
    // A large node takes long at any rate.
    let long = row.milliseconds >= LONG_MS && fastest.is_none();
    if fastest.is_none_or(|ns| ns < EACH_PAGE_NS) && !long {
        return Vec::new();
    }
    let mut detail = format!("node {} takes {} ms", row.node, row.milliseconds);
    if let Some(ns) = each(row) {
        detail.push_str(&format!(", {ns} ns a page"));
    }
    let reasons: Vec<&str> = case.words().filter(|word| is_check(word)).collect();
    if !reasons.is_empty() {
        detail.push_str(&format!("; the command line has {}", reasons.join(" ")));
    }
    let cost = Cost::Measured(row.milliseconds.saturating_mul(1_000_000));
    let hit = case.entry_at(row.line).map(|entry| {
        let hit = Hit::at(entry, detail).costs(cost);
        if reasons.is_empty() && case.log.command_line.is_some() {
            hit.instead(NOT_BY_WORDS.0, NOT_BY_WORDS.1)
        } else {
            hit
        }
    });
    hit.into_iter().collect()
}

/// Why and what to do where no word of the command line explains it.
const NOT_BY_WORDS: (&str, &str) = (
    "a page takes more than 100 ns, five times what a thread needs that writes descriptors and frees pages, and no word of the command line has pages checked: a debug kernel, slow memory, or nodes that wait for each other",
    "a kernel without debugging of pages; a kernel from 5.8 on uses all CPUs of a node",
);

/// Words that have every page written or checked as it is freed.
pub(super) fn is_check(word: &str) -> bool {
    const WHOLE: [&str; 4] = [
        "page_poison=1",
        "page_poison=on",
        "debug_pagealloc=on",
        "init_on_free=1",
    ];
    let poisons = word.split_once('=').is_some_and(|(key, value)| {
        (key == "slub_debug" || key == "slab_debug") && value.contains('P')
    });
    poisons || WHOLE.contains(&word)
}
