//! Tables of nodes that the kernel does not believe.

use super::shared::{Case, Entry, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "numa-tables-faulty",
    why: "firmware's tables of nodes contradict the memory map or each other; the kernel corrects them, or forgets all nodes and takes the machine for one",
    cure: "a firmware update, or numa=off on purpose; hypervisors: tables that cover all memory",
    fixed_in: None,
    keys: &[
        "nodes only cover",
        "PXMs only cover",
        "SRAT not used",
        "SLIT table looks invalid",
        "Rejected SLIT",
        "overlaps with",
        "invalid memblk node",
        "node ids are out of bound",
        "invalid distance",
        "Too many proximity domains",
        "no nodes coverage for",
        "topology borken",
        "not on the same node!",
        "SRAT: Invalid",
        "Failed to add memblk",
        "[Firmware Bug]",
    ],
    find,
};

const TOPOLOGY: [&str; 2] = ["topology borken", "not on the same node!"];
const OF_NODES: [&str; 6] = ["SRAT", "SLIT", "NUMA", "node ", "node!", "PXM"];

fn find(case: &Case<'_>) -> Vec<Hit> {
    // Under emulation QEMU makes up which CPUs share a cache, and no firmware is at fault.
    let made_up = |entry: &Entry<'_>| case.emulated && TOPOLOGY.iter().any(|key| entry.has(key));
    let is_fault = |entry: &Entry<'_>| is_fault(entry) && !made_up(entry);
    let Some(entry) = case.first(is_fault) else {
        return Vec::new();
    };
    let all = case.marked().filter(|entry| is_fault(entry)).count();
    let detail = if all > 1 {
        format!("{all} complaints")
    } else {
        String::new()
    };
    vec![Hit::at(entry, detail)]
}

fn is_fault(entry: &Entry<'_>) -> bool {
    let mut keys = RULE.keys.iter().filter(|key| entry.has(key)).peekable();
    if entry.has("topology borken") {
        return true;
    }
    let tables = OF_NODES.iter().take(3).any(|word| entry.has(word));
    let firmware = keys.peek() == Some(&&"[Firmware Bug]");
    keys.peek().is_some()
        && if firmware {
            tables
        } else {
            OF_NODES.iter().any(|word| entry.has(word))
        }
}
