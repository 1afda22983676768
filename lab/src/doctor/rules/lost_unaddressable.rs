//! Memory that this kernel cannot address.

use super::shared::{Case, E820Kind, Hit, Rule, number_before};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-unaddressable",
    why: "the kernel was built without what it needs to address all of the machine's memory, or its linear map is too short, and leaves the rest out",
    cure: "a 64-bit kernel, HIGHMEM or PAE on 32 bits, more virtual address bits",
    fixed_in: None,
    keys: &[
        "Use a HIGHMEM",
        "Use a PAE enabled kernel",
        "MB will be used",
        "GB will be used",
        "Truncating memory",
        "Truncating RAM",
        "Ignoring RAM",
        "Ignoring memory",
        "ignoring memory",
        "gnoring memory range",
        "gnoring memory block",
        "MB HIGHMEM available",
        "MB LOWMEM available",
    ],
    find,
};

/// The first of the keys say so themselves.
const SAY_SO: usize = 11;
const FOUR_GIB: u64 = 4 << 30;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let said = case.any_of(RULE.keys.get(..SAY_SO).unwrap_or_default());
    let hit = said.map(|entry| Hit::at(entry, ""));
    hit.or_else(|| unsaid(case)).into_iter().collect()
}

/// 32 bits without PAE: what kernels leave out above 4 GiB without a word.
fn unsaid(case: &Case<'_>) -> Option<Hit> {
    let mib = |what: &str| number_before(case.any_of(&[what])?.text, what);
    let mib = mib("MB HIGHMEM available")?.saturating_add(mib("MB LOWMEM available")?);
    let mut rows = case.log.e820.iter();
    let row = rows.find(|row| {
        let usable = row.kind == E820Kind::Usable;
        usable && row.span.start >= FOUR_GIB && mib <= FOUR_GIB >> 20
    })?;
    let lost = row.span.last.saturating_sub(row.span.start) >> 20;
    let detail = format!(
        "{} MiB from 4 GiB on, and the kernel has {mib} MiB",
        lost + 1
    );
    Some(Hit::at(case.entry_at(row.line)?, detail))
}
