//! Registering memory blocks takes long, or the kernel complains that it does.

use super::{Case, Hit, Rule, stall};

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
    // Other machines than x86 do not print the size; their blocks come after devtmpfs.
    let prints_size = case.any_of(&["Memory block size"]).is_some();
    let large = case.memory_bytes.is_some_and(|bytes| bytes >= 64 << 30);
    let slow = case.slow(LEAST_NS).find(|(from, _, _)| {
        from.has("Memory block size")
            || (from.starts("devtmpfs: initialized") && !prints_size && large)
    });
    let hit = slow.map(|(from, entry, ns)| Hit::span(from, entry, ns));
    hit.into_iter().collect()
}
