//! The kernel complains about its own initialisation of memory.

use super::shared::{Case, Hit, Rule, stall};

pub(super) const RULE: Rule = Rule {
    id: "memory-initialisation-stalls",
    why: "a step over all of memory runs on one CPU without a pause for longer than the watchdog allows",
    cure: "a kernel whose step pauses or runs on several CPUs; watchdog_thresh= only hides it",
    fixed_in: None,
    keys: &[],
    find,
};

/// What initialises memory.
pub(super) const FUNCTIONS: [&str; 18] = [
    "deferred_init_memmap",
    "deferred_free_range",
    "deferred_init_maxorder",
    "free_area_init",
    "memmap_init",
    "__init_single_page",
    "init_unavailable_range",
    "memblock_free_all",
    "free_low_memory_core_early",
    "reserve_bootmem_region",
    "page_ext_init",
    "init_page_owner",
    "kmemleak_",
    "alloc_large_system_hash",
    "accept_memory",
    "hugetlb_init",
    "gather_bootmem_prealloc",
    "hugetlb_hstate_alloc_pages",
];

fn find(case: &Case<'_>) -> Vec<Hit> {
    stall(case, &FUNCTIONS).into_iter().collect()
}
