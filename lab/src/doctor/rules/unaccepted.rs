//! Memory of a confidential guest accepted before it is needed.

use super::shared::{Case, Cost, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "memory-accepted-eagerly",
    why: "a confidential guest accepts or validates all of its memory while the boot waits, page by page; published guests took 575 s and more",
    cure: "accept_memory=lazy, which is the default from Linux 6.5 on, and firmware that leaves memory unaccepted",
    fixed_in: Some("6.5"),
    keys: &["Memory Encryption Features active"],
    find,
};

/// The line comes within the first second where nothing is accepted early.
const LATE_NS: u64 = 5_000_000_000;

fn find(case: &Case<'_>) -> Vec<Hit> {
    if let (Some("eager"), Some(line)) = (case.value("accept_memory"), case.command_line()) {
        return vec![Hit::at(line, "accept_memory=eager")];
    }
    let entry = case.any_of(RULE.keys);
    let entry = entry.and_then(|entry| Some((entry, entry.stamp_ns?)));
    let late = entry.filter(|(_, ns)| *ns >= LATE_NS && !case.emulated);
    let Some((entry, stamp_ns)) = late else {
        return Vec::new();
    };
    let earlier = case.lines.iter().filter_map(|other| other.stamp_ns);
    let before = earlier.filter(|ns| *ns < stamp_ns).max().unwrap_or(0);
    let lost = stamp_ns - before;
    let detail = format!("{} ms pass before memory is up", lost / 1_000_000);
    let cost = if case.has_holes() {
        Cost::Estimated(lost)
    } else {
        Cost::Measured(lost)
    };
    vec![Hit::at(entry, detail).costs(cost)]
}
