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

use std::collections::{BTreeMap, BTreeSet};

use firstlight_wire::phase;
use serde::{Deserialize, Serialize};

use super::base::Base;
use crate::gaps::spans;
use crate::log::{self, Line};
use crate::run::Run;

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The whole boot.
    Total,
    /// The writing of page descriptors.
    Descriptors,
    /// A moment.
    Milestone,
    /// A span.
    Phase,
    /// An initcall that a Linux names.
    Initcall,
    /// A service that systemd names.
    Service,
    /// The time between two lines of the log.
    Gap,
}

impl Kind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Total,
        Self::Descriptors,
        Self::Milestone,
        Self::Phase,
        Self::Initcall,
        Self::Service,
        Self::Gap,
    ];

    /// Its name, as documents have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Descriptors => "descriptors",
            Self::Milestone => "milestone",
            Self::Phase => "phase",
            Self::Initcall => "initcall",
            Self::Service => "service",
            Self::Gap => "gap",
        }
    }

    /// Whether it says where time went: there are hundreds of its kind.
    #[must_use]
    pub fn explains(self) -> bool {
        matches!(self, Self::Initcall | Self::Service | Self::Gap)
    }
}

/// The name of the figure that is the whole boot.
pub const TOTAL: &str = "total";

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

/// All figures of a run; `phases` are those that count as 0 where it has none of the name.
pub(super) fn measures(run: &Run, base: &Base, phases: &[String]) -> Vec<Measure> {
    let mut list = Vec::new();
    let mut add = |kind: Kind, name: &str, ns: Option<u64>| {
        if let Some(ns) = ns {
            let name = name.to_owned();
            list.push(Measure { kind, name, ns });
        }
    };
    add(Kind::Total, TOTAL, base.total_ns(run));
    descriptors(run, &mut add);
    milestones(run, base, &mut add);
    let mut names = run.phase_names();
    // Of a run without any phase it is not known which took it no time.
    let known = phases.iter().filter(|_| !run.phases.is_empty());
    names.extend(known.map(String::as_str));
    for (number, name) in names.iter().enumerate() {
        if names.iter().take(number).all(|before| before != name) {
            add(Kind::Phase, name, run.spent_ns(name));
        }
    }
    let lines = run.lines();
    for (kind, steps) in [
        (Kind::Initcall, log::initcalls(&lines)),
        (Kind::Service, log::services(&lines)),
    ] {
        for (name, ns) in sums(steps.into_iter().map(|step| (step.name, step.ns))) {
            add(kind, &name, Some(ns));
        }
    }
    for (name, ns) in gaps(&lines) {
        add(Kind::Gap, &name, Some(ns));
    }
    list
}

/// The time between lines; between the same lines, whatever numbers are in them, all of it.
fn gaps(lines: &[Line<'_>]) -> BTreeMap<String, u64> {
    let named = spans(lines).filter(|span| span.2 > 0);
    sums(named.filter_map(|(from, to, ns)| Some((gap_name(lines.get(from)?, lines.get(to)?), ns))))
}

fn gap_name(from: &Line<'_>, to: &Line<'_>) -> String {
    format!("{} -> {}", log::alike(&from.text), log::alike(&to.text))
}

/// Names of the gaps that end in line `number` at the latest, and of none that ends later.
pub(crate) fn gaps_before(lines: &[Line<'_>], number: usize) -> BTreeSet<String> {
    let named = spans(lines).filter_map(|(from, to, _)| Some((lines.get(from)?, lines.get(to)?)));
    let (early, late): (Vec<_>, Vec<_>) = named.partition(|(_, to)| to.number <= number);
    let [mut early, late] = [early, late].map(|gaps| {
        let names = gaps.into_iter().map(|(from, to)| gap_name(from, to));
        names.collect::<BTreeSet<_>>()
    });
    early.retain(|name| !late.contains(name));
    early
}

/// All of the time of each name.
fn sums(named: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    for (name, ns) in named {
        let sum = known.entry(name).or_default();
        *sum = sum.saturating_add(ns);
    }
    known
}

/// The time phases of these names take, if there is one and all have a clock.
fn spent(run: &Run, names: &[&str]) -> Option<u64> {
    let has = |name: &&&str| run.phases.iter().any(|phase| phase.name == ***name);
    let spent = names.iter().filter(has).map(|name| run.spent_ns(name));
    spent.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
}

fn descriptors(run: &Run, add: &mut impl FnMut(Kind, &str, Option<u64>)) {
    let parts = WRITING.map(|(name, phases)| (name, spent(run, phases)));
    for (name, ns) in parts {
        add(Kind::Descriptors, name, ns);
    }
    // Without a clock for one part there is no sum.
    let early = [phase::DESCRIPTORS, "memmap early"];
    if early.iter().all(|name| run.spent_ns(name).is_some()) {
        let all = parts.iter().filter_map(|part| part.1);
        add(
            Kind::Descriptors,
            "all of it",
            all.reduce(u64::saturating_add),
        );
    }
    let deferred = spent(run, &[phase::DEFERRED_DESCRIPTORS]);
    if let (Some(ns), Some(work), "instructions") = (deferred, run.deferred_work, &*run.clock) {
        let part = ns / work.threads.max(1);
        add(Kind::Descriptors, "deferred, each CPU's part", Some(part));
    }
    let log = log::read(run.log.join("\n").as_bytes());
    let slowest = log.deferred.iter().map(|row| row.milliseconds).max();
    add(
        Kind::Descriptors,
        "deferred, the slowest node's own figure",
        slowest.map(|ms| ms.saturating_mul(1_000_000)),
    );
}

fn milestones(run: &Run, base: &Base, add: &mut impl FnMut(Kind, &str, Option<u64>)) {
    let Some(zero_ns) = base.zero_ns(run) else {
        return;
    };
    let at = |key: &str| run.milestones.get(key).copied().flatten();
    let eager = run.descriptors.as_ref().map(|row| &*row.mode) == Some("eager");
    for (key, name) in MILESTONES {
        let ns = match key {
            // What is written before the boot goes on needs no moment of its own.
            "all_described_ns" if eager => at(key).or(at("all_allocatable_ns")),
            _ => at(key),
        };
        let since = ns.and_then(|ns| ns.checked_sub(zero_ns));
        add(Kind::Milestone, name, since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(phases: &[(&str, u64)], log: &[&str], mode: Option<&str>) -> Run {
        let phases: Vec<_> = phases
            .iter()
            .map(|(name, ns)| json!({"name": name, "start_ns": 5, "end_ns": 5 + ns}))
            .collect();
        let descriptors = mode.map(|mode| {
            json!({"mode": mode, "writer": "words", "descriptor_bytes": 64, "sections": 1,
                "ready_sections": 1, "touched_sections": 0, "worked_sections": 1,
                "written_bytes": 64, "reserved_bytes": 64, "checked_frames": 1, "wrong_frames": 0})
        });
        Run::of(json!({
            "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
            "time_base": {"from": "power-on", "unclocked": ["SMP"]},
            "source": {"kind": "linux"}, "machine": {},
            "milestones": {"entry_ns": 10, "all_allocatable_ns": 90, "layout_ns": 3},
            "phases": phases, "log": log, "descriptors": descriptors,
        }))
        .unwrap()
    }

    fn figure(told: &Run, kind: Kind, name: &str) -> Option<u64> {
        let list = measures(told, &Base::of(std::slice::from_ref(told)), &[]);
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
            measures(&nothing, &Base::Start, &[])
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
    fn moments_and_the_whole_boot_count_from_power_on() {
        let told = told(&[("kernel", 7)], &[], Some("eager"));
        let moment = |name| figure(&told, Kind::Milestone, name);
        assert_eq!(moment("nodes and zones known"), Some(3));
        assert_eq!(moment("all memory allocatable"), Some(90));
        assert_eq!(moment("every page has its descriptor"), Some(90));
        assert_eq!(figure(&told, Kind::Total, TOTAL), Some(12));
    }

    #[test]
    fn a_phase_without_a_clock_is_absent_and_another_that_is_not_there_takes_no_time() {
        let told = told(&[("kernel", 7), ("SMP", 9)], &[], None);
        let others = ["SMP".to_owned(), "initrd".to_owned()];
        let list = measures(&told, &Base::Start, &others);
        let phases = list.iter().filter(|row| row.kind == Kind::Phase);
        let phases: Vec<_> = phases.map(|row| (&*row.name, row.ns)).collect();
        assert_eq!(phases, [("kernel", 7), ("initrd", 0)]);
    }
}
