//! Huge pages reserved at boot, one by one.

use super::shared::{Case, Cost, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "hugepages-slow",
    why: "huge pages are allocated and their descriptors written before the boot goes on, on kernels before 6.9 by one thread",
    cure: "a kernel from 6.9 on allocates them with several threads; vm.nr_hugepages after the boot does not hold it up",
    fixed_in: Some("6.9"),
    keys: &["HugeTLB"],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 1_000_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let mut accounts = case.marked().filter(|entry| entry.has("HugeTLB"));
    let by_itself = accounts.find_map(|entry| {
        let ns = number_after(entry.text, "allocation took")?.saturating_mul(1_000_000);
        (ns >= LEAST_NS).then_some((entry, ns))
    });
    if let Some((entry, ns)) = by_itself {
        return vec![Hit::at(entry, "").costs(Cost::Measured(ns))];
    }
    let wanted = case.words().any(|word| word.starts_with("hugepages="));
    let slow = case.slow(LEAST_NS).find(|(from, entry, _)| {
        let pages = number_after(entry.text, "pre-allocated");
        let pages = pages.is_some_and(|pages| pages > 0);
        (entry.has("HugeTLB") && pages) || (wanted && from.starts("Kernel command line:"))
    });
    let hit = slow.map(|(from, entry, ns)| Hit::span(from, entry, ns));
    hit.into_iter().collect()
}
