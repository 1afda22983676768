//! Memory cleared when it is handed out, by the command line.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "init-on-alloc",
    why: "init_on_alloc=1 on the command line has every page cleared when it is handed out: tables, huge pages and slabs of the boot among them",
    cure: "init_on_alloc=0 where the kernel's build does not want it on",
    fixed_in: None,
    keys: &["mem auto-init:"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let given = matches!(case.value("init_on_alloc"), Some("1" | "on" | "y"));
    let entry = case.first(|entry| entry.starts("mem auto-init:") && entry.has("alloc:on"));
    let entry = entry.filter(|_| given);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
