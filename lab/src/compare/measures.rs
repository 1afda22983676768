//! What of a run is compared: [`measures`].
//!
//! Descriptors have a table of their own, because systems name the same work
//! differently:
//!
//! | figure | our image | Linux |
//! |---|---|---|
//! | before the boot goes on | phase `descriptors` | phase `memmap early` |
//! | at the first touch | phase `first described frame` | |
//! | deferred | phase `deferred descriptors` | phase `deferred memmap` |
//! | all of it | their sum | their sum |
//! | deferred, the slowest node's own figure | | `node N deferred pages initialised in ...` |
//! | deferred, each CPU's part | on the instruction clock, which counts the work of all CPUs | |

use std::collections::BTreeMap;

use firstlight_wire::phase;
use serde::{Deserialize, Serialize};

use super::told::Told;
use crate::gaps::spans;
use crate::log;

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The writing of page descriptors.
    Descriptors,
    /// A moment, from the kernel's entry on.
    Milestone,
    /// A span.
    Phase,
    /// The time between two lines of the log.
    Gap,
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measure {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) ns: u64,
}

const MILESTONES: [(&str, &str); 5] = [
    ("layout_ns", "nodes and zones known"),
    ("first_frame_ns", "first frame handed out"),
    ("all_allocatable_ns", "all memory allocatable"),
    ("all_described_ns", "every page has its descriptor"),
    ("cpus_started_ns", "all CPUs run"),
];

/// Which phases write descriptors, and when.
const WRITING: [(&str, &[&str]); 3] = [
    (
        "before the boot goes on",
        &[phase::DESCRIPTORS, "memmap early"],
    ),
    ("at the first touch", &[phase::FIRST_DESCRIBED_FRAME]),
    (
        "deferred",
        &[phase::DEFERRED_DESCRIPTORS, "deferred memmap"],
    ),
];

/// All figures of a run.
pub(super) fn measures(told: &Told) -> Vec<Measure> {
    let mut list = descriptors(told);
    milestones(told, &mut list);
    for phase in &told.phases {
        let ns = phase.end_ns.saturating_sub(phase.start_ns);
        let alike = list
            .iter_mut()
            .find(|row| row.kind == Kind::Phase && row.name == phase.name);
        match alike {
            Some(row) => row.ns = row.ns.saturating_add(ns),
            None => list.push(Measure {
                kind: Kind::Phase,
                name: phase.name.clone(),
                ns,
            }),
        }
    }
    gaps(told, &mut list);
    list
}

/// The time between lines; between the same lines, whatever numbers are in them, all of it.
fn gaps(told: &Told, list: &mut Vec<Measure>) {
    let text = told.log.join("\n");
    let lines = log::lines(text.as_bytes());
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    for (from, to, ns) in spans(&lines) {
        if let (Some(from), Some(to), true) = (lines.get(from), lines.get(to), ns > 0) {
            let name = format!("{} -> {}", alike(&from.text), alike(&to.text));
            let sum = known.entry(name).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    list.extend(known.into_iter().map(|(name, ns)| Measure {
        kind: Kind::Gap,
        name,
        ns,
    }));
}

/// The start of a message, the same whatever numbers are in it.
fn alike(text: &str) -> String {
    const MOST_CHARS: usize = 48;
    let mut name = String::new();
    let mut number = false;
    for c in text.chars().take(MOST_CHARS) {
        let hex = number && (c.is_ascii_hexdigit() || c == 'x');
        if c.is_ascii_digit() || hex {
            if !number {
                name.push('#');
            }
            number = true;
        } else {
            number = false;
            name.push(c);
        }
    }
    name.trim_end().to_owned()
}

/// The time phases of these names take, if there is one.
fn spent(told: &Told, names: &[&str]) -> Option<u64> {
    let phases = told.phases.iter();
    let phases = phases.filter(|phase| names.contains(&&*phase.name));
    phases
        .map(|phase| phase.end_ns.saturating_sub(phase.start_ns))
        .reduce(u64::saturating_add)
}

fn descriptors(told: &Told) -> Vec<Measure> {
    let mut list = Vec::new();
    let mut add = |name: &str, ns: u64| {
        list.push(Measure {
            kind: Kind::Descriptors,
            name: name.to_owned(),
            ns,
        });
    };
    let mut all = None;
    for (name, phases) in WRITING {
        if let Some(ns) = spent(told, phases) {
            add(name, ns);
            all = Some(all.unwrap_or(0_u64).saturating_add(ns));
        }
    }
    if let Some(ns) = all {
        add("all of it", ns);
    }
    let deferred = spent(told, &[phase::DEFERRED_DESCRIPTORS]);
    if let (Some(ns), Some(work), "instructions") = (deferred, told.deferred_work, &*told.clock) {
        add("deferred, each CPU's part", ns / work.threads.max(1));
    }
    let log = log::read(told.log.join("\n").as_bytes());
    let slowest = log.deferred.iter().map(|row| row.milliseconds).max();
    if let Some(ms) = slowest {
        let name = "deferred, the slowest node's own figure";
        add(name, ms.saturating_mul(1_000_000));
    }
    list
}

fn milestones(told: &Told, list: &mut Vec<Measure>) {
    let at = |key: &str| told.milestones.get(key).copied().flatten();
    let entry_ns = at("entry_ns").unwrap_or(0);
    let eager = told.descriptors.as_ref().map(|row| &*row.mode) == Some("eager");
    for (key, name) in MILESTONES {
        let ns = match key {
            // What is written before the boot goes on needs no moment of its own.
            "all_described_ns" if eager => at(key).or(at("all_allocatable_ns")),
            _ => at(key),
        };
        if let Some(ns) = ns.and_then(|ns| ns.checked_sub(entry_ns)) {
            list.push(Measure {
                kind: Kind::Milestone,
                name: name.to_owned(),
                ns,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(phases: &[(&str, u64)], log: &[&str], mode: Option<&str>) -> Told {
        let phases: Vec<_> = phases
            .iter()
            .map(|(name, ns)| json!({"name": name, "start_ns": 5, "end_ns": 5 + ns}))
            .collect();
        let descriptors = mode.map(|mode| {
            json!({"mode": mode, "writer": "words", "descriptor_bytes": 64, "sections": 1,
                "ready_sections": 1, "touched_sections": 0, "worked_sections": 1,
                "written_bytes": 64, "reserved_bytes": 64, "checked_frames": 1, "wrong_frames": 0})
        });
        Told::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
            "source": {"kind": "linux"}, "machine": {},
            "milestones": {"entry_ns": 10, "all_allocatable_ns": 90, "layout_ns": 3},
            "phases": phases, "log": log, "descriptors": descriptors,
        }))
        .unwrap()
    }

    fn figure(told: &Told, kind: Kind, name: &str) -> Option<u64> {
        let list = measures(told);
        let mut alike = list
            .iter()
            .filter(|row| row.kind == kind && row.name == name);
        let ns = alike.next().map(|row| row.ns);
        assert_eq!(alike.next(), None, "{name} twice");
        ns
    }

    #[test]
    fn linux_and_the_image_name_the_same_work_differently() {
        for (early, deferred) in [
            ("descriptors", "deferred descriptors"),
            ("memmap early", "deferred memmap"),
        ] {
            let told = told(&[(early, 100), ("kernel", 7), (deferred, 400)], &[], None);
            let written = |name| figure(&told, Kind::Descriptors, name);
            assert_eq!(written("before the boot goes on"), Some(100));
            assert_eq!(written("deferred"), Some(400));
            assert_eq!(written("all of it"), Some(500));
            assert_eq!(figure(&told, Kind::Phase, "kernel"), Some(7));
        }
        let nothing = told(&[("kernel", 7)], &[], None);
        assert!(
            measures(&nothing)
                .iter()
                .all(|row| row.kind != Kind::Descriptors)
        );
    }

    #[test]
    fn time_between_lines_is_found_whatever_numbers_are_in_them() {
        let log = [
            "[0.026875] Normal zone: 893 pages",
            "[2.028450] IO Port: 0x4a8",
            "[2.1000] x",
        ];
        let told = told(&[], &log, None);
        let name = "Normal zone: # pages -> IO Port: #";
        assert_eq!(figure(&told, Kind::Gap, name), Some(2_001_575_000));
    }

    #[test]
    fn the_slowest_node_counts() {
        let log = [
            "[    0.417011] node 0 deferred pages initialised in 32ms",
            "[    0.418011] node 1 deferred pages initialised in 33ms",
        ];
        let told = told(&[], &log, None);
        let name = "deferred, the slowest node's own figure";
        assert_eq!(figure(&told, Kind::Descriptors, name), Some(33_000_000));
    }

    #[test]
    fn what_comes_before_the_entry_is_no_time() {
        let told = told(&[], &[], Some("eager"));
        let moment = |name| figure(&told, Kind::Milestone, name);
        assert_eq!(moment("nodes and zones known"), None);
        assert_eq!(moment("all memory allocatable"), Some(80));
        assert_eq!(moment("every page has its descriptor"), Some(80));
    }
}
