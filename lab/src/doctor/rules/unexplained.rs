//! A long span in a phase of memory that no other rule explains.

use super::{Case, Entry, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memory-phase-slow",
    why: "more than a second passes between two lines while memory comes up, and no other rule knows why",
    cure: "firstlight bisect names the change; firstlight compare puts a good boot beside it",
    fixed_in: None,
    keys: &[
        "Zone ranges:",
        "Zone PFN ranges:",
        "Early memory node ranges",
        "BIOS-provided physical RAM map",
        "SLUB: ",
        "NR_IRQS",
        "rcu: ",
        "smp: Bringing up",
    ],
    find,
};

const LEAST_NS: u64 = 1_000_000_000;
/// The first of the keys are what memory begins with.
const BEGINS: usize = 4;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let (begins, ends) = RULE.keys.split_at(BEGINS);
    let first = case.first(|entry| begins.iter().any(|key| entry.has(key)));
    let last = case.first(|entry| ends.iter().any(|key| entry.starts(key)));
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    let inside = case
        .slow(LEAST_NS)
        .filter(|(from, entry, _)| from.line >= first.line && entry.line <= last.line);
    let hit = |(from, entry, ns): (&Entry, &Entry, u64)| Hit::span(from, entry, ns);
    inside.map(hit).collect()
}
