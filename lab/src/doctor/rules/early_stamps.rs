//! A clock that begins to run late.

use super::shared::{Case, Hit, Rule, clock_start};

pub(super) const RULE: Rule = Rule {
    id: "early-stamps-missing",
    why: "the kernel's clock begins to run late: what is before that has no time, and on large machines it is where the time goes",
    cure: "firstlight boot, which stamps lines by the host's clock, or a recorder of the serial line that does; earlyprintk=",
    fixed_in: None,
    keys: &["Zone ranges", "Zone PFN ranges"],
    find,
};

/// On smaller machines what is hidden is short.
const LEAST_BYTES: u64 = 64 << 30;
/// Lines of one stamp that are no coincidence.
const MOST_ALIKE: usize = 20;
/// A clock that stood still for less hides little.
const LEAST_NS: u64 = 100_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    if case.emulated {
        return Vec::new();
    }
    frozen(case).or_else(|| late(case)).into_iter().collect()
}

/// Stamps that stand still while memory comes up, and then leap.
fn frozen(case: &Case<'_>) -> Option<Hit> {
    let memory = case.first(|entry| entry.starts("Memory: "))?.line;
    let (mut alike, mut at, mut begin) = (0, 0, 0);
    for line in case.lines {
        let stamp = line.stamp_ns.filter(|_| !line.coarse && !line.torn);
        let Some(ns) = stamp else { continue };
        if ns == at {
            alike += 1;
            continue;
        }
        let leap = ns.checked_sub(at).is_some_and(|leap| leap >= LEAST_NS);
        let hides = begin < memory && memory < line.number;
        if alike >= MOST_ALIKE && at > 0 && leap && hides {
            let entry = case.entry_at(line.number)?;
            let detail = format!("{} lines without a time of their own", alike + 1);
            return Some(Hit::at(entry, detail));
        }
        (alike, at, begin) = (0, ns, line.number);
    }
    None
}

/// Stamps that are zero while memory comes up.
fn late(case: &Case<'_>) -> Option<Hit> {
    if case.memory_bytes? < LEAST_BYTES {
        return None;
    }
    let start = clock_start(case.lines);
    let first =
        case.lines.iter().enumerate().find(|(at, line)| {
            *at >= start && line.stamp_ns.is_some_and(|ns| ns > 0) && !line.coarse
        });
    let first = first?.1.number;
    let zones = case.any_of(RULE.keys)?;
    let hidden = case.lines.iter().take_while(|line| line.number < first);
    let hidden = hidden.filter(|line| line.stamp_ns.is_some()).count();
    if zones.line >= first || hidden < MOST_ALIKE {
        return None;
    }
    let entry = case.entry_at(first)?;
    Some(Hit::at(entry, format!("{hidden} lines without a time")))
}
