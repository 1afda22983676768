//! A long span in a phase of memory that no other rule explains.

use super::shared::{Case, Entry, Hit, Rule};

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

/// What an excerpt of memory coming up consists of.
const MEMORY: [&str; 9] = [
    "Memory: ",
    "mem auto-init",
    "Zone ranges",
    "Built ",
    "percpu: Embedded",
    "Early memory node",
    "NODE_DATA",
    "Faking a node",
    "init_memory_mapping",
];

fn find(case: &Case<'_>) -> Vec<Hit> {
    let (begins, ends) = RULE.keys.split_at(BEGINS);
    let first = case.first(|entry| begins.iter().any(|key| entry.has(key)));
    let last = case.first(|entry| ends.iter().any(|key| entry.starts(key)));
    let inside = |from: &Entry<'_>, entry: &Entry<'_>| match (first, last) {
        (Some(first), Some(last)) => from.line >= first.line && entry.line <= last.line,
        _ => false,
    };
    let of_memory = |entry: &Entry<'_>| MEMORY.iter().any(|start| entry.starts(start));
    // Descriptors put off are finished just before `Memory:` on newer kernels.
    let deferred = |entry: &Entry<'_>| entry.has(" initialised");
    let slow = case.slow(LEAST_NS).filter(|(from, entry, _)| {
        inside(from, entry) || ((of_memory(from) || of_memory(entry)) && !deferred(from))
    });
    let hit = |(from, entry, ns): (Entry<'_>, Entry<'_>, u64)| Hit::span(from, entry, ns);
    slow.take(8).map(hit).collect()
}
