//! A time stamp counter that the kernel does not trust.

use super::shared::{Case, Entry, Hit, Rule};

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
        "Switched to clocksource",
        "read-back delay",
        "retried 2 times",
        "watchdog 'xen'",
        "Booting paravirtualized kernel on Xen",
    ],
    find,
};

/// The first of the keys say that it is not trusted.
const UNSTABLE: usize = 9;
/// A boot has ended by then.
const LATE_NS: u64 = 300_000_000_000;
/// What a watchdog that is slow itself says.
const SLOW_WATCHDOG: [&str; 2] = ["read-back delay", "retried 2 times"];
const XEN: [&str; 2] = ["watchdog 'xen'", "Booting paravirtualized kernel on Xen"];

fn find(case: &Case<'_>) -> Vec<Hit> {
    // An emulator's counter is not the machine's, and what was asked for is no fault.
    if case.emulated || case.value("tsc") == Some("unstable") {
        return Vec::new();
    }
    let measured = case.any_of(&["Clocksource 'tsc' skewed"]);
    let Some(entry) = measured.or_else(|| case.first(is_unstable)) else {
        return Vec::new();
    };
    let hit = late(case, entry).unwrap_or_else(|| early(case, entry));
    vec![hit]
}

/// Long after the boot: not the boot's matter.
fn late(case: &Case<'_>, entry: Entry<'_>) -> Option<Hit> {
    let ns = entry.stamp_ns.filter(|ns| *ns >= LATE_NS)?;
    let switched =
        |other: &Entry<'_>| other.line > entry.line && other.has("Switched to clocksource");
    let seen = case.first(switched).unwrap_or(entry);
    let detail = format!("{} s after the boot", ns / 1_000_000_000);
    Some(Hit::at(seen, detail).instead(
        "the counter was trusted while the machine booted, and is not from then on: the boot's times are sound, later reads of the clock take up to microseconds",
        RULE.cure,
    ))
}

fn early(case: &Case<'_>, entry: Entry<'_>) -> Hit {
    if let Some(slow) = case.any_of(&SLOW_WATCHDOG) {
        return Hit::at(slow, "").instead(
            "the clock that watches the counter takes long to read, and the kernel takes that for the counter's fault",
            "tsc=nowatchdog where the counter is invariant; a newer kernel tells a slow watchdog from a bad counter",
        );
    }
    if case.any_of(&XEN).is_some() {
        return Hit::at(entry, "").instead(
            "in a paravirtual guest of Xen the counter is measured against Xen's own clock, which may be the one that is off; without Xen the machine's counter may be stable",
            "tsc=reliable where the machine without Xen has a stable counter; a PVH guest instead of a paravirtual one",
        );
    }
    Hit::at(entry, "")
}

fn is_unstable(entry: &Entry<'_>) -> bool {
    let of_tsc = ["tsc", "TSC", "sched_clock"]
        .iter()
        .any(|word| entry.has(word));
    of_tsc && RULE.keys.iter().take(UNSTABLE).any(|key| entry.has(key))
}
