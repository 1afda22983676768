//! Registering memory blocks takes long, or the kernel complains that it does.

use super::shared::{Case, Entry, Hit, Rule, number_after, stall};

pub(super) const RULE: Rule = Rule {
    id: "memory-blocks-slow",
    why: "memory blocks and their links to nodes are registered one by one, before drivers start; kernels before 5.8 look each up in a list, and 5.2 walks blocks of nodes without pages",
    cure: "fewer, larger blocks; a kernel from 5.8 on, which looks blocks up in a tree",
    fixed_in: Some("5.8"),
    keys: &["Memory block size", "devtmpfs: initialized"],
    find,
};

/// From here on it is felt.
const LEAST_NS: u64 = 250_000_000;
/// The kernel that looks blocks up in a tree.
const LOOKED_UP: &str = "5.8";
/// What a block may take: looked up in a list, in a tree.
const OLD_EACH_NS: u64 = 5_000_000;
const NEW_EACH_NS: u64 = 500_000;
/// What only the registration of blocks calls.
const FUNCTIONS: [&str; 7] = [
    "walk_memory_blocks",
    "link_mem_sections",
    "memory_dev_init",
    "register_mem_sect_under_node",
    "add_boot_memory_block",
    "init_memory_block",
    "find_memory_block",
];

fn find(case: &Case<'_>) -> Vec<Hit> {
    if let Some(hit) = stall(case, &FUNCTIONS) {
        return vec![hit];
    }
    let each_ns = if case.is_before(LOOKED_UP) {
        OLD_EACH_NS
    } else {
        NEW_EACH_NS
    };
    let hit = slow(case, each_ns).map(|(from, entry, ns)| {
        let hit = Hit::span(from, entry, ns);
        if case.is_before(LOOKED_UP) {
            return hit;
        }
        hit.instead(
            "memory blocks and their links to nodes are registered one by one, before drivers start",
            "fewer, larger blocks",
        )
    });
    hit.into_iter().collect()
}

/// The span in which blocks are registered, if it is long and no longer than blocks can take.
fn slow<'c>(case: &'c Case<'_>, each_ns: u64) -> Option<(Entry<'c>, Entry<'c>, u64)> {
    // Other machines than x86 do not print the size; their blocks come after devtmpfs.
    let size = case.any_of(&["Memory block size"]);
    let mib = size.and_then(|entry| number_after(entry.text, "Memory block size:"));
    let most_ns = match (mib, case.memory_bytes) {
        (Some(mib @ 1..), Some(memory)) => (memory >> 20).div_ceil(mib).saturating_mul(each_ns),
        _ => u64::MAX,
    };
    let large = case.memory_bytes.is_some_and(|bytes| bytes >= 64 << 30);
    case.slow(LEAST_NS).find(|(from, entry, ns)| {
        let blocks = from.has("Memory block size")
            || (from.starts("devtmpfs: initialized") && size.is_none() && large);
        // With initcalls named, one of them may be what took the time.
        blocks && *ns <= most_ns && !entry.starts("initcall ")
    })
}
