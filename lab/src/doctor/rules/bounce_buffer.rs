//! A bounce buffer that takes gigabytes.

use super::shared::{Case, Hit, Rule, number_before};

pub(super) const RULE: Rule = Rule {
    id: "bounce-buffer-large",
    why: "devices reach the memory of a confidential guest through a bounce buffer, which is taken from memory at boot and cleared and shared page by page",
    cure: "swiotlb= with less; swiotlb=N,any places it above 4 GiB, so that it is not cut to what is free below",
    fixed_in: None,
    keys: &["software IO TLB", "Memory encryption is active"],
    find,
};

/// A kernel takes at most 1 GiB by itself.
const MOST_MIB: u64 = 1024;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let mapped = case.marked().filter_map(|entry| {
        let mib = number_before(entry.text, "MB)").filter(|mib| *mib > MOST_MIB)?;
        let is_buffer = entry.has("software IO TLB") && entry.has("mapped");
        is_buffer.then_some((entry, mib))
    });
    let Some((entry, mib)) = mapped.max_by_key(|(_, mib)| *mib) else {
        return Vec::new();
    };
    let encrypted = case.any_of(&["Memory encryption is active"]);
    vec![Hit::at(encrypted.unwrap_or(entry), format!("{mib} MiB"))]
}
