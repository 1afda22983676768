//! A time stamp counter that the kernel does not trust.

use super::{Case, Entry, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "tsc-unstable",
    why: "time is read from a slower clock from then on (hpet, acpi_pm, xen: up to microseconds a read), and stamps of the boot are doubtful",
    cure: "firmware that sets the counters of all CPUs alike; in a guest an invariant counter from the hypervisor; tsc=reliable where it is known to be",
    fixed_in: None,
    keys: &[
        "Marking TSC unstable",
        "as unstable",
        "tsc unstable",
        "TSC warp",
        "TSC ADJUST differs",
        "Clocksource 'tsc' skewed",
        "TSC found unstable",
        "TSC not synchronous",
        "sched_clock: Marking unstable",
    ],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    let measured = case.any_of(&["Clocksource 'tsc' skewed"]);
    let entry = measured.or_else(|| case.first(is_unstable));
    entry.map(|entry| Hit::at(entry, "")).into_iter().collect()
}

fn is_unstable(entry: &Entry<'_>) -> bool {
    let of_tsc = ["tsc", "TSC", "sched_clock"]
        .iter()
        .any(|word| entry.has(word));
    of_tsc && RULE.keys.iter().any(|key| entry.has(key))
}
