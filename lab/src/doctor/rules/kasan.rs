//! A kernel that checks every access to memory.

use super::shared::{Case, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "kasan",
    why: "the kernel is built with KASAN: it keeps a shadow of an eighth of all memory, and every access is checked; all of the boot is several times slower",
    cure: "a kernel without CONFIG_KASAN, or with CONFIG_KASAN_HW_TAGS where processors have tags",
    fixed_in: None,
    keys: &["KernelAddressSanitizer initialized"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let entry = case.any_of(RULE.keys);
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}
