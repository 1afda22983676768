//! A fault of the kernel while memory comes up.

use super::shared::{Case, Entry, Hit, Rule};
use super::stalls;

pub(super) const RULE: Rule = Rule {
    id: "memory-initialisation-oops",
    why: "the kernel faulted in a function that initialises memory; what it was about to do is not done",
    cure: "a report with this trace to the kernel's maintainers; until then another kernel",
    fixed_in: None,
    keys: &[
        "Oops",
        "BUG: unable to handle",
        "kernel BUG at ",
        "general protection fault",
    ],
    find,
};

/// Messages behind the head that belong to it.
const TRACE: usize = 60;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let is_head = |entry: &Entry<'_>| RULE.keys.iter().any(|key| entry.has(key));
    let named = |entry: &Entry<'_>| stalls::FUNCTIONS.iter().any(|name| entry.has(name));
    let heads = case.marked().filter(is_head).take(100);
    let mut found = heads.filter_map(|head| {
        let seen = case.from(head.at).take(TRACE).find(named)?;
        Some(Hit::at(seen, format!("\"{}\"", head.text)))
    });
    found.next().into_iter().collect()
}
