//! A hole between ranges of memory that is larger than all memory.

use super::shared::{Case, Hit, Rule};
use crate::log::Processor;

pub(super) const RULE: Rule = Rule {
    id: "huge-hole",
    why: "whatever is sized or walked by the highest address pays for the hole: descriptors of zones without SPARSEMEM, memory blocks, tables",
    cure: "firmware or hypervisor settings that put memory closer together; SPARSEMEM_VMEMMAP",
    fixed_in: None,
    keys: &[],
    find,
};

const LEAST_BYTES: u64 = 64 << 30;

fn find(case: &Case<'_>) -> Vec<Hit> {
    // Its machines have memory from 8 TiB on by design, and its kernels pay nothing for it.
    if case.log.processor == Processor::Arm64 {
        return Vec::new();
    }
    let ranges = case.ranges();
    let bytes = ranges.iter().filter_map(|(span, _)| span.range());
    let memory = bytes
        .map(|range| range.bytes())
        .fold(0, u64::saturating_add);
    let Some((first, _)) = ranges.first() else {
        return Vec::new();
    };
    // What lies below the first range may be missing from the log.
    let mut end = first.start;
    let (mut length, mut start) = (0, 0);
    for (span, _) in &ranges {
        let hole = span.start.saturating_sub(end);
        if hole > length {
            (length, start) = (hole, span.start);
        }
        end = end.max(span.last.saturating_add(1));
    }
    if length < memory.max(LEAST_BYTES) {
        return Vec::new();
    }
    let entry = case.row_at(start).and_then(|line| case.entry_at(line));
    let gib = |bytes: u64| bytes >> 30;
    let detail = format!(
        "{} GiB without memory below {start:#x}, {} GiB of memory in all",
        gib(length),
        gib(memory)
    );
    entry
        .map(|entry| Hit::at(entry, detail))
        .into_iter()
        .collect()
}
